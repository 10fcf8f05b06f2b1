"""Code of regions and of the host as steps: what each is generated from, and that it comes back as it was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaybuild.compilation.plugins import Plugins
from relaybuild.digest import digest_bytes
from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Function
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import post_order
from relaybuild.partition.backend import (
    Backend,
    Blob,
    CodegenOptions,
    GeneratedCode,
    SourceUnit,
    register_backend,
)
from relaybuild.registry import register_func
from relaybuild.target import chosen

from .cutting import JSON, C, Cutting, network

pytestmark = pytest.mark.usefixtures("own_cache", "fixed_code")


@pytest.fixture
def cutting(tmp_path: Path) -> Cutting:
    return Cutting(tmp_path / "cache")


FIRST, SECOND = "tvmgen_model_ccompiler_main_0", "tvmgen_model_ccompiler_main_1"


def regions_of(cutting: Cutting) -> list[str]:
    """Which of the two regions were generated, and whether the host was."""
    return cutting.executed("codegen")


def names(parts: Any) -> list[str]:
    return [region.ports.symbol for region in parts.regions]


@pytest.mark.parametrize("backends", [(C,), (JSON,), (JSON, C), ()], ids=["c", "json", "both", "host"])
def test_code_is_generated_once(cutting: Cutting, backends: tuple[Backend, ...]) -> None:
    first = cutting(network(), backends)
    assert regions_of(cutting) == sorted(["host", *names(first)])
    cutting(network(), backends)
    assert regions_of(cutting) == []
    assert cutting.site.executed("codegen") == []


def test_a_region_that_changes_is_generated_alone(cutting: Cutting) -> None:
    first, second = names(cutting(network()))
    cutting(network(second="subtract"))
    assert regions_of(cutting) == [second]
    cutting(network(middle="nn.log_softmax"))
    assert regions_of(cutting) == ["host"]
    cutting(network(5, 2))
    # what is small is part of a region's code
    assert regions_of(cutting) == [first]
    assert cutting.site.changes("codegen") == {"in/weights/0"}
    cutting(network(5, 7))
    assert regions_of(cutting) == [second]
    cutting(network(1, 7))
    assert regions_of(cutting) == []


def test_large_weights_are_handed_to_regions_and_do_not_count(cutting: Cutting) -> None:
    cutting(network(1, 2, shape=(32, 33)))
    found = cutting(network(3, 4, shape=(32, 33)))
    assert [region.code.weights for region in found.regions] == [None, None]
    assert [len(region.ports.inputs) for region in found.regions] == [2, 2]
    assert regions_of(cutting) == []
    # the program has the new ones
    host = found.host.with_weights()
    assert host.weights is not None
    values = {float(node.array.flat[0]) for node in post_order(host.weights) if hasattr(node, "array")}
    assert values == {3.0, 4.0}


@pytest.mark.parametrize(
    ("change", "executed"),
    [
        ({"name": "other"}, ["host"]),
        ({"symbol": "other"}, ["host"]),
        ({"inputs": ("z",)}, ["host"]),
        ({"outputs": ("z",)}, ["host"]),
        ({"config": {"source": "another"}}, ["host"]),
        ({"flags": ("-O3",)}, ["host", "regions"]),
        ({"threads": 2}, ["host", "regions"]),
        ({"opt_level": 2}, ["host", "regions"]),
        ({"precise": True}, ["host", "regions"]),
    ],
    ids=lambda each: "+".join(each) if isinstance(each, (dict, list)) else "",
)
def test_what_generators_are_told_counts(cutting: Cutting, change: dict[str, Any], executed: list[str]) -> None:
    regions = names(cutting(network()))
    cutting(network(), **change)
    assert regions_of(cutting) == sorted(["host", *(regions if "regions" in executed else [])])
    # kernels are others where sums may not be reordered
    assert cutting.site.changes("codegen") - {"in/workload"} == {f"option.{name}" for name in change}


def counting(text: str) -> Callable[[Function, CodegenOptions], GeneratedCode]:
    """A generator whose code has a text in it."""

    def generate(function: Function, options: CodegenOptions) -> GeneratedCode:
        return GeneratedCode((SourceUnit(options.symbol, f"/* {text} {len(options.inputs)} */\n", False),))

    return generate


def source(text: str) -> Callable[[Function], GeneratedCode]:
    """A registered function, which is given the region's alone."""
    return lambda function: GeneratedCode((SourceUnit("region", f"/* {text} */", False),))


