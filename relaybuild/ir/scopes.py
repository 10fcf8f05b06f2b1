"""In which scope each node of a function is computed; knows nothing of text, values or types.

A scope is a function's body, a branch, a match's clause, what follows a let, or the block around a let that stands
inside an expression.
A node belongs to the innermost scope that encloses all its uses: the lowest common ancestor in the tree of scopes.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.dataclass import dataclass
from relaybuild.ir.adt import Constructor, Match
from relaybuild.ir.ancestry import Place, common_ancestor
from relaybuild.ir.expr import Constant, Expr, Function, GlobalVar, If, Let, Var
from relaybuild.ir.visitor import post_order


class Scope(Place):
    """One scope: its tail expression `root`; `continues` where it is the rest of its parent's block, after a let.

    `function` is the innermost scope around it that is a function's body, or the outermost.
    """

    __slots__ = ("continues", "function", "root")
    parent: Scope | None

    def __init__(
        self, root: Expr, parent: Scope | None = None, continues: bool = False, is_function: bool = False
    ) -> None:
        super().__init__(parent)
        self.root = root
        self.function: Scope = self if parent is None or is_function else parent.function
        self.continues = continues


@dataclass(frozen=True)
class ScopeTree:
    """The scopes of one expression. All maps are keyed by the id of a node of `order`, which keeps the nodes alive."""

    order: Sequence[Expr]
    """Every node once, children before parents."""
    placed: dict[int, Scope]
    """Where a node is computed."""
    inner: dict[int, tuple[Scope, ...]]
    """The scopes a node opens: a function's body; branches; clauses; a let's block, if it has one, and its body."""
    uses: dict[int, int]
    """How many edges lead to a node; the root has one."""
    root: Scope


def is_atom(node: Expr) -> bool:
    """Whether a node is computed nowhere: a variable, a global, a constant or a constructor."""
    return isinstance(node, (Var, GlobalVar, Constant, Constructor))


def common_scope(a: Scope, b: Scope) -> Scope:
    """The innermost scope that encloses both."""
    found = common_ancestor(a, b)
    if found is None:
        raise AssertionError("scopes of two different trees")
    return found


def scope_tree(root: Expr) -> ScopeTree:
    """Place every node reachable from `root`, which is the tail of the outermost scope."""
    order = list(post_order(root))
    outermost = Scope(root)
    tree = ScopeTree(order, {id(root): outermost}, {}, {id(root): 1}, outermost)
    for node in reversed(order):
        if not is_atom(node):
            _place_children(tree, node)
    return tree


def _place_children(tree: ScopeTree, node: Expr) -> None:
    own = tree.placed[id(node)]
    if isinstance(node, Function):
        body = Scope(node.body, own, is_function=True)
        tree.inner[id(node)] = (body,)
        _use(tree, node.body, body)
    elif isinstance(node, If):
        branches = (Scope(node.true_branch, own), Scope(node.false_branch, own))
        tree.inner[id(node)] = branches
        _use(tree, node.cond, own)
        _use(tree, node.true_branch, branches[0])
        _use(tree, node.false_branch, branches[1])
    elif isinstance(node, Match):
        clauses = tuple(Scope(clause.body, own) for clause in node.clauses)
        tree.inner[id(node)] = clauses
        _use(tree, node.data, own)
        for clause, scope in zip(node.clauses, clauses):
            _use(tree, clause.body, scope)
    elif isinstance(node, Let):
        block = own if own.root is node else Scope(node, own)
        body = Scope(node.body, block, continues=True)
        tree.inner[id(node)] = (block, body)
        _use(tree, node.value, block)
        _use(tree, node.body, body)
    else:
        for child in node.children():
            _use(tree, child, own)


def _use(tree: ScopeTree, node: Expr, scope: Scope) -> None:
    tree.uses[id(node)] = tree.uses.get(id(node), 0) + 1
    known = tree.placed.get(id(node))
    tree.placed[id(node)] = scope if known is None else common_scope(known, scope)
