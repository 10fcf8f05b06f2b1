"""`relaybuild compile`: what reaches the compiler, what is written, and what is refused before time is spent."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Invoke
from relaybuild import driver
from relaybuild.artifact.request import Request
from relaybuild.build.cache.store import Cache
from relaybuild.build.forms import Form
from relaybuild.driver import Event
from relaybuild.errors import ToolError
from relaybuild.target import Target

pytestmark = pytest.mark.usefixtures("own_cache")

SUMMARY_KEYS = "artifact size seconds executed cached misses kernels regions arena_bytes weight_bytes link".split()


class FakeArtifact:
    header = "/* header */\n"
    warnings = ("look out",)

    def __init__(self) -> None:
        self.summary: dict[str, Any] = {"size": 0}

    def export_library(self, path: Path, *, move: bool) -> None:
        assert move
        path.write_bytes(bytes(1_234_567))
        self.summary.update(artifact=str(path), size=1_234_567)


class FakeDriver:
    """Records how it is called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Request, dict[str, Any]]] = []

    def compile(
        self, request: Request, cache: Cache, *, on_event: Callable[[Event], None], **options: Any
    ) -> FakeArtifact:
        self.calls.append((request, options))
        on_event(Event("import"))
        on_event(Event("import", seconds=0.5))
        return FakeArtifact()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    monkeypatch.setattr(driver, "compile_request", fake.compile)
    return fake


def test_options_reach_the_compiler(invoke: Invoke, fake: FakeDriver, tmp_path: Path) -> None:
    arguments = ["--shape", "x=1,2", "--shape", "y=3", "--target", "x86-64-v3", "--threads", "2", "--opt-level", "1"]
    rest = ["--precise", "--cc", "clang -v", "--jobs", "4", "--save-temps", str(tmp_path / "a" / "temps")]
    backends = ["--config", str(tmp_path / "my.cmake"), "-D", "USE_DNNL=ON", "-DUSE_CBLAS=/opt/blas"]
    result = invoke("compile", "m.onnx", "-o", tmp_path / "my-model.v2.so", *arguments, *rest, *backends)
    assert result.exit_code == 0, result.stderr
    ((request, options),) = fake.calls
    assert request == Request(
        Path("m.onnx"),
        "my_model_v2",
        Target.parse("x86-64-v3"),
        shapes={"x": (1, 2), "y": (3,)},
        threads=2,
        opt_level=1,
        precise=True,
        config=tmp_path / "my.cmake",
        flags={"USE_DNNL": "ON", "USE_CBLAS": "/opt/blas"},
        cc="clang -v",
    )
    assert options == {"jobs": 4, "save_temps": tmp_path / "a" / "temps", "must_hit": False}
    assert (tmp_path / "a" / "temps").is_dir()


@pytest.mark.parametrize(
    ("emit", "output", "form", "files"),
    [
        ("static", "libmodel.a", Form.STATIC, {"libmodel.a", "libmodel.h"}),
        ("object", "model.o", Form.OBJECT, {"model.o", "model.h"}),
        ("shared", "model.so", Form.SHARED, {"model.so"}),
    ],
)
def test_forms(
    invoke: Invoke, fake: FakeDriver, tmp_path: Path, emit: str, output: str, form: Form, files: set[str]
) -> None:
    assert invoke("compile", "m.onnx", "-o", tmp_path / output, "--emit", emit).exit_code == 0
    ((request, _),) = fake.calls
    assert (request.form, request.name) == (form, "model")
    assert {path.name for path in tmp_path.iterdir()} == files
    invoke("compile", "m.onnx", "-o", tmp_path / output, "--emit", emit, "--name", "its-name")
    assert fake.calls[-1][0].name == "its_name"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "m.so", "--emit", "static"], "'m.so' is not a name for the form 'static'"),
        (["-o", "m", "--emit", "static", "--emit", "object"], "--emit: static and object are two forms of a model"),
        (["-o", "m", "--emit", "project", "--emit", "header"], "header is a part of the folder that project makes"),
    ],
)
def test_forms_that_do_not_go_together(invoke: Invoke, fake: FakeDriver, arguments: list[str], message: str) -> None:
    result = invoke("compile", "m.onnx", *arguments)
    assert (result.exit_code, fake.calls) == (1, [])
    assert message in result.stderr


