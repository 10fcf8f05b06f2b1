"""What the base of C generators writes around the statements of a vendor, compiled and called."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runners.packed import Failure, build, options, typed

from relaybuild.errors import UnsupportedError, UserError
from relaybuild.ir.expr import Call, Constant, Function, Tuple, TupleGetItem, const, var
from relaybuild.ir.op import call_op
from relaybuild.ir.pattern import is_op, wildcard
from relaybuild.ir.types import TensorType, TupleType
from relaybuild.partition.backend import GeneratedCode, SourceUnit, flat_types
from relaybuild.partition.c_text import Port
from relaybuild.partition.csource import Buffer, CSourceCodegen
from relaybuild.partition.merge_composite import MergeComposite
from relaybuild.partition.region_text import RegionPorts, region_unit

THREE = "Tensor[(3,), float32]"


class Adder(CSourceCodegen):
    """Adds elements of one shape, splits a vector into its elements, and copies whatever else it is given."""

    def emit_call(self, call: Call, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
        if call.op_name == "add":
            return self.loop(outputs[0], f"{inputs[0].name}[i] + {inputs[1].name}[i]")
        if call.op_name == "split":
            return "\n".join(f"{out.name}[0] = {inputs[0].name}[{number}];" for number, out in enumerate(outputs))
        if call.op_name == "concatenate":
            return "\n".join(f"{outputs[0].name}[{n}] = {each.name}[0];" for n, each in enumerate(inputs))
        if call.op_name == "negative":
            return 'return rb_raise("the device is %s", "gone");'
        if call.op_name == "sum":
            return f"{outputs[0].name}[0] = {inputs[0].name}[0];"
        raise self.unsupported(call, f"'{call.op_name}'")

    def emit_composite(self, call: Call, name: str, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
        self.include("<stdbool.h>")
        self.declare("enum { region_negates = true };")
        terms = " + ".join(f"{each.name}[i]" for each in inputs)
        return f"/* {name} */\n" + self.loop(outputs[0], f"region_negates ? -({terms}) : {terms}")

    def loop(self, out: Buffer, value: str) -> str:
        return f"for (int64_t i = 0; i < {out.num_elements}; ++i) {{\n  {out.name}[i] = {value};\n}}"


class PlusPlusAdder(Adder):
    language = "c++"


def main_of(text: str) -> Function:
    return typed(text)["main"]


def code_of(function: Function, generator: type[CSourceCodegen] = Adder, **extra: Any) -> GeneratedCode:
    return generator(function, options(function, **extra)).generate()


def results(
    function: Function, inputs: Sequence[Any], folder: Path, generator: type[CSourceCodegen] = Adder
) -> list[list[float]]:
    library = build(code_of(function, generator).units, folder)
    outputs = library.run("region", inputs, flat_types(function.body.checked_type))
    return [output.ravel().tolist() for output in outputs]


def vector(*values: float) -> Any:
    return np.array(values, np.float32)


def test_calls_follow_one_another_through_buffers(tmp_path: Path) -> None:
    function = main_of(f"def @main(%x: {THREE}, %y: {THREE}) {{ let %a = %x + %y; %0 = %a + %y; %0 + %0 }}")
    assert results(function, [vector(1, 2, 3), vector(10, 20, 30)], tmp_path) == [[42, 84, 126]]


@pytest.mark.parametrize("generator", [Adder, PlusPlusAdder])
def test_results_are_parameters_constants_one_another_and_values_read_again(
    generator: type[CSourceCodegen], tmp_path: Path
) -> None:
    x = var("x", (3,))
    total = x + x
    function = Function([x], Tuple([total, x, const(vector(7, 8, 9)), total, total + x, x]))
    found = results(function, [vector(1, 2, 3)], tmp_path, generator)
    assert found == [[2, 4, 6], [1, 2, 3], [7, 8, 9], [2, 4, 6], [3, 6, 9], [1, 2, 3]]


def test_tuples_are_tensors_one_by_one_however_they_are_nested(tmp_path: Path) -> None:
    three = TensorType((3,))
    pair = var("pair", TupleType((three, TupleType((three, TupleType((three,)))))))
    last = TupleGetItem(TupleGetItem(TupleGetItem(pair, 1), 1), 0)
    inner = Tuple([TupleGetItem(pair, 0), Tuple([last + last, TupleGetItem(pair, 1)])])
    function = Function([pair], Tuple([TupleGetItem(inner, 1), Tuple([])]))
    found = results(function, [vector(1, 1, 1), vector(2, 2, 2), vector(3, 3, 3)], tmp_path)
    assert found == [[6, 6, 6], [2, 2, 2], [3, 3, 3]]


def test_a_call_has_several_results_and_takes_a_tuple(tmp_path: Path) -> None:
    text = f"""def @main(%x: {THREE}) {{
      %0 = split(%x, indices_or_sections=3);
      concatenate((%0.2, %0.0), axis=0)
    }}"""
    assert results(main_of(text), [vector(1, 2, 3)], tmp_path) == [[3, 1]]


def test_a_chain_needs_no_more_than_two_buffers_and_no_recursion() -> None:
    x = var("x", (16,))
    value = x + x
    for _ in range(2_000):
        value = value + x
    code = code_of(Function([x], value))
    assert code.stateful
    assert "aligned_alloc(64, 128)" in code.units[0].text


def test_without_buffers_nothing_is_allocated_or_kept() -> None:
    code = code_of(main_of(f"def @main(%x: {THREE}) {{ %x + %x }}"))
    assert not code.stateful
    assert "alloc" not in code.units[0].text
    assert "region_create" not in code.units[0].text


STATE = """
#include "relaybuild/packed.h"
RB_HIDDEN extern const RbRegion rb_region_region;
/* Whether two calls with what is kept compute, and a call without. */
RB_EXPORT int32_t __tvm_ffi_with_state(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  for (int i = 0; i < 2; ++i) {
    if (rb_region_region.create(&rb_region_region, &self) || rb_region_region.call(self, args, num_args, result)) {
      return -1;
    }
    const int32_t status = rb_region_region.call(self, args, num_args, result);
    rb_region_region.destroy(self);
    if (status) {
      return status;
    }
  }
  return rb_region_region.call(NULL, args, num_args, result);
}
"""


def test_an_instance_keeps_the_buffers(tmp_path: Path) -> None:
    function = main_of(f"def @main(%x: {THREE}) {{ %0 = %x + %x; %0 + %x }}")
    code = code_of(function)
    three = TensorType((3,))
    ports = RegionPorts("region", "adder", (Port("x0", three),), (Port("y0", three),))
    units = [*code.units, region_unit(ports, code), SourceUnit("state", STATE, hot=False)]
    (found,) = build(units, tmp_path).run("with_state", [vector(1, 2, 3)], [three])
    assert found.tolist() == [3, 6, 9]


def test_the_wrapper_takes_tensors(tmp_path: Path) -> None:
    function = main_of(f"def @main(%x: {THREE}) {{ %0 = %x + %x; %0 + %x }}")
    text = """
