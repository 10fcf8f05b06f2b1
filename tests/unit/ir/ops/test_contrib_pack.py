"""Packed weights: tiles of output channels hold every weight of each group."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild.errors import TypeCheckError
from relaybuild.ir.expr import const
from relaybuild.ir.op import call_op
from relaybuild.ir.ops.contrib_pack import PackTilesAttrs, evaluate_tiles


@pytest.mark.parametrize(("groups", "outputs", "tile"), [(1, 8, 4), (4, 20, 10), (3, 17, 6), (5, 3, 3)])
def test_tiles_hold_the_outputs_of_their_group(groups: int, outputs: int, tile: int) -> None:
    weight = np.arange(groups * outputs * 2 * 3 * 2, dtype="float32").reshape(groups * outputs, 2, 3, 2)
    packed = evaluate_tiles([weight], PackTilesAttrs(groups, tile))
    inferred = call_op("contrib.pack_tiles", [const(weight)], None, groups=groups, outputs=tile).tensor_type
    assert inferred.static_shape == packed.shape
    for group in range(groups):
        for number in range(packed.shape[1]):
            first = group * outputs + min(number * tile, outputs - tile)
            np.testing.assert_array_equal(packed[group, number], weight[first : first + tile].transpose(1, 2, 3, 0))


def test_a_tile_is_no_larger_than_a_group() -> None:
    weight = const(np.zeros((12, 2, 3, 3), "float32"))
    with pytest.raises(TypeCheckError, match="tiles of at most 3 outputs"):
        call_op("contrib.pack_tiles", [weight], None, groups=4, outputs=4)
