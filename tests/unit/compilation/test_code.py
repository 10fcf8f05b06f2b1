"""What a module's code stands for: the files of all that it imports, as Python itself reads these statements."""

from __future__ import annotations

import ast
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import relaybuild
from relaybuild.artifact import own_code
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import open_cache
from relaybuild.build.trees import TreeInputs
from relaybuild.compilation import code
from relaybuild.compilation.code import CodeDigests, scan
from relaybuild.digest import digest_file

ROOT = Path(relaybuild.__file__).parent
FOLDERS = {
    "relaybuild.ir.op": "relaybuild.ir.ops",
    "relaybuild.ir.gradients": "relaybuild.ir.gradients",
    "relaybuild.frontend.onnx.registry": "relaybuild.frontend.onnx.ops",
    "relaybuild.contrib.host.anchor": "relaybuild.contrib.host.anchors",
    "relaybuild.cli": "relaybuild.cli",
}
"""Modules that import whatever lies in a folder. What follows from the folders of passes and backends, which are found
by name, is part of keys on its own."""


def files() -> Mapping[str, Path]:
    """The package's modules."""

    def name(path: Path) -> str:
        return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")

    return {name(path): path for path in ROOT.rglob("*.py")}


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module that run: not those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield from statements(ast.Module(node.orelse, []))
            continue
        yield node
        yield from statements(node)


def imported(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules of the package that a file imports, by Python's own parser."""
    found: set[str] = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name.partition(".")[0] == "relaybuild")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "relaybuild":
            assert node.level == 0
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(name if name in known else node.module for name in names)
    return found


def test_imports_are_those_that_python_sees() -> None:
    known = files()
    scanned = scan(ROOT)
    assert scanned.keys() == known.keys()
    for name, path in known.items():
        folder = FOLDERS.get(name)
        below = {each for each in known if folder is not None and each.startswith(f"{folder}.")}
        assert set(scanned[name].imports) == imported(path, known) | below, name
        assert scanned[name].digest == digest_file(path)


def test_every_folder_that_is_searched_is_known() -> None:
    searching = {name for name, path in files().items() if "pkgutil.iter_modules(" in path.read_text(encoding="utf-8")}
    by_name = {"relaybuild.passes._base", "relaybuild.partition.backend", "relaybuild.build.cache.remote.transport"}
    assert searching == FOLDERS.keys() | by_name


