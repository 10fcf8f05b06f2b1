"""The command `new-backend`: a package that works as it is made, under no name that is taken, in nobody's place."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from environments import ROOT, make_environment

import relaybuild
from cli.conftest import Invoke
from relaybuild.cli import main
from relaybuild.cli import new_backend as command_module
from relaybuild.partition import backend as backend_module

NAMES = ("npu", "q", "my_long_named_accelerator_of_32c")
NET = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) { exp(nn.relu(%x + %x)) }\n'


def made(invoke: Invoke, folder: Path, name: str = "npu") -> Path:
    project = folder / f"relaybuild-{name}"
    result = invoke("new-backend", name, "--out", project)
    assert result.exit_code == 0, result.stderr
    return project


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Forgets, after the test, the modules that it imported."""
    known = set(sys.modules)
    yield monkeypatch
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_the_package_brings_a_backend(tmp_path: Path, invoke: Invoke, importable: pytest.MonkeyPatch) -> None:
    importable.syspath_prepend(made(invoke, tmp_path))
    package = __import__("relaybuild_npu")
    assert (package.BACKEND.name, package.BACKEND.tag, package.BACKEND.cmake_flag) == ("npu", "npu", "USE_NPU")
    backend_module.register_backend(package.BACKEND)
    artifact = relaybuild.compile(relaybuild.parse(NET), flags={"USE_NPU": "ON"})
    assert [region["backend"] for region in artifact.summary["regions"]] == ["npu"]
    x = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    np.testing.assert_allclose(
        np.asarray(relaybuild.load_module(artifact.path)(x)), np.exp(np.maximum(x + x, 0)), rtol=1e-5
    )


def test_a_constant_is_an_operand_of_the_pattern(
    tmp_path: Path, invoke: Invoke, importable: pytest.MonkeyPatch
) -> None:
    importable.syspath_prepend(made(invoke, tmp_path))
    backend_module.register_backend(__import__("relaybuild_npu").BACKEND)
    relay = relaybuild.relay
    x = relay.var("x", shape=(2, 3))
    shift = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    body = relay.nn.relu(relay.add(relay.const(shift), x))
    artifact = relaybuild.compile(relaybuild.IRModule.from_expr(relay.Function([x], body)), flags={"USE_NPU": "ON"})
    assert len(artifact.summary["regions"]) == 1
    found = relaybuild.load_module(artifact.path)(np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(np.asarray(found), np.maximum(shift, 0))


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_clean(name: str, tmp_path: Path, invoke: Invoke) -> None:
    project = made(invoke, tmp_path, name)
    assert [path for path in project.rglob("*") if "@" in path.name or path.suffix == ".in"] == []
    for words in (("ruff", "check"), ("ruff", "format", "--check")):
        done = subprocess.run([sys.executable, "-m", *words, "."], cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    style = ("--style", f"file:{ROOT / '.clang-format'}")
    for source in sorted(project.rglob("*.[ch]")):
        command = [str(Path(sys.executable).with_name("clang-format")), "--dry-run", "-Werror", *style, str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_types_are_right(tmp_path: Path, invoke: Invoke) -> None:
    project = made(invoke, tmp_path)
    environ = {**os.environ, "MYPYPATH": str(ROOT)}
    for words in ((), ("tests",)):
        # an installed relaybuild would not be reported on
        options = ["--cache-dir", str(tmp_path / "mypy"), "--follow-imports", "silent"]
        command = [sys.executable, "-m", "mypy", *options, *words]
        done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_installed_it_is_known_and_passes_its_own_tests(tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "venv")

    def run(*words: str) -> str:
        return environment.run(*words, folder=tmp_path)

    said = run("relaybuild", "new-backend", "npu")
    assert said.splitlines()[1] == "next: pip install -e 'relaybuild-npu[test]'"
    run("pip", "install", "-e", "relaybuild-npu")
    (tmp_path / "net.relay").write_text(NET, encoding="utf-8")
    run("relaybuild", "compile", "net.relay", "-D", "USE_NPU=ON", "-o", "net.so")
    assert "npu" in run("relaybuild", "inspect", "net.so")
    run("relaybuild", "run", "net.so", "--random", "1", "--output", "results")
    assert list((tmp_path / "results").glob("*.npy"))
    assert "passed" in run("python", "-m", "pytest", "relaybuild-npu", "-p", "no:cacheprovider")


@pytest.mark.parametrize("name", ["Npu", "1npu", "n-pu", "npu_", "n__pu", "", "n" * 33, "npü"])
def test_names_that_cannot_be(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["new-backend", "--out", str(tmp_path / "made"), "--", name])
    assert caught.value.code == 1
    assert f"found the name '{name}', expected lower-case letters" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["dnnl", "codegenc", "ccompiler", "host", "default"])
def test_names_that_are_taken(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["new-backend", name, "--out", str(tmp_path / "made")])
    assert caught.value.code == 1
    assert f"the name '{name}' is taken" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_an_installed_package_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Invoke
) -> None:
    monkeypatch.syspath_prepend(made(invoke, tmp_path))
    result = invoke("new-backend", "npu", "--out", tmp_path / "again")
    assert "taken by the installed package 'relaybuild_npu'" in result.stderr
    assert not (tmp_path / "again").exists()


def test_what_is_there_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    monkeypatch.chdir(tmp_path)
    Path("relaybuild-npu").mkdir()
    result = invoke("new-backend", "npu")
    assert "'relaybuild-npu' is there already" in result.stderr
    assert list(tmp_path.rglob("*")) == [tmp_path / "relaybuild-npu"]


def test_half_a_package_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    def failing(words: object) -> Iterator[tuple[str, str]]:
        yield "README.md", "half"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command_module, "_files", failing)
    result = invoke("new-backend", "npu", "--out", tmp_path / "made")
    assert "no space" in result.stderr
    assert list(tmp_path.iterdir()) == []