MARKED = """
def @main(%x: Tensor[(4,), float32]) { tanh(@region(%x)) }
def @region(%x: Tensor[(4,), float32], Compiler="mine", global_symbol="region") -> Tensor[(4,), float32] { abs(%x) }
"""


def marked() -> IRModule:
    return infer_types(parse(MARKED))


def test_a_registered_function_counts_by_its_content(cutting: Cutting) -> None:
    for text, executed in (("a", ["host", "region"]), ("a", []), ("b", ["region"]), ("a", [])):
        register_func("relay.ext.mine", source(text), override=True)
        cutting(marked(), ())
        assert regions_of(cutting) == executed, text


def backend_of(codegen: Callable[[Function, CodegenOptions], GeneratedCode], folder: Path | None = None) -> Backend:
    return Backend("mine", "mine", "", codegen, folder=folder)


def test_a_backends_folder_counts(cutting: Cutting, tmp_path: Path) -> None:
    folder = tmp_path / "backend"
    folder.mkdir()
    for text, executed in (("1", ["host", "region"]), ("1", []), ("2", ["region"])):
        (folder / "helper.py").write_text(text, encoding="utf-8")
        register_backend(backend_of(counting("x"), folder))
        cutting(marked(), ())
        assert regions_of(cutting) == executed, text


EVERYTHING = GeneratedCode(
    units=(
        SourceUnit("one", "int one;\n", True),
        SourceUnit("two", "// ü\n", False, "c++"),
        SourceUnit("one", "int other;", False),
    ),
    blob=Blob("key", bytes(range(256)) * 20),
    stateful=True,
    weight_offsets=(0, 64),
    weight_bytes=128,
    arena_bytes=4096,
    kernels=({"symbol": "k", "flops": 3, "name": None},),
    results=(TensorType((2, 3), "float32"), TensorType((), "int64")),
)


class Making:
    """A generator that makes one thing."""

    def __init__(self, code: GeneratedCode) -> None:
        self.code = code

    def cache_id(self) -> str:
        return "making"

    def __call__(self, function: Function, options: CodegenOptions) -> GeneratedCode:
        return self.code


@pytest.mark.parametrize(
    "code",
    [EVERYTHING, GeneratedCode(), GeneratedCode(blob=Blob("key", b"\0")), GeneratedCode(stateful=True)],
    ids=["all", "nothing", "blob", "stateful"],
)
def test_all_of_a_regions_code_comes_back(cutting: Cutting, code: GeneratedCode) -> None:
    register_backend(backend_of(Making(code)))
    for executed in (["host", "region"], []):
        (region,) = cutting(marked(), ()).regions
        assert region.code == code
        assert regions_of(cutting) == executed


def test_a_generator_sees_its_function_alone(cutting: Cutting) -> None:
    seen: list[set[str]] = []

    class Looking:
        def cache_id(self) -> str:
            return "looking"

        def __call__(self, function: Function, options: CodegenOptions) -> GeneratedCode:
            seen.append(set(options.module.functions))
            assert options.config == {}
            return GeneratedCode()

    register_backend(backend_of(Looking()))
    cutting(marked(), ())
    assert seen[0] == {"region"}


