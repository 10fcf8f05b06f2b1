"""A script brings a code generator by registering a function: its regions run within compiled models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import relaybuild
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.pattern import is_op, wildcard
from relaybuild.ir.visitor import post_order
from relaybuild.partition.backend import GeneratedCode, register_supports
from relaybuild.partition.csource import Buffer, CSourceCodegen
from relaybuild.partition.pattern_table import register_pattern_table
from relaybuild.partition.regions import compiler_begin, compiler_end

TEXT = """
#include "relaybuild/packed.h"
static const int64_t shape[] = {4};
static const RbTensorInfo tensors[] = {{"x", 1, shape, {kDLFloat, 32, 1}}, {"y", 1, shape, {kDLFloat, 32, 1}}};
static const RbSignature signature = {"SYMBOL", 1, 1, tensors, tensors + 1};
RB_EXPORT int32_t __tvm_ffi_SYMBOL(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  void *data[2];
  (void)self, (void)result;
  if (rb_unpack(&signature, args, num_args, data)) {
    return -1;
  }
  for (int i = 0; i < 4; ++i) {
    ((float *)data[1])[i] = ((const float *)data[0])[i] + 100;
  }
  return 0;
}
"""


class Counting(CSourceCodegen):
    """Counts how many of a script's operators a region has, by adding 100 for each."""

    def emit_call(self, call: Call, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
        (out,) = outputs
        return f"for (int i = 0; i < {out.num_elements}; ++i) {{ {out.name}[i] = {inputs[0].name}[i] + 100; }}"

    def emit_composite(self, call: Call, name: str, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
        return self.emit_call(call, inputs, outputs).replace("100", "1000")


def from_text(function: Function) -> relaybuild.runtime.CSourceModule:
    symbol = str(function.attrs["global_symbol"])
    return relaybuild.runtime.csource_module_create(TEXT.replace("SYMBOL", symbol), "c", [symbol])


def from_generator(function: Function) -> GeneratedCode:
    return Counting(function).generate()


def run(body: Callable[[Expr], Expr], folder: Path) -> list[float]:
    """What a model over a vector of zeros gives, compiled and loaded; a script's compiler has a region of it."""
    x = relaybuild.relay.var("x", shape=(4,))
    artifact = relaybuild.compile(IRModule.from_expr(relaybuild.relay.Function([x], body(x))), name="scripted")
    assert {region["backend"] for region in artifact.summary["regions"]} == {"script"}
    artifact.export_library(folder / "scripted.so")
    result = relaybuild.load_module(folder / "scripted.so")(np.zeros(4, np.float32))
    assert isinstance(result, np.ndarray)
    return list(result)


def by_hand(x: Expr) -> Expr:
    call = relaybuild.relay.exp(compiler_begin(relaybuild.relay.add(x, x), "script"))
    return relaybuild.relay.negative(compiler_end(call, "script"))


@pytest.mark.parametrize("generate", [from_text, from_generator])
def test_calls_are_marked_by_hand(generate: Callable[[Function], object], tmp_path: Path) -> None:
    """TH01: a registered function makes a region's module."""
    relaybuild.register_func("relay.ext.script")(generate)
    assert run(by_hand, tmp_path) == [-100] * 4


def test_calls_are_taken_by_a_predicate(tmp_path: Path) -> None:
    relaybuild.register_func("relay.ext.script", from_generator)
    register_supports("script", "exp")(lambda call: True)
    assert run(lambda x: relaybuild.relay.exp(relaybuild.relay.exp(x)), tmp_path) == [200] * 4


def test_calls_are_taken_by_a_pattern(tmp_path: Path) -> None:
    relaybuild.register_func("relay.ext.script", from_generator)
    register_pattern_table("script", lambda: [("script.exp_exp", is_op("exp")(is_op("exp")(wildcard())))])
    assert run(lambda x: relaybuild.relay.exp(relaybuild.relay.exp(x)), tmp_path) == [1000] * 4


def test_a_region_is_prepared_before_its_code_is_made(tmp_path: Path) -> None:
    """TH02: a registered function rewrites a region before its code is made."""
    relaybuild.register_func("relay.ext.script", from_generator)
    seen: list[str] = []

    @relaybuild.register_func("relay.ext.script.optimize")
    def twice(mod: IRModule) -> IRModule:
        main = mod["main"]
        seen.extend(node.op_name for node in post_order(main.body) if isinstance(node, Call))
        return mod.with_function("main", main.with_body(relaybuild.relay.exp(main.body)))

    assert run(by_hand, tmp_path) == [-200] * 4
    assert seen == ["exp"]


def test_two_models_of_one_script_are_in_one_process(tmp_path: Path) -> None:
    relaybuild.register_func("relay.ext.script", from_generator)
    x = relaybuild.relay.var("x", shape=(4,))
    modules = []
    for name, body in (("one", by_hand(x)), ("two", relaybuild.relay.negative(by_hand(x)))):
        artifact = relaybuild.compile(IRModule.from_expr(relaybuild.relay.Function([x], body)), name=name)
        artifact.export_library(tmp_path / f"{name}.so")
        modules.append(relaybuild.load_module(tmp_path / f"{name}.so"))
    found = [np.asarray(module(np.zeros(4, np.float32)))[0] for module in modules]
    assert found == [-100, 100]
    names = [set(module.function_names) - {"main"} for module in modules]
    assert all(names)
    assert not names[0] & names[1]


GRAPH = """
{symbol}
  input 0 4
  const 1 4 value: 41
  add 2 inputs: 0 1 shape: 4
"""


def test_a_module_of_another_kind_becomes_part_of_the_library(tmp_path: Path) -> None:
    @relaybuild.register_func("relay.ext.examplejsoncompiler")
    def as_graph(function: Function) -> relaybuild.runtime.Module:
        path = tmp_path / "region.examplejson"
        path.write_text(GRAPH.format(symbol=function.attrs["global_symbol"]), encoding="utf-8")
        return relaybuild.load_module(path, "examplejson")

    x = relaybuild.relay.var("x", shape=(4,))
    call = compiler_end(relaybuild.relay.exp(compiler_begin(x, "examplejsoncompiler")), "examplejsoncompiler")
    module = IRModule.from_expr(relaybuild.relay.Function([x], call))
    artifact = relaybuild.compile(module, config={"USE_EXAMPLE_JSON": "ON"}, name="graph")
    artifact.export_library(tmp_path / "graph.so")
    loaded = relaybuild.load_module(tmp_path / "graph.so")
    assert [part.type_key for part in loaded.imported_modules] == ["examplejson"]
    assert np.asarray(loaded(np.ones(4, np.float32))).tolist() == [42] * 4
