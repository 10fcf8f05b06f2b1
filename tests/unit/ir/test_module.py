"""Modules as maps from names to functions and types."""

import pytest

from relaybuild.errors import UserError
from relaybuild.ir.adt import Constructor, TypeData
from relaybuild.ir.expr import Call, Function, GlobalVar, const, var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import GlobalTypeVar

F, G = Function([], const(1)), Function([], const(2))


def test_functions_by_name_and_global() -> None:
    mod = IRModule({GlobalVar("g"): G, "f": F}, {"b": 1, "a": 2})
    assert list(mod) == ["f", "g"]
    assert list(mod.attrs) == ["a", "b"]
    assert mod["f"] is mod[GlobalVar("f")] is F
    assert GlobalVar("g") in mod
    assert "h" not in mod
    with pytest.raises(UserError, match="the module has no function '@h'; it has @f, @g"):
        mod["h"]
    with pytest.raises(UserError, match="'@x' must be a Function, got Constant"):
        IRModule({"x": const(1)})  # type: ignore[dict-item]


def test_the_same_object_where_nothing_changes() -> None:
    mod = IRModule({"f": F})
    assert mod.with_function("f", F) is mod
    assert mod.with_functions({"f": F}) is mod
    assert list(mod.with_function("g", G)) == ["f", "g"]
    assert list(mod) == ["f"]
    assert list(mod.with_functions({"g": G})) == ["g"]


def test_an_expression_becomes_main() -> None:
    x = var("x", (3,))
    assert IRModule.from_expr(F)["main"] is F
    assert IRModule.from_expr(x + 1)["main"].params == (x,)


def test_an_expression_with_what_it_speaks_of() -> None:
    header = GlobalTypeVar("Box")
    box = Constructor("Box", [const(1).checked_type], header)
    data = TypeData(header, [], [box])
    mod = infer_types(IRModule.from_expr(Call(box, [Call(GlobalVar("f"), [])]), {"f": F}, [data]))
    assert str(mod["main"].checked_type) == "fn() -> Box"
    with pytest.raises(UserError, match="'@main' is defined twice"):
        IRModule.from_expr(F, {"main": G})
