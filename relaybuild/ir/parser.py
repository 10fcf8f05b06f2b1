"""Reads the text format into modules and expressions; knows nothing of passes.

    module := version? attrs? def* metadata?
    def    := "def" @g typarams? "(" params ("," key "=" value)* ")" ("->" type)? block
    block  := "{" body "}"
    body   := "let" %x (":" type)? "=" expr ";" body | %n "=" expr (";" | line end) body | expr ";" body | expr
    expr   := postfix (infix postfix)*
    atom   := literal | tensor | %x | @g | op "(" … ")" | meta[relay.Constant][i] | tuple | block | fn | if

A graph binding `%n = expr` names a node, it does not bind a variable. The `(` of a call stands on the line where its
callee ends, so that a binding may end with its line.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.errors import TypeCheckError, UserError
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Span, Tuple, TupleGetItem, Var
from relaybuild.ir.infer import complete_types
from relaybuild.ir.lexer import METADATA, Source, SyntaxFault, Token, tokenize, unquote
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import find_op, get_op
from relaybuild.ir.structural import constant_digest
from relaybuild.ir.trampoline import Step, done, run
from relaybuild.ir.types import DTYPES, Dim, Extent, FuncType, TensorType, TupleType, Type, TypeVar, dtype_itemsize

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
_SPELLINGS = {"mul": "multiply", "sub": "subtract", "div": "divide"}
_KEYWORDS = frozenset(("let", "fn", "if", "else", "def", "True", "False", "meta", "free_var", "Tensor"))
_SUFFIXES = ("f64", "f32", "f16", "f", "i64", "i32", "i16", "i8", "i", "u64", "u32", "u16", "u8")
_SUFFIX_DTYPE = {"f": "float32", "i": "int32"}
_SUFFIX_KINDS = {"f": "float", "i": "int", "u": "uint"}
_MAX_ERRORS = 20


class ParseError(UserError):
    """A text that cannot be read; the message lists every mistake found, each with its line and a caret.

    `errors` are the single mistakes, as (position, message).
    """

    def __init__(self, source: Source, errors: Sequence[tuple[int, str]]) -> None:
        self.errors = tuple(errors)
        listed = [f"{source.where(pos)}: {text}\n{source.excerpt(pos)}" for pos, text in self.errors]
        super().__init__("\n".join(listed))


def parse(text: str, source_name: str = "<text>", weights: Sequence[NDArray[Any]] | None = None) -> IRModule:
    """The module a text denotes, with every type that can be inferred.

    `weights` are the arrays of the slots, for a text printed without them. Raises ParseError.
    """
    source = Source.of(text, source_name)
    return _Parser(source, weights).module()


def parse_expr(text: str, source_name: str = "<text>", weights: Sequence[NDArray[Any]] | None = None) -> Expr:
    """The expression a text denotes; `free_var %x: type;` declares its variables. Raises ParseError."""
    source = Source.of(text, source_name)
    return _Parser(source, weights).expression()


class _Parser:
    def __init__(self, source: Source, weights: Sequence[NDArray[Any]] | None) -> None:
        self.source = source
        self.errors: list[tuple[int, str]] = []
        self.env: dict[str, Expr] = {}
        self.undo: list[tuple[str, Expr | None]] = []
        self.type_params: set[str] = set()
        self.globals_used: dict[str, int] = {}
        try:
            self.tokens, end = tokenize(source)
        except SyntaxFault as fault:
            raise ParseError(source, [(fault.pos, fault.message)]) from None
        self.at = 0
        self.constants = self._read_metadata(end, weights)

    # Whole texts

    def module(self) -> IRModule:
        attrs: dict[str, object] = {}
        self._guard(lambda: self._header(attrs))
        functions: dict[str, Function] = {}
        while self.peek.kind != "end" and len(self.errors) < _MAX_ERRORS:
            self._guard(lambda: self._definition(functions))
        for name, pos in self.globals_used.items():
            if name not in functions and not self.errors:
                known = ", ".join(f"'@{other}'" for other in functions) or "none"
                self.errors.append((pos, f"unknown function '@{name}'; the module has {known}"))
        self._raise_errors()
        return self._complete(IRModule(functions, attrs))

    def expression(self) -> Expr:
        self._guard(lambda: self._header({}))
        found: list[Expr] = []
        self._guard(lambda: found.append(run(self._body("end"))))
        self._raise_errors()
        return found[0]

    def _complete(self, mod: IRModule) -> IRModule:
        try:
            return complete_types(mod)
        except TypeCheckError as error:
            raise ParseError(self.source, [(_offset(self.source, error), error.message)]) from None

    def _guard(self, step: Any) -> None:
        """Run one step; after a mistake go on with the next definition."""
        try:
            step()
        except SyntaxFault as fault:
            self.errors.append((fault.pos, fault.message))
            self.env.clear()
            self.undo.clear()
            self.type_params.clear()
            self.at += self.peek.kind != "end"
            while self.peek.kind != "end" and not self._is_name("def"):
                self.at += 1

    def _raise_errors(self) -> None:
        if self.errors:
            raise ParseError(self.source, sorted(self.errors))

    # Tokens

    @property
    def peek(self) -> Token:
        return self.tokens[self.at]

    def _next(self) -> Token:
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def _is(self, text: str) -> bool:
        token = self.tokens[self.at]
        return token.kind == "punct" and token.text == text

    def _is_name(self, text: str) -> bool:
        token = self.tokens[self.at]
        return token.kind == "name" and token.text == text

    def _accept(self, text: str) -> bool:
        if self._is(text):
            self.at += 1
            return True
        return False

    def _expect(self, text: str) -> Token:
        if not self._is(text):
            raise self._fault(f"expected '{text}'")
        return self._next()

    def _expect_kind(self, kind: str, what: str) -> Token:
        if self.peek.kind != kind:
            raise self._fault(f"expected {what}")
        return self._next()

    def _expect_word(self, text: str) -> Token:
        if not self._is_name(text):
            raise self._fault(f"expected '{text}'")
        return self._next()

    def _fault(self, expected: str, token: Token | None = None) -> SyntaxFault:
        token = token or self.peek
        found = "the end of the text" if token.kind == "end" else f"'{token.text}'"
        return SyntaxFault(f"found {found}, {expected}", token.pos)

    def _name_of(self, token: Token) -> str:
        quoted = token.text[1:] if token.kind in ("local", "global") else token.text
        try:
            return unquote(quoted)
        except ValueError:
            raise SyntaxFault("this quoted name has an escape that JSON does not know", token.pos) from None

    def _span(self, token: Token) -> Span:
        line, column = self.source.position(token.pos)
        return Span(self.source.name, "", line, column)

    # Scopes

    def _bind(self, key: str, node: Expr) -> None:
        self.undo.append((key, self.env.get(key)))
        self.env[key] = node

    def _leave(self, mark: int) -> None:
        while len(self.undo) > mark:
            key, old = self.undo.pop()
            if old is None:
                self.env.pop(key, None)
            else:
                self.env[key] = old

    def _key(self, token: Token) -> str:
        """Numbers name nodes, other names variables; a variable called "1" is not node 1."""
        return token.text if token.text[1].isdigit() else '"' + self._name_of(token)

    # Definitions

    def _header(self, attrs: dict[str, object]) -> None:
        while self.peek.kind == "attribute":
            self._next()
            word = self._expect_kind("name", "'version' or 'attrs'")
            if word.text == "version":
                self._expect("=")
                token = self._expect_kind("string", "a version in quotes")
                if unquote(token.text) != "0.0.5":
                    raise SyntaxFault(f'version {token.text} of the text format; expected "0.0.5"', token.pos)
            elif word.text == "attrs":
                self._expect("(")
                attrs.update(run(self._attr_list()))
                self._expect(")")
            else:
                raise self._fault("expected 'version' or 'attrs'", word)
            self._expect("]")

    def _definition(self, functions: dict[str, Function]) -> None:
        start = self._expect_word("def")
        token = self._expect_kind("global", "a function's name such as '@main'")
        name = self._name_of(token)
        function = run(self._function(self._span(start)))
        if name in functions:
            self.errors.append((token.pos, f"'@{name}' is defined twice"))
        functions[name] = function

    def _function(self, span: Span) -> Step[Function]:
        mark = len(self.undo)
        outer_params = set(self.type_params)
        type_params = self._type_param_list()
        self.type_params.update(parameter.name for parameter in type_params)
        self._expect("(")
        params, attrs = yield self._params()
        self._expect(")")
        ret_type = (yield self._type()) if self._accept("->") else None
        body = yield self._block()
        self._leave(mark)
        self.type_params = outer_params
        return Function(params, body, ret_type, type_params, attrs, span)

    def _type_param_list(self) -> list[TypeVar]:
        found: list[TypeVar] = []
        if not self._accept("["):
            return found
        while not self._accept("]"):
            token = self._next()
            if token.kind not in ("name", "string"):
                raise self._fault("expected a type parameter", token)
            found.append(TypeVar(self._name_of(token)))
            if not self._is("]"):
                self._expect(",")
        return found

    def _params(self) -> Step[tuple[list[Var], dict[str, object]]]:
        params: list[Var] = []
        while self.peek.kind == "local":
            token = self._next()
            kind = (yield self._type()) if self._accept(":") else None
            var = Var(self._var_name(token), kind, self._span(token))
            if any(var.name_hint == other.name_hint for other in params):
                self.errors.append((token.pos, f"parameter '{token.text}' is declared twice"))
            params.append(var)
            if not self._accept(","):
                break
        attrs = yield self._attr_list()
        for var in params:
            self._bind('"' + var.name_hint, var)
        return params, attrs

    def _var_name(self, token: Token) -> str:
        if token.text[1].isdigit():
            raise self._fault("expected a variable's name: a number names a node", token)
        return self._name_of(token)

    # Blocks

    def _block(self) -> Step[Expr]:
        self._expect("{")
        found: Expr = yield self._body("}")
        self._expect("}")
        return found

    def _body(self, close: str) -> Step[Expr]:
        mark = len(self.undo)
        lets: list[tuple[Var, Expr, Span]] = []
        value: Expr
        while True:
            token = self.peek
            if self._is_name("let"):
                lets.append((yield self._let()))
            elif self._is_name("free_var"):
                yield self._free_var()
            elif token.kind == "local" and self._follows("="):
                yield self._graph_binding()
            else:
                value = yield self._expr()
                if not self._accept(";"):
                    break
                lets.append((Var("_"), value, self._span(token)))
        if not (self.peek.kind == "end" if close == "end" else self._is(close)):
            raise self._fault(f"expected ';' or {'the end' if close == 'end' else repr(close)}")
        self._leave(mark)
        for var, bound, span in reversed(lets):
            value = Let(var, bound, value, span)
        return value

    def _follows(self, text: str) -> bool:
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        return following.kind == "punct" and following.text == text

    def _let(self) -> Step[tuple[Var, Expr, Span]]:
        start = self._next()
        token = self._expect_kind("local", "a variable such as '%x'")
        name = self._var_name(token)
        kind = (yield self._type()) if self._accept(":") else None
        self._expect("=")
        var = Var(name, kind, self._span(token))
        recursive = self._is_name("fn")
        if recursive:
            self._bind('"' + name, var)
        value = yield self._expr()
        self._end_binding()
        if not recursive:
            self._bind('"' + name, var)
        if not var.has_type and value.has_type:
            var.set_checked_type(value.checked_type)
        return var, value, self._span(start)

    def _free_var(self) -> Step[None]:
        self._next()
        token = self._expect_kind("local", "a variable such as '%x'")
        kind = (yield self._type()) if self._accept(":") else None
        self._end_binding()
        self._bind(self._key(token), Var(self._var_name(token), kind, self._span(token)))

    def _graph_binding(self) -> Step[None]:
        token = self._next()
        self._expect("=")
        value = yield self._expr()
        self._end_binding()
        self._bind(self._key(token), value)

    def _end_binding(self) -> None:
        if self._accept(";"):
            return
        before = self.tokens[self.at - 1]
        if self.peek.kind == "end" or self.source.line_of(self.peek.pos) == self.source.line_of(before.pos):
            raise self._fault("expected ';' or a line's end")

    # Expressions

    def _expr(self, floor: int = 0) -> Step[Expr]:
        left: Expr = yield self._postfix()
        while self.peek.kind == "punct" and self.peek.text in _INFIX:
            level, name = _INFIX[self.peek.text]
            if level < floor:
                break
            token = self._next()
            right = yield self._expr(level + 1)
            left = self._make_call(name, [left, right], {}, token)
        return left

    def _postfix(self) -> Step[Expr]:
        start = self.peek
        node: Expr = yield self._atom()
        while True:
            token = self.peek
            if token.kind == "projection":
                self._next()
                node = self._projection(node, int(token.text[1:]), token)
            elif self._is("(") and self._same_line(token):
                args, attrs = yield self._arguments()
                if attrs:
                    self.errors.append((token.pos, "only calls of operators take attributes"))
                node = self._typed(lambda node=node, args=args: Call(node, args, None, self._span(start)), start)
            else:
                return node

    def _same_line(self, token: Token) -> bool:
        before = self.tokens[self.at - 1]
        return self.source.line_of(before.pos) == self.source.line_of(token.pos)

    def _projection(self, node: Expr, index: int, token: Token) -> Expr:
        if node.has_type and not isinstance(node.checked_type, TupleType):
            raise SyntaxFault(f"field {index} of {node.checked_type}, expected a tuple", token.pos)
        return self._typed(lambda: TupleGetItem(node, index, self._span(token)), token)

    def _typed(self, make: Any, token: Token) -> Expr:
        """Build a node; a type error is recorded, and what stands for the node has no type."""
        try:
            node: Expr = make()
        except UserError as error:
            self.errors.append((token.pos, error.message))
            return Var("error")
        return node

    def _arguments(self) -> Step[tuple[list[Expr], dict[str, object]]]:
        self._expect("(")
        args: list[Expr] = []
        while not self._is(")") and not self._at_attr():
            # most arguments are names: they need no step of their own
            args.append(self._local() if self._at_lone_local() else (yield self._expr()))
            if not self._accept(","):
                break
        attrs: dict[str, object] = (yield self._attr_list()) if self._at_attr() else {}
        self._expect(")")
        return args, attrs

    def _at_lone_local(self) -> bool:
        return self.peek.kind == "local" and (self._follows(",") or self._follows(")"))

    def _atom(self) -> Step[Expr]:
        token = self.peek
        if token.kind == "local":
            return done(self._local())
        if token.kind == "global":
            self._next()
            self.globals_used.setdefault(self._name_of(token), token.pos)
            return done(GlobalVar(self._name_of(token), self._span(token)))
        if token.kind == "number":
            return done(self._literal(negative=False))
        if token.kind == "name":
            return self._word()
        if self._is("-"):
            return self._negative()
        if self._is("("):
            return self._parenthesis()
        if self._is("{"):
            return self._block()
        raise self._fault("expected an expression")

    def _local(self) -> Expr:
        token = self._next()
        found = self.env.get(self._key(token))
        if found is None:
            kind = "node" if token.text[1].isdigit() else "variable"
            self.errors.append((token.pos, f"unknown {kind} '{token.text}'"))
            return Var("error")
        return found

    def _word(self) -> Step[Expr]:
        token = self._next()
        if token.text in ("True", "False"):
            return done(Constant(np.asarray(token.text == "True"), self._span(token)))
        if token.text == "fn":
            return self._function(self._span(token))
        if token.text == "if":
            return self._if(token)
        if token.text == "meta":
            return done(self._meta(token))
        if token.text == "Tensor":
            return done(self._tensor(token))
        if token.text in _KEYWORDS:
            raise self._fault("expected an expression", token)
        return self._op_call(token)

    def _op_call(self, token: Token) -> Step[Expr]:
        if not self._is("("):
            raise self._fault(f"expected '(' after the operator '{token.text}'")
        args, attrs = yield self._arguments()
        return self._make_call(token.text, args, attrs, token)

    def _make_call(self, name: str, args: list[Expr], attrs: dict[str, object], token: Token) -> Expr:
        known = name if find_op(name) else _SPELLINGS.get(name, name)

        def make() -> Expr:
            op = get_op(known)
            try:
                return Call(op, args, op.make_attrs(attrs), self._span(token))
            except (TypeError, ValueError, ArithmeticError, LookupError) as error:
                # attributes of a kind that neither the record nor the type relation is written for
                raise UserError(f"'{known}' does not take these attributes: {error}") from None

        return self._typed(make, token)

    def _if(self, token: Token) -> Step[Expr]:
        self._expect("(")
        cond = yield self._expr()
        self._expect(")")
        true_branch = yield self._block()
        self._expect_word("else")
        false_branch = yield self._block()
        return If(cond, true_branch, false_branch, self._span(token))

    def _parenthesis(self) -> Step[Expr]:
        token = self._next()
        items: list[Expr] = []
        comma = False
        while not self._is(")"):
            items.append((yield self._expr()))
            comma = self._accept(",")
            if not comma:
                break
        self._expect(")")
        return items[0] if len(items) == 1 and not comma else Tuple(items, self._span(token))

    def _negative(self) -> Step[Expr]:
        token = self.peek
        count = 0
        while self._accept("-"):
            count += 1
        if self.peek.kind == "number":
            return done(self._literal(negative=count % 2 == 1))
        return self._negated(count, token)

    def _negated(self, count: int, token: Token) -> Step[Expr]:
        node: Expr = yield self._postfix()
        for _ in range(count):
            node = self._make_call("negative", [node], {}, token)
        return node

    # Constants

    def _literal(self, negative: bool) -> Expr:
        token = self._next()
        number, suffix = _split_number(token.text)
        dtype = _literal_dtype(number, suffix)
        value = self._element(token, number, dtype, negative, explicit=bool(suffix))
        return Constant(value, self._span(token))

    def _element(self, token: Token, number: str, dtype: str, negative: bool, explicit: bool = True) -> NDArray[Any]:
        value: float | int
        if dtype.startswith("float"):
            value = float(number)
        elif number.isdigit():
            value = int(number)
        else:
            raise self._fault(f"expected an integer of type {dtype}", token)
        value = -value if negative else value
        if isinstance(value, int) and not explicit and not -(2**31) <= value < 2**31:
            dtype = "int64"
        with np.errstate(over="ignore"):
            fits = _fits(value, dtype) and (number == "inf" or abs(value) != np.inf)
        if not fits:
            raise SyntaxFault(f"{'-' if negative else ''}{token.text} is out of range for {dtype}", token.pos)
        with np.errstate(over="ignore"):
            return np.asarray(value, dtype=dtype)

    def _tensor(self, token: Token) -> Expr:
        kind = self._tensor_type()
        self._expect("(")
        items: list[NDArray[Any]] = []
        while not self._is(")"):
            items.append(self._tensor_element(kind.dtype))
            if not self._accept(","):
                break
        self._expect(")")
        if not kind.is_static or kind.num_elements != len(items):
            raise SyntaxFault(f"a {kind} written with {len(items)} elements", token.pos)
        return Constant(np.array(items, dtype=kind.dtype).reshape(kind.static_shape), self._span(token))

    def _tensor_element(self, dtype: str) -> NDArray[Any]:
        negative = self._accept("-")
        token = self._next()
        if dtype == "bool":
            if token.text not in ("True", "False") or negative:
                raise self._fault("expected 'True' or 'False'", token)
            return np.asarray(token.text == "True")
        if token.kind != "number":
            raise self._fault(f"expected a number of type {dtype}", token)
        number, suffix = _split_number(token.text)
        if suffix:
            raise self._fault(f"expected a number without suffix: its type is {dtype}", token)
        return self._element(token, number, dtype, negative)

    def _meta(self, token: Token) -> Expr:
        self._expect("[")
        key = self._expect_kind("name", "'relay.Constant'")
        self._expect("]")
        self._expect("[")
        index = self._expect_kind("number", "a slot's number")
        self._expect("]")
        if key.text != "relay.Constant":
            raise SyntaxFault(f"the metadata has no '{key.text}', expected 'relay.Constant'", key.pos)
        if not index.text.isdigit() or int(index.text) >= len(self.constants):
            raise SyntaxFault(f"slot {index.text}: the metadata has {len(self.constants)} constants", index.pos)
        return self.constants[int(index.text)]

    def _read_metadata(self, pos: int, weights: Sequence[NDArray[Any]] | None) -> list[Constant]:
        if pos >= len(self.source.text):
            return []
        try:
            table = json.loads(self.source.text[pos + len(METADATA) :])
            entries = table["relay.Constant"]
            if not isinstance(entries, list):
                raise TypeError("'relay.Constant' is not a list")
            if weights is not None and len(weights) != len(entries):
                raise ValueError(f"{len(weights)} arrays were given for {len(entries)} slots")
            given = weights if weights is not None else [None] * len(entries)
            return [_read_constant(entry, array) for entry, array in zip(entries, given)]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ParseError(self.source, [(pos, f"the metadata cannot be read: {error}")]) from None

    # Attributes

    def _at_attr(self) -> bool:
        return self.peek.kind in ("name", "string") and self._follows("=")

    def _attr_list(self) -> Step[dict[str, object]]:
        attrs: dict[str, object] = {}
        while self._at_attr():
            token = self._next()
            name = self._name_of(token)
            if name in attrs:
                self.errors.append((token.pos, f"attribute '{name}' is given twice"))
            self._expect("=")
            attrs[name] = yield self._attr()
            if not self._accept(","):
                break
        return attrs

    def _attr(self) -> Step[object]:
        token = self._next()
        if token.kind == "string":
            return done(self._name_of(token))
        if token.kind == "number":
            return done(_attr_number(token.text))
        if token.kind == "name" and token.text in _ATTR_WORDS:
            return done(_ATTR_WORDS[token.text])
        if token.text == "-" and self.peek.kind == "number":
            return done(-_attr_number(self._next().text))
        if token.text in ("[", "("):
            return self._attr_items("]" if token.text == "[" else ")")
        raise self._fault("expected a number, a string, True, False, None or a list", token)

    def _attr_items(self, close: str) -> Step[object]:
        items: list[object] = []
        while not self._is(close):
            items.append((yield self._attr()))
            if not self._accept(","):
                break
        self._expect(close)
        return tuple(items)

    # Types

    def _type(self) -> Step[Type]:
        token = self._next()
        if token.text == "(" and token.kind == "punct":
            return self._tuple_type()
        if token.kind == "string":
            return done(self._type_var(token))
        if token.kind != "name":
            raise self._fault("expected a type", token)
        if token.text == "Tensor":
            return done(self._tensor_type())
        if token.text == "fn":
            return self._function_type()
        if token.text in DTYPES:
            return done(TensorType((), token.text))
        return done(self._type_var(token))

    def _type_var(self, token: Token) -> Type:
        name = self._name_of(token)
        if name not in self.type_params:
            raise SyntaxFault(f"unknown type '{name}'; the element types are {', '.join(DTYPES)}", token.pos)
        return TypeVar(name)

    def _tensor_type(self) -> TensorType:
        self._expect("[")
        self._expect("(")
        shape: list[Extent] = []
        while not self._is(")"):
            shape.append(self._extent())
            if not self._accept(","):
                break
        self._expect(")")
        self._expect(",")
        dtype = self._expect_kind("name", "an element type")
        if dtype.text not in DTYPES:
            raise SyntaxFault(f"unknown element type '{dtype.text}', expected one of {', '.join(DTYPES)}", dtype.pos)
        self._expect("]")
        return TensorType(tuple(shape), dtype.text)

    def _extent(self) -> Extent:
        token = self._next()
        if token.kind == "number" and token.text.isdigit():
            return int(token.text)
        if token.text == "?" and token.kind == "punct":
            return Dim("?")
        if token.kind in ("name", "string"):
            return Dim(self._name_of(token))
        raise self._fault("expected an extent: a number, '?' or a name", token)

    def _tuple_type(self) -> Step[Type]:
        items: list[Type] = []
        comma = False
        while not self._is(")"):
            items.append((yield self._type()))
            comma = self._accept(",")
            if not comma:
                break
        self._expect(")")
        return items[0] if len(items) == 1 and not comma else TupleType(tuple(items))

    def _function_type(self) -> Step[Type]:
        outer = set(self.type_params)
        type_params = self._type_param_list()
        self.type_params.update(parameter.name for parameter in type_params)
        self._expect("(")
        args: list[Type] = []
        while not self._is(")"):
            args.append((yield self._type()))
            if not self._accept(","):
                break
        self._expect(")")
        self._expect("->")
        result = yield self._type()
        self.type_params = outer
        return FuncType(tuple(args), result, tuple(type_params))


_ATTR_WORDS: dict[str, object] = {"True": True, "False": False, "None": None, "nullptr": None}


def _split_number(text: str) -> tuple[str, str]:
    """A number and its suffix; the `f` of `inf` is none."""
    head = 3 if text.startswith(("inf", "nan")) else 0
    suffix = next((suffix for suffix in _SUFFIXES if text[head:].endswith(suffix)), "")
    return text[: len(text) - len(suffix)], suffix


def _literal_dtype(number: str, suffix: str) -> str:
    if suffix:
        return _SUFFIX_DTYPE.get(suffix) or _SUFFIX_KINDS[suffix[0]] + suffix[1:]
    return "int32" if number.isdigit() else "float32"


def _fits(value: float | int, dtype: str) -> bool:
    if isinstance(value, int):
        limits = np.iinfo(dtype)
        return int(limits.min) <= value <= int(limits.max)
    return bool(np.isfinite(np.asarray(value, dtype=dtype)) == np.isfinite(value))


def _attr_number(text: str) -> int | float:
    number, suffix = _split_number(text)
    return int(number) if number.isdigit() and not suffix.startswith("f") else float(number)


def _read_constant(entry: dict[str, Any], given: NDArray[Any] | None) -> Constant:
    dtype, shape = str(entry["dtype"]), tuple(int(extent) for extent in entry["shape"])
    if dtype not in DTYPES or min(shape, default=0) < 0:
        raise ValueError(f"a constant of type {dtype} and shape {shape}")
    if given is None:
        return _decode_constant(entry, dtype, shape)
    if given.dtype.name != dtype or given.shape != shape:
        raise ValueError(f"found an array of {given.dtype.name} {given.shape}, expected {dtype} {shape}")
    constant = Constant(given)
    if "digest" in entry and constant_digest(constant) != entry["digest"]:
        raise ValueError(f"an array of {dtype} {shape} does not have the digest {entry['digest']}")
    return constant


def _decode_constant(entry: dict[str, Any], dtype: str, shape: tuple[int, ...]) -> Constant:
    if "data" not in entry:
        raise ValueError("it holds no data: give the arrays of the slots")
    try:
        raw = base64.b64decode(entry["data"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"its base64 is broken ({error})") from None
    count = int(np.prod(shape, dtype=np.int64)) if shape else 1
    if len(raw) != count * dtype_itemsize(dtype):
        raise ValueError(f"{len(raw)} bytes for {dtype} {shape}")
    little = np.frombuffer(raw, dtype=np.dtype(dtype).newbyteorder("<"))
    return Constant(little.reshape(shape).astype(dtype, copy=False))


def _offset(source: Source, error: TypeCheckError) -> int:
    """The position an error's `where` names, 0 where it names none in this text."""
    place = (error.where or "").removeprefix(source.name + ":").split(":")
    if len(place) != 2 or not all(part.isdigit() for part in place):
        return 0
    return source.line_starts[int(place[0]) - 1] + int(place[1]) - 1
