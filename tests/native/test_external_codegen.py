"""Regions of other backends in compiled models: one operator and many, constants, blobs, several libraries at once."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from compiling import HEAD, Array, flat

import relaybuild
from relaybuild import relay
from relaybuild.backends.selection import select
from relaybuild.errors import ToolError, UserError
from relaybuild.ir.expr import Call, Constant, Expr, Function, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import post_order
from relaybuild.partition.regions import compiler_begin, compiler_end
from relaybuild.runtime.blob import MAGIC, unframe

C_ONLY = {"USE_CODEGENC": "ON"}
FRAME_START = MAGIC + struct.pack("<I", 1)


def random_of(*kinds: TensorType) -> list[Array]:
    rng = np.random.default_rng(3)
    return [np.asarray(4 * rng.standard_normal(kind.static_shape)).astype(kind.dtype) for kind in kinds]


def assert_equal_to_the_reference(module: IRModule, model: relaybuild.Module) -> None:
    """Fail where the loaded model and the interpreted program disagree about random numbers."""
    inputs = random_of(*(param.tensor_type for param in module["main"].params))
    for found, wanted in zip(flat(model(*inputs)), flat(relaybuild.interpret(module, *inputs)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def built(
    module: IRModule, folder: Path, name: str = "model", config: Mapping[str, object] = C_ONLY
) -> tuple[relaybuild.Artifact, relaybuild.Module]:
    """The module compiled, exported and loaded."""
    artifact = relaybuild.compile(module, name=name, config=config, threads=1)
    artifact.export_library(folder / f"{name}.so")
    return artifact, relaybuild.load_module(folder / f"{name}.so")


def operators(expr: Expr) -> list[str]:
    return [node.op_name for node in post_order(expr) if isinstance(node, Call) and node.op_name]


def regions(module: IRModule) -> list[Function]:
    return [function for function in module.functions.values() if "Compiler" in function.attrs]


def marked(make: Callable[..., Expr], *operands: Expr, compiler: str = "ccompiler") -> Expr:
    return compiler_end(make(*(compiler_begin(operand, compiler) for operand in operands)), compiler)


def chain(x: Expr, a: Expr, b: Expr, c: Expr) -> Expr:
    return relay.multiply(relay.subtract(relay.add(x, a), b), c)


def test_marked_chains_beside_one_of_the_host(tmp_path: Path) -> None:
    """EC01: two regions of three calls, and a third chain that stays with the host."""
    x, *w = (relay.var(name, shape=(10, 10)) for name in ("x", *(f"w{n}" for n in range(8))))
    parts = [marked(chain, x, *w[:3]), marked(chain, x, *w[3:6]), relay.subtract(relay.add(x, w[6]), w[7])]
    module = IRModule.from_expr(relay.Function([x, *w], relay.concatenate(parts, axis=0)))
    with relay.build_config(opt_level=3, disabled_pass=["AnnotateTarget"]):
        artifact, model = built(module, tmp_path)
    assert [operators(region.body) for region in regions(artifact.module)] == [["add", "subtract", "multiply"]] * 2
    assert sorted(operators(artifact.module["main"].body)) == ["add", "concatenate", "subtract"]
    assert_equal_to_the_reference(module, model)


def test_one_operator_of_each_dtype_under_one_name(tmp_path: Path) -> None:
    """EC02, EC03: an addition of floats and one of integers; both models have one name and are in one process."""
    models = []
    for dtype in ("float32", "int32"):
        x, y = relay.var("x", shape=(8, 8), dtype=dtype), relay.var("y", shape=(8, 8), dtype=dtype)
        module = IRModule.from_expr(relay.Function([x, y], relay.add(x, y)))
        (tmp_path / dtype).mkdir()
        artifact, model = built(module, tmp_path / dtype, "twin")
        assert [region["backend"] for region in artifact.summary["regions"]] == ["codegen_c"]
        models.append((module, model))
    for module, model in (*models, *models):
        assert_equal_to_the_reference(module, model)


THREE = """
def @main(%x: Tensor[(8, 8), float32], %y: Tensor[(8, 8), float32]) { @minus(@plus(%x, %x), @times(%y, %x)) }
def @plus(%a: Tensor[(8, 8), float32], %b: Tensor[(8, 8), float32], Compiler="ccompiler", Primitive=1,
          global_symbol="plus") -> Tensor[(8, 8), float32] { add(%a, %b) }
