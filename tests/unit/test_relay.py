"""The names Relay users know."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from relaybuild import relay
from relaybuild.errors import TypeCheckError, UserError
from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.structural import structural_equal
from relaybuild.passes import op_rewrites


def value_of(expr: Expr) -> Any:
    (result,) = (interpret(IRModule({"main": relay.Function([], expr)})),)
    return result


class TestOperators:
    def test_attributes_by_place_and_by_name(self) -> None:
        x = relay.var("x", shape=(2, 3))
        assert relay.nn.softmax(x, 0).attrs.axis == 0
        assert relay.nn.softmax(x, axis=1).attrs.axis == 1
        assert relay.reshape(x, (3, 2)).checked_type == relay.TensorType((3, 2), "float32")
        assert relay.clip(x, 0.0, a_max=6.0).attrs.a_max == 6.0
        assert relay.sum(x, (0, 1), True).checked_type == relay.TensorType((1, 1), "float32")
        image = relay.var("image", shape=(1, 2, 8, 8))
        pooled = relay.nn.max_pool2d(image, (3, 3), (2, 2), (1, 1), (1, 1))
        assert (pooled.attrs.dilation, pooled.attrs.padding) == ((1, 1), (1, 1, 1, 1))
        assert pooled.checked_type.shape == (1, 2, 4, 4)
        assert relay.transpose(x, axes=(1, 0)).checked_type == relay.TensorType((3, 2), "float32")

    def test_arguments_by_place_and_by_name(self) -> None:
        data, weight = relay.var("d", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
        for call in (
            relay.nn.conv2d(data, weight=weight, padding=(1, 1)),
            relay.nn.conv2d(weight, data=data, padding=(1, 1)),
            relay.nn.conv2d(weight=weight, data=data, padding=(1, 1)),
        ):
            assert call.args == (data, weight)
            assert call.checked_type == relay.TensorType((1, 4, 8, 8), "float32")

    def test_numbers_and_lists_are_expressions(self) -> None:
        x = relay.var("x", shape=(2, 3), dtype="float64")
        assert relay.add(x, 1).args[1].checked_type == relay.TensorType((), "float64")
        assert relay.concatenate([x, x], axis=0).checked_type == relay.TensorType((4, 3), "float64")
        assert structural_equal(relay.add(x, 1), x + 1)

    def test_what_does_not_fit(self) -> None:
        x = relay.var("x", shape=(2, 3))
        with pytest.raises(TypeError, match="'abs' got 2 positional arguments, expected at most 1"):
            relay.abs(x, x)
        with pytest.raises(TypeError, match=r"'nn\.softmax' got 'axis' by place and by name"):
            relay.nn.softmax(x, 0, axis=1)
        with pytest.raises(TypeCheckError, match="'add' got 1 arguments, expected 2"):
            relay.add(x)
        with pytest.raises(UserError, match="no attribute 'axes'; did you mean 'axis'"):
            relay.nn.softmax(x, axes=0)

    def test_unknown_names(self) -> None:
        with pytest.raises(AttributeError, match="no 'no_such'"):
            _ = relay.no_such
        with pytest.raises(AttributeError, match=r"no 'nn\.no_such'"):
            _ = relay.nn.no_such
        with pytest.raises(AttributeError, match="no 'NoSuch'; its passes are"):
            _ = relay.transform.NoSuch

    def test_every_operator_is_a_function(self) -> None:
        for name in relay.all_ops():
            found: Any = relay
            for part in name.split("."):
                found = getattr(found, part)
            assert callable(found)

    def test_what_repeats_the_weights_shape_is_checked(self) -> None:
        x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
        call = relay.nn.conv2d(x, w, channels=4, kernel_size=3)
        assert call.checked_type == relay.TensorType((1, 4, 6, 6), "float32")
        with pytest.raises(TypeCheckError, match=r"expected weight's output channels 5 \('channels'\), found 4"):
            relay.nn.conv2d(x, w, channels=5)
        with pytest.raises(TypeCheckError, match=r"expected a weight over 5x5 places \('kernel_size'\), found 3x3"):
            relay.nn.conv2d(x, w, kernel_size=(5, 5))
        up = relay.var("up", shape=(3, 4, 3, 3))
        assert relay.nn.conv2d_transpose(x, up, channels=4, kernel_size=(3, 3)).checked_type.shape[1] == 4
        with pytest.raises(TypeCheckError, match="output channels 3"):
            relay.nn.conv2d_transpose(x, up, channels=3)
        rows, matrix = relay.var("r", shape=(2, 7)), relay.var("m", shape=(5, 7))
        assert relay.nn.dense(rows, matrix, units=5).checked_type == relay.TensorType((2, 5), "float32")
        assert relay.nn.dense(rows, matrix, 5, "float64").checked_type.dtype == "float64"
        with pytest.raises(TypeCheckError, match=r"weight's output units \('units'\)"):
            relay.nn.dense(rows, matrix, units=6)

    def test_attributes_at_their_defaults_are_not_printed(self) -> None:
        x, w = relay.var("x", shape=(2, 7)), relay.var("w", shape=(5, 7))
        text = str(IRModule({"main": relay.Function([x, w], relay.nn.dense(x, w))}))
        assert "nn.dense(%x, %w)" in text
        text = str(IRModule({"main": relay.Function([x, w], relay.nn.dense(x, w, units=5))}))
        assert "nn.dense(%x, %w, units=5)" in text

    def test_operators_written_otherwise_in_relay(self) -> None:
        assert value_of(relay.zeros((2,), "int32")).tolist() == [0, 0]
        assert value_of(relay.ones((1, 2))).dtype == np.float32
        assert value_of(relay.full(relay.const(2.5), shape=(2,))).tolist() == [2.5, 2.5]
        assert value_of(relay.full(3, (1,))).dtype == np.int32
        assert value_of(relay.arange(3)).tolist() == [0, 1, 2]
        assert value_of(relay.arange(2, 8, 3, dtype="int64")).tolist() == [2, 5]
        one_hot = relay.one_hot(relay.const([1], "int32"), relay.const(7.0), relay.const(0.0), 3)
        assert value_of(one_hot).tolist() == [[0, 7, 0]]
        with pytest.raises(UserError, match="expected a scalar"):
            relay.full([1, 2], (2,))
        a, b = np.ones((2, 3, 4), "float32"), np.ones((2, 5, 4), "float32")
        assert value_of(relay.nn.batch_matmul(relay.const(a), relay.const(b))).shape == (2, 3, 5)


class TestExpressions:
    def test_tuples(self) -> None:
        x = relay.var("x", shape=(4, 3))
        parts = relay.split(x, 2)
        assert [part.checked_type for part in parts] == [relay.TensorType((2, 3), "float32")] * 2
        assert parts[1].index == 1
        wrapped = relay.TupleWrapper(parts, 2)
        assert len(wrapped) == len(list(wrapped)) == 2
        assert wrapped[-1].index == 1
        assert relay.concatenate(wrapped, axis=0).args == (parts,)
        with pytest.raises(IndexError):
            wrapped[2]

    def test_comparisons(self) -> None:
        x = relay.var("x", shape=(), dtype="int32")
        assert relay.less(x, 1).checked_type == relay.scalar_type("bool")
        branch = relay.If(x < 1, x, relay.subtract(x, relay.const(1)))
        assert branch.checked_type == relay.scalar_type("int32")

    def test_variables_and_types(self) -> None:
        assert relay.var("x", relay.TensorType((2,), "int8")).checked_type == relay.TensorType((2,), "int8")
        assert relay.var("x", shape=(relay.Any(), 3)).checked_type.shape[1] == 3
        assert not relay.var("x").has_type
        assert relay.const(1).checked_type == relay.scalar_type("int32")
        assert relay.const(1.5).checked_type == relay.scalar_type("float32")
        assert relay.const(np.ones(2, "float16")).dtype == "float16"

    def test_bind(self) -> None:
        """BD01, BD02: a parameter that is bound is gone; a name that two parameters have, or none, is an error."""
        x, y = relay.var("x", shape=()), relay.var("y", shape=())
        function = relay.Function([x, y], relay.subtract(x, y))
        bound = relay.bind(function, {"y": 2.0})
        assert bound.params == (x,)
        assert interpret(IRModule({"main": bound}), np.float32(5)) == 3
        assert relay.bind(function.body, {x: y}).args == (y, y)
        with pytest.raises(UserError, match="'z' names 0 of the parameters, expected one; they are 'x', 'y'"):
            relay.bind(function, {"z": 1.0})
        twins = relay.Function([x, relay.var("x", shape=())], x)
        with pytest.raises(UserError, match="'x' names 2 of the parameters, expected one"):
            relay.bind(twins, {"x": 1.0})

    def test_scope_builder(self) -> None:
        x = relay.var("x", shape=())
        scope = relay.ScopeBuilder()
        y = scope.let("y", relay.add(x, relay.const(1.0)))
        with scope.if_scope(relay.less(y, relay.const(0.0))):
            z = scope.let("z", relay.negative(y))
            scope.ret(relay.multiply(z, z))
        with scope.else_scope():
            scope.ret(y)
        mod = IRModule({"main": relay.Function([x], scope.get())})
        assert [float(interpret(mod, np.float32(value))) for value in (-3, 4)] == [4, 5]

    def test_scope_builder_mistakes(self) -> None:
        with pytest.raises(UserError, match="no result"):
            relay.ScopeBuilder().get()
        scope = relay.ScopeBuilder()
        with pytest.raises(UserError, match="none stands before"), scope.else_scope():
            pass
        with scope.if_scope(relay.const(True)):
            scope.ret(relay.const(1))
        with pytest.raises(UserError, match="no else_scope"):
            scope.get()
        with pytest.raises(UserError, match="has its result already"):
            scope.ret(relay.const(1))


class TestModules:
    def test_a_module_under_construction(self) -> None:
        mod = relay.Module()
        x = relay.var("x", shape=(2,))
        mod[relay.GlobalVar("f")] = relay.Function([x], x)
        mod.update({"a": relay.Function([x], relay.abs(x))})
        assert list(mod) == ["a", "f"]
        assert structural_equal(relay.fromtext(mod.astext()), mod)

    def test_update_takes_types_along(self) -> None:
        mod = relay.Module()
        x = relay.var("x", shape=())
        pair = relay.TypeData(relay.GlobalTypeVar("Pair"), (relay.TypeVar("A"),))
        mod.update(IRModule({"main": relay.Function([x], x)}, type_definitions=[pair]))
        assert list(mod.type_definitions) == ["Pair"]
        assert list(mod) == ["main"]

    def test_a_pass_sees_what_update_changed(self) -> None:
        ran = []

        @relay.transform.function_pass(opt_level=0, name="Note")
        def note(func: Any, mod: IRModule, ctx: Any) -> Any:
            ran.append(func)
            return func

        needs = relay.transform.module_pass(lambda mod, ctx: mod, opt_level=0, name="Needs", required=["Note"])
        x = relay.var("x", shape=(2,))
        mod = relay.Module({"a": relay.Function([x], x)})
        with relay.build_config():
            needs(mod)
            mod.update({"b": relay.Function([x], relay.abs(x))})
            needs(mod)
        assert len(ran) == 3

    def test_build_config(self) -> None:
        with relay.build_config(opt_level=1, disabled_pass=["A"], required_pass=["B"], fallback_device="cuda") as ctx:
            assert relay.transform.PassContext.current() is ctx
        assert (ctx.opt_level, ctx.disabled_pass, ctx.required_pass) == (1, ("A",), ("B",))
        assert ctx.fallback_device == "cuda"
        with pytest.raises(TypeError, match="'disabled_pass' must be a list or tuple of names"):
            relay.build_config(disabled_pass="FoldConstant")


def test_the_folders_are_reached_from_the_package() -> None:
    code = (
        "import relaybuild; relaybuild.target.create('c'); relaybuild.relay.var('x');"
        "relaybuild.parse; assert {'relay', 'target', 'compile'} <= set(dir(relaybuild))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_names_are_those_of_the_list() -> None:
    for name in relay.__all__:
        assert getattr(relay, name) is not None
    assert isinstance(relay.abs(relay.const(1.0)), Call)


def test_transform_offers_rules_per_operator_and_gradients() -> None:
    x = relay.var("x", (3,))
    found = relay.transform.gradient(relay.Function([x], relay.sum(relay.exp(x))))
    value, (grad,) = interpret(relay.Module({"main": found}), np.zeros(3, np.float32))
    assert value == 3
    np.testing.assert_array_equal(grad, np.ones(3, np.float32))
    assert {"gradient", "with_layouts"} <= set(dir(relay.transform))
    assert relay.transform.register_legalize is op_rewrites.register_legalize
