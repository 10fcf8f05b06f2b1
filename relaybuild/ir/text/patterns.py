"""Reads what binds variables: binders and the patterns of matches; knows nothing of the expressions they stand in.

pattern := "_" | %x (":" type)? | Constructor ("(" pattern,* ")")? | "(" pattern,* ")"
"""

from __future__ import annotations

from typing import TypeAlias

from relaybuild.diagnostics import did_you_mean
from relaybuild.ir.adt import Constructor, Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard
from relaybuild.ir.expr import Constant, Var
from relaybuild.ir.lexer import Tokens
from relaybuild.ir.text.cursor import DIGITS
from relaybuild.ir.text.names import KEYWORDS
from relaybuild.ir.text.values import ValueReader
from relaybuild.ir.trampoline import Step

SoonPattern: TypeAlias = "Pattern | Step[Pattern]"


class PatternReader(ValueReader):
    """Reads binders and patterns. `constructors` are those of the module's types by name."""

    def __init__(self, tokens: Tokens, slots: list[Constant]) -> None:
        super().__init__(tokens, slots)
        self.constructors: dict[str, Constructor] = {}
        self.pattern_keys: set[str] = set()
        """The variables of the pattern that is being read."""

    def binder(self) -> Step[Var]:
        """`%x`, `%x: type`; not brought into scope."""
        at = self.expect_kind("%", "a variable such as '%x'")
        if self.tokens[at][1:2] in DIGITS:
            raise self.fault("expected a variable's name: a number names a node", at)
        name = self.name_of(at)
        span = self.written_span(at)
        kind = yield self.annotation()
        return Var(name, kind, span)

    def pattern(self) -> SoonPattern:
        """The pattern here; its variables are brought into scope."""
        token = self.tokens[self.at]
        if token == "_":
            self.at += 1
            return PatternWildcard()
        if token[:1] == "%":
            return self._pattern_var()
        if token == "(":
            return self._pattern_tuple()
        if self.at_name() and token not in KEYWORDS:
            return self._pattern_constructor()
        raise self.fault("expected a pattern: '_', a variable, a constructor or a tuple of patterns")

    def _pattern_var(self) -> Step[Pattern]:
        at = self.at
        var = yield self.binder()
        key = self.key(at)
        if key in self.pattern_keys:
            self.error(at, f"variable '{self.tokens[at]}' is bound twice in one pattern")
        self.pattern_keys.add(key)
        self.bind(key, var)
        return PatternVar(var)

    def _pattern_tuple(self) -> Step[Pattern]:
        patterns = yield self._patterns()
        single = len(patterns) == 1 and self.tokens[self.at - 2] != ","
        return patterns[0] if single else PatternTuple(tuple(patterns))

    def _pattern_constructor(self) -> Step[Pattern]:
        at = self.at
        self.at += 1
        name = self.name_of(at)
        patterns = (yield self._patterns()) if self.tokens[self.at] == "(" else []
        constructor = self.constructors.get(name)
        if constructor is None:
            self.error(at, f"unknown constructor '{name}'{did_you_mean(name, self.constructors)}")
            return PatternWildcard()
        if len(patterns) != len(constructor.inputs):
            wanted = len(constructor.inputs)
            self.error(at, f"constructor '{name}' is given {len(patterns)} patterns, expected {wanted}")
        return PatternConstructor(constructor, tuple(patterns))

    def _patterns(self) -> Step[list[Pattern]]:
        opener = self.at
        self.at += 1
        found: list[Pattern] = []
        while self.tokens[self.at] != ")":
            found.append((yield self.pattern()))
            if not self.accept(","):
                break
        self.close(opener)
        return found
