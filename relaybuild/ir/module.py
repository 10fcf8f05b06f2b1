"""A module: functions and algebraic data types by global name, with attributes; knows nothing of passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from relaybuild.errors import UserError
from relaybuild.ir.adt import Constructor, TypeData
from relaybuild.ir.expr import Expr, Function, GlobalVar
from relaybuild.ir.types import GlobalTypeVar


class IRModule:
    """An immutable map from GlobalVar to Function, ordered by name; the `with_` methods return new modules.

    `type_definitions` are the algebraic data types its functions speak of. Names of types, and of constructors within
    a module, are unique.
    """

    __slots__ = ("__weakref__", "_functions", "_types", "attrs")

    def __init__(
        self,
        functions: Mapping[str, Function]
        | Mapping[GlobalVar, Function]
        | Mapping[str | GlobalVar, Function]
        | None = None,
        attrs: Mapping[str, object] | None = None,
        type_definitions: Iterable[TypeData] | Mapping[str, TypeData] | Mapping[GlobalTypeVar, TypeData] | None = None,
    ) -> None:
        named = {_name(key): value for key, value in (functions or {}).items()}
        for name, function in named.items():
            if not isinstance(function, Function):
                raise UserError(f"'@{name}' must be a Function, got {type(function).__name__}")
        self._functions: dict[str, Function] = dict(sorted(named.items()))
        self._types = _by_name(type_definitions)
        self.attrs: Mapping[str, object] = dict(sorted((attrs or {}).items()))

    @staticmethod
    def from_expr(
        expr: Expr,
        functions: Mapping[str, Function] | None = None,
        type_definitions: Iterable[TypeData] | Mapping[str, TypeData] | None = None,
    ) -> IRModule:
        """A module whose `main` is `expr`; free variables of a plain expression become its parameters.

        `functions` and `type_definitions` are what the expression speaks of; a `main` among them is an error.
        """
        if functions is not None and "main" in functions:
            raise UserError("'@main' is defined twice: by the expression and among the functions")
        if isinstance(expr, Function):
            return IRModule({**(functions or {}), "main": expr}, None, type_definitions)
        from relaybuild.ir.visitor import free_vars

        return IRModule({**(functions or {}), "main": Function(free_vars(expr), expr)}, None, type_definitions)

    @property
    def functions(self) -> Mapping[str, Function]:
        """Functions by name."""
        return self._functions

    @property
    def type_definitions(self) -> Mapping[str, TypeData]:
        """Algebraic data types by name."""
        return self._types

    def get_type(self, name: str | GlobalTypeVar) -> TypeData:
        """The definition of an algebraic data type; an unknown name is an error."""
        key = name if isinstance(name, str) else name.name
        if key not in self._types:
            raise UserError(f"the module has no type '{key}'; it has {', '.join(self._types) or 'none'}")
        return self._types[key]

    def get_constructor(self, type_name: str | GlobalTypeVar, name: str) -> Constructor:
        """A constructor by the names of its type and itself; an unknown name is an error."""
        data = self.get_type(type_name)
        found = data.find_constructor(name)
        if found is None:
            known = ", ".join(each.name for each in data.constructors) or "none"
            raise UserError(f"type '{data.name}' has no constructor '{name}'; it has {known}")
        return found

    def constructor_of_tag(self, tag: int) -> Constructor:
        """The constructor that has a tag; an unknown tag is an error."""
        for data in self._types.values():
            for constructor in data.constructors:
                if constructor.tag == tag:
                    return constructor
        raise UserError(f"the module has no constructor of the tag {tag}")

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
        return IRModule({**self._functions, name: function}, self.attrs, self._types)

    def with_functions(self, functions: Mapping[str, Function]) -> IRModule:
        """The module with exactly these functions; the same object where nothing changes."""
        same = len(functions) == len(self._functions) and all(
            self._functions.get(name) is function for name, function in functions.items()
        )
        return self if same else IRModule(functions, self.attrs, self._types)

    def with_type_definition(self, data: TypeData) -> IRModule:
        """The module with one type set, in place of that of the same name."""
        return IRModule(self._functions, self.attrs, {**self._types, data.name: data})

    def with_attrs(self, attrs: Mapping[str, object]) -> IRModule:
        """The module with exactly these attributes."""
        return IRModule(self._functions, attrs, self._types)

    def __str__(self) -> str:
        """The functions as text, without version line and metadata."""
        from relaybuild.ir.printer import functions_text

        return functions_text(self)

    def astext(self) -> str:
        """The module in the text format, which `relaybuild.parse` reads back."""
        from relaybuild.ir.printer import print_module

        return print_module(self)


def _name(key: object) -> str:
    if isinstance(key, (str, GlobalVar)):
        return key if isinstance(key, str) else key.name_hint
    raise UserError(f"a function of a module is named by {key!r}, expected a string or a GlobalVar")


def _by_name(
    given: Iterable[TypeData] | Mapping[str, TypeData] | Mapping[GlobalTypeVar, TypeData] | None,
) -> dict[str, TypeData]:
    definitions = list(given.values() if isinstance(given, Mapping) else given or ())
    found: dict[str, TypeData] = {}
    owners: dict[str, str] = {}
    for data in sorted(definitions, key=lambda data: data.name):
        if data.name in found:
            raise UserError(f"type '{data.name}' is defined twice")
        for constructor in data.constructors:
            owner = owners.setdefault(constructor.name, data.name)
            if owner != data.name:
                raise UserError(f"constructor '{constructor.name}' is defined by types '{owner}' and '{data.name}'")
        found[data.name] = data
    return found
