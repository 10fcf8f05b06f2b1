"""What every template shares: operands, the expression stored, the threads' shares, pad lanes and halos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.lower.emit import Emitter, c_type, is_vectorizable
from relaybuild.lower.index import Axis, Index, IndexLike
from relaybuild.lower.layout import BLOCK, NO_HALO, Layout
from relaybuild.lower.loop_ir import Builder, Kernel, Parameter, Statement
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr, walk


@dataclass(frozen=True)
class Operand:
    """A buffer that a kernel reads or writes.

    `slack` tells whether a vector may be read that ends up to 15 elements past its last.
    """

    layout: Layout
    dtype: str = "float32"
    slack: bool = True


PREFETCH = 1024
"""Floats by which weights are fetched ahead: they come from memory, across pages, where the hardware stops."""

Rule: TypeAlias = Callable[[ScalarBuilder, Sequence[IndexLike], "ScalarExpr | None"], ScalarExpr]


@dataclass(frozen=True)
class Body:
    """Operands and the expression of one element of the output.

    `rule(scalars, index, anchor)` gives the element at the logical `index`; `anchor` is what the template computed for
    it, of type `anchor_dtype` (None in a map). Operand k is read by `scalars.load(k, its layout.address(...), dtype)`.

    `stage` is a value over the same inputs that is computed before each row of the output that reads it, into scratch
    memory; it is the operand behind the inputs. `target` is the C name of what is written, `tables` those of constant
    arrays, which are operands behind all others. By `ahead` elements the places of vectors written are fetched ahead.
    """

    title: str
    inputs: tuple[Operand, ...]
    output: Operand
    rule: Rule
    anchor_dtype: str = "float32"
    stage: Body | None = None
    target: str = "out"
    ahead: int = 0
    tables: tuple[str, ...] = ()

    @property
    def pointers(self) -> tuple[str, ...]:
        staged = () if self.stage is None else (self.stage.target,)
        return (*(f"p{number}" for number in range(len(self.inputs))), *staged, *self.tables)

    def operand(self, number: int) -> Operand:
        """The buffer that operand `number` lies in."""
        return self.inputs[number] if self.stage is None or number < len(self.inputs) else self.stage.output

    def parameters(self) -> tuple[Parameter, ...]:
        """Inputs in order, then the output."""
        read = [Parameter(name, c_type(operand.dtype), True) for name, operand in zip(self.pointers, self.inputs)]
        return (*read, Parameter("out", c_type(self.output.dtype), False))

    def kernel(
        self, statements: list[Statement], lanes: int, scratch_bytes: int = 0, includes: tuple[str, ...] = ()
    ) -> Kernel:
        """The finished kernel."""
        return Kernel(self.title, self.parameters(), statements, lanes, scratch_bytes, includes)


def store(
    builder: Builder,
    body: Body,
    index: Sequence[IndexLike],
    anchor: str | None,
    lanes: int,
    axis: Axis | None,
    mask: str | None = None,
) -> None:
    """Compute the element (or the vector of elements along `axis`) at `index` and store it.

    `mask` is the C text of a lane mask that zeroes pad lanes.
    """
    if axis is not None and lanes == 1:
        index = [Index.of(part).substitute({axis: 0}) for part in index]
    scalars = ScalarBuilder(builder.name)
    value = scalars.anchor(body.anchor_dtype) if anchor is not None else None
    root = body.rule(scalars, index, value)
    emitter = Emitter(builder, body.pointers, scalars, lanes if axis else 1, axis, anchor or "")
    text = emitter.emit(root)
    address = body.output.layout.address(index)
    if axis is None:
        builder.assign(f"{body.target}[{address}]", text)
        return
    if lanes > 1 and not scalars.depends_on(root, axis):
        text = f"rb_splat({text})"
    if mask is not None:
        text = f"rb_and({text}, {mask})"
    if lanes == 1 or address.coefficient(axis) == 1:
        place = f"{body.target} + {address.substitute({axis: 0})}"
        builder.evaluate(f"rb_store({place}, {text})")
        if body.ahead:
            builder.evaluate(f"RB_PREFETCH({place} + {body.ahead})")
        return
    scattered = builder.declare("float", "element", (lanes,))
    builder.evaluate(f"rb_store({scattered}, {text})")
    with builder.loop("e", lanes, unroll=True) as e:
        builder.assign(f"{body.target}[{address.substitute({axis: e})}]", f"{scattered}[{e}]")


def vector_body(body: Body, index: Sequence[IndexLike], axis: Axis, *, anchored: bool) -> bool:
    """Whether the expression at `index` has a vector form along `axis`."""
    scalars = ScalarBuilder()
    root = body.rule(scalars, index, scalars.anchor(body.anchor_dtype) if anchored else None)
    return body.output.dtype == "float32" and is_vectorizable(root, axis, scalars)


def stray_reads(body: Body, index: Sequence[IndexLike], lane: Axis, *, anchored: bool) -> dict[int, int | None]:
    """The operands that pad lanes of a vector along `lane` would read beyond their memory, by number, each with how far
    a lane moves in it (None where that varies)."""
    scalars = ScalarBuilder()
    root = body.rule(scalars, index, scalars.anchor(body.anchor_dtype) if anchored else None)
    found: dict[int, int | None] = {}
    for node in (each for value in (root, *scalars.run_time_indices.values()) for each in walk(value)):
        if node.op != "load" or not scalars.depends_on(node, lane):
            continue
        number, address = node.data
        operand = body.operand(number)
        step = address.coefficient(lane)
        if step != 1 or not (operand.slack or operand.layout.block > 1):
            found[number] = step if found.get(number, step) == step else None
    return found


def is_heavy(body: Body) -> bool:
    """Whether the epilogue is too much code to be repeated for each vector of a register tile."""
    scalars = ScalarBuilder()
    index = [Index.of(Axis(f"i{number}", extent - 1)) for number, extent in enumerate(body.output.layout.shape)]
    nodes = list(walk(body.rule(scalars, index, scalars.anchor(body.anchor_dtype))))
    return len(nodes) > 12 or any(node.op == "unary" and node.data not in _LIGHT for node in nodes)


_LIGHT = ("neg", "abs", "not")


def spill(builder: Builder, acc: str, dims: tuple[int, int]) -> str:
    """Copy a register tile to memory, where a loop that is not unrolled can index it; returns the copy's name."""
    name = builder.declare("rb_v", "tile", dims)
    with builder.loop("i", dims[0], unroll=True) as i, builder.loop("j", dims[1], unroll=True) as j:
        builder.assign(f"{name}[{i}][{j}]", f"{acc}[{i}][{j}]")
    return name


