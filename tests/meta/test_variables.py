"""Every environment variable that relaybuild reads, in Python, C, C++ or CMake, is registered with its readers."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import relaybuild
from relaybuild.build.variables import Reader, kind_of

ROOT = Path(relaybuild.__file__).resolve().parent
CMAKE = ROOT.parent / "cmake"
MAPPINGS = {"environ", "environment", "_environ"}
"""What a mapping of the environment is called, as a variable or as an attribute."""

WHOLE = {"build/variables.py", "build/evidence.py", "build/cmake_files.py", "build/cache/action.py"}
"""Modules that go by names which are not in their text: the registry's; those that CMake's scripts name, which are kept
with their values; those of an action, which are in its key."""

_GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(\s*([^)]*?)\s*\)")
_CMAKE = re.compile(r"\bENV\{([^}]*)\}")


def reads(text: str, module: str) -> Iterator[tuple[int, str | None]]:
    """(line, name) of every variable that a module's text reads; None for a name that its text does not tell."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and _last_word(node.func) in ("getenv", "getenvb"):
            yield node.lineno, _value(node.args[0], module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_environment(node.func.value):
            yield node.lineno, _value(node.args[0], module) if node.args and node.func.attr == "get" else None
        elif isinstance(node, ast.Subscript) and _is_environment(node.value):
            yield node.lineno, _value(node.slice, module)
        elif isinstance(node, ast.Compare) and any(map(_is_environment, node.comparators)):
            yield from ((node.lineno, _value(node.left, module)) for _ in range(_asks_for_a_name(node)))
        elif isinstance(node, ast.For | ast.comprehension) and _is_environment(node.iter):
            yield node.iter.lineno, None
        elif isinstance(node, ast.Call) and _last_word(node.func) in ("dict", "set", "sorted", "list", "tuple"):
            yield from ((node.lineno, None) for each in node.args if _is_environment(each))


def _asks_for_a_name(node: ast.Compare) -> bool:
    return isinstance(node.ops[0], ast.In | ast.NotIn)


def _last_word(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_environment(node: ast.expr) -> bool:
    return _last_word(node) in MAPPINGS


def _value(node: ast.expr, module: str) -> str | None:
    """The text that an expression is: a literal, or a constant of its module."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        value = getattr(importlib.import_module(module), node.id, None)
        return value if isinstance(value, str) else None
    return None


def reads_in_c(text: str) -> Iterator[str | None]:
    """The variables that a text in C or C++ reads; a function that hands its argument on is looked for by its calls."""
    for argument in _GETENV.findall(text):
        if argument.startswith('"'):
            yield argument.strip('"')
            continue
        before = text[: text.index(f"getenv({argument}")]
        headers = re.findall(rf"^[\w *]+?\b(\w+)\(const char \*{re.escape(argument)}\b", before, re.MULTILINE)
        calls = re.findall(rf'\b{headers[-1]}\(\s*"(\w+)"', text) if headers else []
        yield from calls or [None]


def python_modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py"))


def c_sources() -> list[Path]:
    """What has C or C++ in it, also that which Python writes."""
    return sorted(path for path in ROOT.rglob("*") if path.suffix in (".c", ".cc", ".h", ".in", ".py"))


def is_for(name: str | None, *readers: Reader) -> bool:
    kind = kind_of(name) if name is not None else None
    return kind is not None and any(reader in kind.readers for reader in readers)


@pytest.mark.parametrize("path", python_modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_python_reads_is_registered(path: Path) -> None:
    if path.relative_to(ROOT).as_posix() in WHOLE:
        return
    module = ".".join(("relaybuild", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    found = list(reads(path.read_text(encoding="utf-8"), module))
    assert [place for place in found if not is_for(place[1], Reader.RELAYBUILD)] == []


def test_what_c_reads_is_registered() -> None:
    found = {name for path in c_sources() for name in reads_in_c(path.read_text(encoding="utf-8"))}
    assert "RELAYBUILD_NUM_THREADS" in found
    assert {name for name in found if not is_for(name, Reader.LIBRARY)} == set()


def test_what_cmake_modules_read_is_registered() -> None:
    scripts = [*CMAKE.rglob("*.cmake"), *CMAKE.rglob("CMakeLists.txt"), *ROOT.rglob("*.cmake*")]
    assert scripts
    found = {name for path in scripts for name in _CMAKE.findall(path.read_text(encoding="utf-8"))}
    assert {name for name in found if not is_for(name, *Reader)} == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import os\nos.environ['NEW']", [(2, "NEW")]),
        ("import os\nos.environ.get('NEW', '')", [(2, "NEW")]),
        ("from os import getenv\ngetenv('NEW')", [(2, "NEW")]),
        ("def f(environ):\n  return 'NEW' in environ", [(2, "NEW")]),
        ("def f(self):\n  return self._environ.get(VARIABLE)", [(2, "RELAYBUILD_CACHE_DIR")]),
        ("def f(environ, name):\n  return environ[name]", [(2, None)]),
        ("def f(environ):\n  return [n for n in environ]", [(2, None)]),
        ("def f(environ):\n  return dict(environ)", [(2, None)]),
        ("def f(environ):\n  return environ.items()", [(2, None)]),
        ("import os\nf(os.environ if environ is None else environ)", []),
    ],
)
def test_reads_are_found(text: str, found: list[tuple[int, str | None]]) -> None:
    assert list(reads(text, "relaybuild.build.cache_folder")) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('const char *a = getenv("NEW");', ["NEW"]),
        ('std::secure_getenv( "NEW" )', ["NEW"]),
        (
            'static int number(const char *name, int most) {\n  getenv(name);\n}\nnumber("A", 1); number("B", 2);',
            ["A", "B"],
        ),
        ("getenv(argv[1])", [None]),
    ],
)
def test_reads_in_c_are_found(text: str, found: list[str | None]) -> None:
    assert list(reads_in_c(text)) == found
