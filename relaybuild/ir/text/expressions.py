"""Reads expressions; knows nothing of modules' definitions.

    block   := "{" body "}"
    body    := "let" %x (":" type)? "=" expr ";" body | %n "=" expr (";" | line end) body
             | "free_var" %x (":" type)? ";" body | expr ";" body | expr
    expr    := operand (infix operand)*
    operand := atom ("." INT | "(" expr,* (key "=" attr),* ")" | span)*
    atom    := literal | tensor | %x | @g | op "(" … ")" | Constructor | meta[relay.Constant][i] | tuple | block
             | "(" %n "=" expr ")" | "-" operand | fn | if | match | "constructor" "(" Constructor ")"
             | "ref" "(" expr ")" | "ref_read" "(" expr ")" | "ref_write" "(" expr "," expr ")"
    fn      := "fn" typarams? "(" (%x (":" type)?),* (key "=" attr),* ")" ("->" type)? block
    if      := "if" "(" expr ")" block "else" block
    match   := ("match" | "match?") "(" expr ")" "{" (pattern "=>" expr ","?)* "}"

What most texts consist of, calls of operators over names, is read without a step of its own; a function that meets
something deeper returns a step instead of a node.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType
from typing import Any, TypeAlias

import numpy as np

from relaybuild.diagnostics import did_you_mean
from relaybuild.errors import UserError
from relaybuild.ir.adt import Clause, Constructor, Match
from relaybuild.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Span,
    Tuple,
    TupleGetItem,
    Var,
)
from relaybuild.ir.lexer import Tokens
from relaybuild.ir.op import Attrs, Op, find_op, get_op
from relaybuild.ir.text.cursor import DIGITS, Fault
from relaybuild.ir.text.names import KEYWORDS, NOT_FINITE, SPELLINGS
from relaybuild.ir.text.patterns import PatternReader
from relaybuild.ir.trampoline import Step
from relaybuild.ir.types import TupleType

SoonExpr: TypeAlias = "Expr | Step[Expr]"

_INFIX = {
    "*": (12, "multiply"),
    "/": (12, "divide"),
    "+": (10, "add"),
    "-": (10, "subtract"),
    "<": (8, "less"),
    "<=": (8, "less_equal"),
    ">": (8, "greater"),
    ">=": (8, "greater_equal"),
    "==": (7, "equal"),
    "!=": (7, "not_equal"),
}
_POSTFIX = frozenset("(.#")


class ExpressionReader(PatternReader):
    """Reads expressions."""

    def __init__(self, tokens: Tokens, slots: list[Constant]) -> None:
        super().__init__(tokens, slots)
        self.globals_used: dict[str, int] = {}
        """Where each global is named first."""
        self._ops: dict[str, tuple[Op, Attrs | None]] = {}
        """Operators by the names the text uses, each with its record of no attributes, if that is possible."""

    # Blocks

    def block(self) -> Step[Expr]:
        """`{ body }`."""
        opener = self.at
        self.expect("{")
        found: Expr = yield self.body(opener)
        if self.at_definition():
            raise Fault("", 0)
        self.close(opener, "';' or ")
        return found

    def body(self, opener: int | None) -> Step[Expr]:
        """Statements and the expression they lead to, up to a block's end or, without `opener`, the text's.

        After a mistake the next statement is read.
        """
        mark = len(self.undo)
        lets: list[tuple[Var, Expr, Span | None]] = []
        value: Expr | None = None
        while value is None:
            start, undone = self.at, len(self.undo)
            try:
                token = self.tokens[start]
                if token[:1] == "%" and self.tokens[start + 1] == "=":
                    self.at = start + 2
                    bound = self.expr()
                    if type(bound) is GeneratorType:
                        bound = yield bound
                    self._end_binding()
                    self.bind(self.key(start), bound)
                elif token == "let":
                    lets.append((yield self._let()))
                elif token == "free_var":
                    yield self._free_var()
                else:
                    found = yield self.expr()
                    if self.accept(";"):
                        lets.append((Var("_"), found, self.span(start)))
                    else:
                        self._expect_end(opener)
                        value = found
            except Fault as fault:
                if not fault.message:
                    raise
                value = self._recover(fault, start, undone)
        self.leave(mark)
        for var, bound, span in reversed(lets):
            value = Let(var, bound, value, span)
        return value

    def _expect_end(self, opener: int | None) -> None:
        if opener is not None and self.tokens[self.at] != "}":
            self.close(opener, "';' or ")
        if opener is None and self.tokens[self.at]:
            raise self.fault("expected ';' or the end")

    def _recover(self, fault: Fault, start: int, undone: int) -> Expr | None:
        """Report a fault and go to the next statement; what a block without one leads to."""
        self.report(fault)
        self.leave(undone)
        self.skip_statement(start)
        name = start + (self.tokens[start] == "let")
        if self.tokens[name][:1] == "%" and len(self.tokens[name]) > 1:
            self.bind(self._key_or_text(name), self.unknown())
        return self.unknown() if self.tokens[self.at] == "}" or self.at_definition() else None

    def _key_or_text(self, at: int) -> str:
        try:
            return self.key(at)
        except Fault:
            return self.tokens[at]

    def _end_binding(self) -> None:
        if self.tokens[self.at] == ";":
            self.at += 1
        elif self.tokens[self.at] and not self.on_line_of_previous():
            self.line_ends.append(self.at)
        else:
            raise self.fault("expected ';' or a line's end")

    def _let(self) -> Step[tuple[Var, Expr, Span | None]]:
        start = self.at
        self.at += 1
        span = self.written_span(start)
        at = self.at
        var = yield self.binder()
        key = self.key(at)
        self.expect("=")
        is_recursive = self._at_function()
        if is_recursive:
            self.bind(key, var)
        value = yield self.expr()
        self._end_binding()
        if not is_recursive:
            self.bind(key, var)
        if var.type_annotation is None and value.has_type and not var.has_type:
            var.set_checked_type(value.checked_type)
        return var, value, span

    def _at_function(self) -> bool:
        """Whether `fn` stands here, or `(%0 = fn`."""
        if self.tokens[self.at] == "(" and self.tokens[self.at + 1][:1] == "%" and self.tokens[self.at + 2] == "=":
            return self.tokens[self.at + 3] == "fn"
        return self.tokens[self.at] == "fn"

    def _free_var(self) -> Step[None]:
        self.at += 1
        at = self.at
        var = yield self.binder()
        self._end_binding()
        self.bind(self.key(at), var)

    # Functions

    def function(self, span: Span | None) -> Step[Function]:
        """What follows `fn` or a definition's name."""
        mark = len(self.undo)
        type_params = self.type_params()
        opener = self.at
        self.expect("(")
        params = yield self._params()
        attrs = yield self.attrs()
        self.close(opener)
        ret_type = (yield self.read_type()) if self.accept("->") else None
        body = yield self.block()
        self.leave(mark)
        return Function(params, body, ret_type, type_params, attrs, span)

    def _params(self) -> Step[list[Var]]:
        params: dict[str, Var] = {}
        while self.tokens[self.at][:1] == "%":
            at = self.at
            var = yield self.binder()
            key = self.key(at)
            if key in params:
                self.error(at, f"parameter '{self.tokens[at]}' is declared twice")
            params[key] = var
            if not self.accept(","):
                break
        for key, var in params.items():
            self.bind(key, var)
        return list(params.values())

    # Expressions

    def expr(self, floor: int = 0) -> SoonExpr:
        """The longest expression of infix operators that bind at least as tightly as `floor`."""
        node = self._operand()
        if type(node) is GeneratorType or self.tokens[self.at] in _INFIX:
            return self._infix(node, floor)
        return node

    def _infix(self, first: SoonExpr, floor: int) -> Step[Expr]:
        left: Expr = yield first
        while (found := _INFIX.get(self.tokens[self.at])) is not None and found[0] >= floor:
            at = self.at
            self.at += 1
            right = yield self.expr(found[0] + 1)
            left = self._op_call(found[1], [left, right], {}, at)
        return left

    def _operand(self) -> SoonExpr:
        at = self.at
        node = self._local() if self.tokens[at][:1] == "%" else self._atom()
        if type(node) is GeneratorType or self.tokens[self.at][:1] in _POSTFIX:
            return self._postfix(node, at)
        return node

    def _postfix(self, first: SoonExpr, start: int) -> Step[Expr]:
        node: Expr = yield first
        is_new = self.tokens[start][:1] != "%"
        while True:
            token, at = self.tokens[self.at], self.at
            if token[:1] == "." and len(token) > 1:
                self.at += 1
                node = self._projection(node, at)
            elif token == "(" and self.on_line_of_previous():
                node = yield self._call(node, start)
            elif token == "#[":
                if not is_new:
                    raise self.fault("expected no span: it stands where what it belongs to is written")
                node = self.place(node, self.read_span())
            else:
                return node
            is_new = True

    def _projection(self, node: Expr, at: int) -> Expr:
        digits = self.tokens[at][1:]
        if len(digits) > 9:
            raise self.fault("expected a field's number", at)
        if node.has_type and not isinstance(node.checked_type, TupleType):
            self.error(at, f"field {digits} of {node.checked_type}, expected a tuple")
            return self.unknown()
        return self._typed(lambda: TupleGetItem(node, int(digits), self.span(at)), at)

    def _typed(self, make: Callable[[], Expr], at: int) -> Expr:
        """Build a node; a type error is noted, and what stands for the node has no type."""
        try:
            return make()
        except UserError as error:
            self.error(at, error.message)
            return self.unknown()

    def _call(self, callee: Expr, start: int) -> Step[Expr]:
        opener = self.at
        args, attrs = yield self._remaining_arguments(self._plain_arguments(), opener)
        if attrs:
            self.error(opener, "only calls of operators take attributes")
        return self._typed(lambda: Call(callee, args, None, self.span(start)), start)

    def _plain_arguments(self) -> list[Expr]:
        """The leading arguments of a call that are names alone."""
        self.at += 1
        tokens = self.tokens
        args: list[Expr] = []
        while tokens[self.at][:1] == "%":
            following = tokens[self.at + 1]
            if following == ",":
                args.append(self._local())
                self.at += 1
            elif following == ")":
                args.append(self._local())
                break
            else:
                break
        return args

    def _remaining_arguments(self, args: list[Expr], opener: int) -> Step[tuple[list[Expr], dict[str, object]]]:
        attrs: dict[str, object] = {}
        while self.tokens[self.at] != ")":
            if self.at_attr():
                attrs = yield self.attrs()
                break
            args.append((yield self.expr()))
            if not self.accept(","):
                break
        self.close(opener)
        return args, attrs

    def _op(self, name: str, at: int) -> SoonExpr:
        """A call of an operator, whose `(` stands here."""
        opener = self.at
        args = self._plain_arguments()
        if self.tokens[self.at] == ")":
            self.at += 1
            return self._op_call(name, args, {}, at)
        return self._op_with_rest(name, args, at, opener)

    def _op_with_rest(self, name: str, first: list[Expr], at: int, opener: int) -> Step[Expr]:
        args, attrs = yield self._remaining_arguments(first, opener)
        return self._op_call(name, args, attrs, at)

    def _op_call(self, name: str, args: list[Expr], attrs: dict[str, object], at: int) -> Expr:
        try:
            op, record = self._ops.get(name) or self._find_op(name)
            if attrs or record is None:
                record = op.make_attrs(attrs)
            return Call(op, args, record, self.span(at))
        except UserError as error:
            self.error(at, error.message)
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            # attributes of a kind that neither the record nor the type relation is written for
            self.error(at, f"'{name}' does not take these attributes: {error}")
        return self.unknown()

    def _find_op(self, name: str) -> tuple[Op, Attrs | None]:
        op = get_op(name if find_op(name) else SPELLINGS.get(name, name))
        try:
            record = op.make_attrs({})
        except (UserError, TypeError, ValueError):
            record = None
        self._ops[name] = (op, record)
        return self._ops[name]

    # Atoms

    def _local(self) -> Expr:
        at = self.at
        self.at = at + 1
        found = self.scope.get(self.tokens[at])
        return found if found is not None else self._quoted_or_unknown(at)

    def _quoted_or_unknown(self, at: int) -> Expr:
        token = self.tokens[at]
        found = self.scope.get(self.key(at))
        if isinstance(found, Expr):
            return found
        kind = "node" if token[1] in DIGITS else "variable"
        hint = did_you_mean(token, [name for name in self.scope if name[0] == "%"])
        self.error(at, f"unknown {kind} '{token}'{hint}")
        return self.unknown()

    def _atom(self) -> SoonExpr:
        at = self.at
        token = self.tokens[at]
        first = token[:1]
        if first in DIGITS:
            return self.literal(negative=False)
        if first == "@":
            return self._global()
        read = _WORDS.get(token)
        if read is not None:
            self.at += 1
            found: SoonExpr = read(self, at)
            return found
        if self.at_name():
            return self._word(token)
        raise self.fault("expected an expression")

    def _global(self) -> Expr:
        at = self.at
        if len(self.tokens[at]) == 1:
            raise self.fault("expected a function")
        self.at += 1
        name = self.name_of(at)
        self.globals_used.setdefault(name, at)
        return GlobalVar(name, self.span(at))

    def _word(self, token: str) -> SoonExpr:
        at = self.at
        if NOT_FINITE.match(token):
            return self.literal(negative=False)
        if token in KEYWORDS:
            raise self.fault("expected an expression")
        self.at += 1
        name = self.name_of(at)
        is_operator = token[0] != '"' and (find_op(name) is not None or name in SPELLINGS)
        constructor = None if is_operator else self.constructors.get(name)
        if constructor is not None:
            return self._constructor(constructor, at)
        if self.tokens[self.at] != "(" or token[0] == '"':
            raise self._unknown_word(at, name, is_operator)
        if not is_operator and self.constructors:
            hint = did_you_mean(name, self.constructors)
            if hint:
                self.error(at, f"unknown operator or constructor '{name}'{hint}")
                return self._postfix(self.unknown(), at)
        return self._op(name, at)

    def _constructor(self, constructor: Constructor, at: int) -> Expr:
        """A constructor; one without fields is its value, with or without parentheses."""
        is_called = self.tokens[self.at] == "(" and self.on_line_of_previous()
        if constructor.inputs or is_called:
            return constructor
        return self._typed(lambda: Call(constructor, [], None, self.span(at)), at)

    def _bare_constructor(self, at: int) -> Expr:
        """`constructor(Nil)`: a constructor without fields that is not called."""
        opener = self.at
        self.expect("(")
        name = self.at
        if not self.at_name():
            raise self.fault("expected a constructor")
        self.at += 1
        self.close(opener, "")
        found = self.constructors.get(self.name_of(name))
        if found is None:
            raise self._unknown_word(name, self.name_of(name), False)
        return found

    def _unknown_word(self, at: int, name: str, is_operator: bool) -> Fault:
        if is_operator:
            return self.fault(f"expected '(' after the operator '{name}'")
        hint = did_you_mean(name, [*self.constructors, "True", "False"])
        return Fault(f"unknown constructor '{name}'{hint}", self.start(at))

    def _truth(self, at: int) -> Expr:
        return Constant(np.asarray(self.tokens[at] == "True"), self.span(at))

    def _fn(self, at: int) -> Step[Expr]:
        found = yield self.function(self.written_span(at))
        return found  # type: ignore[no-any-return]

    def _block_atom(self, at: int) -> Step[Expr]:
        self.at = at
        return self.block()

    def _in_parentheses(self) -> Step[Expr]:
        opener = self.at
        self.expect("(")
        found: Expr = yield self.expr()
        self.close(opener, "")
        return found

    def _if(self, at: int) -> Step[Expr]:
        span = self.written_span(at)
        cond = yield self._in_parentheses()
        true_branch = yield self.block()
        self.expect("else")
        false_branch = yield self.block()
        return If(cond, true_branch, false_branch, span)

    def _parenthesis(self, opener: int) -> Step[Expr]:
        if self.tokens[self.at][:1] == "%" and self.tokens[self.at + 1] == "=":
            return (yield self._named_inside(opener))  # type: ignore[no-any-return]
        items: list[Expr] = []
        comma = False
        while self.tokens[self.at] != ")":
            items.append((yield self.expr()))
            comma = self.accept(",")
            if not comma:
                break
        self.close(opener)
        return items[0] if len(items) == 1 and not comma else Tuple(items, self.span(opener))

    def _named_inside(self, opener: int) -> Step[Expr]:
        """`(%0 = expr)`: a node named where it is used first, up to the end of the block."""
        at = self.at
        self.at += 2
        found: Expr = yield self.expr()
        self.close(opener, "")
        self.bind(self.key(at), found)
        return found

    def _negative(self, at: int) -> SoonExpr:
        count = 1
        while self.accept("-"):
            count += 1
        if self.at_number():
            return self.literal(negative=count % 2 == 1)
        return self._negated(count, at)

    def _negated(self, count: int, at: int) -> Step[Expr]:
        node: Expr = yield self._operand()
        for _ in range(count):
            node = self._op_call("negative", [node], {}, at)
        return node

    # References

    def _ref(self, at: int) -> Step[Expr]:
        value = yield self._in_parentheses()
        return RefCreate(value, self.span(at))

    def _ref_read(self, at: int) -> Step[Expr]:
        ref = yield self._in_parentheses()
        return RefRead(ref, self.span(at))

    def _ref_write(self, at: int) -> Step[Expr]:
        opener = self.at
        self.expect("(")
        ref = yield self.expr()
        self.expect(",")
        value = yield self.expr()
        self.close(opener, "")
        return RefWrite(ref, value, self.span(at))

    # Matches

    def _match(self, at: int) -> Step[Expr]:
        complete = not self.accept("?")
        span = self.written_span(at)
        data = yield self._in_parentheses()
        opener = self.at
        self.expect("{")
        clauses: list[Clause] = []
        while self.tokens[self.at] != "}":
            clauses.append((yield self._clause()))
            if not self.accept(",") and self.tokens[self.at - 1] != "}":
                break
        self.close(opener)
        return Match(data, clauses, complete, span)

    def _clause(self) -> Step[Clause]:
        mark = len(self.undo)
        self.pattern_keys.clear()
        pattern = yield self.pattern()
        self.expect("=>")
        body = yield self.expr()
        self.leave(mark)
        return Clause(pattern, body)


_WORDS: dict[str, Callable[[ExpressionReader, int], Any]] = {
    "True": ExpressionReader._truth,
    "False": ExpressionReader._truth,
    "Tensor": ExpressionReader.tensor,
    "meta": ExpressionReader.slot,
    "fn": ExpressionReader._fn,
    "if": ExpressionReader._if,
    "match": ExpressionReader._match,
    "constructor": ExpressionReader._bare_constructor,
    "ref": ExpressionReader._ref,
    "ref_read": ExpressionReader._ref_read,
    "ref_write": ExpressionReader._ref_write,
    "(": ExpressionReader._parenthesis,
    "{": ExpressionReader._block_atom,
    "-": ExpressionReader._negative,
}