#include "relaybuild/packed.h"
RB_HIDDEN int32_t region_wrapper_(DLTensor *in_0, DLTensor *out_0);
RB_EXPORT int32_t __tvm_ffi_by_wrapper(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  DLTensor *in = (DLTensor *)args[0].u.as_pointer;
  in->data = (char *)in->data - 8;
  in->byte_offset = 8;
  (void)self, (void)num_args, (void)result;
  return region_wrapper_(in, (DLTensor *)args[1].u.as_pointer);
}
"""
    units = [*code_of(function).units, SourceUnit("by_wrapper", text, hot=False)]
    (found,) = build(units, tmp_path).run("by_wrapper", [vector(1, 2, 3)], [TensorType((3,))])
    assert found.tolist() == [3, 6, 9]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([vector(1, 2, 3)], "got 1 arguments, function 'region' takes 2: 1 inputs, then 1 outputs"),
        ([vector(1, 2), vector(0, 0, 0)], "function 'region': input 'x0'"),
        ([vector(1, 2, 3), np.zeros(3, np.int32)], "function 'region': output 'y0'"),
    ],
)
def test_arguments_are_checked(arguments: Sequence[Any], message: str, tmp_path: Path) -> None:
    library = build(code_of(main_of(f"def @main(%x: {THREE}) {{ %x + %x }}")).units, tmp_path)
    with pytest.raises(Failure, match=message):
        library.call("region", arguments)


def test_a_statement_fails_with_its_own_words(tmp_path: Path) -> None:
    library = build(code_of(main_of(f"def @main(%x: {THREE}) {{ %0 = negative(%x); %0 + %x }}")).units, tmp_path)
    with pytest.raises(Failure, match=r"^the device is gone$"):
        library.run("region", [vector(1, 2, 3)], [TensorType((3,))])


def test_no_memory_is_an_error(tmp_path: Path) -> None:
    side = 1 << 23
    x, y = var("x", (side, 1)), var("y", (1, side))
    function = Function([x, y], call_op("sum", [x + y]))
    with pytest.raises(Failure, match=f"^out of memory: region 'region' needs {4 * side * side} bytes of buffers$"):
        results(function, [np.zeros((side, 1), np.float32), np.zeros((1, side), np.float32)], tmp_path)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc/self/statm")
@pytest.mark.parametrize("fails", [False, True])
def test_what_a_call_takes_it_gives_back(fails: bool, tmp_path: Path) -> None:
    class Idle(Adder):
        def emit_call(self, call: Call, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
            return "" if call.op_name == "add" else super().emit_call(call, inputs, outputs)

    def pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0])

    side = 1 << 13
    x, y = var("x", (side, 1)), var("y", (1, side))
    total = call_op("sum", [x + y])
    function = Function([x, y], call_op("negative", [total]) if fails else total)
    library = build(code_of(function, Idle).units, tmp_path)
    arguments = [np.zeros((side, 1), np.float32), np.zeros((1, side), np.float32), np.zeros((), np.float32)]

    def call() -> None:
        with pytest.raises(Failure) if fails else contextlib.nullcontext():
            library.call("region", arguments)

    call()
    before = pages()
    for _ in range(20):
        call()
    assert (pages() - before) * resource.getpagesize() < 4 * side * side


def test_composite_functions_reach_their_own_method(tmp_path: Path) -> None:
    pattern = is_op("negative")(is_op("add")(wildcard(), wildcard()))
    mod = MergeComposite([("adder.negated_sum", pattern)])(
        typed(f"def @main(%x: {THREE}, %y: {THREE}) {{ %0 = negative(%x + %y); %0 + %y }}")
    )
    assert results(mod["main"], [vector(1, 2, 3), vector(1, 1, 1)], tmp_path) == [[-1, -2, -3]]


def test_a_generator_without_patterns_refuses_composite_functions() -> None:
    class Plain(Adder):
        emit_composite = CSourceCodegen.emit_composite

    mod = MergeComposite([("a.twice", is_op("add")(wildcard(), wildcard()))])(
        typed(f"def @main(%x: {THREE}) {{ %x + %x }}")
    )
    with pytest.raises(UnsupportedError, match=r"region 'region' has no C for the composite function 'a\.twice'"):
        code_of(mod["main"], Plain)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("def @main(%x: Tensor[(n, 3), float32]) { %x }", "a tensor of type .*: its shape must be numbers"),
        ("def @main(%c: bool, %x: int32) { if (%c) { %x } else { %x } }", "a If"),
        ("def @main(%x: int32) { @f(%x) } def @f(%x: int32) -> int32 { %x }", "a GlobalVar"),
        ("def @main(%x: float32) { tan(%x) }", "'tan'"),
    ],
)
def test_what_has_no_c_is_named(text: str, what: str) -> None:
    with pytest.raises(UnsupportedError, match=f"the code generator of region 'region' has no C for {what}"):
        code_of(main_of(text))


CONSTANTS = [
    np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, 3.4028235e38, 0.1, 16777217], np.float32),
    np.array([0x7FC00000, 0xFFC12345, 0x7F800001], np.uint32).view(np.float32),
    np.array([0.1, 5e-324, -1.7976931348623157e308, 1e22, 123456789.123], np.float64),
    np.array([0x7FF8000000000000, 0xFFF0000000000001], np.uint64).view(np.float64),
    np.array([0, 0x7C01, 0x8000, 0x3C00], np.uint16).view(np.float16),
    np.array([True, False]),
    np.float32(-2.5),
    np.zeros((0, 3), np.int64),
    *(np.array([np.iinfo(f"{s}int{b}").min, np.iinfo(f"{s}int{b}").max, 7], f"{s}int{b}")
      for s in ("", "u") for b in (8, 16, 32, 64)),
]  # fmt: skip


@pytest.mark.parametrize("generator", [Adder, PlusPlusAdder])
def test_constants_keep_every_bit(generator: type[CSourceCodegen], tmp_path: Path) -> None:
    constants = [Constant(np.asarray(each)) for each in CONSTANTS]
    function = Function([], Tuple(constants))
    library = build(code_of(function, generator).units, tmp_path)
    found = library.run("region", [], [each.tensor_type for each in constants])
    for want, have in zip(constants, found):
        assert have.tobytes() == want.data.tobytes(), want.dtype


def test_equal_constants_are_one_array() -> None:
    x = var("x", (3,))
    function = Function([x], x + const(vector(1, 2, 3)) + const(vector(1, 2, 3)) + const(vector(3, 2, 1)))
    assert code_of(function).units[0].text.count("static const float ") == 2


def test_what_never_changes_is_told_to_the_vendor() -> None:
    seen: list[bool] = []

    class Asking(Adder):
        def emit_call(self, call: Call, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
            seen.extend(each.is_constant for each in (*inputs, *outputs))
            return super().emit_call(call, inputs, outputs)

    x, w = var("x", (3,)), var("w", (3,))
    code_of(Function([x, w], x + w + const(vector(1, 2, 3))), Asking, constants=frozenset((1,)))
    assert seen == [False, True, False, False, True, False]


def test_functions_that_are_equal_are_one() -> None:
    class Defining(Adder):
        def emit_call(self, call: Call, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> str:
            (out,) = outputs
            body = [f"for (int i = 0; i < {out.num_elements}; ++i) {{", "  out[i] = a[i] + a[i];", "}"]
            name = self.define(f"const {out.ctype} *a, {out.ctype} *out", body, "twice")
            return f"{name}({inputs[0].name}, {out.name});"

    x, y = var("x", (3,)), var("y", (4,))
    text = code_of(Function([x, y], Tuple([x + x + x, y + y])), Defining).units[0].text
    assert text.count("/* twice */") == 2
    assert text.count("region_0(const float *a, float *out) {") == 1


def test_a_function_tells_its_own_symbol(tmp_path: Path) -> None:
    function = main_of(f"def @main(%x: {THREE}, %p: ({THREE}, {THREE})) {{ %x + %p.1 }}")
    with pytest.raises(UserError, match="found the attribute 'global_symbol' None"):
        Adder(function)
    library = build(Adder(function.with_attr("global_symbol", "mine")).generate().units, tmp_path)
    three = TensorType((3,))
    assert library.run("mine", [vector(1, 2, 3)] * 3, [three])[0].tolist() == [2, 4, 6]
    with pytest.raises(Failure, match=r"function 'mine': input 'p\.0'"):
        library.run("mine", [vector(1, 2, 3), vector(1), vector(1, 2, 3)], [three])


def test_a_name_of_many_regions_has_one_text() -> None:
    function = main_of(f"def @main(%x: {THREE}) {{ %0 = %x + %x; %0 + 1f }}")
    first, second = (Adder(function, options(function, symbol)).generate().units[0] for symbol in ("one", "two"))
    assert (first.name, second.name) == ("one", "two")
    assert first.text.replace("one", "two") == second.text
