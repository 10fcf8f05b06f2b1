"""Convolutions: direct, depthwise and transposed."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.contrib.host.anchor import Anchor, Buffer, Halo, Need, Packed, Setting, Site
from relaybuild.errors import InternalError, UnsupportedError
from relaybuild.ir.expr import Call
from relaybuild.ir.ops.contrib_pack import channel_span
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.conv2d import (
    Conv2D,
    Phase,
    conv2d_kernel,
    direct_phase,
    taps_reach,
    transposed_phases,
)
from relaybuild.lower.templates.conv2d import (
    estimate_cycles as direct_cycles,
)
from relaybuild.lower.templates.depthwise import depthwise_kernel
from relaybuild.lower.templates.dot_conv2d import dot_conv2d_kernel
from relaybuild.lower.templates.pixel_conv2d import (
    PixelConv2D,
    PixelSchedule,
    choose_pixel_schedule,
    pixel_conv2d_kernel,
)
from relaybuild.lower.templates.pixel_conv2d import estimate_cycles as pixel_cycles
from relaybuild.lower.templates.winograd import Winograd, winograd_kernel
from relaybuild.lower.templates.winograd import estimate_cycles as winograd_cycles

FEW_CHANNELS = 8
"""Inputs of fewer channels stay row-major: half of a channel block would be zeros."""


FEW_OUTPUTS = 4
"""Outputs of so few channels are row-major, and vectors run over the input's channels."""

MOST_USED = 0.75
"""Share of a direct form's products that are not with zeros, above which it is taken without comparison."""

MUCH_FASTER = 0.78
"""Ratio of estimated times above which a form with pixels in the lanes is not worth it: it was measured to gain
nothing."""


def is_depthwise(call: Call) -> bool:
    """Whether each output channel reads the one input channel of its number."""
    channels = call.args[0].tensor_type.static_shape[1]
    weight = call.args[1].tensor_type.static_shape
    groups: int = getattr(call.attrs, "groups", 1)
    return groups == channels and weight[0] == channels and weight[1] == 1 and groups > 1


def has_many_outputs(call: Call) -> bool:
    """Whether the output lies in channel blocks, which a few channels would leave nearly empty."""
    dense: bool = getattr(call.attrs, "groups", 1) == 1
    channels = call.args[0].tensor_type.static_shape[1]
    return not dense or channels < BLOCK or call.tensor_type.static_shape[1] > FEW_OUTPUTS


def phases_of(call: Call) -> tuple[Phase, ...]:
    """The sub-grids of the output that share their taps: one, but for transposed convolutions."""
    attrs = call.attrs
    assert attrs is not None
    weight = call.args[1].tensor_type.static_shape
    out = call.tensor_type.static_shape
    top, left, _, _ = attrs.padding  # type: ignore[attr-defined]
    parts = (
        (out[2], out[3]),
        (weight[2], weight[3]),
        attrs.strides,  # type: ignore[attr-defined]
        (top, left),
        attrs.dilation,  # type: ignore[attr-defined]
    )
    if call.op_name == "nn.conv2d_transpose":
        return transposed_phases(*parts)
    return (direct_phase(*parts),)


def halo_of(call: Call) -> Halo:
    """How far the taps reach beyond the image."""
    _, _, height, width = call.args[0].tensor_type.static_shape
    phases = phases_of(call)
    rows = [taps_reach(phase.row_taps, phase.rows, height) for phase in phases]
    columns = [taps_reach(phase.column_taps, phase.columns, width) for phase in phases]
    return (
        max(above for above, _ in rows),
        max(left for left, _ in columns),
        max(below for _, below in rows),
        max(right for _, right in columns),
    )


def needs(call: Call, is_weight: Sequence[bool], setting: Setting) -> tuple[Need, ...]:
    """The data in channel blocks (row-major where it has few channels) with a halo; the weight packed."""
    _check(call, is_weight)
    if is_depthwise(call) and call.op_name == "nn.conv2d":
        return Buffer("blocked", halo_of(call)), Packed("contrib.pack_depthwise")
    channels = call.args[0].tensor_type.static_shape[1]
    layout = {} if call.op_name == "nn.conv2d" else {"kernel_layout": "IOHW"}
    if not has_many_outputs(call):
        return Buffer("blocked", halo_of(call)), Packed("contrib.pack_rows", layout)
    winograd = winograd_of(call, setting)
    if winograd is not None:
        return Buffer("blocked", winograd.halo()), Packed("contrib.pack_winograd")
    pixels = pixels_of(call, setting)
    if pixels is not None:
        attrs = {"groups": pixels.groups, "outputs": pixel_schedule(pixels, setting.machine).outputs}
        return Buffer("blocked", halo_of(call)), Packed("contrib.pack_tiles", attrs)
    data = Buffer("any" if channels < FEW_CHANNELS else "blocked", halo_of(call))
    return data, Packed("contrib.pack_conv2d", {"groups": getattr(call.attrs, "groups", 1), **layout})


