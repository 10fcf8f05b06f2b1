"""Which steps of a compilation run again after a change, exactly: weights, a layer, names, code, a compiler's input."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from runners.command import Runner
from runners.fixed_code import fix_code
from runners.small_networks import IN_CHANNELS, SIDE, Network

from relaybuild import driver
from relaybuild.build.cache.journal import Journal
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import open_cache
from relaybuild.runtime import load_module

pytestmark = pytest.mark.usefixtures("own_cache", "fixed_code")

BEFORE_OBJECTS = ("import", "pass", "partition", "codegen")


@dataclass(frozen=True)
class Done:
    """One compilation: its artifact, and what was asked of the cache and done."""

    artifact: driver.Artifact
    journal: Journal

    def executed(self, *layers: str) -> Counter[str]:
        """The slots, without the model's name, of what was executed in these layers."""
        return Counter(event.slot.partition("/")[2] for event in self.journal.executed if event.layer in layers)

    def names(self, layer: str) -> Counter[str]:
        """The names of what was executed in a layer."""
        return Counter(event.name for event in self.journal.executed if event.layer == layer)


@dataclass(frozen=True)
class Saved:
    """A model that is there already."""

    proto: onnx.ModelProto

    def save(self, path: Path) -> Path:
        onnx.save(self.proto, path)
        return path


@dataclass
class Compiler:
    """Compiles models with one cache and checks what comes out against onnxruntime."""

    folder: Path

    def __call__(self, network: Network | Saved, name: str = "model", **options: Any) -> Done:
        path = network.save(self.folder / f"{options.pop('file', 'model')}.onnx")
        request = driver.make_request(path, name=name, target="x86-64-v3", **options)
        with open_cache(CacheSettings(self.folder / "cache")) as cache:
            artifact = driver.compile_request(request, cache)
        _check(artifact, path)
        return Done(artifact, cache.journal)


def _check(artifact: driver.Artifact, path: Path) -> None:
    x = np.random.default_rng(7).standard_normal((1, IN_CHANNELS, SIDE, SIDE)).astype("float32")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {session.get_inputs()[0].name: x})
    found = load_module(artifact.path)(x)
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max() + 1e-6)


@dataclass(frozen=True)
class Begun:
    """A network that was compiled, and the folder of its cache."""

    folder: Path
    done: Done


