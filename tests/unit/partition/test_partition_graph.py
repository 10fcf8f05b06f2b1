"""Cutting out regions: names, attributes, what a region is given and what it gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from partitioning import VECTOR, begin, compiled, end, op_names, ops_of, partition, run, takes, vectors

from relaybuild import relay
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, TupleGetItem, const
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.pattern import DFPattern, is_op, wildcard
from relaybuild.ir.printer import print_module
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.types import FuncType, TensorType, TupleType
from relaybuild.ir.visitor import post_order
from relaybuild.partition.annotate_target import AnnotateTarget
from relaybuild.partition.backend import Backend, register_backend
from relaybuild.partition.merge_compiler_regions import MergeCompilerRegions
from relaybuild.partition.merge_composite import MergeComposite
from relaybuild.partition.partition_graph import PartitionGraph
from relaybuild.passes.infra import PassContext, Sequential, get_pass
from relaybuild.relay import var


def only(mod: IRModule) -> Function:
    """The one function that has been cut out."""
    (function,) = compiled(mod).values()
    return function


def result_type(mod: IRModule) -> Any:
    return only(mod).checked_type.ret_type  # type: ignore[attr-defined]


def constants(root: Expr) -> list[Constant]:
    return [node for node in post_order(root) if isinstance(node, Constant)]


def calls_of(mod: IRModule) -> list[Call]:
    return [node for node in post_order(mod["main"]) if isinstance(node, Call) and isinstance(node.op, GlobalVar)]


def test_two_regions_marked_by_hand() -> None:
    """PG01: two regions of three calls each beside calls of the host become two functions; same values, interpreted."""

    def region(*names: str) -> str:
        x, w0, w1, w2 = (begin(f"%{name}", "vendor") for name in names)
        return end(f"subtract(add({x}, {w0}), {w1}) * {w2}", "vendor")

    host = "subtract(add(%x, %w6), %w7)"
    body = f"concatenate(({region('x', 'w0', 'w1', 'w2')}, {region('x', 'w3', 'w4', 'w5')}, {host}))"
    after = run(vectors(body, "x", *(f"w{number}" for number in range(8))), PartitionGraph())
    assert ops_of(after) == [["add", "subtract", "multiply"]] * 2
    assert op_names(after["main"]) == ["add", "subtract", "concatenate"]
    assert [len(function.params) for function in compiled(after).values()] == [4, 4]


def test_a_single_call() -> None:
    """PG02: one add that is taken is a function; same values (interpreted)."""
    takes("vendor", "add")
    after = partition(vectors("add(%x, %y)", "x", "y"), ["vendor"])
    assert isinstance(after["main"].body, Call)
    assert op_names(only(after)) == ["add"]


def test_fusion_leaves_what_was_cut_out() -> None:
    """PG03: add is cut out as 'relaybuild_default_vendor_main_0', which fusion leaves; the rest is fused."""
    takes("vendor", "add")
    mod = partition(vectors("%0 = add(%x, %y); %1 = exp(%0); concatenate((%0, %1, %0))", "x", "y"), ["vendor"])
    name = "relaybuild_default_vendor_main_0"
    assert list(compiled(mod)) == [name]
    after = run(mod, get_pass("FuseOps", fuse_opt_level=2))
    assert after[name] is mod[name]
    fused = [node for node in post_order(after["main"]) if isinstance(node, Function) and node.attrs.get("Primitive")]
    assert [op_names(each) for each in fused] == [["exp", "concatenate"]]


def test_names_are_made_of_letters_that_symbols_have() -> None:
    """PG04: a compiler 'unsanitary-name++' gives the symbol '…_unsanitary_name___main_0' and stays as it is itself."""
    takes("unsanitary-name++", "add")
    function = only(partition(vectors("add(%x, %x)", "x"), ["unsanitary-name++"]))
    assert function.attrs == {
        "Compiler": "unsanitary-name++",
        "Inline": 1,
        "Primitive": 1,
        "global_symbol": "relaybuild_default_unsanitary_name___main_0",
    }


def test_regions_are_named_after_the_function_they_were_in() -> None:
    """PG05: regions in main and in another function are named after them, and counted in each."""
    takes("vendor", "add")
    sub = f"def @subfunction(%x: {VECTOR}) -> {VECTOR} {{ exp(add(%x, %x)) }}"
    mod = parse(f"def @main(%x: {VECTOR}) {{ @subfunction(tanh(add(%x, %x))) }} {sub}")
    assert list(compiled(partition(mod, ["vendor"]))) == [
        "relaybuild_default_vendor_main_0",
        "relaybuild_default_vendor_subfunction_0",
    ]


def test_sums_and_squares() -> None:
    """PG06: x + x and y * y, both taken, are cut out; same values (interpreted)."""
    takes("vendor", "add", "multiply")
    after = partition(vectors("subtract(%x + %x, %y * %y)", "x", "y"), ["vendor"])
    assert ops_of(after) == [["add"], ["multiply"]]
    assert op_names(after["main"]) == ["subtract"]


CONV = "nn.conv2d({x}, {w}, padding=[1], groups=4)"
CONV_PARAMS = "%x: Tensor[(1, 4, 6, 6), float32], %w: Tensor[(4, 1, 3, 3), float32]"


def test_a_whole_graph_is_one_function() -> None:
    """PG07: two convolutions and their sum are one function, and main is its call."""
    takes("maker", "nn.conv2d", "add")
    body = f"%0 = {CONV.format(x='%x', w='%w')}; add({CONV.format(x='%0', w='%w')}, %0)"
    after = partition(parse(f"def @main({CONV_PARAMS}) {{ {body} }}"), ["maker"])
    assert list(compiled(after)) == ["relaybuild_default_maker_main_0"]
    assert op_names(only(after)) == ["nn.conv2d", "nn.conv2d", "add"]
    assert len(only(after).params) == 2
    call = after["main"].body
    assert isinstance(call, Call)
    assert call.args == after["main"].params


def test_a_small_mobile_network() -> None:
    """PG08: depthwise blocks with normalisation, simplified and partitioned, give the same values (interpreted)."""
    takes("maker", "nn.conv2d", "nn.relu", "add")
    random = np.random.default_rng(0)
    x = value = var("x", (1, 4, 6, 6))
    for number in range(4):
        weight = const(random.normal(size=(4, 1 if number % 2 else 4, 3, 3)).astype("float32") / 6)
        norm = [const(random.random(4).astype("float32") + 0.5) for _ in range(4)]
        value = call_op("nn.conv2d", [value, weight], padding=(1,), groups=4 if number % 2 else 1)
        value = call_op("nn.relu", [TupleGetItem(call_op("nn.batch_norm", [value, *norm]), 0)])
    mod = IRModule({"main": Function([x], call_op("nn.global_avg_pool2d", [value]))})
    with PassContext(opt_level=3):
        names = ("SimplifyInference", "FoldConstant", "FoldScaleAxis", "FoldConstant")
        simple = Sequential([get_pass(name) for name in names])(mod)
    after = partition(simple, ["maker"])
    assert set(op_names(only(after))) == {"nn.conv2d", "nn.relu", "add"}
    assert op_names(after["main"]) == ["nn.global_avg_pool2d"]


def norm_module() -> IRModule:
    data, scale = var("data", (1, 4, 6, 6)), [var(name, (4,)) for name in ("gamma", "beta", "mean", "var")]
    norm = call_op("nn.batch_norm", [call_op("nn.relu", [data]), *(call_op("abs", [each]) for each in scale)])
    return IRModule({"main": Function([data, *scale], call_op("tanh", [TupleGetItem(norm, 0)]))})


def test_passes_leave_what_is_inside() -> None:
    """PG09: a normalisation that was cut out is not written out; regions are counted in order."""
    takes("test", "nn.batch_norm", "nn.relu")
    after = partition(norm_module(), ["test"])
    assert list(compiled(after)) == ["relaybuild_default_test_main_0"]
    with PassContext(opt_level=3):
        simplified = run(after, get_pass("SimplifyInference"), get_pass("FoldScaleAxis"))
    assert op_names(only(simplified)) == ["nn.relu", "nn.batch_norm"]
    takes("test", "tanh", "abs")
    alone = partition(norm_module(), ["test"], merge=False)
    assert list(compiled(alone)) == [f"relaybuild_default_test_main_{number}" for number in range(7)]


def test_inlining_puts_the_function_where_it_is_called() -> None:
    """PG10: inlined, a function that was cut out is a literal with its attributes."""
    takes("test", "nn.relu")
    mod = partition(vectors("exp(nn.relu(%x))", "x"), ["test"])
    after = run(mod, get_pass("Inline"))
    literal = next(node for node in post_order(after["main"].body) if isinstance(node, Function))
    assert literal.attrs == only(mod).attrs
    assert op_names(literal) == ["nn.relu"]
    assert not compiled(after)


def test_bound_constants_stand_in_the_region() -> None:
    """PG11: a parameter that is bound stands in the function and is no argument; same values (interpreted)."""
    takes("vendor", "add")
    main = vectors("add(%x, %y)", "x", "y")["main"]
    bound = relay.bind(main, {"x": np.ones(3, "float32")})
    assert isinstance(bound, Function)
    after = partition(IRModule({"main": bound}), ["vendor"])
    assert len(constants(only(after))) == 1
    assert [call.args for call in calls_of(after)] == [after["main"].params]


def test_several_results_are_a_tuple() -> None:
    """PG12: a region of a convolution and a normalisation gives three results, which callers take by their places."""
    data, weight = begin("%data", "test"), begin("%weight", "test")
    scale = ", ".join(begin(f"%{name}", "test") for name in ("gamma", "beta", "mean", "var"))
    kinds = "".join(f", %{name}: Tensor[(4,), float32]" for name in ("gamma", "beta", "mean", "var"))
    text = f"""
    def @main(%data: Tensor[(1, 4, 6, 6), float32], %weight: Tensor[(4, 4, 3, 3), float32]{kinds}) {{
      %0 = nn.batch_norm(nn.conv2d({data}, {weight}, padding=[1]), {scale});
      %1 = {end("nn.relu(%0.0)", "test")};
      (%1, abs({end("%0.1", "test")}), abs({end("%0.2", "test")}))
    }}
    """
    mod = infer_types(parse(text))
    after = infer_types(PartitionGraph()(mod))
    assert len(only(after).params) == 6
    kinds_of = result_type(after)
    assert kinds_of == TupleType((TensorType((1, 4, 6, 6)), TensorType((4,)), TensorType((4,))))
    fields = [node.index for node in post_order(after["main"]) if isinstance(node, TupleGetItem)]
    assert sorted(fields) == [0, 1, 2]
    assert after["main"].checked_type == mod["main"].checked_type


def test_a_region_of_several_results_used_by_one_of_a_single_one() -> None:
    """PG13: two results of a region are used by the host and by a region of one result."""
    takes("a", "nn.relu", "tanh")
    takes("b", "add")
    mod = vectors("%0 = nn.relu(%x); %1 = tanh(%0); add(exp(%0), add(%1, %0))", "x")
    after = partition(mod, ["a", "b"])
    by_tag: dict[str, list[Function]] = {}
    for function in compiled(after).values():
        by_tag.setdefault(str(function.attrs["Compiler"]), []).append(function)
    assert [function.checked_type.ret_type for function in by_tag["a"]] == [  # type: ignore[attr-defined]
        TupleType((TensorType((3,)), TensorType((3,))))
    ]
    assert [function.checked_type.ret_type for function in by_tag["b"]] == [TensorType((3,))]  # type: ignore[attr-defined]


def conv_pattern(*then: str, bias: bool = False) -> tuple[str, DFPattern]:
    pattern: DFPattern = is_op("nn.conv2d")(wildcard(), wildcard())
    if bias:
        pattern = is_op("add")(pattern, wildcard())
    for name in then:
        pattern = is_op(name)(pattern)
    return f"maker.conv2d{'_bias' if bias else ''}{''.join(f'_{name.split(chr(46))[-1]}' for name in then)}", pattern


BIAS_RELU = conv_pattern("nn.relu", bias=True)
RELU = conv_pattern("nn.relu")
BIAS = conv_pattern(bias=True)
SIGMOID = conv_pattern("sigmoid")
BIAS_SIGMOID = conv_pattern("sigmoid", bias=True)


def two_blocks(bias: bool, norm: bool, sigmoid: bool) -> IRModule:
    """Convolution, perhaps with bias, normalisation and sigmoid, and relu; then the same without bias and norm."""
    random = np.random.default_rng(0)
    x = var("x", (1, 3, 6, 6))
    value: Expr = x
    for channels, rich in ((3, True), (4, False)):
        weight = const(random.normal(size=(4, channels, 3, 3)).astype("float32"))
        value = call_op("nn.conv2d", [value, weight], padding=(1,))
        if bias and rich:
            value = call_op("nn.bias_add", [value, const(random.normal(size=4).astype("float32"))])
        if norm and rich:
            scale = [const(random.random(4).astype("float32") + 0.5) for _ in range(4)]
            value = TupleGetItem(call_op("nn.batch_norm", [value, *scale]), 0)
        value = call_op("sigmoid", [value]) if sigmoid else value
        value = call_op("nn.relu", [value])
    return IRModule({"main": Function([x], value)})


@pytest.mark.parametrize(
    ("table", "bias", "norm", "sigmoid", "count"),
    [
        ([BIAS_RELU], False, True, False, 3),
        ([RELU], False, True, False, 4),
        ([BIAS_RELU, RELU], False, True, False, 2),
        ([BIAS_RELU, RELU], True, True, False, 2),
        ([RELU], False, False, False, 2),
        ([BIAS_RELU], False, False, False, 4),
        ([BIAS_RELU, RELU], False, True, True, 7),
        ([BIAS], False, True, True, 6),
        ([BIAS_SIGMOID], False, True, True, 5),
        ([BIAS_SIGMOID, SIGMOID], True, True, True, 4),
    ],
)
def test_patterns_and_single_calls_are_cut_out(
    table: list[Any], bias: bool, norm: bool, sigmoid: bool, count: int
) -> None:
    """PG14: patterns and the calls left over give so many functions; same values (interpreted)."""
    takes("maker", "nn.conv2d", "add", "nn.relu", "sigmoid")
    names = ("SimplifyInference", "FoldConstant", "FoldScaleAxis", "CanonicalizeOps", "SimplifyExpr", "FoldConstant")
    with PassContext(opt_level=3):
        simple = Sequential([get_pass(name) for name in names])(two_blocks(bias, norm, sigmoid))
    after = run(simple, MergeComposite(table), AnnotateTarget("maker"), PartitionGraph())
    assert len(compiled(after)) == count


@pytest.mark.parametrize(("relu", "count"), [(False, 2), (True, 1)])
def test_a_pattern_with_a_sum(relu: bool, count: int) -> None:
    """PG14: convolution, bias and a sum with another value are one pattern; a relu behind it is in it, or apart."""
    takes("maker", "nn.relu", "add", "nn.conv2d")
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    pattern = is_op("add")(is_op("add")(conv, wildcard()), wildcard())
    table = [("maker.conv2d_bias_sum", is_op("nn.relu")(pattern) if relu else pattern)]
    body = f"nn.relu({CONV.format(x='%x', w='%w')} + %b + %x)"
    mod = parse(f"def @main({CONV_PARAMS}, %b: Tensor[(4, 1, 1), float32]) {{ {body} }}")
    after = run(mod, MergeComposite(table), AnnotateTarget("maker"), PartitionGraph())
    assert len(compiled(after)) == count


def test_a_value_that_two_calls_use() -> None:
    """PG15: with the call that joins them the two are one region of one result, without it two regions."""
    mod = vectors("%0 = log(abs(%x)); %1 = subtract(%0, %y); multiply(%0, %1)", "x", "y")
    takes("a", "log", "subtract")
    assert result_type(partition(mod)) == TupleType((TensorType((3,)), TensorType((3,))))
    assert ops_of(partition(mod, merge=False)) == [["log"], ["subtract"]]
    takes("a", "multiply")
    assert result_type(partition(mod)) == TensorType((3,))


def test_one_result_for_several_consumers() -> None:
    """PG16: what three calls of the host use is one function of one result."""
    takes("a", "abs")
    after = partition(vectors("%0 = abs(%x); nn.relu(%0) + tanh(%0) + sqrt(%0)", "x"))
    assert result_type(after) == TensorType((3,))
    assert len(calls_of(after)) == 1


def test_fields_of_a_tuple_are_given_once() -> None:
    """PG17: a region that ends in fields of a normalisation, some used twice, gives each field once."""
    takes("a", "nn.batch_norm", "nn.relu")
    data, scale = var("data", (1, 4, 6, 6)), [var(name, (4,)) for name in ("gamma", "beta", "mean", "var")]
    norm = call_op("nn.batch_norm", [data, *(call_op("abs", [each]) for each in scale)])
    out = TupleGetItem(norm, 0)
    uses = [call_op("exp", [out]), call_op("tanh", [TupleGetItem(norm, 0)]), call_op("nn.relu", [out])]
    body = relay.Tuple([*uses, norm, TupleGetItem(norm, 1)])
    after = partition(IRModule({"main": Function([data, *scale], body)}))
    kind = result_type(after)
    assert sorted(str(each) for each in kind.fields) == sorted(
        ["Tensor[(1, 4, 6, 6), float32]"] * 2 + ["Tensor[(4,), float32]"] * 2
    )


def test_tuples_of_constants_are_in_the_region() -> None:
    """PG18: constants within a tuple that a region is given stand in it; other fields become parameters."""
    takes("a", "concatenate")
    constant = lambda seed: const(np.full(3, seed, "float32"))  # noqa: E731
    x = var("x", (3,))
    for fields, params in (([constant(1), constant(2)], 0), ([constant(1), x, constant(3)], 1)):
        body = call_op("concatenate", [relay.Tuple(fields)])
        for merge in (True, False):
            after = partition(IRModule({"main": Function([x], call_op("exp", [body]))}), merge=merge)
            assert len(only(after).params) == params
            assert len(constants(only(after))) == 2


def test_tuples_that_a_region_gives_are_taken_apart() -> None:
    """PG19: a split that the host needs as a tuple gives its parts, and beside them what else the region gives."""
    takes("a", "split", "abs")
    body = "%0 = split(%x, indices_or_sections=3); %1 = abs(%0.0); (concatenate(%0), nn.relu(%1))"
    after = partition(vectors(body, "x"))
    assert result_type(after) == TupleType((TensorType((1,)),) * 4)
    assert op_names(only(after)) == ["split", "abs"]


def test_nested_tuples_that_a_region_gives_are_taken_apart() -> None:
    """PG19: fields of fields come one by one and once, and make up the tuple again outside."""
    pair = f"(nn.relu({begin('%x')}), (abs({begin('%y')}), ()))"
    after = run(vectors(f"%0 = {end(pair)}; (%0, %0.1.0)", "x", "y"), PartitionGraph())
    assert result_type(after) == TupleType((TensorType((3,)), TensorType((3,))))


def test_two_results_by_a_tuple() -> None:
    """PG20: a region of a sum and a product gives both; same values (interpreted)."""
    a, b = begin("%a", "vendor"), begin("%b", "vendor")
    body = f"%0 = {end(f'(add({a}, {b}), multiply({a}, {b}))', 'vendor')}; tanh(%0.0) + exp(%0.1)"
    after = run(vectors(body, "a", "b"), PartitionGraph())
    assert len(only(after).params) == 2
    assert result_type(after) == TupleType((TensorType((3,)), TensorType((3,))))


def generate_nothing(*args: Any) -> Any:
    raise AssertionError("no code is generated here")


def test_a_backend_improves_its_functions() -> None:
    """PG21: what a backend gives for `optimize` runs on each of its functions: the sum of constants is folded."""
    backend = Backend("test", "test_target", "", generate_nothing, optimize=get_pass("FoldConstant"))
    register_backend(backend)
    body = f"exp({end('add(' + begin('%x', 'test_target') + ', 1f + 1f)', 'test_target')})"
    assert constants(only(run(vectors(body, "x"), PartitionGraph())))[0].data == 2
    register_backend(
        replace(backend, optimize=lambda mod: IRModule({name: vectors("(%x,)", "x")["main"] for name in mod}))
    )
    with pytest.raises(UserError, match="expected one function '@main' of the same type"):
        PartitionGraph()(vectors(body, "x"))


def test_type_definitions_stay() -> None:
    """PG22: algebraic data types of a module are there afterwards."""
    takes("a", "nn.relu")
    mod = parse(f"type List[A] {{ Cons(A, List[A]), Nil }} def @main(%x: {VECTOR}) {{ nn.relu(%x) }}")
    assert partition(mod).type_definitions == mod.type_definitions


@pytest.mark.parametrize("bind", [True, False])
def test_constants_are_bound_or_handed_over(bind: bool) -> None:
    """PG23: with `bind_constants` constants stand in the function, without they are arguments of the call."""
    takes("vendor", "add", "nn.relu")
    mod = parse(f"def @main(%x: {VECTOR}) {{ nn.relu(%x + 1f) + 2f }}")
    after = partition(mod, ["vendor"], bind_constants=bind)
    (call,) = calls_of(after)
    assert len(constants(only(after))) == (2 if bind else 0)
    assert sum(isinstance(arg, Constant) for arg in call.args) == (0 if bind else 2)
    assert len(only(after).params) == (1 if bind else 3)


def test_names_do_not_clash() -> None:
    takes("a", "nn.relu")
    bodies = "".join(f"def @{name}(%x: {VECTOR}) -> {VECTOR} {{ nn.relu(%x) }} " for name in ('"f.g"', "f_g", "main"))
    taken = f"def @relaybuild_default_a_main_0(%x: {VECTOR}) -> {VECTOR} {{ exp(%x) }}"
    after = partition(parse(bodies + taken))
    assert sorted(compiled(after)) == [
        "relaybuild_default_a_f_g_0",
        "relaybuild_default_a_f_g_0_1",
        "relaybuild_default_a_main_0_1",
    ]
    assert all(function.attrs["global_symbol"] == name for name, function in compiled(after).items())


@pytest.mark.parametrize("name", ["", None])
def test_a_module_need_not_have_a_name(name: str | None) -> None:
    takes("a", "nn.relu")
    assert list(compiled(partition(vectors("nn.relu(%x)", "x"), mod_name=name))) == ["relaybuild_a_main_0"]


def test_a_bad_name_is_refused() -> None:
    with pytest.raises(UserError, match="'mod_name' is 'a-b'"):
        PartitionGraph("a-b")


def test_fields_alone_are_no_region() -> None:
    """A field that is needed within a branch alone is taken there by the host."""
    takes("a", "split", "nn.relu")
    body = "%0 = split(%x, indices_or_sections=3); if (less(sum(%0.0), 1f)) { exp(%0.1) } else { exp(%0.2) }"
    assert ops_of(partition(vectors(body, "x"))) == [["split"]]


def test_marks_of_two_compilers_at_one_call_are_an_error() -> None:
    mod = vectors(end(f"nn.relu({begin('%x', 'b')})", "a"), "x")
    with pytest.raises(UserError, match=r"the call of 'nn.relu' is marked for the compilers 'b' and 'a'"):
        PartitionGraph()(mod)


def test_a_composite_function_that_captures_is_an_error() -> None:
    takes("v", "nn.relu")
    mod = vectors(f'%0 = fn (%a: {VECTOR}, Composite="v.add") {{ add(%a, %x) }}; %0(%y)', "x", "y")
    with pytest.raises(UserError, match=r"uses '%x' from outside: hand it over as an argument"):
        partition(mod, ["v"])


def test_control_flow_between_marks_stays_with_the_host() -> None:
    branch = f"if (%c) {{ nn.relu({begin('%x')}) }} else {{ {begin('%x')} }}"
    mod = parse(f"def @main(%c: bool, %x: {VECTOR}) {{ {end(f'abs({branch})')} }}")
    after = infer_types(PartitionGraph()(infer_types(mod)))
    assert sorted(ops_of(after)) == [["abs"], ["nn.relu"]]


def test_the_same_text_twice() -> None:
    takes("a", "nn.relu", "add", "concatenate")
    takes("b", "tanh", "exp")
    body = "%0 = nn.relu(%x); %1 = tanh(%0); %2 = concatenate((%0, %1, %y)); (%2, exp(%2) + %2, add(%0, tanh(%y)))"
    texts = {print_module(partition(vectors(body, "x", "y"), ["a", "b"])) for _ in range(3)}
    assert len(texts) == 1


def test_without_marks_nothing_changes() -> None:
    mod = vectors("exp(%x)", "x")
    assert PartitionGraph()(mod) is mod
    assert MergeCompilerRegions()(mod) is mod
    assert structural_equal(run(mod, AnnotateTarget("nobody"), MergeCompilerRegions(), PartitionGraph()), mod)


def test_tuples_of_any_depth() -> None:
    takes("a", "nn.relu", "add")
    value: Expr = call_op("nn.relu", [x := var("x", (3,))])
    for _ in range(3000):
        value = relay.Tuple([value])
    inner: Expr = value
    for _ in range(3000):
        inner = TupleGetItem(inner, 0)
    after = partition(IRModule({"main": Function([x], call_op("add", [inner, x]))}))
    assert len(compiled(after)) == 1


def test_what_passes_through_is_no_part_of_a_region() -> None:
    """A tuple of a result, a variable and a constant: the region has neither parameter nor result for the latter."""
    takes("a", "nn.relu")
    after = partition(vectors("(nn.relu(%x), (%y, 1f))", "x", "y"))
    assert only(after).checked_type == FuncType((TensorType((3,)),), TensorType((3,)))


def test_effects_of_fields_that_a_region_does_not_take_are_kept() -> None:
    pair = begin("(%x, (ref_write(%r, %y), %y).1)")
    body = f"let %r = ref(%x); let %z = {end(f'nn.relu({pair}.0)')}; %z + ref_read(%r)"
    after = run(vectors(body, "x", "y"), PartitionGraph())
    assert op_names(only(after)) == ["nn.relu"]


def test_a_region_that_nothing_needs_is_none() -> None:
    takes("a", "nn.relu")
    assert not compiled(partition(vectors("(nn.relu(%x), %y).1", "x", "y")))
