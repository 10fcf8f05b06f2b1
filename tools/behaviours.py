"""Writes `docs/behaviours.md`: which test holds each behaviour of Relay; knows tests by their docstrings alone.

A test names what it holds at the start of its docstring, `PM03: what holds` or `GR01, GR04-GR06: what holds`; a program
of `tests/lit` does so in a comment of one line, `// SX06: what holds`. A behaviour without a test has a reason in the
table, which stands behind a dash and is kept when the table is written anew.

    python tools/behaviours.py            # writes the table
    python tools/behaviours.py --check    # exits 1 where it is not up to date
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "behaviours.md"
GROUPS: Mapping[str, tuple[str, int]] = {
    "PM": ("Pass manager", 10),
    "PI": ("Pass instruments", 15),
    "PG": ("Partitioning", 23),
    "AT": ("Annotation of targets", 16),
    "MR": ("Merging of regions", 3),
    "MC": ("Merging of composites", 13),
    "IP": ("Parser", 53),
    "TP": ("Printer", 25),
    "FU": ("Fusion", 22),
    "FC": ("Folding of constants", 17),
    "FS": ("Folding of scales", 18),
    "AL": ("Layouts", 39),
    "CS": ("Common subexpressions", 4),
    "DC": ("Dead code", 12),
    "AN": ("A-normal form", 10),
    "LL": ("Lambda lifting", 3),
    "GR": ("Gradients", 22),
    "EC": ("External code generators", 10),
    "JR": ("Regions of a library with a runtime of its own", 10),
    "RX": ("Export", 5),
    "RL": ("Loading", 3),
    "RP": ("Properties of modules", 1),
    "RT": ("Modules as bytes", 5),
    "CC": ("Compilation once", 2),
    "MB": ("Modules as interface", 13),
    "XR": ("Runtimes of others", 3),
    "TH": ("Hooks of targets", 3),
    "AR": ("Regions as sets", 2),
    "IN": ("Inlining", 16),
    "RU": ("Unused functions", 6),
    "BD": ("Binding of parameters", 2),
    "WF": ("Well-formed programs", 4),
    "CT": ("Tags of constructors", 2),
    "SE": ("Structural equality and digests", 29),
    "PD": ("Parameters as bytes", 3),
    "CD": ("Data for calibration", 2),
    "SX": ("Simplification of expressions", 24),
    "DP": ("Dataflow patterns", 89),
    "LG": ("Legalization", 5),
    "CP": ("Parallel convolutions", 4),
    "CQ": ("Parallel products", 7),
    "CA": ("Casts", 1),
    "SI": ("Simplification for inference", 1),
    "GN": ("Normal forms", 2),
    "UM": ("Exhaustive matches", 11),
    "CPP": ("Passes in C++", 1),
}
"""Prefix of the handles, title and number of behaviours of each group."""
HANDLES = r"[A-Z]{2,3}\d{2}(?:-[A-Z]{2,3}\d{2})?(?:, [A-Z]{2,3}\d{2}(?:-[A-Z]{2,3}\d{2})?)*"
DOCSTRING = re.compile(rf"(?P<handles>{HANDLES}): (?P<text>.*)", re.S)
COMMENT = re.compile(rf"^// (?P<handles>{HANDLES}): (?P<text>.*)$", re.M)
ROW = re.compile(r"^\| (?P<handle>[A-Z]{2,3}\d{2}) \| — (?P<reason>.*?) \| +\|$", re.M)
UNDECIDED = "not tested yet"
HEAD = """# Behaviours

Relay's behaviours by handle, what holds here, and the test that shows it. A dash gives the reason where there is no
test. `python tools/behaviours.py` writes this page from the tests' docstrings.
"""


def main() -> int:
    """Write the page, or compare it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    old = TABLE.read_text(encoding="utf-8") if TABLE.exists() else ""
    new = page(tests_by_handle(), reasons_in(old))
    if check:
        return int(new != old)
    TABLE.write_text(new, encoding="utf-8")
    return 0


def page(tests: Mapping[str, list[tuple[str, str]]], reasons: Mapping[str, str]) -> str:
    """The whole page: `tests` gives (what holds, test) by handle, `reasons` why there is none."""
    parts = [HEAD]
    for prefix, (title, count) in GROUPS.items():
        parts.append(f"\n## {title}\n\n| handle | what holds | test |\n| --- | --- | --- |\n")
        for number in range(1, count + 1):
            handle = f"{prefix}{number:02}"
            parts.append(_row(handle, tests.get(handle, []), reasons.get(handle, UNDECIDED)))
    return "".join(parts)


def _row(handle: str, tests: list[tuple[str, str]], reason: str) -> str:
    if not tests:
        return f"| {handle} | — {reason} | |\n"
    texts = "; ".join(dict.fromkeys(text for text, _ in tests))
    names = ", ".join(dict.fromkeys(f"`{name}`" for _, name in tests))
    return f"| {handle} | {texts} | {names} |\n"


def reasons_in(text: str) -> dict[str, str]:
    """The reasons that a page gives, by handle."""
    return {match["handle"]: match["reason"] for match in ROW.finditer(text)}


def tests_by_handle() -> dict[str, list[tuple[str, str]]]:
    """(what holds, file::test) of every test that names a handle."""
    found: dict[str, list[tuple[str, str]]] = {}
    for test, match in _statements(ROOT / "tests"):
        text = " ".join(match["text"].split()).rstrip(".").replace("|", "\\|")
        for handle in expanded(match["handles"]):
            found.setdefault(handle, []).append((text, test))
    return found


def expanded(handles: str) -> list[str]:
    """The handles of a list with ranges: `DP01, DP03-DP05` is four."""
    found: list[str] = []
    for part in handles.split(", "):
        first, _, last = part.partition("-")
        prefix = first.rstrip("0123456789")
        numbers = [int(each[len(prefix) :]) for each in (first, last or first)]
        found += [f"{prefix}{number:02}" for number in range(numbers[0], numbers[1] + 1)]
    return found


def _statements(tests: Path) -> Iterator[tuple[str, re.Match[str]]]:
    """Each test, or file of programs, that says which behaviours it holds, by its name within the folder."""
    for path in sorted(tests.rglob("test_*.py")):
        for name, docstring in _docstrings(path):
            match = DOCSTRING.match(docstring)
            if match:
                yield f"{path.relative_to(tests)}::{name}", match
    for path in sorted((tests / "lit").rglob("*.relay")):
        for match in COMMENT.finditer(path.read_text(encoding="utf-8")):
            yield str(path.relative_to(tests)), match


def _docstrings(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.name, docstring


if __name__ == "__main__":
    sys.exit(main())
