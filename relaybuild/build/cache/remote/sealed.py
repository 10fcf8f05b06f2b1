"""Results as they travel: an `ActionResult` with a seal that any server keeps and none can make; sends nothing.

    auxiliary_metadata ::= Any with type_url TYPE and the value Seal
    Seal               ::= message with 1: SHA-256, 2: HMAC-SHA256 with the secret, where the writer has one

Both are of the namespace, the key, the origin, and each output's name, digest, size and executable bit, each preceded
by its length: what a server may rearrange (fields, inline contents, times) does not count.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator

from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.outcome import problem_of
from relaybuild.build.cache.record import Output, RecordError, Result, UntrustedRecord
from relaybuild.build.cache.wire import WireError, bytes_field, expect_bytes, read_fields
from relaybuild.digest import digest_bytes

TYPE = "type.googleapis.com/relaybuild.v1.Seal"

NOTE_LAYER = "note"
_NOTE = "note"
_METADATA, _AUXILIARY = 9, 11


def seal_result(result: Result, namespace: str, key: str, secret: bytes) -> bytes:
    """The record of a result under a key, for `unseal_result`."""
    content = _sealed_content(result, namespace, key)
    seal = bytes_field(1, hashlib.sha256(content).digest())
    if secret:
        seal += bytes_field(2, hmac.digest(secret, content, "sha256"))
    return result.encode(bytes_field(1, TYPE) + bytes_field(2, seal))


def unseal_result(record: bytes, action: Action, namespace: str, secret: bytes) -> Result:
    """The result of an action from its record in a namespace.

    Raises UntrustedRecord if there is a secret, and the record is not sealed with it; RecordError for what is no result
    of the action, or was altered.
    """
    try:
        result = Result.decode(record)
        seal = dict(read_fields(_seal_of(record)))
    except WireError as error:
        raise RecordError(f"not a result: {error}") from error
    content = _sealed_content(result, namespace, action.key(namespace))
    if secret and not _is_equal(seal.get(2), hmac.digest(secret, content, "sha256")):
        raise UntrustedRecord(
            "a record that another secret has sealed" if 2 in seal else "a record without the seal of the secret"
        )
    if not _is_equal(seal.get(1), hashlib.sha256(content).digest()):
        raise RecordError("a record that was altered" if seal else "a record without a seal")
    if problem := problem_of(action, result):
        raise RecordError(problem)
    return result


def note_action(kind: str, name: str) -> Action:
    """The action whose result a note is: something to look at, under a name that says what it is about."""
    return ActionBuilder(NOTE_LAYER, kind).option("name", name).output(_NOTE).build()


def note_result(payload: bytes, origin: str) -> Result:
    """A note as the result of `note_action`."""
    return Result((Output(_NOTE, digest_bytes(payload), contents=payload),), origin=origin)


def read_note(result: Result) -> bytes | None:
    """The payload of a note; None where a server has taken it out of the record."""
    return result.outputs[0].contents


def _is_equal(found: int | bytes | None, expected: bytes) -> bool:
    return isinstance(found, bytes) and hmac.compare_digest(found, expected)


def _sealed_content(result: Result, namespace: str, key: str) -> bytes:
    parts = [b"relaybuild-seal.1", namespace.encode(), key.encode(), result.origin.encode()]
    for output in result.outputs:
        parts += [output.name.encode(), output.digest.hex.encode(), b"%d" % output.digest.size]
        parts.append(b"x" if output.is_executable else b"-")
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _seal_of(record: bytes) -> bytes:
    """The value of the seal in a record; empty if there is none. Raises WireError."""
    for extra in _fields(record, _METADATA, _AUXILIARY):
        parts = dict(read_fields(extra))
        if parts.get(1) == TYPE.encode():
            return expect_bytes(parts.get(2, b""))
    return b""


def _fields(message: bytes, number: int, *below: int) -> Iterator[bytes]:
    """The values of a field, or of those below it."""
    for found, value in read_fields(message):
        if found == number:
            inner = expect_bytes(value)
            yield from _fields(inner, *below) if below else (inner,)
