"""Whatever graph the backends of relaybuild are offered, what they take of it is cut out and means the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relaybuild import relay
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function, Tuple, Var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.partition.backend import HOST, all_backends
from relaybuild.partition.pipeline import partition
from relaybuild.passes.infra import PassContext
from relaybuild.passes.pipelines import default_pipeline

IMAGE = (1, 4, 5, 5)
SHAPES = [(), (4,), (1,), (3, 4), (4, 1, 1), IMAGE, (2, 4, 5, 5), (1, 1, 1, 1), (0, 4), (2, 1, 4, 3)]
EXAMPLES = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Graphs:
    """Grows a graph over values of many ranks; `values` are in scope."""

    def __init__(self, draw: Callable[[Any], Any], values: list[Expr]) -> None:
        self.draw = draw
        self.values = values
        self.random = np.random.default_rng(draw(st.integers(0, 3)))

    def pick(self, *ranks: int) -> Expr:
        """A value of one of the ranks (none: of any), which may be a constant."""
        found = [each for each in self.values if not ranks or each.tensor_type.rank in ranks]
        shapes = [shape for shape in SHAPES if not ranks or len(shape) in ranks]
        if not found or self.draw(st.integers(0, 4)) == 0:
            return self.constant(*self.draw(st.sampled_from(shapes)))
        picked: Expr = self.draw(st.sampled_from(found))
        return picked

    def constant(self, *shape: int) -> Expr:
        return relay.const(self.random.standard_normal(shape), "float32")

    def unary(self) -> Expr:
        make = self.draw(st.sampled_from([relay.nn.relu, relay.tanh, relay.exp, relay.negative, relay.sigmoid]))
        return make(self.pick())

    def binary(self) -> Expr:
        make = self.draw(st.sampled_from([relay.add, relay.multiply, relay.subtract, relay.maximum]))
        return make(self.pick(), self.pick())

    def clip(self) -> Expr:
        low, high = self.draw(st.sampled_from([(0.0, 6.0), (-1.0, 1.0), (0.0, 0.0)]))
        return relay.clip(self.pick(), a_min=low, a_max=high)

    def bias(self) -> Expr:
        data = self.pick(1, 2, 4)
        axis = self.draw(st.integers(-data.tensor_type.rank, data.tensor_type.rank - 1))
        return relay.nn.bias_add(data, self.constant(data.tensor_type.static_shape[axis]), axis=axis)

    def conv(self) -> Expr:
        data = self.pick(4)
        channels = data.tensor_type.static_shape[1]
        groups = self.draw(st.sampled_from([1, channels]))
        padding = self.draw(st.sampled_from([(1, 1), (0, 1, 2, 2)]))
        weight = self.constant(4 * (groups > 1) * channels // 4 or 4, channels // groups, 3, 3)
        return relay.nn.conv2d(data, weight, padding=padding, groups=groups, kernel_size=(3, 3))

    def dense(self) -> Expr:
        data = self.pick(1, 2, 4)
        return relay.nn.dense(data, self.constant(4, data.tensor_type.static_shape[-1]))

    def norm(self) -> Expr:
        data = self.pick(2, 4)
        channels = data.tensor_type.static_shape[1]
        positive = relay.const(self.random.uniform(0.5, 2, channels), "float32")
        return relay.nn.batch_norm(data, self.constant(channels), self.constant(channels), positive, positive)[0]

    def step(self) -> None:
        others = [self.unary, self.clip, self.bias, self.dense, self.norm]
        make = self.draw(st.sampled_from([self.binary, self.binary, self.conv, *others]))
        try:
            call = make()
            call.tensor_type  # noqa: B018  (broadcasting that cannot be is found here)
        except UserError:
            return
        if call.tensor_type.num_elements <= 5000:
            self.values.append(call)


@st.composite
def graphs(draw: Callable[[Any], Any]) -> IRModule:
    shapes = [IMAGE, *draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))]
    params = [relay.var(f"x{number}", shape=shape) for number, shape in enumerate(shapes)]
    graph = Graphs(draw, list(params))
    for _ in range(draw(st.integers(4, 16))):
        graph.step()
    unused = [value for value in graph.values if not any(value in other.children() for other in graph.values)]
    return infer_types(IRModule({"main": Function(params, Tuple([*unused, graph.values[-1]]))}))


def inputs(params: tuple[Var, ...]) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(1)
    return [random.standard_normal(param.tensor_type.static_shape).astype("float32") for param in params]


def tags() -> list[str]:
    """Of all backends beside the host, those of higher priority first."""
    backends = [backend for backend in all_backends().values() if backend.name != HOST]
    return [backend.tag for backend in sorted(backends, key=lambda backend: (-backend.priority, backend.tag))]


@EXAMPLES
@given(graphs(), st.permutations(range(4)), st.integers(0, 4), st.booleans())
def test_partitioned_graphs_mean_the_same(mod: IRModule, order: list[int], count: int, passes: bool) -> None:
    known = tags()
    chosen = [known[place % len(known)] for place in order[:count]]
    with PassContext(opt_level=3):
        before = infer_types(default_pipeline()(mod)) if passes else mod
        after = partition(before, tuple(dict.fromkeys(chosen)), mod_name="m")
    verify_module(after, "typed")
    owners = {str(each.attrs["Compiler"]) for each in after.functions.values() if "Compiler" in each.attrs}
    assert owners <= set(chosen)
    values = inputs(mod["main"].params)
    for found, wanted in zip(interpret(after, *values), interpret(mod, *values), strict=True):
        scale = float(np.abs(wanted).max(initial=1))
        np.testing.assert_allclose(np.asarray(found) / scale, np.asarray(wanted) / scale, atol=1e-4)


@EXAMPLES
@given(graphs())
def test_every_call_that_a_backend_takes_is_the_hosts_no_more(mod: IRModule) -> None:
    after = partition(mod, tuple(tags()), mod_name="m")
    for node in post_order(after["main"]):
        if isinstance(node, Call) and node.op_name and any(isinstance(each, Var) for each in post_order(node)):
            answers = {tag: all_backends()[tag].supports(node) for tag in tags() if all_backends()[tag].supports}
            assert True not in answers.values(), (node.op_name, answers)
