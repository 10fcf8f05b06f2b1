"""The folders import each other in one direction only, and what is heavy is imported where it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import relaybuild

ROOT = Path(relaybuild.__file__).parent
BASE = {"dataclass", "entry_points", "errors", "events", "identifier", "diagnostics", "digest", "registry", "target"}
MAY_IMPORT: dict[str, set[str]] = {
    **dict.fromkeys(BASE, BASE),
    "ir": BASE,
    "passes": BASE | {"ir"},
    "frontend": BASE | {"ir"},
    "lower": BASE | {"ir"},
    "partition": BASE | {"ir", "passes", "lower"},
    "contrib": BASE | {"ir", "lower", "partition"},
    "build": BASE,
    "runtime": BASE,
    "packaging": BASE | {"build", "runtime"},
    "backends": BASE | {"ir", "build", "partition", "runtime"},
    "emission": BASE | {"ir", "build", "backends", "runtime"},
    "artifact": BASE | {"ir", "passes", "frontend", "backends", "build"},
    "compilation": BASE | {"ir", "passes", "frontend", "partition", "build", "backends", "artifact"},
    "stages": BASE
    | {"ir", "passes", "frontend", "lower", "partition", "contrib", "build", "backends", "runtime", "artifact"}
    | {"compilation", "emission"},
    "job": BASE | {"ir", "artifact", "build", "stages"},
    "driver": BASE | {"ir", "artifact", "build", "job"},
    "cli": BASE
    | {"compilation", "driver", "stages", "artifact", "runtime", "build", "frontend", "ir", "passes", "partition"},
    "__main__": {"cli"},
    "relay": BASE | {"ir", "passes"},
    "": {"driver", "runtime", "ir", "passes", "registry", "relay", "target"},
}
"""What a top-level part of the package may import besides itself; "" is the package's own file."""


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def part_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return "" if relative.parts == ("__init__.py",) else relative.parts[0].removesuffix(".py")


def imported(path: Path, for_types: bool = True) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, inside functions too; `from a import b` gives `a.b`.

    Without `for_types`, what stands under `if TYPE_CHECKING:` is left out.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    hidden = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    skipped = set() if for_types else {inner for outer in hidden for inner in ast.walk(outer)}
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def imported_parts(path: Path) -> Iterator[tuple[int, str]]:
    for line, name in imported(path):
        head, *rest = name.split(".")
        if head == "relaybuild" and rest and rest[0] in MAY_IMPORT:
            yield line, rest[0]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downward(path: Path) -> None:
    own = part_of(path)
    assert own in MAY_IMPORT, f"'{own}' is not in the table of folders"
    allowed = MAY_IMPORT[own] | {own}
    wrong = [f"{path}:{line}: '{own}' imports '{part}'" for line, part in imported_parts(path) if part not in allowed]
    assert not wrong


def test_no_two_folders_import_each_other() -> None:
    edges = {(part_of(path), part) for path in modules() for _, part in imported_parts(path) if part != part_of(path)}
    assert {(a, b) for a, b in edges if (b, a) in edges} == set()


def test_backends_do_not_know_each_other() -> None:
    for path in (ROOT / "contrib").rglob("*.py"):
        backend = path.relative_to(ROOT / "contrib").parts[0]
        for line, name in imported(path):
            if name.startswith("relaybuild.contrib."):
                assert name.split(".")[2] == backend, f"{path}:{line}: imports {name}"


def test_only_the_frontend_imports_onnx() -> None:
    for path in modules():
        if (ROOT / "frontend" / "onnx") not in path.parents:
            names = {name.split(".")[0] for _, name in imported(path, for_types=False)}
            assert "onnx" not in names, path


def test_onnxruntime_is_imported_by_the_command_line_at_most() -> None:
    for path in modules():
        if "onnxruntime" in {name.split(".")[0] for _, name in imported(path)}:
            assert part_of(path) in ("cli", "driver"), path


@pytest.mark.parametrize("name", ["numpy", "onnx", "rich", "diskcache"])
def test_import_of_the_package_is_light(name: str) -> None:
    code = f"import sys, relaybuild; sys.exit('{name}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_build_half_does_not_import_numpy() -> None:
    for path in (ROOT / "build").rglob("*.py"):
        assert "numpy" not in {name.split(".")[0] for _, name in imported(path, for_types=False)}, path


SELDOM = {"difflib", "email", "fractions", "importlib.metadata", "logging", "onnx", "tarfile", "zipfile"}
"""What few compilations need, and takes as long to import as several parts of relaybuild."""


def test_the_stages_bring_what_every_compilation_needs() -> None:
    code = (
        "import sys, numpy\n"
        "before = set(sys.modules)\n"
        "import relaybuild.stages\n"
        "from relaybuild.backends.selection import select\n"
        "assert select(None).backends == ()\n"
        "print('\\n'.join(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(done.stdout.splitlines())
    assert "relaybuild.stages" in found
    assert found & SELDOM == set()
    # what a backend does, and how programs are cut, is for who switches one on
    assert [name for name in found if name.count(".") > 2 and name.startswith("relaybuild.contrib.")] == []
    assert "relaybuild.partition.pipeline" not in found
