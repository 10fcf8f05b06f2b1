"""What is written down of a finished action: its outputs, and a seal that tells what was altered; opens no file.

A result is an `ActionResult` of the remote-execution API. An entry of the index is sealed:

    entry   ::= magic version seal payload
    magic   ::= "RBC"
    version ::= u8                      another number is a record of another version: not read
    seal    ::= SHA-256 or HMAC-SHA256 (32 bytes) of kind, name and payload, each preceded by its length
    payload ::= message with 1: ActionResult, 2: the action (`Action.encode`)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relaybuild.build.cache.action import Action, decode_digest, encode_digest, is_hex_digest
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
from relaybuild.digest import Digest, digest_bytes, sha256

VERSION = 1
MAX_INLINE = 1024
"""Outputs of at most so many bytes are kept in the record itself."""

TRAVELLING = "note."
"""What kinds of records begin with that say what to look at on any machine, and are never believed."""

_MAGIC = b"RBC"
_HEAD = len(_MAGIC) + 1 + 32
_REFERENCE = "relaybuild-digest"
_NANOSECONDS = 1_000_000_000
_EMPTY = digest_bytes(b"")


class RecordError(Exception):
    """A record that was altered, or never was one."""


class OtherVersion(RecordError):
    """A record of another version of the format."""


class UntrustedRecord(RecordError):
    """A record whose seal was not made with the secret."""


@dataclass(frozen=True)
class Output:
    """One file of a result; `contents` are its bytes where the record holds them, else they are a blob."""

    name: str
    digest: Digest
    is_executable: bool = False
    contents: bytes | None = None


@dataclass(frozen=True)
class Result:
    """What an action made: its outputs by name, in the order of names; when it ended (seconds since the epoch), how
    many seconds it took, and where it ran."""

    outputs: tuple[Output, ...]
    ended: float = 0.0
    seconds: float = 0.0
    origin: str = ""

    def has_same_outputs(self, other: Result) -> bool:
        """Whether both made the same files."""
        return _facts(self) == _facts(other)

    def encode(self, auxiliary: bytes = b"") -> bytes:
        """An `ActionResult` message; `auxiliary` is an encoded `Any` that its metadata carry along."""
        files = (
            bytes_field(
                2,
                bytes_field(1, output.name)
                + bytes_field(2, encode_digest(output.digest))
                + varint_field(4, int(output.is_executable))
                + optional_field(5, output.contents or b""),
            )
            for output in self.outputs
        )
        metadata = (
            optional_field(1, self.origin)
            + bytes_field(3, _timestamp(self.ended - self.seconds))
            + bytes_field(4, _timestamp(self.ended))
            + optional_field(11, auxiliary)
        )
        return b"".join(files) + bytes_field(9, metadata)

    @classmethod
    def decode(cls, data: bytes) -> Result:
        """The result of a message; raises WireError for what is none, or reports a failure."""
        outputs = []
        origin, start, end = "", 0.0, 0.0
        for number, value in read_fields(data):
            if number == 2:
                outputs.append(_read_output(expect_bytes(value)))
            elif number == 4 and value != 0:
                raise WireError("the result of an action that failed")
            elif number == 9:
                origin, start, end = _read_metadata(expect_bytes(value))
        return cls(tuple(outputs), end, max(end - start, 0.0), origin)


@dataclass(frozen=True)
class Entry:
    """What the index keeps of an action: the result, and the action itself as `Action.encode` gave it."""

    result: Result
    action: bytes

    def encode(self) -> bytes:
        """The payload of a record."""
        return bytes_field(1, self.result.encode()) + bytes_field(2, self.action)

    @classmethod
    def decode(cls, data: bytes) -> Entry:
        """The entry of a payload; raises RecordError for what is none."""
        try:
            parts = {number: expect_bytes(value) for number, value in read_fields(data)}
            return cls(Result.decode(parts[1]), parts[2])
        except (WireError, KeyError) as error:
            raise RecordError(f"not an entry: {error}") from error

    @staticmethod
    def blobs_of(data: bytes) -> tuple[str, ...]:
        """The blobs that the entry of a payload needs, by digest, without a look at the rest; raises RecordError."""
        try:
            results = [expect_bytes(value) for number, value in read_fields(data) if number == 1]
            files = [dict(read_fields(expect_bytes(each))) for number, each in read_fields(results[0]) if number == 2]
            digests = ((parts, decode_digest(expect_bytes(parts[2]))) for parts in files)
            return tuple(digest.hex for parts, digest in digests if _inline(parts, digest) is None)
        except (WireError, KeyError, IndexError) as error:
            raise RecordError(f"not an entry: {error}") from error

    def belongs_to(self, key: str, namespace: str) -> bool:
        """Whether this is the entry of a key: its action is whole and has that digest."""
        try:
            action = Action.decode(self.action)
            action.components()
            return action.key(namespace) == key
        except WireError:
            return False


def seal(kind: str, name: str, payload: bytes, secret: bytes = b"") -> bytes:
    """A record that `unseal` opens under the same kind, name and secret only."""
    return _MAGIC + bytes((VERSION,)) + _seal_of(kind, name, payload, secret) + payload


def unseal(kind: str, name: str, record: bytes, secret: bytes = b"") -> bytes:
    """The payload of a record. Raises RecordError if it was altered, belongs elsewhere or has another version."""
    if len(record) < _HEAD or not record.startswith(_MAGIC):
        raise RecordError("not a record" if record else "an empty record")
    if record[len(_MAGIC)] != VERSION:
        raise OtherVersion(f"a record of version {record[len(_MAGIC)]}, expected {VERSION}")
    payload = record[_HEAD:]
    found = record[len(_MAGIC) + 1 : _HEAD]
    if not _is_equal(found, _seal_of(kind, name, payload, secret), secret):
        if secret and _is_equal(found, _seal_of(kind, name, payload, b""), secret):
            raise UntrustedRecord("a record without the seal of the secret")
        raise RecordError("a record that was altered, or sealed with another secret")
    return payload


def reference(digest: Digest) -> bytes:
    """The contents of an output that only names a digest, such as that of a module."""
    return f"{_REFERENCE} {digest.hex} {digest.size}\n".encode()


def read_reference(contents: bytes) -> Digest | None:
    """The digest that `reference` wrote; None for other contents."""
    try:
        word, text, size = contents.decode("ascii").split(" ")
    except (UnicodeDecodeError, ValueError):
        return None
    if word != _REFERENCE or not is_hex_digest(text) or not size.rstrip("\n").isdigit():
        return None
    return Digest(text, int(size))


def products(outputs: Iterable[Output]) -> frozenset[str]:
    """The digests, in hexadecimal, by which a later action may name these outputs."""
    found = set()
    for output in outputs:
        found.add(output.digest.hex)
        named = read_reference(output.contents) if output.contents is not None else None
        if named is not None:
            found.add(named.hex)
    return frozenset(found)


def _is_equal(found: bytes, seal: bytes, secret: bytes) -> bool:
    """Whether a seal is the right one; how long that takes tells nothing of what a secret made it."""
    if not secret:
        return found == seal
    import hmac

    return hmac.compare_digest(found, seal)


def _seal_of(kind: str, name: str, payload: bytes, secret: bytes) -> bytes:
    parts = b"".join(len(part).to_bytes(8, "little") + part for part in (kind.encode(), name.encode(), payload))
    if not secret:
        return sha256(parts).digest()
    import hmac

    return hmac.digest(secret, parts, "sha256")


def _facts(result: Result) -> list[tuple[str, Digest, bool]]:
    return [(output.name, output.digest, output.is_executable) for output in result.outputs]


def _timestamp(seconds: float) -> bytes:
    # In two parts: all nanoseconds since the epoch are more than a float can tell apart.
    nanoseconds = max(int(seconds // 1) * _NANOSECONDS + round(seconds % 1 * _NANOSECONDS), 0)
    return varint_field(1, nanoseconds // _NANOSECONDS) + varint_field(2, nanoseconds % _NANOSECONDS)


def _read_timestamp(data: bytes) -> float:
    parts = {number: expect_int(value) for number, value in read_fields(data)}
    return parts.get(1, 0) + parts.get(2, 0) / _NANOSECONDS


def _read_metadata(data: bytes) -> tuple[str, float, float]:
    parts = {number: expect_bytes(value) for number, value in read_fields(data)}
    return expect_text(parts.get(1, b"")), _read_timestamp(parts.get(3, b"")), _read_timestamp(parts.get(4, b""))


def _inline(parts: Mapping[int, int | bytes], digest: Digest) -> bytes | None:
    """The contents of an output that the message has itself, where a field of no bytes is left out; else None."""
    return expect_bytes(parts[5]) if 5 in parts else b"" if digest == _EMPTY else None


def _read_output(data: bytes) -> Output:
    parts = dict(read_fields(data))
    name = expect_text(parts.get(1, b""))
    if not name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise WireError(f"'{name}' is no name of an output")
    digest = decode_digest(expect_bytes(parts.get(2, b"")))
    contents = _inline(parts, digest)
    if contents is not None and digest_bytes(contents) != digest:
        raise WireError(f"the contents of '{name}' are not what their digest says")
    return Output(name, digest, bool(parts.get(4, 0)), contents)
