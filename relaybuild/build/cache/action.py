"""What identifies a piece of work: an `Action` of the remote-execution API whose inputs have names; runs nothing.

A key is the SHA-256 of the encoded `Action`. It names a `Command`, whose arguments are the program, the layer, the
action's name and its options in canonical JSON, and a tree of `Directory` messages, in which every input is a file
(`in/module`, `impl/pass`, `toolchain/cc`). The salt holds the version of this mapping and the namespace. Fields are
written in ascending order and defaults are left out, so that the bytes are those of any other implementation.
"""

from __future__ import annotations

import functools
import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, TypeAlias

from relaybuild.build.cache.wire import (
    WireError,
    bytes_field,
    expect_bytes,
    expect_int,
    expect_text,
    optional_field,
    read_fields,
    varint_field,
)
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, sha256

FORMAT = 1
"""The version of the mapping from actions to keys: another number, other keys."""

PROGRAM = "relaybuild"

Option: TypeAlias = (
    "bool | int | float | str | list[Option] | tuple[Option, ...] | frozenset[Option] | Mapping[str, Option] | None"
)


@dataclass(frozen=True)
class Action:
    """One piece of work, by everything that its outputs may depend on.

    `layer` separates kinds of work (`pass`, `object`), `name` says which of them. `command` and `directories` (the root
    first, then those below in the order of their names) are the encoded messages; `outputs` are the names of the files
    that it makes, or empty where that depends on the inputs.
    """

    layer: str
    name: str
    command: bytes
    directories: tuple[bytes, ...]
    outputs: tuple[str, ...]

    def message(self, namespace: str) -> bytes:
        """The encoded `Action` message within a namespace."""
        return (
            bytes_field(1, encode_digest(_digest(self.command)))
            + bytes_field(2, encode_digest(_digest(self.directories[0])))
            + bytes_field(9, f"{PROGRAM}/{FORMAT}/{namespace}")
        )

    def key(self, namespace: str) -> str:
        """The SHA-256 of the message, in hexadecimal: what the result is stored under."""
        return sha256(self.message(namespace)).hexdigest()

    def encode(self) -> bytes:
        """All that `decode` needs to have the action back."""
        return bytes_field(1, self.command) + b"".join(bytes_field(2, each) for each in self.directories)

    @classmethod
    def decode(cls, data: bytes) -> Action:
        """The action that was encoded; raises WireError for anything else."""
        command, directories = b"", []
        for number, value in read_fields(data):
            if number == 1:
                command = expect_bytes(value)
            elif number == 2:
                directories.append(expect_bytes(value))
        arguments, _, outputs = _read_command(command)
        if len(arguments) != 4 or arguments[0] != PROGRAM or not directories:
            raise WireError("not an action of this program")
        return cls(arguments[1], arguments[2], command, tuple(directories), outputs)

    def components(self) -> dict[str, str]:
        """What went in, by name: inputs as digests, `option.NAME` as canonical JSON, `env.NAME` as text.

        Raises WireError for an action whose directories do not belong together.
        """
        arguments, environment, _ = _read_command(self.command)
        found = dict(_files(self.directories))
        found |= {f"option.{name}": _compact_json(value) for name, value in _read_options(arguments[3]).items()}
        return found | {f"env.{name}": value for name, value in environment}


@dataclass
class ActionBuilder:
    """Gathers the parts of an action, in any order.

    `layer` and `name` are never empty; neither they nor any part may hold a path of this machine.
    """

    layer: str
    name: str
    _inputs: dict[str, Digest] = field(default_factory=dict)
    _options: dict[str, Option] = field(default_factory=dict)
    _environment: dict[str, str] = field(default_factory=dict)
    _outputs: set[str] = field(default_factory=set)

    def input(self, name: str, digest: Digest) -> ActionBuilder:
        """Add an input by a relative name with slashes, such as `in/module`; returns the builder.

        Raises ValueError for a name that is no relative path, or is taken.
        """
        _check_path(name)
        _add(self._inputs, name, digest)
        return self

    def option(self, name: str, value: Option) -> ActionBuilder:
        """Add an option; floats count by their bits, sets by their elements. Raises ValueError for a taken name."""
        _add(self._options, name, value)
        return self

    def environment(self, name: str, value: str) -> ActionBuilder:
        """Add a variable that the work sees. Raises ValueError for a taken name."""
        _add(self._environment, name, value)
        return self

    def output(self, *names: str) -> ActionBuilder:
        """Declare files that the work makes: a result without one of them is not stored."""
        for name in names:
            _check_path(name)
        self._outputs.update(names)
        return self

    def build(self) -> Action:
        """The action. Raises ValueError where a name stands for an input and for a folder of inputs, and for an option
        that has no canonical form."""
        if not self.layer or not self.name:
            raise ValueError("an action needs a layer and a name")
        outputs = tuple(sorted(self._outputs))
        arguments = (PROGRAM, self.layer, self.name, canonical_json(self._options))
        variables = (
            bytes_field(2, optional_field(1, name) + optional_field(2, value))
            for name, value in sorted(self._environment.items())
        )
        command = b"".join(
            [*(bytes_field(1, text) for text in arguments), *variables, *(bytes_field(7, name) for name in outputs)]
        )
        return Action(self.layer, self.name, command, tuple(_directories(self._inputs)), outputs)


