"""Generated classes behave as those that the standard library makes of the same text."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing  # noqa: F401  what annotations speak of
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field
from inspect import ismemberdescriptor
from typing import Any, ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st

from relaybuild.dataclass import dataclass

NAMES = ("a", "b", "c")
NO_DEFAULT = st.just(lambda: MISSING)
DEFAULTS = st.sampled_from((1, "x", (2,))).map(lambda value: lambda: value)
DESCRIBED = st.fixed_dictionaries(
    {},
    optional={
        "default": st.sampled_from((3, "y")),
        "init": st.booleans(),
        "repr": st.booleans(),
        "compare": st.booleans(),
        "hash": st.sampled_from((None, True, False)),
        "metadata": st.just({"unit": "m"}),
    },
).map(lambda words: lambda: field(**words))
MADE = st.booleans().map(lambda init: lambda: field(default_factory=list, init=init))
MUTABLE = st.just(lambda: [1])
ANNOTATIONS = ("int", "tuple[int, ...]", int, "ClassVar[int]", "typing.ClassVar[int]", ClassVar[int])
OWN: Sequence[tuple[str, object]] = (
    ("__eq__", lambda self, other: other.__class__ is self.__class__),
    ("__hash__", lambda self: 7),
    ("__hash__", None),
    ("__repr__", lambda self: "own"),
    ("__post_init__", lambda self: None),
    ("__init__", lambda self, *args: None),
    ("__doc__", "Documented."),
)
ARGUMENTS = st.lists(st.sampled_from((1, 2, "x", (2,))), max_size=3)


@dataclasses.dataclass(frozen=True)
class Level:
    """A class of a chain: which of its options are on, its members, what it defines itself, and who makes it."""

    options: Mapping[str, bool]
    members: Mapping[str, tuple[Any, Callable[[], Any]]]
    own: Mapping[str, object]
    is_ours: bool

    def define(self, name: str, bases: tuple[type, ...], kind: Callable[..., Any]) -> Any:
        """The class, of the standard library's kind or another one."""
        body: dict[str, Any] = {**self.own, "__module__": __name__}
        body["__annotations__"] = {name: kind for name, (kind, _) in self.members.items()}
        body |= {name: value for name, (_, default) in self.members.items() if (value := default()) is not MISSING}
        return kind(**self.options)(type(name, bases, body))


def levels(frozen: bool) -> st.SearchStrategy[Level]:
    # a frozen class of another kind than its base is an error, once in a while
    options = st.fixed_dictionaries(
        {"frozen": st.just(frozen) | st.just(frozen) | st.booleans()},
        optional={"eq": st.booleans(), "repr": st.booleans(), "slots": st.booleans()},
    )
    defaults = st.one_of(NO_DEFAULT, DEFAULTS, DESCRIBED, MADE, MADE, MUTABLE)
    members = st.dictionaries(
        st.sampled_from(NAMES), st.tuples(st.sampled_from((*ANNOTATIONS, "int", "str")), defaults), max_size=3
    )
    own = st.lists(st.sampled_from(OWN), max_size=2).map(dict)
    return st.builds(Level, options, members, own, st.booleans())


CHAINS = st.booleans().flatmap(lambda frozen: st.lists(levels(frozen), min_size=1, max_size=3))


def defined(chain: Sequence[Level], *, theirs: bool) -> Any:
    bases: tuple[type, ...] = ()
    for number, level in enumerate(chain):
        kind = dataclasses.dataclass if theirs or not level.is_ours else dataclass
        bases = (level.define(f"Class{number}", bases, kind),)
    return bases[0]


def outcome(work: Callable[[], Any]) -> Any:
    """What comes of something, in a form that does not depend on the class; the kind of error where it fails."""
    try:
        return work()
    except Exception as error:
        return type(error)


def described(cls: Any) -> Any:
    """What can be said of a class without an object of it."""
    what = ("name", "type", "default", "default_factory", "init", "repr", "compare", "hash", "metadata", "kw_only")
    return {
        "fields": [[getattr(each, name) for name in what] for each in dataclasses.fields(cls)],
        "match": cls.__match_args__,
        "parameters": outcome(lambda: [(each.name, each.kind) for each in inspect.signature(cls).parameters.values()]),
        "slots": [vars(each).get("__slots__") for each in cls.__mro__],
        "defaults": [value for name in NAMES if not ismemberdescriptor(value := getattr(cls, name, None))],
        "is hashable": cls.__hash__ is None,
        "is documented": bool(cls.__doc__),
        "is frozen": cls.__dataclass_params__.frozen,
        "replaces": hasattr(cls, "__replace__"),
    }


def behaviour(cls: Any, args: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """What objects of a class do."""

    def changed(change: Callable[[Any], None]) -> Any:
        value = cls(*args)
        try:
            change(value)
        except (AttributeError, TypeError):
            # the standard library takes a class with slots for another one
            return "refused"
        return shown(value)

    def shown(value: Any) -> Any:
        return [getattr(value, name, None) for name in NAMES], type(value).__name__

    deeds: list[Callable[[], Any]] = [
        lambda: shown(cls(*args)),
        lambda: shown(cls(**dict(zip(NAMES, args)))),
        lambda: shown(cls(*args, a=1)),
        lambda: repr(cls(*args)).startswith("<") or repr(cls(*args)),
        lambda: cls(*args) == cls(*args),
        lambda: cls(*args) == cls(*others),
        lambda: cls(*args) == args,
        lambda: hash(cls(*args)) == hash(cls(*args)) and hash(cls(*args)),
        lambda: dataclasses.asdict(cls(*args)),
        lambda: dataclasses.astuple(cls(*args)),
        lambda: shown(dataclasses.replace(cls(*args), b=5)),
        lambda: shown(copy.copy(cls(*args))),
        lambda: shown(copy.deepcopy(cls(*args))),
        lambda: changed(lambda value: setattr(value, "a", 7)),
        lambda: changed(lambda value: delattr(value, "b")),
    ]
    found = [outcome(deed) for deed in deeds]
    if cls.__hash__ is object.__hash__:
        # by identity
        found[7] = None
    # a constructor is another one after some calls
    return [*found, *(outcome(lambda: shown(cls(*args))) for _ in range(100))]


@settings(max_examples=400, deadline=None)
@given(CHAINS, ARGUMENTS, ARGUMENTS)
def test_generated_classes_behave_alike(chain: Sequence[Level], args: Sequence[Any], others: Sequence[Any]) -> None:
    theirs = outcome(lambda: defined(chain, theirs=True))
    ours = outcome(lambda: defined(chain, theirs=False))
    if issubclass(theirs, Exception):
        # which of several mistakes comes first is all the same
        assert issubclass(ours, TypeError | ValueError)
        return
    assert described(ours) == described(theirs)
    assert behaviour(ours, args, others) == behaviour(theirs, args, others)
