"""Writes C that defines the weights of a library, by their values or from a file; knows no build system."""

from __future__ import annotations

from pathlib import Path

from relaybuild.build.elf import ALIGNMENT
from relaybuild.build.weights import WEIGHTS_SYMBOL

FILE_MACRO = "RB_WEIGHTS_FILE"

_PER_LINE = 32


def weights_array(path: Path) -> str:
    """C that has the bytes of a file as an array."""
    data = path.read_bytes()
    lines = [",".join(map(str, data[at : at + _PER_LINE])) for at in range(0, len(data), _PER_LINE)]
    values = ",\n".join(lines)
    return f"""\
/* The weights. */
#if defined(__GNUC__)
#define RB_HIDDEN __attribute__((visibility("hidden")))
#else
#define RB_HIDDEN
#endif
RB_HIDDEN extern const unsigned char {WEIGHTS_SYMBOL}[{len(data)}];
_Alignas({ALIGNMENT}) const unsigned char {WEIGHTS_SYMBOL}[{len(data)}] = {{
{values}
}};
"""


def weights_from_file(default: str) -> str:
    """C that has the assembler include a file: the one that a macro names, else `default`, from the current folder."""
    return f"""\
/* The weights, which the assembler reads from a file. */
#ifndef {FILE_MACRO}
#define {FILE_MACRO} "{default}"
#endif
#define RB_TEXT_(name) #name
#define RB_TEXT(name) RB_TEXT_(name)
#define RB_WEIGHTS RB_TEXT({WEIGHTS_SYMBOL})
#if defined(__APPLE__)
__asm__(".section __TEXT,__const\\n"
        ".private_extern _" RB_WEIGHTS "\\n"
        ".globl _" RB_WEIGHTS "\\n"
        ".balign {ALIGNMENT}\\n"
        "_" RB_WEIGHTS ":\\n"
        ".incbin \\"" {FILE_MACRO} "\\"\\n"
        ".text\\n");
#else
__asm__(".pushsection .rodata.{WEIGHTS_SYMBOL}, \\"a\\"\\n"
        ".globl " RB_WEIGHTS "\\n"
        ".hidden " RB_WEIGHTS "\\n"
        ".balign {ALIGNMENT}\\n"
        RB_WEIGHTS ":\\n"
        ".incbin \\"" {FILE_MACRO} "\\"\\n"
        ".popsection\\n");
#endif
"""
