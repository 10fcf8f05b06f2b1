"""A module: functions by global name, with attributes; knows nothing of passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from relaybuild.errors import UserError
from relaybuild.ir.expr import Expr, Function, GlobalVar


class IRModule:
    """An immutable map from GlobalVar to Function, ordered by name; the `with_` methods return new modules."""

    __slots__ = ("__weakref__", "_functions", "attrs")

    def __init__(
        self,
        functions: Mapping[str, Function]
        | Mapping[GlobalVar, Function]
        | Mapping[str | GlobalVar, Function]
        | None = None,
        attrs: Mapping[str, object] | None = None,
    ) -> None:
        named = {key if isinstance(key, str) else key.name_hint: value for key, value in (functions or {}).items()}
        for name, function in named.items():
            if not isinstance(function, Function):
                raise UserError(f"'@{name}' must be a Function, got {type(function).__name__}")
        self._functions: dict[str, Function] = dict(sorted(named.items()))
        self.attrs: Mapping[str, object] = dict(sorted((attrs or {}).items()))

    @staticmethod
    def from_expr(expr: Expr) -> IRModule:
        """A module whose `main` is `expr`; free variables of a plain expression become its parameters."""
        if isinstance(expr, Function):
            return IRModule({"main": expr})
        from relaybuild.ir.visitor import free_vars

        return IRModule({"main": Function(free_vars(expr), expr)})

    @property
    def functions(self) -> Mapping[str, Function]:
        """Functions by name."""
        return self._functions

    def __getitem__(self, key: str | GlobalVar) -> Function:
        name = key if isinstance(key, str) else key.name_hint
        if name not in self._functions:
            raise UserError(
                f"the module has no function '@{name}'; it has {', '.join('@' + n for n in self._functions)}"
            )
        return self._functions[name]

    def __contains__(self, key: object) -> bool:
        return (key.name_hint if isinstance(key, GlobalVar) else key) in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def with_function(self, name: str, function: Function) -> IRModule:
        """The module with one function set; the same object where nothing changes."""
        if self._functions.get(name) is function:
            return self
        return IRModule({**self._functions, name: function}, self.attrs)

    def with_functions(self, functions: Mapping[str, Function]) -> IRModule:
        """The module with exactly these functions; the same object where nothing changes."""
        same = len(functions) == len(self._functions) and all(
            self._functions.get(name) is function for name, function in functions.items()
        )
        return self if same else IRModule(functions, self.attrs)

    def __str__(self) -> str:
        """The functions as text, without version line and metadata."""
        from relaybuild.ir.printer import functions_text

        return functions_text(self)

    def astext(self) -> str:
        """The module in the text format, which `relaybuild.parse` reads back."""
        from relaybuild.ir.printer import print_module

        return print_module(self)
