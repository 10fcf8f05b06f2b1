"""Reads constants and attributes' values; knows nothing of the expressions around them.

attr := number | string | "True" | "False" | "None" | "nullptr" | "-" number | "[" attr,* "]" | "(" attr,* ")"
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.errors import UserError
from relaybuild.ir.dtypes import numpy_dtype
from relaybuild.ir.expr import Constant, Expr
from relaybuild.ir.lexer import Tokens
from relaybuild.ir.structural import MAX_ATTR_DEPTH
from relaybuild.ir.text.cursor import DIGITS, Fault
from relaybuild.ir.text.literals import attr_number, element, literal, split_number
from relaybuild.ir.text.names import NOT_FINITE
from relaybuild.ir.text.types import TypeReader
from relaybuild.ir.trampoline import Step

_WORDS: dict[str, object] = {"True": True, "False": False, "None": None, "nullptr": None}
_BRACKETS = {"[": "]", "(": ")"}


class ValueReader(TypeReader):
    """Reads literals, tensors, slots and attributes.

    `slots` are the constants that the metadata section describes; None where it could not be read.
    """

    def __init__(self, tokens: Tokens, slots: list[Constant]) -> None:
        super().__init__(tokens)
        self.slots: list[Constant] | None = slots

    def at_number(self) -> bool:
        """Whether a number stands here, `inf` and `nan` among them."""
        token = self.tokens[self.at]
        return token[:1] in DIGITS or NOT_FINITE.match(token) is not None

    def literal(self, negative: bool) -> Expr:
        """The scalar here; a number out of range is a mistake that does not keep the text from being read on."""
        at = self.at
        self.at += 1
        try:
            return Constant(literal(self.tokens[at], negative), self.span(at))
        except (ValueError, UserError) as error:
            self.error(at, str(error))
            return self.unknown()

    def tensor(self, at: int) -> Expr:
        """What follows the word `Tensor` where an expression begins: `[(2,), int64](1, 2)`."""
        kind = self.tensor_type(at)
        opener = self.at
        self.expect("(")
        items: list[NDArray[Any] | None] = []
        while self.tokens[self.at] != ")":
            items.append(self._element(kind.dtype))
            if not self.accept(","):
                break
        self.close(opener)
        if not kind.is_static or kind.num_elements != len(items):
            self.error(at, f"a {kind} written with {len(items)} elements")
            return self.unknown()
        known = [item for item in items if item is not None]
        if len(known) < len(items):
            return self.unknown()
        return Constant(np.array(known, dtype=numpy_dtype(kind.dtype)).reshape(kind.static_shape), self.span(at))

    def slot(self, at: int) -> Expr:
        """What follows the word `meta`: `[relay.Constant][3]`."""
        opener = self.at
        self.expect("[")
        key = self.at
        if not self.at_name():
            raise self.fault("expected 'relay.Constant'")
        self.at += 1
        self.close(opener, "")
        opener = self.at
        self.expect("[")
        place = self.at
        index = self.whole_number("a slot's number")
        self.close(opener, "")
        if self.tokens[key] != "relay.Constant":
            self.error(key, f"the metadata has no '{self.tokens[key]}', expected 'relay.Constant'")
        elif self.slots is None:
            return self.unknown()
        elif index >= len(self.slots):
            self.error(place, f"slot {index}: the metadata has {len(self.slots)} constants")
        else:
            return self.slots[index]
        return self.unknown()

    def at_attr(self) -> bool:
        """Whether `name=` stands here."""
        return self.at_name() and self.tokens[self.at + 1] == "="

    def attrs(self) -> Step[dict[str, object]]:
        """`name=value, …`, maybe none."""
        found: dict[str, object] = {}
        while self.tokens[self.at] and self.at_attr():
            name = self.name_of(self.at)
            if name in found:
                self.error(self.at, f"attribute '{name}' is given twice")
            self.at += 2
            found[name] = yield self._attr()
            if not self.accept(","):
                break
        return found

    def _element(self, dtype: str) -> NDArray[Any] | None:
        """The number here; None after a mistake that has been noted."""
        negative = self.accept("-")
        at = self.at
        token = self.tokens[at]
        if dtype == "bool":
            if token not in ("True", "False") or negative:
                raise self.fault("expected 'True' or 'False'")
            self.at += 1
            return np.asarray(token == "True")
        if not self.at_number():
            raise self.fault(f"expected a number of type {dtype}")
        self.at += 1
        try:
            number, suffix = split_number(token)
            if suffix:
                raise ValueError(f"found '{token}', expected a number without suffix: its type is {dtype}")
            return element(number, dtype, negative, token)
        except (ValueError, UserError) as error:
            self.error(at, str(error))
            return None

    def _attr(self, depth: int = 0) -> object:
        """A value, or a step towards one; `depth` is that of the lists around it."""
        token = self.tokens[self.at]
        if token[:1] == '"':
            self.at += 1
            return self.name_of(self.at - 1)
        if token in _BRACKETS:
            return self._attr_items(_BRACKETS[token], depth + 1)
        if self.at_number():
            return self._attr_number(negative=False)
        if token in _WORDS:
            self.at += 1
            return _WORDS[token]
        if self.accept("-"):
            if self.at_number():
                return self._attr_number(negative=True)
            self.at -= 1
        raise self.fault("expected a number, a string, True, False, None or a list")

    def _attr_number(self, negative: bool) -> int | float:
        self.at += 1
        try:
            value = attr_number(self.tokens[self.at - 1])
        except ValueError as error:
            self.error(self.at - 1, str(error))
            return 0
        return -value if negative else value

    def _attr_items(self, close: str, depth: int) -> Step[object]:
        opener = self.at
        if depth > MAX_ATTR_DEPTH:
            raise Fault(f"lists are nested deeper than {MAX_ATTR_DEPTH}", self.start(opener))
        self.at += 1
        items: list[object] = []
        while self.tokens[self.at] != close:
            items.append((yield self._attr(depth)))
            if not self.accept(","):
                break
        self.close(opener)
        return tuple(items)