def @times(%a: Tensor[(8, 8), float32], %b: Tensor[(8, 8), float32], Compiler="ccompiler", Primitive=1,
           global_symbol="times") -> Tensor[(8, 8), float32] { multiply(%a, %b) }
def @minus(%a: Tensor[(8, 8), float32], %b: Tensor[(8, 8), float32], Compiler="ccompiler", Primitive=1,
           global_symbol="minus") -> Tensor[(8, 8), float32] { subtract(%a, %b) }
"""


def test_functions_that_were_given_their_compiler(tmp_path: Path) -> None:
    """EC04, RX04: three external functions in one library, each to be called; their texts are there to be looked at."""
    module = relaybuild.parse(HEAD + THREE)
    artifact = relaybuild.compile(module, config=C_ONLY, threads=1, save_temps=tmp_path / "work")
    texts = [path.name for path in (tmp_path / "work").rglob("*.c")]
    assert {"plus.c", "times.c", "minus.c"} <= set(texts)
    model = relaybuild.load_module(artifact.path)
    assert model.function_names == ("main", "minus", "plus", "times")
    assert_equal_to_the_reference(module, model)
    a, b = random_of(*(param.tensor_type for param in module["main"].params))
    out = np.zeros_like(a)
    model["times"](a, b, out)
    np.testing.assert_array_equal(out, a * b)


def test_a_text_that_does_not_compile_is_the_compilers_error(tmp_path: Path) -> None:
    """EC05: a header that is nowhere is named; nothing is left behind."""
    text = (
        '#include "nowhere.h"\nint32_t __tvm_ffi_SYMBOL(void *self, const RbValue *args, int32_t n, RbValue *result);\n'
    )

    @relaybuild.register_func("relay.ext.broken")
    def broken(function: Function) -> relaybuild.runtime.CSourceModule:
        return relaybuild.runtime.csource_module_create(text.replace("SYMBOL", str(function.attrs["global_symbol"])))

    x = relay.var("x", shape=(4,))
    module = IRModule.from_expr(relay.Function([x], marked(relay.exp, x, compiler="broken")))
    with pytest.raises(ToolError, match=r"nowhere\.h") as raised:
        relaybuild.compile(module)
    assert raised.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


COLLIDING = """#include "relaybuild/packed.h"
int helper(void) { return 0; }
RB_EXPORT int32_t __tvm_ffi_SYMBOL(void *self, const RbValue *args, int32_t num_args, RbValue *result);
int32_t __tvm_ffi_SYMBOL(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  (void)self, (void)args, (void)num_args, (void)result;
  return helper();
}
"""


def test_regions_that_define_the_same_symbol_are_named() -> None:
    @relaybuild.register_func("relay.ext.colliding")
    def colliding(function: Function) -> relaybuild.runtime.CSourceModule:
        symbol = str(function.attrs["global_symbol"])
        return relaybuild.runtime.csource_module_create(COLLIDING.replace("SYMBOL", symbol), "c", [symbol])

    x = relay.var("x", shape=(4,))
    inner = marked(relay.exp, x, compiler="colliding")
    module = IRModule.from_expr(relay.Function([x], marked(relay.tanh, relay.nn.softmax(inner), compiler="colliding")))
    with pytest.raises(UserError) as raised:
        relaybuild.compile(module, name="two")
    assert str(raised.value).startswith(
        "more than one unit of the library defines 'helper', found in 'relaybuild_two_colliding_main_0', "
        "'relaybuild_two_colliding_main_1': "
    )


def test_small_constants_are_in_the_region_and_large_ones_are_given(tmp_path: Path) -> None:
    """EC06: several functions with several constants each, which none takes for another's."""
    rng = np.random.default_rng(4)
    small = [relay.const(rng.standard_normal((8, 8)), "float32") for _ in range(4)]
    large = [relay.const(rng.standard_normal((200, 8, 8)), "float32") for _ in range(2)]
    x = relay.var("x", shape=(200, 8, 8))
    first = relay.multiply(relay.add(relay.subtract(x, small[0]), large[0]), small[1])
    second = relay.add(relay.multiply(relay.nn.softmax(first), small[2]), relay.subtract(large[1], small[3]))
    module = IRModule.from_expr(relay.Function([x], second))
    artifact, model = built(module, tmp_path)
    found = regions(artifact.module)
    assert [len(region.params) for region in found] == [2, 2]
    constants = [sum(isinstance(node, Constant) for node in post_order(region.body)) for region in found]
    assert all(constants)
    assert_equal_to_the_reference(module, model)


