"""Reads the text format into modules and expressions; knows nothing of passes.

    module := header* def* metadata?
    header := "#[" "version" "=" "0.0.5" "]" | "#[" "attrs" "(" key "=" attr,* ")" "]"
    def    := "def" span? @g typarams? "(" (%x (":" type)?),* (key "=" attr),* ")" ("->" type)? block
            | "type" span? Name typarams? "{" (Constructor ("(" type,* ")")? span?),* "}"
            | "extern" "type" span? Name typarams?
    span   := "#[" "span" "(" string ("," string)? ("," INT "," INT)? ")" "]"

Expressions, types and attributes are described where they are read, in `relaybuild.ir.text`. A graph binding
`%n = expr` names a node, it does not bind a variable. The `(` of a call stands on the line where its callee ends, so
that a binding may end with its line. Types may be used before they are defined, and so may functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from relaybuild.diagnostics import Diagnostic, Source, did_you_mean
from relaybuild.errors import TypeCheckError, UserError
from relaybuild.ir.adt import Constructor, TypeData
from relaybuild.ir.expr import Expr, Function, Span
from relaybuild.ir.infer import complete_types
from relaybuild.ir.lexer import Tokens, tokenize
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import find_op
from relaybuild.ir.text.cursor import Fault, TooManyErrors
from relaybuild.ir.text.expressions import ExpressionReader
from relaybuild.ir.text.metadata import read_metadata
from relaybuild.ir.text.names import METADATA, is_reserved, quoted
from relaybuild.ir.trampoline import Step, run
from relaybuild.ir.types import GlobalTypeVar, Type, TypeVar

VERSION = "0.0.5"


class ParseError(UserError):
    """A text that cannot be read; the message lists every mistake found, each with its line and a caret.

    `errors` are the single mistakes in the order of the text.
    """

    def __init__(self, source: Source, errors: Sequence[Diagnostic]) -> None:
        self.errors = tuple(sorted(errors, key=lambda each: (each.pos, each.message)))
        super().__init__("\n".join(error.render(source) for error in self.errors))


def parse(
    text: str,
    source_name: str = "<text>",
    weights: Sequence[NDArray[Any]] | None = None,
    module: IRModule | None = None,
    positions: bool = True,
) -> IRModule:
    """The module a text denotes, with every type that can be inferred.

    `weights` are the arrays of the slots, for a text printed without them. `module` is one to whose definitions those
    of the text are added. With `positions`, what has no span in the text gets its position in it for one. Raises
    ParseError.
    """
    reader = _reader(Source.of(text, source_name), weights, positions)
    mod = reader.module(module if module is not None else IRModule())
    _raise(reader)
    return _complete(reader.source, mod)


def parse_expr(
    text: str,
    source_name: str = "<text>",
    weights: Sequence[NDArray[Any]] | None = None,
    module: IRModule | None = None,
) -> Expr:
    """The expression a text denotes; `free_var %x: type;` declares its variables.

    `module` is where its types and constructors are defined. Raises ParseError.
    """
    reader = _reader(Source.of(text, source_name), weights)
    found = reader.expression(module if module is not None else IRModule())
    _raise(reader)
    return found


def read_layout(source: Source) -> tuple[Tokens, list[int]]:
    """The tokens of a module's text, and those before which a line's end stands for a semicolon.

    Only the structure is looked at: names, types and metadata may be wrong. Raises ParseError.
    """
    reader = ModuleReader(tokenize(source))
    reader.module(IRModule())
    broken = [error for error in reader.errors if error.is_syntax]
    if broken:
        raise ParseError(source, broken)
    return reader.all_tokens, reader.line_ends


def _reader(source: Source, weights: Sequence[NDArray[Any]] | None, positions: bool = True) -> ModuleReader:
    reader = ModuleReader(tokenize(source))
    reader.has_positions = positions
    reader.read_slots(weights)
    return reader


def _raise(reader: ModuleReader) -> None:
    if reader.errors:
        raise ParseError(reader.source, reader.errors)


def _complete(source: Source, mod: IRModule) -> IRModule:
    try:
        return complete_types(mod)
    except TypeCheckError as error:
        raise ParseError(source, [_located(source, each) for each in error.errors]) from None


def _located(source: Source, error: TypeCheckError) -> Diagnostic:
    """An error of inference where its span says, if that is a place of this text."""
    place = (error.where or "").removeprefix(source.name + ":").split(":")
    if len(place) == 2 and all(part.isdigit() for part in place):
        return Diagnostic(source.offset(int(place[0]), int(place[1])), error.message)
    return Diagnostic(0, str(error))


class ModuleReader(ExpressionReader):
    """Reads one text: a module or a single expression."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens, [])
        self.all_tokens = tokens
        self.functions: dict[str, Function] = {}
        self.types: dict[str, TypeData] = {}
        self._base = IRModule()
        self._defined_at: dict[str, int] = {}
        self._type_ends: dict[int, int] = {}
        """Where each definition of a type begins, and what follows it."""

    def read_slots(self, weights: Sequence[NDArray[Any]] | None) -> None:
        """Read the metadata section, if there is one."""
        pos, text = self.all_tokens.metadata, self.source.text
        if pos >= len(text):
            return
        try:
            self.slots = read_metadata(text[pos + len(METADATA) :], weights)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, UserError) as error:
            self.slots = None
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            self.errors.append(Diagnostic(pos, f"the metadata cannot be read: {why}"))

    def module(self, base: IRModule) -> IRModule:
        """The module of the text and `base`; what is left of it where there are errors."""
        attrs = dict(base.attrs)
        try:
            self._begin(base)
            self._guarded(lambda: self._header(attrs))
            while self.tokens[self.at]:
                self._guarded(self._definition)
            self._check_globals()
        except TooManyErrors:
            pass
        if self.errors:
            return base
        return IRModule({**base.functions, **self.functions}, attrs, {**base.type_definitions, **self.types})

    def expression(self, base: IRModule) -> Expr:
        """The expression of the text."""
        found: list[Expr] = []
        try:
            self._begin(base)
            self._guarded(lambda: self._header({}))
            self._guarded(lambda: found.append(run(self.body(None))))
        except TooManyErrors:
            pass
        return found[0] if found else self.unknown()

    def _begin(self, base: IRModule) -> None:
        self._base = base
        for name, data in base.type_definitions.items():
            self.arities[name] = len(data.type_vars)
            self.constructors.update((each.name, each) for each in data.constructors)
        starts = self._type_definitions() if "type" in self.tokens else []
        for at in starts:
            self.at = at
            self._declare_type()
        for at in starts:
            self.at = at
            self._guarded(self._type_definition)
            self._type_ends[at] = self.at
        self.at = 0

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step; after a fault go on with the next definition."""
        start = self.at
        try:
            step()
        except Fault as fault:
            self.report(fault)
            self.leave(0)
            self.at += self.at == start and self.tokens[start] != ""
            while not self.at_definition():
                self.at += 1

    def _header(self, attrs: dict[str, object]) -> None:
        while self.tokens[self.at] == "#[":
            opener = self.at
            self.at += 1
            word = self.tokens[self.at]
            if word == "version":
                self._version()
            elif word == "attrs":
                self.at += 1
                inner = self.at
                self.expect("(")
                attrs.update(run(self.attrs()))
                self.close(inner)
            else:
                raise self.fault("expected 'version' or 'attrs'")
            self.close(opener, "")

    def _version(self) -> None:
        self.at += 1
        self.expect("=")
        at = self.expect_kind('"', "a version in quotes")
        if self.tokens[at] != f'"{VERSION}"':
            self.error(at, f'version {self.tokens[at]} of the text format, expected "{VERSION}"')

    # Definitions

    def _definition(self) -> None:
        if self.at in self._type_ends:
            self.at = self._type_ends[self.at]
            return
        start = self.at
        if not self.accept("def"):
            raise self.fault("expected a definition: 'def', 'type' or 'extern type'")
        span = self.written_span(start)
        at = self.expect_kind("@", "a function's name such as '@main'")
        name = self.name_of(at)
        function = run(self.function(span))
        if self._is_new(f"@{name}", at, name in self.functions or name in self._base.functions):
            self.functions[name] = function

    def _is_new(self, shown: str, at: int, is_known: bool) -> bool:
        """Note where a name is defined; a second definition is a mistake."""
        if not is_known:
            self._defined_at[shown] = at
            return True
        first = self._defined_at.get(shown)
        place = "in the module it is added to" if first is None else f"first at {self._line_and_column(first)}"
        self.error(at, f"'{shown}' is defined twice, {place}")
        return False

    def _line_and_column(self, at: int) -> str:
        line, column = self.source.position(self.start(at))
        return f"{line}:{column}"

    def _check_globals(self) -> None:
        known = {**self._base.functions, **self.functions}
        for name, at in self.globals_used.items():
            if name not in known and not any(error.is_syntax for error in self.errors):
                hint = did_you_mean(name, known, "'@{}'") or "; the module has " + (
                    ", ".join(f"'@{other}'" for other in known) or "none"
                )
                self.error(at, f"unknown function '@{name}'{hint}")

    # Types' definitions

    def _type_definitions(self) -> list[int]:
        """Where definitions of types begin."""
        found: list[int] = []
        depth = 0
        for at, token in enumerate(self.tokens):
            if token in ("{", "(", "[", "#["):
                depth += 1
            elif token in ("}", ")", "]"):
                depth -= 1
            elif token == "def" and self.tokens[at + 1][:1] in ("@", "#"):
                depth = 0
            elif token == "type":
                self.at = at - 1 if at and self.tokens[at - 1] == "extern" else at
                # a bracket left open before does not hide it
                if depth == 0 or self.at_definition():
                    found.append(self.at)
                    depth = 0
        return found

    def _declare_type(self) -> None:
        """Note a type's name and how many parameters it takes; faults are reported when the definition is read."""
        try:
            _, name, type_params, _ = self._type_head()
            self.arities.setdefault(name, len(type_params))
        except Fault:
            pass
        self.errors = [error for error in self.errors if error.is_syntax]
        self.leave(0)

    def _type_head(self) -> tuple[int, str, list[TypeVar], Span | None]:
        """Where its name stands, the name, the parameters, which are brought into scope, and the span."""
        start = self.at
        self.accept("extern")
        self.expect("type")
        span = self.written_span(start)
        at = self.at
        if not self.at_name():
            raise self.fault("expected a type's name")
        self.at += 1
        self.check_type_name(at)
        return at, self.name_of(at), self.type_params(), span

    def _type_definition(self) -> None:
        is_external = self.tokens[self.at] == "extern"
        at, name, type_params, span = self._type_head()
        is_new = self._is_new(
            name, at, name in self.types or name in self._base.type_definitions or name in self.constructors
        )
        constructors = [] if is_external else self._constructors(name)
        self.accept(";")
        self.leave(0)
        if is_new:
            self.types[name] = TypeData(GlobalTypeVar(name), type_params, constructors, span)
            self.constructors.update((each.name, each) for each in constructors)

    def _constructors(self, type_name: str) -> list[Constructor]:
        opener = self.at
        self.expect("{")
        found: dict[str, Constructor] = {}
        while self.tokens[self.at] != "}":
            at = self.at
            if not self.at_name():
                raise self.fault("expected a constructor")
            self.at += 1
            name = self.name_of(at)
            if self.tokens[at] == name and (is_reserved(name) or find_op(name) is not None):
                self.error(at, f"'{name}' has a meaning of its own: write the constructor as {quoted(name)}")
            inputs = run(self._fields()) if self.tokens[self.at] == "(" else []
            span = self.written_span(at)
            is_type = name == type_name or name in self.types or name in self._base.type_definitions
            is_known = is_type or name in self.constructors or name in found
            if self._is_new(name, at, is_known):
                found[name] = Constructor(name, inputs, GlobalTypeVar(type_name), span=span)
            if not self.accept(","):
                break
        self.close(opener)
        return list(found.values())

    def _fields(self) -> Step[list[Type]]:
        opener = self.at
        self.at += 1
        return (yield self.read_types(")", opener))  # type: ignore[no-any-return]