def canonical_json(value: Option) -> str:
    """The one text of a value: sorted keys, no spaces, ASCII, floats as `{"$f64": hex of the bits}`, sets sorted.

    Raises ValueError for NaN and for a key that begins with a dollar sign, TypeError for a value of another type.
    """
    return _compact_json(_canonical(value))


def _compact_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _read_options(text: str) -> Mapping[str, Any]:
    try:
        options = json.loads(text)
    except ValueError as error:
        raise WireError("options that are not JSON") from error
    if not isinstance(options, dict):
        raise WireError("options without names")
    return options


def _canonical(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError("NaN cannot be part of a key")
        return {"$f64": struct.pack(">d", value).hex()}
    if isinstance(value, (list, tuple)):
        return [_canonical(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return {"$set": sorted((_canonical(each) for each in value), key=lambda each: json.dumps(each, sort_keys=True))}
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("the keys of an option must be text")
        if any(name.startswith("$") for name in value):
            raise ValueError("a key of an option begins with '$', which stands for floats and sets")
        return {name: _canonical(each) for name, each in value.items()}
    raise TypeError(f"a value of type '{type(value).__name__}' cannot be part of a key")


def encode_digest(digest: Digest) -> bytes:
    """A `Digest` message."""
    return optional_field(1, digest.hex) + varint_field(2, digest.size)


def decode_digest(data: bytes) -> Digest:
    """The digest of a message; raises WireError for what is no SHA-256."""
    text, size = "", 0
    for number, value in read_fields(data):
        if number == 1:
            text = expect_text(value)
        elif number == 2:
            size = expect_int(value)
    if not is_hex_digest(text):
        raise WireError("not a SHA-256 in lower-case hexadecimal")
    return Digest(text, size)


def is_hex_digest(text: str) -> bool:
    """Whether a text is a SHA-256 in lower-case hexadecimal."""
    return len(text) == 64 and not text.strip("0123456789abcdef")


def _digest(data: bytes) -> Digest:
    return Digest(sha256(data).hexdigest(), len(data))


def _check_path(name: str) -> None:
    parts = f"/{name}/"
    if "\0" in name or "//" in parts or "/./" in parts or "/../" in parts:
        raise ValueError(f"'{name}' is not a relative path")


def _add(values: dict[str, Any], name: str, value: Any) -> None:
    if name in values:
        raise ValueError(f"'{name}' is given twice")
    values[name] = value


def _directories(inputs: Mapping[str, Digest]) -> list[bytes]:
    """The `Directory` messages of a tree of files, its root first."""
    files: dict[str, Digest] = {}
    folders: dict[str, dict[str, Digest]] = {}
    for name, digest in inputs.items():
        head, slash, rest = name.partition("/")
        if slash:
            folders.setdefault(head, {})[rest] = digest
        else:
            files[name] = digest
    if both := files.keys() & folders.keys():
        raise ValueError(f"'{min(both)}' is an input and a folder of inputs")
    # Names are sorted as they are in UTF-8, which is not the order of surrogates in other encodings.
    below = {name: _subfolder(tuple(folders[name].items())) for name in sorted(folders, key=str.encode)}
    nodes = [_node(1, name, files[name]) for name in sorted(files, key=str.encode)]
    nodes += [_node(2, name, _digest(messages[0])) for name, messages in below.items()]
    return [b"".join(nodes), *(each for messages in below.values() for each in messages)]


@functools.lru_cache(maxsize=4096)
def _node(number: int, name: str, digest: Digest) -> bytes:
    """The field of a directory for a file or a folder in it; headers are in many."""
    return bytes_field(number, bytes_field(1, name) + bytes_field(2, encode_digest(digest)))


@functools.lru_cache(maxsize=64)
def _subfolder(inputs: tuple[tuple[str, Digest], ...]) -> list[bytes]:
    """`_directories` of what is below a folder, which is often the same for many actions: headers, a toolchain."""
    return _directories(dict(inputs))


def _read_command(data: bytes) -> tuple[list[str], list[tuple[str, str]], tuple[str, ...]]:
    """Arguments, environment and outputs of a `Command`."""
    arguments, environment, outputs = [], [], []
    for number, value in read_fields(data):
        if number == 1:
            arguments.append(expect_text(value))
        elif number == 2:
            parts = {inner: expect_text(text) for inner, text in read_fields(expect_bytes(value))}
            environment.append((parts.get(1, ""), parts.get(2, "")))
        elif number == 7:
            outputs.append(expect_text(value))
    return arguments, environment, tuple(outputs)


def _files(directories: tuple[bytes, ...]) -> Iterator[tuple[str, str]]:
    """Names and digests of the files of a tree."""
    by_digest = {_digest(each).hex: each for each in directories}
    pending = [("", directories[0])]
    while pending:
        prefix, message = pending.pop()
        for number, value in read_fields(message):
            parts = dict(read_fields(expect_bytes(value)))
            name = prefix + expect_text(parts.get(1, b""))
            digest = decode_digest(expect_bytes(parts.get(2, b"")))
            if number == 1:
                yield name, digest.hex
            elif number == 2:
                if digest.hex not in by_digest:
                    raise WireError(f"the folder '{name}' is not there")
                pending.append((f"{name}/", by_digest[digest.hex]))
