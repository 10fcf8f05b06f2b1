"""Calls as products of matrices: which extents, which loops."""

from __future__ import annotations

import pytest

from relaybuild.contrib.cblas.products import Loop, Product, product_of
from relaybuild.ir.expr import Call, Var
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType


def matmul(a: tuple[int, ...], b: tuple[int, ...], **attrs: object) -> Product:
    call = call_op("nn.matmul", [Var("a", TensorType(a)), Var("b", TensorType(b))], **attrs)
    assert isinstance(call, Call)
    return product_of(call)


def test_all_rows_of_a_dense_meet_one_matrix() -> None:
    call = call_op("nn.dense", [Var("a", TensorType((2, 3, 7))), Var("b", TensorType((5, 7)))])
    assert product_of(call) == Product(6, 5, 7, b_transposed=True)


def test_a_dense_of_a_vector() -> None:
    call = call_op("nn.dense", [Var("a", TensorType((7,))), Var("b", TensorType((5, 7)))])
    assert product_of(call) == Product(1, 5, 7, b_transposed=True)


@pytest.mark.parametrize("b", [(7, 5), (1, 1, 7, 5)])
def test_so_do_those_of_a_product_with_one_matrix(b: tuple[int, ...]) -> None:
    assert matmul((2, 3, 4, 7), b) == Product(24, 5, 7)


def test_rows_that_lie_transposed_cannot() -> None:
    found = matmul((2, 3, 7, 4), (7, 5), transpose_a=True)
    assert found == Product(4, 5, 7, a_transposed=True, loops=(Loop(6, 28, 0),))


def test_axes_along_which_both_go_on_are_one_loop() -> None:
    assert matmul((2, 3, 4, 7), (2, 3, 7, 5)).loops == (Loop(6, 28, 35),)


def test_axes_that_are_broadcast_are_loops_of_their_own() -> None:
    found = matmul((2, 1, 4, 7), (3, 7, 5))
    assert found.loops == (Loop(2, 28, 0), Loop(3, 0, 35))
    assert found.count == 6


def test_axes_of_one_place_are_none() -> None:
    assert matmul((1, 2, 1, 4, 7), (1, 2, 1, 7, 5)).loops == (Loop(2, 28, 35),)
    assert matmul((1, 4, 7), (1, 7, 5)).loops == ()


def test_an_axis_without_places_stays() -> None:
    assert matmul((0, 4, 7), (0, 7, 5)).count == 0
