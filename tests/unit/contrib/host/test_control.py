"""First-order programs: procedures, what they capture, blocks, the types of instances, and time linear in the nodes."""

from __future__ import annotations

from relaybuild.contrib.host.blocks import Block, Blocks, Conditional, split
from relaybuild.contrib.host.control import to_procedures
from relaybuild.contrib.host.instances import result_type
from relaybuild.contrib.host.procedure import Branch, ControlProgram, Invoke
from relaybuild.ir.expr import Call, Expr, Function, If, Let, Var, var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.types import Dim, FuncType, TensorType, TupleType, TypeVar
from relaybuild.ir.visitor import post_order

KIND = TensorType((4,), "float32")
SCALAR = TensorType((), "float32")
INT = TensorType((), "int32")
BOOL = TensorType((), "bool")


def program(text: str) -> ControlProgram:
    module = infer_types(parse('#[version = "0.0.5"]\n' + text))
    return to_procedures(module["main"], module)


def blocks(found: ControlProgram) -> Blocks:
    return split(found.procedures[0].body, found.weights)


def operators(block: object) -> list[str]:
    """The operators of a block, as they follow each other."""
    assert isinstance(block, Block)
    return [node.op_name for node in post_order(block.function.body) if isinstance(node, Call)]


def test_a_dataflow_function_is_one_block_over_the_same_nodes() -> None:
    x = var("x", KIND)
    body = call_op("exp", [call_op("add", [x, x])])
    main = Function([x], body)
    found = to_procedures(main, IRModule())
    (block,) = blocks(found).statements
    assert isinstance(block, Block)
    assert block.function.body is body
    assert block.function.params == (x,)


def test_a_value_is_computed_before_what_first_needs_it() -> None:
    text = """
    def @main(%c: bool, %x: float32) -> float32 {
      %1 = exp(%x);
      %2 = log(%x);
      %3 = if (%c) { tanh(%1) } else { %1 };
      add(%3, %2)
    }
    """
    first, branch, last = blocks(program(text)).statements
    assert operators(first) == ["exp"]
    assert isinstance(branch, Conditional)
    assert operators(last) == ["log", "add"]


def test_what_nothing_needs_is_not_computed() -> None:
    text = """
    def @main(%c: bool, %x: float32) -> float32 {
      let %unused = @f(@f(exp(%x)));
      let %chosen = if (%c) { log(%x) } else { %x };
      %x
    }
    def @f(%x: float32) -> float32 { tanh(%x) }
    """
    (copy,) = blocks(program(text)).statements
    assert operators(copy) == []


def test_captured_tensors_become_parameters_through_several_functions() -> None:
    text = """
    def @main(%x: float32, %y: float32) -> float32 {
      let %f = fn(%a: float32) -> float32 { add(%a, %x) };
      let %g = fn(%b: float32) -> float32 { multiply(%f(%f(%b)), %y) };
      %g(%g(%x))
    }
    """
    main, *others = program(text).procedures
    assert sorted(len(each.params) for each in others) == [2, 3]
    calls = [entry for entry in main.body.entries if isinstance(entry, Invoke)]
    assert [set(call.args[1:]) for call in calls] == [set(main.params)] * 2


def test_a_constant_is_captured_as_it_is() -> None:
    text = """
    def @main(%x: float32) -> float32 {
      let %two = 2f;
      let %f = fn(%a: float32) -> float32 { add(%a, %two) };
      %f(%f(%x))
    }
    """
    _, f = program(text).procedures
    assert len(f.params) == 1


def test_tuples_are_gone() -> None:
    text = """
    def @main(%c: bool, %p: ((float32, int32), bool)) -> (bool, (float32, int32)) {
      if (%c) { (%p.1, %p.0) } else { (False, (exp(%p.0.0), %p.0.1)) }
    }
    """
    (main,) = program(text).procedures
    (branch,) = (entry for entry in main.body.entries if isinstance(entry, Branch))
    assert len(main.params) == 4
    # what is the same on both sides is no result of the conditional
    assert len(branch.results) == 2
    assert len(main.body.results) == 3


def test_a_polymorphic_function_is_a_procedure_for_each_type() -> None:
    text = """
    def @main(%x: float32, %v: Tensor[(4,), float32]) -> (float32, float32, Tensor[(4,), float32]) {
      (@f(%x), @f(exp(%x)), @f(%v))
    }
    def @f[A](%a: A) -> A { %a }
    """
    _, *copies = program(text).procedures
    assert [copy.params[0].checked_type for copy in copies] == [SCALAR, KIND]


def test_the_type_of_an_instance() -> None:
    a = TypeVar("A")
    kind = FuncType((a, TensorType((Dim("n"), 3), "float32")), TupleType((a, TensorType((Dim("n"),), "int32"))), (a,))
    found = result_type(kind, [TupleType((INT, BOOL)), TensorType((7, 3), "float32")])
    assert found == TupleType((TupleType((INT, BOOL)), TensorType((7,), "int32")))


def test_long_chains_of_every_construct() -> None:
    x, c = Var("x", KIND), Var("c", BOOL)
    chain: Expr = x
    for _ in range(5000):
        chain = call_op("add", [chain, x])
    lets = [Var(f"v{n}", KIND) for n in range(3000)]
    bound: Expr = lets[-1]
    for number in reversed(range(3000)):
        bound = Let(lets[number], call_op("negative", [lets[number - 1] if number else chain]), bound)
    nested = bound
    for _ in range(1500):
        nested = If(c, call_op("tanh", [x]), call_op("exp", [nested]))
    module = infer_types(IRModule({"main": Function([x, c], nested)}))
    found = to_procedures(module["main"], module)
    depth, code = 0, blocks(found)
    while any(isinstance(each, Conditional) for each in code.statements):
        code = next(each for each in code.statements if isinstance(each, Conditional)).branches[1]
        depth += 1
    assert depth == 1500
    assert sum(len(operators(each)) for each in code.statements) == 5000 + 3000 + 1
