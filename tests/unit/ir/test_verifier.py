"""Malformed modules are named as such."""

import pytest

from relaybuild.errors import InternalError
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, If, Let, Tuple, Var, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.verifier import verify_module


def test_well_formed() -> None:
    text = """
    def @main(%x: int32) -> int32 {
      let %f = fn (%n: int32) -> int32 { if (%n < 1) { %x } else { %f(%n - 1) } };
      let %a = %f(%x);
      @main(%a)
    }
    """
    verify_module(parse(text), "typed")


x, y = var("x", ()), Var("y")


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (y, "'%y' is not bound"),
        (Call(GlobalVar("g"), []), "'@g' is not defined"),
        (Tuple([Let(y, x, y), y]), "'%y' is used out of its scope"),
        (Tuple([Let(y, x, y), Let(y, x, y)]), "'%y' is bound twice"),
        (Let(y, y, x), "'%y' is used out of its scope"),
        (If(const(True), Let(y, x, y), y), "'%y' is used out of its scope"),
    ],
)
def test_faults(body: Expr, fault: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify_module(IRModule({"main": Function([x], body)}))
    assert str(caught.value).splitlines()[1] == f"  '@main': {fault}"


def test_missing_types() -> None:
    verify_module(IRModule({"main": Function([y], y)}))
    with pytest.raises(InternalError, match="a Var has no type"):
        verify_module(IRModule({"main": Function([y], y)}), "typed")