def pad_mask(builder: Builder, layout: Layout, block: IndexLike, half: IndexLike, lanes: int) -> str | None:
    """The mask of real lanes in vector `half` of channel block `block`, or None where every lane is real.

    Lanes of the last block past the last channel are zero.
    """
    rest = layout.shape[1] % BLOCK
    if rest == 0:
        return None
    last = layout.num_blocks - 1
    position = Index.of(block)
    ones = [f"{'-1' if lane < rest else '0'}" for lane in range(BLOCK)]
    if lanes > 1 and position.constant is not None and position.constant != last:
        return builder.let("rb_m", "mask", "rb_splat_mask(1)")
    if lanes == 1:
        return builder.let("rb_m", "mask", f"({position}) * 16 + ({Index.of(half)}) < {layout.shape[1]} ? -1 : 0")
    if lanes == BLOCK:
        masked = "(rb_m){" + ", ".join(ones) + "}"
    else:
        rows = [ones[start : start + lanes] for start in range(0, BLOCK, lanes)]
        vectors = ["(rb_m){" + ", ".join(row) + "}" for row in rows]
        # where the half is the variable of an unrolled loop, one of them remains
        choices = [f"{Index.of(half).as_factor()} == {number} ? {vector} : " for number, vector in enumerate(vectors)]
        masked = "(" + "".join(choices[:-1]) + vectors[-1] + ")"
    if position.constant is not None:
        return builder.let("rb_m", "mask", masked)
    return builder.let("rb_m", "mask", f"{position.as_factor()} == {last} ? {masked} : rb_splat_mask(1)")


def zero_halo(
    builder: Builder, operand: Operand, batch: IndexLike, block: IndexLike, row: IndexLike, rows: IndexLike
) -> None:
    """Write zeros around `rows` rows from `row` of one channel block (or channel) of a buffer with a halo.

    The unit that holds the first row also writes the halo above it, the one that holds the last the halo below.
    """
    layout = operand.layout
    if layout.halo == NO_HALO:
        return
    top, left, bottom, right = layout.halo
    height, width = layout.shape[2], layout.shape[3]
    start = Index.of(row)
    end = start + rows
    plane = layout.address([batch, Index.of(block) * layout.block, 0, 0])
    pitch = layout.strides[2]
    column = layout.strides[3]
    size = f"sizeof({c_type(operand.dtype)})"

    def clear(address: Index, count: int) -> None:
        if count:
            builder.evaluate(f"memset(out + {address}, 0, {count} * {size})")

    if left or right:
        with builder.loop("edge", end, start) as line:
            clear(plane + line * pitch - left * column, left * column)
            clear(plane + line * pitch + width * column, right * column)
    whole = (width + left + right) * column
    if top:
        with builder.branch(f"{start} == 0"):
            clear(plane - top * pitch - left * column, top * whole)
    if bottom:
        with builder.branch(f"{end} == {height}"):
            clear(plane + height * pitch - left * column, bottom * whole)