@pytest.fixture(scope="module")
def begun(runtime_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Begun:
    """`Network()`, compiled into a cache that had nothing of it; tests go on with copies."""
    folder = tmp_path_factory.mktemp("begun")
    shutil.copytree(runtime_cache, folder / "cache")
    with pytest.MonkeyPatch.context() as patch:
        fix_code(patch, tmp_path_factory.mktemp("code"))
        return Begun(folder / "cache", Compiler(folder)(Network()))


@pytest.fixture
def first(begun: Begun) -> Done:
    """What was compiled before."""
    return begun.done


@pytest.fixture
def compile(begun: Begun, tmp_path: Path) -> Compiler:
    """Compiles with a cache that has what was compiled before."""
    shutil.copytree(begun.folder, tmp_path / "cache")
    return Compiler(tmp_path)


def test_new_weights_repeat_nothing_but_the_weights_and_the_link(first: Done, compile: Compiler) -> None:
    assert first.executed("import") == Counter({"import": 1})
    again = compile(Network(seed=2))
    assert again.executed(*BEFORE_OBJECTS, "object") == Counter()
    assert again.names("link") == Counter({"library": 1})
    assert again.artifact.summary["executed"] == {
        **dict.fromkeys((*BEFORE_OBJECTS, "object"), 0),
        "link": 1,
    }
    assert again.artifact.path.read_bytes() != first.artifact.path.read_bytes()


def test_what_is_found_for_new_weights_is_what_a_clean_compilation_makes(compile: Compiler, tmp_path: Path) -> None:
    found = compile(Network(seed=2))
    clean = driver.compile(tmp_path / "model.onnx", name="model", target="x86-64-v3", cache_dir=False)
    assert found.artifact.path.read_bytes() == clean.path.read_bytes()
    assert found.artifact.header == clean.header
    for fact in ("kernels", "arena_bytes", "weight_bytes"):
        assert found.artifact.summary[fact] == clean.summary[fact]


def test_a_layer_of_other_width_makes_its_kernels_and_its_neighbours_anew(compile: Compiler) -> None:
    changed = compile(Network((16, 48, 24)))
    kernels = {slot for slot in changed.executed("codegen") if slot.startswith("codegen/host/")}
    assert kernels == {
        "codegen/host/net/conv1.relu, net/conv1.bn, net/conv1",
        "codegen/host/net/conv2.relu, net/conv2.bn, net/conv2",
    }
    assert changed.names("object") == Counter(dict.fromkeys(_new_objects(changed), 1))
    assert len(_new_objects(changed)) == 3


def _new_objects(done: Done) -> list[str]:
    return [event.name for event in done.journal.executed if event.layer == "object"]


def test_a_model_of_other_names_shares_all_kernels(first: Done, compile: Compiler) -> None:
    second = compile(Network(prefix="second", seed=3), "second", file="second")
    kernels = [slot for slot in second.executed("codegen") if slot.startswith("codegen/host/")]
    assert kernels == []
    assert second.names("object") == Counter({"program.c": 1})
    symbols = [[kernel["symbol"] for kernel in done.artifact.summary["kernels"]] for done in (first, second)]
    assert symbols[0] == symbols[1]


def test_another_model_takes_the_kernels_that_it_shares(first: Done, compile: Compiler) -> None:
    second = compile(Network((16, 16, 32, 24), prefix="other"), "second", file="second")
    shared = _symbols(first) & _symbols(second)
    # the copy of the input, two convolutions, the mean of the channels and the last product
    assert len(shared) == 5
    assert set(_new_objects(second)) == {f"{symbol}.c" for symbol in _symbols(second) - shared} | {"program.c"}


def _symbols(done: Done) -> set[str]:
    return {kernel["symbol"] for kernel in done.artifact.summary["kernels"]}


def test_another_name_of_the_library_makes_its_program_anew_and_no_kernel(compile: Compiler) -> None:
    other = compile(Network(), "second")
    assert other.executed("import", "pass") == Counter()
    assert other.names("object") == Counter({"program.c": 1})


@pytest.mark.parametrize("network", [Network(batch_norm=False), Network((16, 32))], ids=["no batch norm", "shallower"])
def test_another_structure_is_imported(compile: Compiler, network: Network) -> None:
    other = compile(network)
    assert other.executed("import") == Counter({"import": 1})


def test_a_file_of_the_same_program_is_imported_and_nothing_else_runs_but_what_names_its_origin(
    first: Done, compile: Compiler
) -> None:
    proto = Network().proto()
    proto.producer_name = "another"
    second = compile(Saved(proto))
    assert second.executed("import") == Counter({"import": 1})
    assert second.executed("pass", "partition") == Counter()
    assert set(second.executed("codegen")) == {"codegen/host"}
    assert _new_objects(second) == ["program.c"]
    assert _symbols(first) == _symbols(second)


@pytest.fixture(scope="module")
def network(package: Path, runtime_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A network, compiled; tests go on with copies."""
    runner = Runner(package, tmp_path_factory.mktemp("network")).beginning_with(runtime_cache)
    Network().save(runner.folder / "model.onnx")
    runner.done(model="model.onnx")
    return runner


@pytest.fixture
def run(network: Runner, tmp_path: Path) -> Runner:
    """What has compiled a network in a process of its own, with a copy of relaybuild that may be edited."""
    shutil.copytree(network.package, tmp_path / "package")
    return replace(network.copied(tmp_path), package=tmp_path / "package")


def edit(run: Runner, file: str, old: str, new: str) -> None:
    path = run.package / "relaybuild" / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def executed(run: Runner) -> tuple[dict[str, int], set[str]]:
    """What the next compilation executes by layer, and the lines of its explanation."""
    result = run(model="model.onnx")
    assert result.returncode == 0, result.stderr
    return run.summary()["executed"], set(result.stderr.splitlines())


def test_a_pass_that_was_edited_runs_and_what_follows_from_it(run: Runner) -> None:
    edit(run, "passes/fold_scale_axis.py", '"""', '"""Edited. ')
    counts, lines = executed(run)
    # two passes of one file
    assert counts == {"import": 0, "pass": 2, "partition": 0, "codegen": 0, "object": 0, "link": 0}
    assert any(line.startswith("SAME pass/BackwardFoldScaleAxis#model/pass/") for line in lines), lines


def test_a_pass_that_makes_another_program_makes_what_follows_run(run: Runner) -> None:
    # batch norms stay: all else follows from that
    edit(run, "passes/pipelines.py", "        FoldScaleAxis(read_weights=False),\n", "")
    counts, _ = executed(run)
    assert counts["import"] == 0
    assert 0 < counts["pass"] < 6
    assert counts["partition"] == 1
    assert counts["link"] == 1


def test_a_code_generator_that_was_edited_runs_and_its_unchanged_texts_are_not_compiled(run: Runner) -> None:
    edit(run, "contrib/host/fuse.py", '"""', '"""Edited. ')
    counts, lines = executed(run)
    assert {layer: counts[layer] for layer in ("import", "pass", "partition", "object")} == dict.fromkeys(
        ("import", "pass", "partition", "object"), 0
    )
    assert counts["codegen"] > 3
    assert any("impl/host changed" in line for line in lines), lines


def test_a_code_generator_that_writes_other_text_makes_objects(run: Runner) -> None:
    edit(run, "lower/c_writer.py", 'INDENT = "    "', 'INDENT = "  "')
    counts, _ = executed(run)
    assert counts["pass"] == counts["partition"] == 0
    assert counts["codegen"] > 3
    assert counts["object"] > 3


def test_an_edited_command_line_is_no_change(run: Runner) -> None:
    edit(run, "cli/compile.py", '"""', '"""Edited. ')
    counts, _ = executed(run)
    assert not any(counts.values())
