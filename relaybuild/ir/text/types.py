"""Reads types; knows nothing of expressions.

type := dtype | "Tensor" "[" "(" extent,* ")" "," dtype "]" | "(" type,* ")" | "fn" typarams? "(" type,* ")" "->" type
      | Name ("[" type,* "]")? | "Ref" "[" type "]" | "_"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from relaybuild.diagnostics import did_you_mean
from relaybuild.ir.lexer import Tokens
from relaybuild.ir.text.cursor import DIGITS, Cursor
from relaybuild.ir.text.names import TYPE_WORDS, quoted
from relaybuild.ir.trampoline import Step
from relaybuild.ir.types import (
    DTYPES,
    Dim,
    Extent,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)

_SCALARS = frozenset(DTYPES)
SoonType: TypeAlias = "Type | Step[Type]"


class TypeReader(Cursor):
    """Reads types. `arities` says how many arguments each algebraic data type of the module takes."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.arities: dict[str, int] = {}

    def read_type(self) -> SoonType:
        """The type here."""
        at = self.at
        token = self.tokens[at]
        if token in _SCALARS:
            self.at += 1
            return TensorType((), token)
        read = _TYPE_WORDS.get(token)
        if read is not None:
            self.at += 1
            return read(self, at)
        if not self.at_name():
            raise self.fault("expected a type")
        self.at += 1
        return self._named_type(at)

    def annotation(self) -> Step[Type | None]:
        """`: type`, or nothing."""
        if not self.accept(":"):
            return None
        found: Type = yield self.read_type()
        return found

    def tensor_type(self, at: int) -> TensorType:
        """What follows the word `Tensor`."""
        opener = self.at
        self.expect("[")
        extents = self.at
        self.expect("(")
        shape: list[Extent] = []
        while self.tokens[self.at] != ")":
            shape.append(self._extent())
            if not self.accept(","):
                break
        self.close(extents)
        self.expect(",")
        dtype = self.at
        if not self.at_name():
            raise self.fault("expected an element type")
        self.at += 1
        name = self.name_of(dtype)
        if name not in _SCALARS:
            self.error(dtype, f"unknown element type '{name}', expected one of {', '.join(DTYPES)}")
        self.close(opener, "")
        return TensorType(tuple(shape), name if name in _SCALARS else "float32")

    def type_params(self) -> list[TypeVar]:
        """`[A, B]`, brought into scope, or nothing."""
        found: list[TypeVar] = []
        opener = self.at
        if not self.accept("["):
            return found
        while self.tokens[self.at] != "]":
            if not self.at_name():
                raise self.fault("expected a type parameter")
            parameter = TypeVar(self.name_of(self.at))
            self.check_type_name(self.at)
            if parameter in found:
                self.error(self.at, f"type parameter '{parameter.name}' is declared twice")
            if parameter.name in self.arities:
                self.error(self.at, f"type parameter '{parameter.name}' has the name of a type")
            self.at += 1
            found.append(parameter)
            if not self.accept(","):
                break
        self.close(opener)
        for parameter in found:
            self.bind(f"type {parameter.name}", parameter)
        return found

    def check_type_name(self, at: int) -> None:
        """Note the mistake of a definition whose bare name would be read as another type."""
        name = self.tokens[at]
        if name in TYPE_WORDS:
            self.error(at, f"'{name}' has a meaning of its own: write the type as {quoted(name)}")

    def _named_type(self, at: int) -> SoonType:
        name = self.name_of(at)
        parameter = self.scope.get(f"type {name}")
        if isinstance(parameter, TypeVar):
            return parameter
        if name not in self.arities:
            known = [key[5:] for key in self.scope if key.startswith("type ")]
            hint = did_you_mean(name, [*known, *self.arities, *DTYPES, "Tensor", "Ref"])
            self.error(at, f"unknown type '{name}'{hint}")
        if self.tokens[self.at] == "[":
            return self._applied_type(name, at)
        return self._type_call(name, (), at)

    def _applied_type(self, name: str, at: int) -> Step[Type]:
        opener = self.at
        self.at += 1
        args = yield self.read_types("]", opener)
        return self._type_call(name, tuple(args), at)

    def _type_call(self, name: str, args: tuple[Type, ...], at: int) -> Type:
        wanted = self.arities.get(name)
        if wanted is None:
            return IncompleteType()
        if wanted != len(args):
            self.error(at, f"type '{name}' is given {len(args)} arguments, expected {wanted}")
        return TypeCall(GlobalTypeVar(name), args)

    def _extent(self) -> Extent:
        token = self.tokens[self.at]
        if token[:1] in DIGITS:
            return self.whole_number("an extent")
        if token != "?" and not self.at_name():
            raise self.fault("expected an extent: a number, '?' or a name")
        self.at += 1
        return Dim(token if token == "?" else self.name_of(self.at - 1))

    def read_types(self, close: str, opener: int) -> Step[list[Type]]:
        found: list[Type] = []
        while self.tokens[self.at] != close:
            found.append((yield self.read_type()))
            if not self.accept(","):
                break
        self.close(opener)
        return found

    def _tuple_type(self, opener: int) -> Step[Type]:
        found = yield self.read_types(")", opener)
        single = len(found) == 1 and self.tokens[self.at - 2] != ","
        return found[0] if single else TupleType(tuple(found))

    def _function_type(self, at: int) -> Step[Type]:
        mark = len(self.undo)
        type_params = self.type_params()
        opener = self.at
        self.expect("(")
        args = yield self.read_types(")", opener)
        self.expect("->")
        result = yield self.read_type()
        self.leave(mark)
        return FuncType(tuple(args), result, tuple(type_params))

    def _reference_type(self, at: int) -> Step[Type]:
        opener = self.at
        self.expect("[")
        value = yield self.read_type()
        self.close(opener, "")
        return RefType(value)


def _hole(_reader: TypeReader, _at: int) -> Type:
    return IncompleteType()


_TYPE_WORDS: dict[str, Callable[[TypeReader, int], SoonType]] = {
    "Tensor": TypeReader.tensor_type,
    "(": TypeReader._tuple_type,
    "fn": TypeReader._function_type,
    "Ref": TypeReader._reference_type,
    "_": _hole,
}
