"""What is refused of functions that are marked for a compiler, before any code is made."""

from __future__ import annotations

import pytest

from relaybuild.backends.generation import generate_regions
from relaybuild.backends.selection import Selection
from relaybuild.contrib.codegen_c import BACKEND
from relaybuild.errors import UserError
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.partition.backend import CodegenOptions
from relaybuild.target import Target

ON = Selection((BACKEND,))
OPTIONS = CodegenOptions("model", "model", Target.parse("c"), (), ("x",), ("y",))
TEXT = """
def @main(%x: Tensor[(4,), float32], %y: Tensor[(3,), float32]) { (@a(%x), @b(%y)) }
def @a(%x: Tensor[(4,), float32], Compiler="COMPILER", global_symbol="one", Primitive=1) { nn.relu(%x) }
def @b(%p: Tensor[(3,), float32], Compiler="COMPILER", global_symbol="SYMBOL", Primitive=1) { (exp(%p), %p) }
"""


def program(symbol: str = "two", compiler: str = "ccompiler") -> IRModule:
    return infer_types(parse(TEXT.replace("SYMBOL", symbol).replace("COMPILER", compiler)))


def test_each_function_is_a_region_with_its_tensors() -> None:
    regions = generate_regions(program(), OPTIONS, ON)
    assert [(region.name, region.ports.symbol, region.backend.name) for region in regions] == [
        ("a", "one", "codegen_c"),
        ("b", "two", "codegen_c"),
    ]
    assert [port.name for port in regions[1].ports.inputs] == ["p"]
    outputs = [(port.name, port.type.static_shape) for port in regions[1].ports.outputs]
    assert outputs == [("out0", (3,)), ("out1", (3,))]
    assert "__tvm_ffi_two" in regions[1].code.units[0].text


@pytest.mark.parametrize(
    ("symbol", "message"),
    [
        ("one", "'@a' and '@b' have the same 'global_symbol', 'one'"),
        ("main", "'@b' has the 'global_symbol' 'main', which is the function of the whole model"),
        ("a b", "'@b' has the 'global_symbol' 'a b', expected a C identifier"),
        ("1st", "'@b' has the 'global_symbol' '1st', expected a C identifier"),
        ("", "'@b' has the 'global_symbol' '', expected a C identifier"),
    ],
)
def test_symbols_that_cannot_be(symbol: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        generate_regions(program(symbol), OPTIONS, ON)
    assert str(raised.value) == message


def test_a_backend_that_is_off_is_named_with_its_flag() -> None:
    with pytest.raises(UserError, match="its backend 'codegen_c' is off; switch it on with -D USE_CODEGENC=ON"):
        generate_regions(program(), OPTIONS, Selection())


def test_a_compiler_that_nobody_is_is_named_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"compiler 'nobody', but no backend has this tag; known are .*'ccompiler'"):
        generate_regions(program(compiler="nobody"), OPTIONS, ON)
