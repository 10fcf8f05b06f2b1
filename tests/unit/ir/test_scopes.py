"""Where nodes are computed."""

from relaybuild.ir.expr import Call, Expr, Function, If, Let, Tuple, Var, const, var
from relaybuild.ir.op import call_op
from relaybuild.ir.scopes import Scope, common_scope, scope_tree


def test_a_node_lives_where_all_its_uses_are_enclosed() -> None:
    x, c, y = var("x", (3,)), var("c", (), "bool"), var("y", (3,))
    both, one, inner = call_op("exp", [x]), call_op("log", [x]), call_op("tanh", [y])
    branch = If(c, Tuple([both, one]), Tuple([both, both]))
    closure = Function([y], Tuple([inner, inner]))
    tree = scope_tree(Tuple([branch, closure]))
    assert tree.placed[id(both)] is tree.root
    assert tree.placed[id(one)] is tree.inner[id(branch)][0]
    assert tree.placed[id(inner)] is tree.inner[id(closure)][0]
    assert tree.inner[id(closure)][0].function is tree.inner[id(closure)][0]
    assert tree.inner[id(branch)][0].function is tree.root
    assert tree.uses[id(both)] == 3


def test_a_tail_let_continues_its_block_and_another_opens_one() -> None:
    x, a, b = var("x", (3,)), Var("a"), Var("b")
    tail = Let(a, x, a)
    tree = scope_tree(tail)
    assert tree.inner[id(tail)][0] is tree.root
    assert tree.inner[id(tail)][1].continues
    nested = Let(b, x, b)
    tree = scope_tree(Tuple([nested]))
    assert tree.inner[id(nested)][0].root is nested
    assert tree.inner[id(nested)][0].parent is tree.root


def test_common_scopes_against_the_simple_search() -> None:
    root = Scope(const(0))
    scopes = [root]
    for index in range(1, 400):
        scopes.append(Scope(const(0), scopes[(index * 7919) % index]))
    for left in scopes[::17]:
        for right in scopes[::23]:
            above: set[int] = set()
            node: Scope | None = left
            while node is not None:
                above.add(id(node))
                node = node.parent
            expected = right
            while id(expected) not in above:
                assert expected.parent is not None
                expected = expected.parent
            assert common_scope(left, right) is expected


def test_deep_chains_of_lets_sharing_nodes() -> None:
    x = var("x", (3,))
    shared: list[Expr] = [call_op("add", [x, x]) for _ in range(5000)]
    body: Expr = Tuple([])
    for node in shared:
        body = Let(Var("v"), Call(node, [node, shared[0]]), body)
    tree = scope_tree(body)
    assert tree.placed[id(shared[0])] is tree.root