def winograd_of(call: Call, setting: Setting) -> Winograd | None:
    """The Winograd form of a convolution, where there is one that is faster."""
    _, _, rows, columns = call.args[1].tensor_type.static_shape
    attrs = call.attrs
    plain = getattr(attrs, "strides", None) == (1, 1) and getattr(attrs, "dilation", None) == (1, 1)
    dense = call.op_name == "nn.conv2d" and getattr(attrs, "groups", 1) == 1
    if setting.precise or not (plain and dense) or (rows, columns) != (3, 3) or setting.machine.lanes == 1:
        return None
    _, channels, height, width = call.args[0].tensor_type.static_shape
    _, out_channels, out_rows, out_columns = call.tensor_type.static_shape
    top, left, _, _ = attrs.padding  # type: ignore[union-attr]
    winograd = Winograd(channels, out_rows, out_columns, (top, left), (height, width))
    out_blocks = -(-out_channels // BLOCK)
    conv = Conv2D(phases_of(call), (3, 3), channels)
    if channels < FEW_CHANNELS or out_channels < BLOCK:
        return None
    faster = winograd_cycles(winograd, out_blocks, setting.machine) < direct_cycles(conv, out_channels, setting.machine)
    return winograd if faster else None


def pixels_of(call: Call, setting: Setting) -> PixelConv2D | None:
    """The form with pixels in the lanes, where channel blocks would multiply many zeros and it is faster."""
    if call.op_name != "nn.conv2d":
        return None
    groups: int = getattr(call.attrs, "groups", 1)
    outs, ins = call.args[1].tensor_type.static_shape[:2]
    direct = direct_of(call)
    out_blocks = -(-outs // BLOCK)
    if ins * outs > MOST_USED * direct.span * out_blocks * BLOCK:
        return None
    if groups * ins < FEW_CHANNELS:
        return None
    pixels = PixelConv2D(direct.phases[0], groups, ins, outs // groups, call.tensor_type.static_shape[0])
    cycles = pixel_cycles(pixels, setting.machine)
    if cycles is None or cycles > MUCH_FASTER * direct_cycles(direct, outs, setting.machine):
        return None
    return pixels


def pixel_schedule(pixels: PixelConv2D, machine: Machine) -> PixelSchedule:
    """The schedule of a form that was found to be faster."""
    schedule = choose_pixel_schedule(pixels, machine)
    if schedule is None:
        raise InternalError("a convolution with pixels in the lanes was chosen that has no schedule")
    return schedule


def direct_of(call: Call) -> Conv2D:
    """The direct form in channel blocks."""
    kernel = call.args[1].tensor_type.static_shape[2:]
    out_channels = call.tensor_type.static_shape[1]
    in_channels = call.args[0].tensor_type.static_shape[1]
    span = channel_span(out_channels, in_channels, getattr(call.attrs, "groups", 1))
    shared = 4 if span.step == 0 else _shared_blocks(span.group)
    phases = phases_of(call)
    return Conv2D(phases, (kernel[0], kernel[1]), span.extent, span.step, span.group, span.last, shared)


def _check(call: Call, is_weight: Sequence[bool]) -> None:
    where = str(call.span) if call.span else None
    layouts = (getattr(call.attrs, "data_layout", "NCHW"), getattr(call.attrs, "kernel_layout", "OIHW"))
    if layouts != ("NCHW", "OIHW"):
        raise UnsupportedError(f"'{call.op_name}' in the layouts {layouts}: the host takes NCHW and OIHW", where=where)
    if not is_weight[1]:
        raise UnsupportedError(f"'{call.op_name}' with a weight that is computed at run time", where=where)
    if call.tensor_type.dtype != "float32":
        raise UnsupportedError(f"'{call.op_name}' over {call.tensor_type.dtype}: the host takes float32", where=where)


def lower(site: Site) -> Kernel:
    """The kernel of a convolution."""
    call = site.call
    phases = phases_of(call)
    if is_depthwise(call) and call.op_name == "nn.conv2d":
        return depthwise_kernel(phases[0], site.body, site.machine)
    in_channels = call.args[0].tensor_type.static_shape[1]
    kernel = call.args[1].tensor_type.static_shape[2:]
    if not has_many_outputs(call):
        return dot_conv2d_kernel(Conv2D(phases, (kernel[0], kernel[1]), in_channels), site.body, site.machine)
    winograd = winograd_of(call, site.setting)
    if winograd is not None:
        return winograd_kernel(winograd, site.body, site.machine)
    pixels = pixels_of(call, site.setting)
    if pixels is not None:
        return pixel_conv2d_kernel(pixels, pixel_schedule(pixels, site.machine), site.body, site.machine)
    return conv2d_kernel(direct_of(call), site.body, site.machine)


def _shared_blocks(group: int) -> int:
    """How many neighbouring blocks of 16 output channels read the same input channels, up to 4."""
    whole, rest = divmod(group, BLOCK)
    return 1 if rest else max(count for count in (1, 2, 3, 4) if whole % count == 0)


ANCHORS = (
    Anchor(("nn.conv2d", "nn.conv2d_transpose"), needs, lower, blocked=has_many_outputs, writes_halo=True, widens=True),
)
