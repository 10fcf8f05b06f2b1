"""How names stand in the text format: bare where they can, in JSON quotes elsewhere; knows nothing of grammar."""

from __future__ import annotations

import json
import re

from relaybuild.ir.types import DTYPES

SPELLINGS = {"mul": "multiply", "sub": "subtract", "div": "divide"}
"""Other names of operators, read and never written."""
KEYWORDS = frozenset(
    "let fn if else match constructor ref ref_read ref_write meta free_var Tensor True False def type extern".split()
)
"""Words that begin an expression, or could not."""
TYPE_WORDS = frozenset((*DTYPES, "Tensor", "fn", "Ref", "_"))
"""Words that begin a type and name none."""
METADATA = "#[metadata]"
"""The line before the metadata section."""
NOT_FINITE = re.compile(r"(?:inf|nan)(?:bf16|f64|f32|f16|f)?\Z")

_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*\Z")
_SLASHED = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(?:/[A-Za-z_][A-Za-z_0-9]*)*\Z")


def quoted(name: str) -> str:
    """A name in quotes, every character of it in ASCII."""
    return json.dumps(name)


def plain(name: str) -> str:
    """A name that nothing precedes and nothing reserves: an extent's."""
    return name if _SIMPLE.match(name) else quoted(name)


def local_text(name: str) -> str:
    """`%x`, `%"a b"`."""
    return "%" + plain(name)


def local_key(name: str) -> str:
    """The one key of a local name, however it is written: the bare form where there is one."""
    return f"%{name}" if _SLASHED.match(name) else f'%"{name}'


def global_text(name: str) -> str:
    """`@main`, `@"a b"`."""
    return "@" + plain(name)


def attr_name_text(name: str) -> str:
    """`axis`, `relay.reshape_only`, `"odd key"`."""
    return name if _DOTTED.match(name) else quoted(name)


def type_name_text(name: str) -> str:
    """A type's or a type parameter's name, quoted where it would read as another type."""
    return quoted(name) if name in TYPE_WORDS else plain(name)


def is_reserved(name: str) -> bool:
    """Whether a bare name in an expression means something before it can be a constructor."""
    return name in KEYWORDS or name in SPELLINGS or NOT_FINITE.match(name) is not None