def test_what_a_linker_needs_is_written_as_it_reads_it(
    invoke: Invoke, fake: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["/opt/a place/libx.so", "-Wl,-rpath,/opt/a place", "-lm"]
    monkeypatch.setattr(FakeArtifact, "__init__", lambda self: setattr(self, "summary", {"size": 0, "link": words}))
    invoke("compile", "m.onnx", "-o", tmp_path / "m.a", "--emit", "static", "--link-file", tmp_path / "m.link")
    assert (tmp_path / "m.link").read_text() == "/opt/a\\ place/libx.so\n-rpath\n/opt/a\\ place\n-lm\n"


def test_defaults(invoke: Invoke, fake: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    invoke("compile", "m.onnx", "-o", tmp_path / "m.so")
    ((request, options),) = fake.calls
    assert request == Request(Path("m.onnx"), "m", Target.host())
    assert options == {"jobs": None, "save_temps": None, "must_hit": False}


def test_the_config_of_the_folder_is_used(
    invoke: Invoke, fake: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.cmake").write_text("set(USE_DNNL AUTO)\n")
    invoke("compile", "m.onnx", "-o", tmp_path / "m.so")
    ((request, _),) = fake.calls
    assert request.config == Path("config.cmake")


def test_the_last_line_is_the_only_one_on_stdout(invoke: Invoke, fake: FakeDriver, tmp_path: Path) -> None:
    result = invoke("compile", "m.onnx", "-o", tmp_path / "m.so")
    assert result.stdout == f"{tmp_path}/m.so  1.2 MB  0.0 s\n"
    assert result.stderr == "import: 0.50 s\nwarning: look out\n"


def test_header_and_summary(invoke: Invoke, fake: FakeDriver, tmp_path: Path) -> None:
    output, summary = tmp_path / "m.so", tmp_path / "summary.json"
    result = invoke("compile", "m.onnx", "-o", output, "--emit", "header", "--summary", summary)
    assert result.exit_code == 0
    assert (tmp_path / "m.h").read_text() == "/* header */\n"
    assert json.loads(summary.read_text()) == {"artifact": str(output), "size": 1_234_567}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "none/m.so"], "cannot write 'none/m.so': its folder does not exist"),
        (["-o", "folder"], "cannot write 'folder': "),
        (["-o", "m.so", "--summary", "none/s.json"], "cannot write 'none/s.json': its folder does not exist"),
        (["-o", "m.onnx"], "'m.onnx' is the model and an output"),
        (["-o", "m.so", "--summary", "m.so"], "'m.so' is two outputs"),
        (["-o", "m.h", "--emit", "header"], "'m.h' is two outputs"),
        (["-o", "m.so", "--save-temps", "m.onnx"], "cannot write 'm.onnx': "),
    ],
)
def test_outputs_are_checked_first(
    invoke: Invoke,
    fake: FakeDriver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "m.onnx").touch()
    result = invoke("compile", "m.onnx", *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {message}")
    assert fake.calls == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "m.onnx"]


def test_a_failure_leaves_nothing(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise ToolError("no", command=["cc"], returncode=1)

    monkeypatch.setattr(driver, "compile_request", fail)
    (tmp_path / "m.so").write_bytes(b"before")
    result = invoke("compile", "m.onnx", "-o", tmp_path / "m.so", "--emit", "header", "--summary", tmp_path / "s.json")
    assert result.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["m.so"]
    assert (tmp_path / "m.so").read_bytes() == b"before"


def test_a_real_model(
    spawn: Callable[..., subprocess.CompletedProcess[str]], digits_model: Path, tmp_path: Path
) -> None:
    output, summary = tmp_path / "digits.so", tmp_path / "s.json"
    done = spawn("compile", digits_model, "-o", output, "--emit", "header", "--summary", summary)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{output}  ")
    stages = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert stages == ["import", "pass", "partition", "codegen", "object", "link"]
    facts = json.loads(summary.read_text())
    assert sorted(facts) == sorted(SUMMARY_KEYS)
    assert list(facts["seconds"]) == list(facts["executed"]) == list(facts["cached"]) == stages
    assert facts["size"] == output.stat().st_size
    assert facts["executed"]["link"] == 1
    assert facts["kernels"]
    assert "RbStatus digits_run(" in (tmp_path / "digits.h").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.h", "digits.so", "s.json"]


def test_files_that_are_no_models(invoke: Invoke, tmp_path: Path, digits_model: Path) -> None:
    text, cut = tmp_path / "text.onnx", tmp_path / "cut.onnx"
    text.write_text("not a model")
    cut.write_bytes(digits_model.read_bytes()[:-1000])
    for path in (text, cut, tmp_path / "none.onnx"):
        result = invoke("compile", path, "-o", tmp_path / "m.so")
        assert result.exit_code == 1
        assert str(path) in result.stderr or path.name in result.stderr
        assert "Traceback" not in result.stderr
        assert not (tmp_path / "m.so").exists()


@pytest.mark.parametrize("shape", ["imag=1,1,8,8", "image=1,8,8", "image=2,1,8,8"])
def test_shapes_that_do_not_fit(invoke: Invoke, digits_model: Path, tmp_path: Path, shape: str) -> None:
    result = invoke("compile", digits_model, "-o", tmp_path / "m.so", "--shape", shape)
    assert result.exit_code == 1
    assert "'image'" in result.stderr


def test_a_compiler_that_fails(invoke: Invoke, digits_model: Path, tmp_path: Path) -> None:
    result = invoke("compile", digits_model, "-o", tmp_path / "m.so", "--cc", "/bin/false")
    assert result.exit_code == 2
    assert "command: /bin/false " in result.stderr
    missing = invoke("compile", digits_model, "-o", tmp_path / "m.so", "--cc", "no-such-compiler")
    assert missing.exit_code == 1
    assert "'no-such-compiler'" in missing.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_a_linker_may_need_is_told_without_a_model(invoke: Invoke) -> None:
    words = ("compile", "no-model.onnx", "-o", "no-output.a", "--emit", "static", "--link-bound")
    assert (invoke(*words).exit_code, invoke(*words).stdout) == (0, "-lm\n-lpthread\n-ldl\n")
    assert invoke(*words, "-D", "USE_EXAMPLE_JSON=ON").stdout == "-lstdc++\n-lm\n-lpthread\n-ldl\n"
    assert not Path("no-output.a").exists()
