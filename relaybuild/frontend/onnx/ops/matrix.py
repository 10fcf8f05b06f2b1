"""Matrix products; a constant right-hand matrix makes them `nn.dense`, whose weight is transposed symbolically."""

from __future__ import annotations

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Call, Expr


@converter("MatMul")
def matmul(node: Node) -> Expr:
    left, right = node.get(0), node.get(1)
    if not node.rank(0) or not node.rank(1):
        raise node.fail("an operand is a scalar, expected rank 1 or more")
    if node.rank(1) == 2 and node.folder.is_closed(right):
        return _vector_free(node, _dense(node, _row(node, left), right))
    return _vector_free(node, node.call("nn.matmul", _row(node, left), _column(node, right)))


def _row(node: Node, left: Expr) -> Expr:
    return node.expand_dims(left, 0) if node.rank(0) == 1 else left


def _column(node: Node, right: Expr) -> Expr:
    return node.expand_dims(right, 1) if node.rank(1) == 1 else right


def _vector_free(node: Node, product: Expr) -> Expr:
    """The product without the axes that rank-1 operands were given."""
    axes = [axis for axis, index in ((-2, 0), (-1, 1)) if node.rank(index) == 1]
    rank = product.tensor_type.rank
    return node.squeeze(product, *(axis + rank for axis in axes)) if axes else product


@converter("Gemm")
def gemm(node: Node) -> Expr:
    """alpha * A' * B' + beta * C; alpha scales the weight where that is constant."""
    if node.rank(0) != 2 or node.rank(1) != 2:
        raise node.fail(f"operands of rank {node.rank(0)} and {node.rank(1)}, expected matrices")
    left, right, alpha = node.get(0), node.get(1), node.float_attr("alpha", 1.0)
    if node.flag("transA"):
        left = node.transpose(left, (1, 0))
    if alpha != 1.0 and node.folder.is_closed(right):
        right, alpha = _scaled(node, right, alpha), 1.0
    weight = right if node.flag("transB") else transposed(node, right)
    product = _scaled(node, node.call("nn.dense", left, weight), alpha)
    return _plus_bias(node, product)


def _plus_bias(node: Node, product: Expr) -> Expr:
    bias = node.find(2)
    if bias is None:
        return product
    bias = _scaled(node, bias, node.float_attr("beta", 1.0))
    columns = product.tensor_type.shape[1]
    if bias.tensor_type.shape == (1, columns):
        bias = node.reshape(bias, bias.tensor_type.static_shape[1:])
    if bias.tensor_type.shape == (columns,):
        return node.call("nn.bias_add", product, bias, axis=1)
    return node.call("add", product, bias)


def _scaled(node: Node, expr: Expr, factor: float) -> Expr:
    return expr if factor == 1.0 else node.call("multiply", expr, node.like(factor, expr))


def _dense(node: Node, left: Expr, right: Expr) -> Expr:
    return node.call("nn.dense", left, transposed(node, right))


def transposed(node: Node, matrix: Expr) -> Expr:
    """A matrix with its axes swapped; what a transposition was made of where it is one."""
    if isinstance(matrix, Call) and matrix.op_name == "transpose" and matrix.args[0].tensor_type.rank == 2:
        return matrix.args[0]
    return node.transpose(matrix, (1, 0))
