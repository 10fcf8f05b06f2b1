"""Writes a header by which the symbols of sources get names of their own; knows no compiler, and no build system."""

from __future__ import annotations

import re
from collections.abc import Iterable

HEADER = "relaybuild/names.h"

INCLUDE = f'#include "{HEADER}"\n'
"""What every source begins with."""

_NAME = re.compile(r"\brb_[A-Za-z0-9_]+\b")
_MACRO = re.compile(r"#\s*define\s+(\w+)")

_FIXED = (
    "const struct RbModelApi *relaybuild_model_v1(void)",
    "const struct RbLibrary *relaybuild_library_v1(void)",
    "const char *relaybuild_last_error_v1(void)",
    "__INT32_TYPE__ __tvm_ffi_main(void *, const struct RbValue *, __INT32_TYPE__, struct RbValue *)",
)
"""What loaders ask shared libraries for, so that it has no other name in any of them."""

_TEXT = """\
/* Gives what is not the model's own interface names that begin with the model's: sources of several models may be parts
 * of one program. All of them include this first. */
#ifndef {prefix}NAMES_H_
#define {prefix}NAMES_H_

{defines}
/* Sources say what they want of the C library only after this, so that no header of it is included here. */
#ifdef __cplusplus
#define relaybuild {prefix}relaybuild
extern "C" {{
#endif
#if defined(__GNUC__)
struct RbModelApi;
struct RbLibrary;
struct RbValue;
{weak}
#endif
#ifdef __cplusplus
}}
#endif
#endif
"""


def names_header(model: str, texts: Iterable[str]) -> str:
    """The header for the sources of a model, of all whose files, headers too, `texts` are what is in them.

    C names that begin with `rb_` get the model's in front, and so does the C++ namespace `relaybuild`. Entry points
    whose names are the same everywhere become weak: of a program's, one is as good as the other.
    """
    names: set[str] = set()
    macros: set[str] = set()
    for text in texts:
        names.update(_NAME.findall(text))
        macros.update(_MACRO.findall(text))
    prefix = f"{model}_"
    return _TEXT.format(
        prefix=prefix,
        defines="\n".join(f"#define {name} {prefix}{name}" for name in sorted(names - macros)),
        weak="\n".join(f"{declaration} __attribute__((weak));" for declaration in _FIXED),
    )