EDGES = """def @main(%x: Tensor[(2, 3), float32], %none: Tensor[(0, 3), float32], %c: bool) {
  %0 = nn.relu(%x);
  %1 = if (%c) { exp(%0) } else { nn.softmax(%0) };
  let %y = add(%1, %0);
  (%0, %0, %x, nn.relu(add(%none, 1f)), multiply(%y, %1))
}"""


@pytest.mark.parametrize("condition", [True, False])
def test_results_in_unusual_places(condition: bool, edges: relaybuild.Module) -> None:
    """A region's result that is returned twice, beside an input, without elements, in a branch and behind a let."""
    inputs = [np.arange(-3, 3, dtype="float32").reshape(2, 3), np.zeros((0, 3), "float32"), np.bool_(condition)]
    found = flat(edges(*inputs))
    assert [array.shape for array in found] == [(2, 3)] * 3 + [(0, 3), (2, 3)]
    for have, wanted in zip(found, flat(relaybuild.interpret(relaybuild.parse(HEAD + EDGES), *inputs)), strict=True):
        np.testing.assert_allclose(have, wanted, rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> relaybuild.Module:
    artifact, model = built(relaybuild.parse(HEAD + EDGES), tmp_path_factory.mktemp("edges"))
    host = operators(artifact.module["main"].body)
    assert set(host) <= {"nn.softmax"}
    assert len(regions(artifact.module)) >= 4
    return model


@dataclass(frozen=True)
class Zoo:
    """A model of one output for each case, with all backends whose libraries are there."""

    names: tuple[str, ...]
    module: IRModule
    after: IRModule
    library: Path
    flags: frozenset[str]

    @property
    def frame_at(self) -> int:
        """Where the first blob stands in the library."""
        return self.library.read_bytes().index(FRAME_START)


def _cases(with_dnnl: bool) -> tuple[list[Var], dict[str, Expr]]:
    """Parameters, and the cases by name: for which compilers is said by the tests."""
    rng = np.random.default_rng(6)

    def weight(*shape: int) -> Constant:
        return relay.const(rng.standard_normal(shape), "float32")

    def conv(data: Expr, weight: Expr, padding: tuple[int, ...], groups: int = 1) -> Expr:
        return relay.nn.conv2d(data, weight, padding=padding, groups=groups, kernel_size=(3, 3))

    image, other = relay.var("image", shape=(1, 8, 6, 6)), relay.var("other", shape=(1, 8, 6, 6))
    # the host takes no weights that are not constant
    kernel = relay.var("kernel", shape=(8, 8, 3, 3)) if with_dnnl else weight(8, 8, 3, 3)
    matrix = relay.var("matrix", shape=(5, 12))
    nothing = relay.var("nothing", shape=(0, 12))
    norm = relay.nn.batch_norm(
        conv(image, weight(8, 8, 3, 3), (1, 1)), *(relay.const(rng.uniform(0.5, 2, 8), "float32") for _ in range(4))
    )
    depthwise = conv(relay.nn.relu(conv(image, weight(8, 1, 3, 3), (1, 1), 8)), weight(8, 1, 3, 3), (1, 1), 8)
    two = [marked(relay.abs, each, compiler="examplejsoncompiler") for each in (image, other)]
    cases = {
        "conv": conv(image, kernel, (1, 1)),
        "grouped": conv(image, weight(8, 4, 3, 3), (0, 0), 2),
        "add": relay.add(image, other),
        "multiply": relay.multiply(image, other),
        "relu4": relay.nn.relu(image),
        "relu2": relay.nn.relu(matrix),
        "dense": relay.nn.dense(matrix, weight(7, 12)),
        "norm": norm[0],
        "padding": conv(image, kernel, (0, 1, 2, 3)),
        "depthwise": depthwise,
        "composite": relay.nn.relu(relay.nn.bias_add(conv(image, weight(8, 8, 3, 3), (1, 1)), weight(8))),
        "partial": relay.nn.relu(relay.nn.bias_add(conv(relay.nn.relu(image), weight(8, 8, 3, 3), (1, 1)), weight(8))),
        "concatenate": relay.concatenate([*two, relay.nn.softmax(image)], axis=1),
        "empty": relay.nn.dense(relay.nn.relu(nothing), weight(7, 12)),
        "wide": relay.nn.dense(relay.cast(matrix, "float64"), relay.const(rng.standard_normal((7, 12)), "float64")),
        "exp": relay.exp(matrix),
    }
    return [image, other, matrix, nothing, *([kernel] if isinstance(kernel, Var) else [])], cases


FLAGS = ("USE_CODEGENC", "USE_EXAMPLE_JSON", "USE_CBLAS", "USE_DNNL")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    found = select(dict.fromkeys(FLAGS[:2], "ON") | dict.fromkeys(FLAGS[2:], "AUTO"))
    flags = frozenset(backend.cmake_flag for backend in found.backends)
    params, cases = _cases("USE_DNNL" in flags)
    module = IRModule.from_expr(relay.Function(params, relay.Tuple(list(cases.values()))))
    artifact = relaybuild.compile(module, config=dict.fromkeys(flags, "ON"), name="zoo", threads=2)
    library = tmp_path_factory.mktemp("zoo") / "zoo.so"
    artifact.export_library(library)
    return Zoo(tuple(cases), module, artifact.module, library, flags)


@pytest.fixture(scope="module")
def results(zoo: Zoo) -> dict[str, tuple[Array, Array]]:
    """What was found and what was wanted, by case."""
    inputs = random_of(*(param.tensor_type for param in zoo.module["main"].params))
    found = flat(relaybuild.load_module(zoo.library)(*inputs))
    wanted = flat(relaybuild.interpret(zoo.module, *inputs))
    return {name: (one, other) for name, one, other in zip(zoo.names, found, wanted, strict=True)}


def check(name: str, zoo: Zoo, results: Mapping[str, tuple[Array, Array]], *compilers: str) -> None:
    """Fail where a case's numbers are wrong, or a call of it belongs to others than these compilers (or to fewer)."""
    body = zoo.after["main"].body
    fields = body.fields if isinstance(body, relay.Tuple) else ()
    nodes = [node for node in post_order(fields[zoo.names.index(name)]) if isinstance(node, Call)]
    owners = {
        str(zoo.after[node.op.name_hint].attrs["Compiler"]) if isinstance(node.op, relay.GlobalVar) else "host"
        for node in nodes
        if any(isinstance(each, Var) for each in post_order(node))  # what depends on constants alone is computed once
    }
    assert owners == set(compilers)
    found, wanted = results[name]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max(initial=1))


