"""Keys: equal for equal work wherever it is done, else different, and those of the remote-execution API."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaybuild.build.cache.action import Action, ActionBuilder, Option, canonical_json
from relaybuild.build.cache.wire import WireError, bytes_field
from relaybuild.digest import Digest, digest_bytes

from .conftest import Start, action

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
DIGESTS = st.binary(max_size=3).map(digest_bytes)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=4))
OPTIONS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=3).filter(lambda key: not key.startswith("$")), inner, max_size=3),
    ),
    max_leaves=5,
)
PARTS = st.fixed_dictionaries(
    {
        "layer": st.sampled_from(["pass", "codegen"]),
        "name": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3),
        "inputs": st.dictionaries(PATHS, DIGESTS, max_size=4).filter(
            lambda inputs: not any(b.startswith(f"{a}/") for a, b in itertools.permutations(inputs, 2))
        ),
        "options": st.dictionaries(
            st.text(max_size=3).filter(lambda key: not key.startswith("$")), OPTIONS, max_size=3
        ),
        "environment": st.dictionaries(
            NAMES, st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=2
        ),
        "outputs": st.sets(PATHS, max_size=2),
    }
)
Shuffle = Callable[[list[Any]], None]


def built(parts: dict[str, Any], shuffle: Shuffle = lambda _: None) -> Action:
    builder = ActionBuilder(parts["layer"], parts["name"])
    steps: list[Callable[[], object]] = []
    steps += [lambda n=n, d=d: builder.input(n, d) for n, d in parts["inputs"].items()]
    steps += [lambda n=n, v=v: builder.option(n, v) for n, v in parts["options"].items()]
    steps += [lambda n=n, v=v: builder.environment(n, v) for n, v in parts["environment"].items()]
    steps += [lambda n=n: builder.output(n) for n in parts["outputs"]]
    shuffle(steps)
    for step in steps:
        step()
    return builder.build()


def spelled(value: Any) -> str:
    """Equality of parts that tells `1`, `True`, `1.0` and `-0.0` apart, whatever the order."""
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{key!r}:{spelled(each)}" for key, each in value.items())) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(spelled, value)) + "]"
    if isinstance(value, set):
        return "".join(sorted(map(repr, value)))
    return repr(value)


@settings(deadline=None)
@given(PARTS, PARTS)
def test_keys_are_equal_only_for_equal_parts(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert (built(left).key("main") == built(right).key("main")) == (spelled(left) == spelled(right))


@settings(deadline=None)
@given(PARTS, st.randoms(use_true_random=False))
def test_the_order_of_parts_does_not_count(parts: dict[str, Any], chooser: random.Random) -> None:
    assert built(parts).key("main") == built(parts, chooser.shuffle).key("main")


@settings(deadline=None)
@given(PARTS)
def test_an_action_is_read_back(parts: dict[str, Any]) -> None:
    made = built(parts)
    assert Action.decode(made.encode()) == made
    components = made.components()
    assert {name: components[name] for name in parts["inputs"]} == {n: d.hex for n, d in parts["inputs"].items()}
    assert len(components) <= len(parts["inputs"]) + len(parts["options"]) + len(parts["environment"])


def test_splits_of_one_text_are_different_keys() -> None:
    """`-X -Y` is not `-X-Y`, and `k=v|k=v` is no value."""
    options: list[Option] = [["-X", "-Y"], ["-X-Y"], "-X -Y", ["-X", ["-Y"]], ["-X -Y"], {"-X": "-Y"}]
    keys = {ActionBuilder("object", "cc").option("flags", each).build().key("main") for each in options}
    assert len(keys) == len(options)


def split_at(text: str, place: int) -> list[Action]:
    """Actions in which a text is cut in two, each time into other neighbouring parts."""
    left, right = text[:place], text[place:]
    digest = digest_bytes(b"")
    return [
        ActionBuilder(left, right).build(),
        ActionBuilder("pass", "Fold").environment(left, right).build(),
        ActionBuilder("pass", "Fold").output(left, right + "x").build(),
        ActionBuilder("pass", "Fold").option(left, right).build(),
        ActionBuilder("pass", "Fold").option("flags", [left, right]).build(),
        ActionBuilder("pass", "Fold").input(left, digest).input(right + "x", digest).build(),
        ActionBuilder("pass", "Fold").input(f"{left}/{right}", digest).build(),
    ]


def test_characters_do_not_move_between_neighbours() -> None:
    made = [each for place in range(1, 8) for each in split_at("abcdefgh", place)]
    assert len({each.key("main") for each in made}) == len(made) == 49


def test_nesting_counts() -> None:
    names = ["a/b/c", "ab/c", "a/bc", "abc", "a_b/c", "a.b.c", "a\\b\\c"]
    keys = {ActionBuilder("pass", "Fold").input(name, digest_bytes(b"")).build().key("main") for name in names}
    trees = [("a/b", "a/c"), ("a/b", "c"), ("b", "a/c"), ("b", "c"), ("a/b/c", "a/b/b"), ("a/b/c", "b")]
    for tree in trees:
        builder = ActionBuilder("pass", "Fold")
        for name in tree:
            builder.input(name, digest_bytes(b""))
        keys.add(builder.build().key("main"))
    assert len(keys) == len(names) + len(trees)


def test_layers_and_namespaces_do_not_share_keys() -> None:
    keys = {action(layer=layer).key(space) for layer in ("pass", "codegen", "object") for space in ("main", "pr/1")}
    assert len(keys) == 6


def test_an_option_is_not_an_input_or_a_variable() -> None:
    digest = digest_bytes(b"1")
    made = [
        ActionBuilder("pass", "Fold").input("x", digest).build(),
        ActionBuilder("pass", "Fold").option("x", digest.hex).build(),
        ActionBuilder("pass", "Fold").environment("x", digest.hex).build(),
        ActionBuilder("pass", "Fold").output("x").build(),
    ]
    assert len({each.key("main") for each in made}) == 4


def test_values_of_different_types_are_different_options() -> None:
    values: list[Option] = [None, 0, 0.0, -0.0, False, "", [], {}, 1, 1.0, True, "1", [1], frozenset([1]), float("inf")]
    assert len({canonical_json(value) for value in values}) == len(values)
    assert canonical_json(1.5) == '{"$f64":"3ff8000000000000"}'
    assert canonical_json(frozenset(["b", "a"])) == '{"$set":["a","b"]}'


def test_what_has_no_canonical_form_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        canonical_json(float("nan"))
    with pytest.raises(ValueError, match=r"'\$'"):
        canonical_json({"$f64": "3ff8000000000000"})
    with pytest.raises(TypeError, match="'object'"):
        canonical_json(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/./b", "a\0b"])
def test_names_that_are_no_relative_paths_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="relative path"):
        ActionBuilder("pass", "Fold").input(name, digest_bytes(b""))


def test_a_name_is_given_once() -> None:
    builder = ActionBuilder("pass", "Fold").input("in/module", digest_bytes(b""))
    with pytest.raises(ValueError, match="twice"):
        builder.input("in/module", digest_bytes(b"1"))
    with pytest.raises(ValueError, match="a folder of inputs"):
        builder.input("in", digest_bytes(b"")).build()


def test_keys_do_not_depend_on_the_hash_seed_or_the_home(start: Start, tmp_path: Path) -> None:
    environments = [{"PYTHONHASHSEED": str(seed), "HOME": str(tmp_path / str(seed))} for seed in range(20)]
    processes = [start("key", environ=environ) for environ in environments]
    keys = {process.communicate(timeout=60)[0] for process in processes}
    assert len(keys) == 1
    assert len(keys.pop().strip()) == 64


def test_what_is_no_action_is_refused() -> None:
    good = action(x=b"1")
    for data in (b"", b"\xff", bytes_field(1, good.command), bytes_field(1, b"") + bytes_field(2, b"")):
        with pytest.raises(WireError):
            Action.decode(data)
    missing = Action(good.layer, good.name, good.command, good.directories[:1], ())
    with pytest.raises(WireError, match="is not there"):
        missing.components()


def test_encoding_is_that_of_protocol_buffers() -> None:
    pb2 = pytest.importorskip(
        "buildgrid._protos.build.bazel.remote.execution.v2.remote_execution_pb2",
        reason="the messages of the remote-execution API (PyPI: buildgrid) are not installed",
    )
    made = (
        ActionBuilder("codegen", "host")
        .input("in/function", digest_bytes(b"f"))
        .input("in/z", Digest(digest_bytes(b"").hex, 0))
        .input("é", digest_bytes(b"u"))
        .input("impl/core", digest_bytes(b"c" * 300))
        .option("flags", ["-O2", 1.5])
        .environment("LC_ALL", "C")
        .environment("EMPTY", "")
        .output("b.c", "a.c")
        .build()
    )
    command, message = pb2.Command(), pb2.Action()
    command.ParseFromString(made.command)
    assert command.SerializeToString(deterministic=True) == made.command
    assert list(command.output_paths) == ["a.c", "b.c"]
    assert [variable.name for variable in command.environment_variables] == ["EMPTY", "LC_ALL"]
    message.ParseFromString(made.message("main"))
    assert message.SerializeToString(deterministic=True) == made.message("main")
    assert message.command_digest.hash == digest_bytes(made.command).hex
    assert message.salt == b"relaybuild/1/main"
    for each in made.directories:
        folder = pb2.Directory()
        folder.ParseFromString(each)
        assert folder.SerializeToString(deterministic=True) == each
