"""What must hold of every program: the text is lossless, names do not count, passes keep the meaning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import arguments, modules

from relaybuild.diagnostics import Diagnostic, Source
from relaybuild.ir.expr import Expr, Function, Let, Var
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import ParseError, parse
from relaybuild.ir.printer import print_module
from relaybuild.ir.structural import structural_digest, structural_equal
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order, substitute
from relaybuild.passes.infra import Pass, PassContext, builtin_passes, get_pass
from relaybuild.passes.pipelines import default_pipeline

OTHER_RESULTS = ("PrintIR", "ToMixedPrecision", "FirstOrderGradient")
"""Passes that print, round, or compute something else."""

PASSES = [
    *(get_pass(name) for name in builtin_passes() if name not in OTHER_RESULTS),
    get_pass("FoldConstant", fold_weights=False),
    default_pipeline(),
]
PIECES = ("", "%", "(", ")", "}", '"', "0", "-", "let ", "fn ", "\n", "=", "Tensor[", "1e9")
EXAMPLES = settings(max_examples=25, deadline=None)


def renamed(function: Function) -> Function:
    """The same function with other variables of other names."""
    nodes = list(post_order(function))
    binders = [param for node in nodes if isinstance(node, Function) for param in node.params]
    binders += [node.var for node in nodes if isinstance(node, Let)]
    fresh: dict[Expr, Expr] = {old: Var(f"v{i}", old.type_annotation) for i, old in enumerate(binders)}
    done: dict[int, Expr] = {id(old): new for old, new in fresh.items()}
    for node in nodes:
        if isinstance(node, Var):
            continue
        children = [done[id(child)] for child in node.children()]
        done[id(node)] = node.with_children(children)
        if isinstance(node, Function):
            params = [fresh[param] for param in node.params]
            done[id(node)] = Function(params, children[0], node.ret_type, node.type_params, node.attrs)  # type: ignore[arg-type]
        elif isinstance(node, Let):
            done[id(node)] = Let(fresh[node.var], *children)  # type: ignore[arg-type]
    result = done[id(function)]
    assert isinstance(result, Function)
    return result


@EXAMPLES
@given(modules())
def test_the_text_is_lossless(mod: IRModule) -> None:
    verify_module(mod, "typed")
    text = print_module(mod)
    back = parse(text)
    assert structural_equal(mod, back)
    assert structural_digest(mod) == structural_digest(back)
    assert print_module(back) == text


@EXAMPLES
@given(modules())
def test_names_do_not_count(mod: IRModule) -> None:
    other = IRModule({"main": renamed(mod["main"])})
    assert structural_equal(mod, other)
    assert substitute(mod["main"], {}) is mod["main"]


@EXAMPLES
@given(modules(), modules())
def test_different_programs_have_different_digests(a: IRModule, b: IRModule) -> None:
    same_text = print_module(IRModule({"main": renamed(a["main"])})) == print_module(
        IRModule({"main": renamed(b["main"])})
    )
    assert structural_equal(a, b) is same_text


@pytest.mark.parametrize("each", PASSES, ids=lambda each: each.info.name)
@EXAMPLES
@given(modules())
def test_passes_keep_the_meaning(each: Pass, mod: IRModule) -> None:
    with PassContext(opt_level=3):
        after = each(mod)
        again = each(after)
    verify_module(after, "typed")
    for expected, found in zip(interpret(mod, *arguments()), interpret(after, *arguments())):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    for expected, found in zip(interpret(mod, *arguments()), interpret(again, *arguments())):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


@EXAMPLES
@given(modules())
def test_mixed_precision_keeps_the_types_it_is_asked_to_keep(mod: IRModule) -> None:
    """Values in half precision may take another branch, so that types alone are compared."""
    with PassContext(config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}):
        after = get_pass("ToMixedPrecision")(mod)
    verify_module(after, "typed")
    assert after["main"].checked_type == mod["main"].checked_type
    for expected, found in zip(interpret(mod, *arguments()), interpret(after, *arguments())):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


@EXAMPLES
@given(modules(), st.data())
def test_broken_texts_are_refused_politely(mod: IRModule, data: st.DataObject) -> None:
    text = print_module(mod)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(start + 20, len(text))))
    other = data.draw(
        st.sampled_from(["", "%", "(", ")", "}", '"', "0", "-", "let ", "fn ", "\n", "=", "Tensor[", "1e9"])
    )
    broken = text[:start] + other + text[end:]
    try:
        parse(broken, "m")
        errors: tuple[Diagnostic, ...] = ()
    except ParseError as error:
        errors = error.errors
        shown = str(error)
    source = Source.of(broken, "m")
    assert all(error.render(source) in shown for error in errors)