@pytest.fixture
def with_dnnl(zoo: Zoo) -> None:
    if "USE_DNNL" not in zoo.flags:
        pytest.skip("oneDNN was not found on this machine")


@pytest.mark.usefixtures("with_dnnl")
class TestOneDNN:
    @pytest.mark.parametrize("name", ["conv", "grouped"])
    def test_convolutions(self, name: str, zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
        """JR01: a plain and a grouped convolution."""
        check(name, zoo, results, "dnnl")

    def test_a_dense(self, zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
        """JR05: a matrix product."""
        check("dense", zoo, results, "dnnl")

    def test_a_normalisation(self, zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
        """JR06: what is left of it is the convolution's weights and bias."""
        check("norm", zoo, results, "dnnl")

    def test_padding_that_differs_on_each_side(self, zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
        """EC07: asymmetric padding."""
        check("padding", zoo, results, "dnnl")

    def test_a_chain(self, zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
        """EC08, JR07: two depthwise convolutions and what is between them, in one region, weights constant."""
        check("depthwise", zoo, results, "dnnl")

    def test_a_pattern(self, zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
        """JR08: convolution, bias and rectifier are one composite function."""
        check("composite", zoo, results, "dnnl")
        names = {
            str(node.attrs["Composite"])
            for region in regions(zoo.after)
            for node in post_order(region.body)
            if isinstance(node, Function) and "Composite" in node.attrs
        }
        assert any(name.startswith("dnnl.conv2d") and "relu" in name for name in names), names

    def test_constant_weights(self, zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
        """EC09, JR09: weights and biases that are constant."""
        check("grouped", zoo, results, "dnnl")
        check("dense", zoo, results, "dnnl")

    def test_constants_beside_variables(self, zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
        """JR10: each operand reaches its place, whichever of them are constant."""
        found, wanted = results["partial"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["add", "multiply", "relu4", "relu2"])
def test_one_operator_in_a_blob(name: str, zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
    """JR02-JR04: a sum, a product and rectifiers of two ranks, run by an interpreter of graphs."""
    check(name, zoo, results, "examplejsoncompiler")


def test_two_blobs_beside_the_host(zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
    """XR03: two graphs marked by hand, for a backend of lower priority too, and the host's result, joined."""
    check("concatenate", zoo, results, "examplejsoncompiler", "host")


def test_tensors_without_elements_go_through_every_backend(zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
    found, _ = results["empty"]
    assert found.shape == (0, 7)


def test_what_one_backend_declines_goes_to_the_next(zoo: Zoo, results: dict[str, tuple[Array, Array]]) -> None:
    check("exp", zoo, results, "ccompiler")
    if "USE_CBLAS" not in zoo.flags:
        pytest.skip("a BLAS was not found on this machine")
    check("wide", zoo, results, "cblas", "host")


def test_the_modules_of_a_library(zoo: Zoo) -> None:
    """RX01, RX02, MB11: what is code is one module, each blob another; the library has the functions of all."""
    model = relaybuild.load_module(zoo.library)
    keys = [part.type_key for part in model.imported_modules]
    assert model.type_key == "relaybuild"
    assert keys[0] == "c"
    assert set(keys[1:]) == {"examplejson"}
    names = [name for part in model.imported_modules for name in part.function_names]
    assert sorted(model.function_names) == sorted(["main", *names])
    assert len(names) == len(regions(zoo.after))
    for part in model.imported_modules[1:]:
        (name,) = part.function_names
        assert part.get_source().startswith(f"{name}\n")


def test_one_library_under_two_paths(zoo: Zoo, results: dict[str, tuple[Array, Array]], tmp_path: Path) -> None:
    shutil.copy(zoo.library, tmp_path / "copy.so")
    inputs = random_of(*(param.tensor_type for param in zoo.module["main"].params))
    models = [relaybuild.load_module(path) for path in (zoo.library, tmp_path / "copy.so", zoo.library)]
    for model in (*models, *reversed(models)):
        for found, (first, _) in zip(flat(model(*inputs)), results.values(), strict=True):
            np.testing.assert_array_equal(found, first)


# place behind the beginning of the first frame, what is written there, and what is said of it
DAMAGE = {
    "magic": (0, b"X", "they do not begin as a frame does"),
    "version": (8, b"\2", "has version 2, this relaybuild reads version 1"),
    "size of the key": (12, b"\x0a", "the module was altered: "),
    "size of the flag": (16, b"\xff\xff\xff\x7f", "the module is cut short"),
    "size of the content": (20, b"\xff" * 8, "the module is cut short"),
    "key": (28, b"E", "the module was altered: its checksum does not match its bytes"),
    "flag": (28 + 11, b"u", "the module was altered: its checksum does not match its bytes"),
    "content": (28 + 11 + 16 + 3, b"#", "the module was altered: its checksum does not match its bytes"),
    "checksum": (-1, b"?", "the module was altered: its checksum does not match its bytes"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_an_altered_blob_in_a_library_is_refused(kind: str, zoo: Zoo, tmp_path: Path) -> None:
    """RT05: the region is named with what is wrong; the same bytes alone are refused with the same words."""
    place, written, message = DAMAGE[kind]
    content = bytearray(zoo.library.read_bytes())
    sizes = struct.unpack_from("<IIQ", content, zoo.frame_at + 12)
    size = 28 + sum(sizes) + 4
    start = zoo.frame_at + place % size
    assert content[start : start + len(written)] != written
    content[start : start + len(written)] = written
    (tmp_path / "zoo.so").write_bytes(content)
    inputs = random_of(*(param.tensor_type for param in zoo.module["main"].params))
    with pytest.raises(UserError) as raised:
        relaybuild.load_module(tmp_path / "zoo.so")(*inputs)
    assert "region 'relaybuild_zoo_examplejsoncompiler_" in str(raised.value)
    assert message in str(raised.value)
    with pytest.raises(UserError) as alone:
        unframe(bytes(content[zoo.frame_at : zoo.frame_at + size]))
    assert str(alone.value) in str(raised.value)


def test_a_region_may_not_take_the_name_of_the_whole_model() -> None:
    module = relaybuild.parse(HEAD + THREE.replace('"plus"', '"main"'))
    with pytest.raises(UserError, match="'@plus' has the 'global_symbol' 'main', which is the function of the whole"):
        relaybuild.compile(module, config=C_ONLY)
