"""ConvertLayout: operators whose attributes name layouts are carried out in layouts that the user wants.

    ConvertLayout({"nn.conv2d": ["NHWC", "HWIO"]})        or, as text,        ConvertLayout("nn.conv2d: NHWC HWIO")

One layout per argument; `default` leaves an argument's as it is, except that the weight of a convolution whose
channels become last gets its output channels last. What follows is carried out in the new layout where it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import get_op
from relaybuild.passes._layouts import LayoutPropagation, with_layouts
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class ConvertLayout(FunctionPass):
    """`skip_layers` are positions, among the calls that would be converted, of those that are not."""

    info: ClassVar[PassInfo] = PassInfo("ConvertLayout", 3, ("InferType", "CanonicalizeOps"))
    desired_layouts: Mapping[str, Sequence[str]] | str = ""
    skip_layers: tuple[int, ...] = ()

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        desired = _parsed(self.desired_layouts)
        position = -1

        def replacement(call: Call) -> Expr:
            nonlocal position
            if call.op_name not in desired:
                return call
            position += 1
            return call if position in self.skip_layers else _converted(call, desired[call.op_name])

        return LayoutPropagation(ctx, replacement).run(func) if desired else func


def _parsed(desired: Mapping[str, Sequence[str]] | str) -> dict[str, tuple[str, ...]]:
    if isinstance(desired, str):
        entries = (entry.split(":", 1) for entry in desired.split(";") if entry.strip())
        desired = {entry[0].strip(): entry[-1].split() for entry in entries}
    for name, layouts in desired.items():
        names = get_op(name).layout_attrs
        if names is None:
            raise UserError(f"'{name}' has no layouts to convert")
        if len(layouts) != len(names.inputs):
            wanted = " and ".join(names.inputs)
            raise UserError(f"'{name}' wants {len(names.inputs)} layouts ({wanted}), found {len(layouts)}")
    return {name: tuple(layouts) for name, layouts in desired.items()}


def _converted(call: Call, desired: Sequence[str]) -> Expr:
    names = get_op(call.op_name).layout_attrs
    assert names is not None
    present = names.layouts(call.attrs)
    data = present[0] if desired[0] == "default" else desired[0]
    layouts = [data, *(_weight(data, old, new) for old, new in zip(present[1:], desired[1:]))]
    return call if tuple(layouts) == present[:-1] else with_layouts(call, layouts)


def _weight(data: str, present: str, desired: str) -> str:
    if desired != "default":
        return desired
    return "HWIO" if data.endswith("C") and set(present) == set("OIHW") else present