def test_parts_that_a_generator_remembers_are_shared(cutting: Cutting) -> None:
    class Remembering:
        def __init__(self) -> None:
            self.made: list[str] = []

        def cache_id(self) -> str:
            return "remembering"

        def __call__(self, function: Function, options: CodegenOptions) -> GeneratedCode:
            def make() -> bytes:
                self.made.append(options.symbol)
                return b"part"

            remember = options.remember or (lambda place, work, make: make())
            assert remember("place", digest_bytes(b"work"), make) == b"part"
            return GeneratedCode()

    generator = Remembering()
    register_backend(backend_of(generator))
    cutting(marked(), ())
    with_cache = generator.made[:1]
    assert with_cache == ["region"]
    generator.made.clear()
    other = infer_types(parse(MARKED.replace('"region"', '"other"').replace("abs", "negative")))
    cutting(other, ())
    # the one without a cache made it
    assert generator.made == ["other"]


def test_a_backend_that_cannot_be_told_apart_is_not_looked_up(cutting: Cutting) -> None:
    lock = threading.Lock()

    def generate(function: Function, options: CodegenOptions) -> GeneratedCode:
        with lock:
            return GeneratedCode()

    register_backend(backend_of(generate))
    for _ in range(2):
        cutting(marked(), ())
        assert {event.detail[:18] for event in cutting.site.journal.looked} == {"plugin-without-id:"}
        assert "region" in regions_of(cutting)


def test_a_failure_is_not_kept(cutting: Cutting) -> None:
    class Failing:
        def cache_id(self) -> str:
            return "failing"

        def __call__(self, function: Function, options: CodegenOptions) -> GeneratedCode:
            raise UnsupportedError("not that")

    register_backend(backend_of(Failing()))
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="not that"):
            cutting(marked(), ())
        assert regions_of(cutting) == []


def test_plugins_of_one_backend_count_for_it_alone(cutting: Cutting) -> None:
    from relaybuild.build.cache.action import ActionBuilder

    digest = digest_bytes(b"")
    found = Plugins(dict.fromkeys(("backend/a", "backend/b", "function/relay.ext.a", "installed/i", "l/o"), digest))

    def parts(add: Callable[[ActionBuilder], None]) -> set[str]:
        builder = ActionBuilder("codegen", "x")
        add(builder)
        return set(builder.build().components())

    assert parts(lambda builder: found.add_to_codegen(builder, "a")) == {
        "plugin/backend/a",
        "plugin/function/relay.ext.a",
        "plugin/installed/i",
    }
    assert parts(found.add_to_pass) == {"plugin/l/o"}
    assert len(parts(found.add_to_partition)) == 5


def test_code_with_weights_asks_for_none_of_the_hosts(cutting: Cutting) -> None:
    def dense(value: float) -> IRModule:
        text = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 8), float32]) { nn.relu(nn.dense(%x, meta[relay.Constant][0])) }
#[metadata]
{"relay.Constant": [{"dtype": "float32", "shape": [4, 8]}]}
"""
        return infer_types(parse(text, weights=[np.full((4, 8), value, "float32")], positions=False))

    cutting(dense(1), ())
    cutting(dense(2), ())
    assert cutting.site.executed("codegen") == []


def test_the_target_counts_for_all(cutting: Cutting) -> None:
    regions = names(cutting(network()))
    cutting(network(), target=chosen("x86-64-v3"))
    assert regions_of(cutting) == sorted(["host", *regions])
    assert "option.target.name" in cutting.site.changes("codegen")


def test_which_arguments_of_a_region_are_weights_counts(cutting: Cutting) -> None:
    text = """#[version = "0.0.5"]
def @main(%x: Tensor[(4,), float32]) { tanh(@region(%x, SECOND)) }
def @region(%x: Tensor[(4,), float32], %y: Tensor[(4,), float32], Compiler="mine", global_symbol="region")
    -> Tensor[(4,), float32] { add(%x, %y) }
#[metadata]
{"relay.Constant": [{"dtype": "float32", "shape": [4]}]}
"""
    register_backend(backend_of(counting("x")))
    for second, constants in (("%x", set()), ("meta[relay.Constant][0]", {1})):
        module = parse(text.replace("SECOND", second), weights=[np.ones(4, "float32")])
        (region,) = cutting(infer_types(module), ()).cut.regions
        assert region.constants == constants
    assert "region" in regions_of(cutting)
    assert "option.constants" in cutting.site.changes("codegen")