def test_what_packages_import_when_they_are_asked_is_taken_from_where_it_is() -> None:
    known = files()
    texts = {name: path.read_text(encoding="utf-8") for name, path in known.items()}
    lazy = {name for name, text in texts.items() if "\ndef __getattr__(" in text}
    assert "relaybuild.frontend.onnx" in lazy
    for name, text in texts.items():
        if name.startswith(("relaybuild.cli", "relaybuild.runtime")) or name in lazy:
            continue
        for node in statements(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module in lazy:
                assert {f"{node.module}.{alias.name}" for alias in node.names} <= known.keys(), name


TOY = {
    "__init__": "",
    "base": "X = 1\n",
    "middle": "from relaybuild.base import X\n",
    "late": "def f():\n    import relaybuild.base\n",
    "long": "from relaybuild.sub import (\n    leaf,  # one\n    other as another,\n)\n",
    "typed": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from relaybuild.base import X\n\n"
    "    from relaybuild.middle import X as Y\nfrom relaybuild.sub import other\n",
    "said": '"""Says from relaybuild.base import X, and\n\nimports nothing."""\nTEXT = "import relaybuild.base"\n',
    "folder": 'import pkgutil\npackage = import_module("relaybuild.sub")\npkgutil.iter_modules(package.__path__)\n',
    "backends": 'import pkgutil\nfound = import_module("relaybuild.contrib")\npkgutil.iter_modules(found.__path__)\n',
    "named": 'import_module("relaybuild.sub")\n',
    "round": "from relaybuild import trip\n",
    "trip": "from relaybuild import round\n",
    "sub/__init__": "other = 2\n",
    "sub/leaf": "",
    "sub/more": "",
    "contrib/__init__": "",
    "contrib/one": "from relaybuild.base import X\n",
    "own/__init__": "import pkgutil\nfor entry in pkgutil.iter_modules(__path__):\n    pass\n",
    "own/part": "",
    "build/__init__": "",
    "build/store": "from relaybuild.base import X\n",
    "compilation/__init__": "",
    "compilation/steps": "from relaybuild.build.store import X\nfrom relaybuild.sub import leaf\n",
}
"""Modules of a package, by what they hold."""

CLOSURES = {
    "middle": {"middle", "base"},
    "late": {"late", "base"},
    "long": {"long", "sub", "sub.leaf"},
    "typed": {"typed", "sub"},
    "said": {"said"},
    "folder": {"folder", "sub", "sub.leaf", "sub.more"},
    "backends": {"backends"},
    "named": {"named"},
    "round": {"round", "trip"},
    "sub": {"sub", "sub.leaf", "sub.more"},
    "sub.leaf": {"sub", "sub.leaf"},
    "contrib.one": {"contrib", "contrib.one", "base"},
    "own": {"own", "own.part"},
    "compilation.steps": {"compilation", "compilation.steps", "build", "build.store", "base", "sub", "sub.leaf"},
}
"""The files that make up the digest of a module, besides the package's own."""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in place of relaybuild."""
    root = tmp_path / "toy" / "relaybuild"
    for name, text in TOY.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(code, "_ROOT", root)
    monkeypatch.setattr(own_code, "_PACKAGE", root)
    monkeypatch.setattr(relaybuild, "IMPORTED_NS", 1 << 63)
    return root


def digests(*, names: Mapping[str, object] = CLOSURES) -> dict[str, str]:
    """The digests of modules now, as a new process sees them."""
    found = CodeDigests(None, TreeInputs(None))
    return {name: found.of(f"relaybuild.{name}").hex for name in names}


@pytest.mark.parametrize("edited", [name for name in TOY if name != "__init__"])
def test_an_edit_counts_for_those_that_reach_it(toy: Path, edited: str) -> None:
    before = digests()
    with open(toy / f"{edited}.py", "a", encoding="utf-8") as file:
        file.write("# edited\n")
    after = digests()
    name = edited.replace("/", ".").removesuffix(".__init__")
    changed = {each for each in before if before[each] != after[each]}
    assert changed == {each for each, reached in CLOSURES.items() if name in reached}


def test_the_packages_own_file_counts_for_all(toy: Path) -> None:
    before = digests()
    (toy / "__init__.py").write_text("# edited\n", encoding="utf-8")
    after = digests()
    assert not {each for each in before if before[each] == after[each]}


def test_a_new_file_in_a_folder_counts_for_who_searches_it(toy: Path) -> None:
    before = digests()
    (toy / "sub" / "new.py").write_text("", encoding="utf-8")
    after = digests()
    assert {each for each in before if before[each] != after[each]} == {"folder", "sub"}


def test_a_step_stands_for_what_packs_and_not_for_what_looks_up(toy: Path) -> None:
    def step() -> str:
        return CodeDigests(None, TreeInputs(None)).of_step("relaybuild.compilation.steps").hex

    before = step()
    (toy / "build" / "store.py").write_text("# edited\n", encoding="utf-8")
    (toy / "base.py").write_text("# edited\n", encoding="utf-8")
    assert step() == before
    (toy / "sub" / "leaf.py").write_text("# edited\n", encoding="utf-8")
    assert step() != before


def test_several_modules_are_one_digest_in_any_order(toy: Path) -> None:
    found = CodeDigests(None, TreeInputs(None))
    assert found.of("relaybuild.middle", "relaybuild.late") == found.of("relaybuild.late", "relaybuild.middle")
    assert found.of("relaybuild.middle", "relaybuild.base") == found.of("relaybuild.middle")
    assert found.of("relaybuild.middle", "relaybuild.late") != found.of("relaybuild.middle")


def test_an_unknown_module_is_told(toy: Path) -> None:
    with pytest.raises(KeyError, match="absent"):
        CodeDigests(None, TreeInputs(None)).of("relaybuild.absent")


def test_what_was_scanned_is_remembered_by_the_digest_of_the_code(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_cache() -> str:
        with open_cache(CacheSettings(tmp_path / "cache")) as cache:
            return CodeDigests(cache, TreeInputs(None)).of("relaybuild.folder").hex

    expected = digests()["folder"]
    assert with_cache() == expected

    def refuse(root: Path) -> None:
        raise AssertionError("the code was scanned again")

    with monkeypatch.context() as patched:
        patched.setattr(code, "scan", refuse)
        assert with_cache() == expected
    (toy / "sub" / "more.py").write_text("# edited\n", encoding="utf-8")
    assert with_cache() == digests()["folder"] != expected


def test_code_that_does_not_run_has_no_digest(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaybuild, "IMPORTED_NS", time.time_ns() - 3_600_000_000_000)
    with pytest.raises(own_code.StaleCode):
        CodeDigests(None, TreeInputs(None)).check()


def test_scanning_costs_little(tmp_path: Path) -> None:
    # measured: 0.07 s of processor time for 443 files
    root = shutil.copytree(ROOT, tmp_path / "relaybuild", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    begin = time.process_time()
    found = scan(root)
    assert time.process_time() - begin < 0.002 * len(found)
