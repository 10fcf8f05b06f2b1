"""Classes of `relaybuild.dataclass` do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, InitVar, field
from typing import Any, ClassVar

import pytest

from relaybuild.dataclass import dataclass


@dataclass(frozen=True)
class Pair:
    """Two."""

    left: int
    right: list[int] = field(default_factory=list, compare=False)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Slotted:
    """Without a `__dict__`."""

    left: int
    right: str = "right"


class Body:
    """What the classes of both kinds are made of."""

    kind: ClassVar[str] = "body"
    a: int
    b: tuple[int, ...] = ()
    c: list[int] = field(default_factory=list)
    d: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError("negative")


def both(**options: bool) -> tuple[Any, Any]:
    kinds: tuple[Callable[..., Any], ...] = (dataclasses.dataclass, dataclass)
    made = []
    for kind in kinds:
        members = {
            name: copy.copy(value) for name, value in vars(Body).items() if name not in ("__dict__", "__weakref__")
        }
        made.append(kind(**options)(type("Both", (), members)))
    return made[0], made[1]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("eq", [False, True])
@pytest.mark.parametrize("repr", [False, True])
def test_both_kinds_behave_alike(frozen: bool, eq: bool, repr: bool) -> None:
    ours: Any
    theirs: Any
    theirs, ours = both(frozen=frozen, eq=eq, repr=repr)
    assert dataclasses.fields(ours)[0].name == "a"
    assert ours.__match_args__ == theirs.__match_args__
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    # a constructor is another one after some calls
    for cls in (ours, theirs, ours, ours, theirs):
        one, same, other = cls(1, (2,)), cls(a=1, b=(2,)), cls(2, c=[3])
        assert (one == same) == eq
        assert one != other
        assert one == one
        assert (one.a, one.b, one.c, one.d, other.c) == (1, (2,), [], {}, [3])
        assert one.c is not same.c
        assert (str(one) == "Both(a=1, b=(2,), c=[], d={})") == repr
        assert dataclasses.replace(one, a=7).a == 7
        with pytest.raises(ValueError, match="negative"):
            cls(-1)
        if frozen:
            for change in (
                lambda one: setattr(one, "a", 2),
                lambda one: delattr(one, "a"),
                lambda one: setattr(one, "new", 2),
            ):
                with pytest.raises(FrozenInstanceError):
                    change(one)
        else:
            one.a = 2
            assert one.a == 2

    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing 1 required positional argument: 'a'"),
        ((1,), {"e": 2}, "unexpected keyword argument 'e'"),
        ((1,), {"a": 2}, "multiple values for argument 'a'"),
        ((1, (), [], {}), {}, "takes from 2 to 4 positional arguments but 5 were given"),
        ((1,), {"d": {}}, "unexpected keyword argument 'd'"),
    ],
)
def test_arguments_that_do_not_fit_are_errors(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    for cls in both():
        with pytest.raises(TypeError, match=message):
            cls(*args, **kwargs)


def test_equal_values_are_equal_keys() -> None:
    assert {Pair(1, [2]): "found"}[Pair(1, [3])] == "found"
    assert hash(Pair(1)) != hash(Pair(2))
    assert Pair(1) != Pair(1, secret="x")
    assert repr(Pair(1, [2], "x")) == "Pair(left=1, right=[2])"


def test_a_field_that_equals_nothing_is_compared_by_identity_first() -> None:
    @dataclass(frozen=True)
    class One:
        value: float

    nan = float("nan")
    assert One(nan) == One(nan)


def test_values_can_be_copied_and_sent() -> None:
    assert pickle.loads(pickle.dumps(Pair(1, [2]))) == copy.deepcopy(Pair(1, [2]))


def test_what_a_class_defines_itself_stays() -> None:
    @dataclass(frozen=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    assert (Own(1) == 5, hash(Own(1)), repr(Own(1))) == (True, 7, "own")


def test_fields_are_inherited_from_classes_of_both_kinds() -> None:
    @dataclass(frozen=True)
    class Third(Pair):
        third: int = 3

    @dataclasses.dataclass(frozen=True)
    class Fourth(Third):
        fourth: int = 4

    assert repr(Fourth(1)) == f"{Fourth.__qualname__}(left=1, right=[], third=3, fourth=4)"
    assert Third(1) == Third(1) != Pair(1)
    with pytest.raises(FrozenInstanceError):
        Third(1).left = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="frozen"):

        @dataclasses.dataclass
        class Loose(Pair):  # type: ignore[misc]
            loose: int = 1


def test_a_subclass_with_a_constructor_of_its_own_keeps_it() -> None:
    @dataclass
    class Base:
        a: int

    class Derived(Base):
        def __init__(self, text: str) -> None:
            super().__init__(int(text))

    assert Derived("5").a == 5
    assert list(inspect.signature(Derived).parameters) == ["text"]
    assert list(inspect.signature(Base).parameters) == ["a"]
    assert str(inspect.signature(Pair)).startswith("(left: 'int'")


def test_an_object_with_slots_has_no_others_and_can_be_copied_and_sent() -> None:
    assert pickle.loads(pickle.dumps(Slotted(1, "x"))) == copy.deepcopy(Slotted(1, "x")) == Slotted(1, "x")
    assert (Slotted(1).right, Slotted.__slots__, hasattr(Slotted(1), "__dict__")) == ("right", ("left", "right"), False)
    for name in ("left", "other"):
        with pytest.raises(FrozenInstanceError):
            setattr(Slotted(1), name, 2)


def test_fields_of_a_class_without_slots_are_copied_with_those_of_its_base_that_has_them() -> None:
    @dataclass(frozen=True)
    class Wider(Slotted):
        third: int = 3

    assert copy.copy(Wider(1, "x", 7)) == Wider(1, "x", 7)


def test_what_is_left_to_the_standard_library_is_refused() -> None:
    refused: Any = {"_": "KW_ONLY"}, {"_": KW_ONLY}, {"a": "InitVar[int]"}, {"a": InitVar[int]}
    for own in refused:
        with pytest.raises(TypeError, match="left to"):
            dataclass(type("Refused", (), {"__annotations__": own}))
    with pytest.raises(TypeError, match="'a' of Refused is keyword-only"):
        dataclass(type("Refused", (), {"__annotations__": {"a": "int"}, "a": field(kw_only=True)}))


def test_a_class_that_means_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="'b' follows default"):

        @dataclass
        class Order:
            a: int = 1
            b: int  # type: ignore[misc]

    with pytest.raises(TypeError, match="'a' is a field but has no type annotation"):

        @dataclass
        class Bare:
            a = field(default=1)

    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):

        @dataclass
        class Loose(Pair):  # type: ignore[misc]
            loose: int = 1

    with pytest.raises(TypeError, match="cannot inherit frozen dataclass from a non-frozen one"):

        @dataclass(frozen=True)
        class Fixed(both()[1]):  # type: ignore[misc]
            fixed: int = 1


def test_a_slot_holds_the_default_of_a_field_that_is_not_given() -> None:
    @dataclass
    class Base:
        a: int
        c: int = field(default=3, init=False)

    @dataclass(slots=True)
    class Derived(Base):
        pass

    # the constructor is another one after some calls
    assert [Derived(1).c for _ in range(100)] == [3] * 100
