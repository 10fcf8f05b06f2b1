"""A remote cache as a run sees it: finds results and brings their blobs, sends new ones beside the run; never raises.

What a server says is believed only where it can be verified: a record by its seal, a blob by size and digest. What goes
wrong is counted in the journal. Sending ends with the run, or at a deadline; what was not sent by then is counted.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from relaybuild.build.cache.action import Action
from relaybuild.build.cache.cas import BlobError, BlobStore, Fault
from relaybuild.build.cache.journal import Answer, Asked, Failed, Journal, MissReason
from relaybuild.build.cache.outcome import conflict_of
from relaybuild.build.cache.record import RecordError, Result, UntrustedRecord
from relaybuild.build.cache.remote.gate import Gate, LeftAlone
from relaybuild.build.cache.remote.sealed import note_action, note_result, read_note, seal_result, unseal_result
from relaybuild.build.cache.remote.transport import (
    MAX_RECORD,
    Description,
    Reason,
    RemoteFailure,
    Site,
    Transport,
    connect,
    is_overheard,
)
from relaybuild.build.cache.remote.workers import Workers
from relaybuild.build.cache.settings import CacheSettings, Mode, RemoteSettings
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

_SENDERS = 4
_FETCHERS = 8
_MAX_NOTE = MAX_RECORD // 2


@dataclass(frozen=True)
class Unavailable:
    """Why a result that may be there could not be had."""

    reason: MissReason
    detail: str


@dataclass(frozen=True)
class Conflict:
    """A server had another result of an action than the one that was made; it has it still."""

    key: str
    detail: str


class RemoteCache:
    """The remote cache of a run. `settings.remote` must be there."""

    def __init__(self, settings: CacheSettings, remote: RemoteSettings, journal: Journal, origin: str) -> None:
        """Nothing is sent yet. Raises UserError for a URL that no protocol serves, or one whose package is missing."""
        self._settings = settings
        self._remote = remote
        self._journal = journal
        self._origin = origin
        self._namespaces = tuple(dict.fromkeys((settings.namespace, *settings.trusted)))
        self._transport = connect(Site(remote.url, remote.token, request_seconds=remote.request_seconds))
        self._gate = Gate()
        self._senders = Workers(_SENDERS)
        self._fetchers = Workers(_FETCHERS)
        self._damaged_keys: set[str] = set()
        self._damaged_blobs: set[Digest] = set()
        self._conflicts: list[Conflict] = []
        self._is_over = False
        self._has_told_of_rest = False
        self._coming: dict[str, Future[Result | Unavailable | None]] = {}
        self._coming_notes: dict[tuple[str, str], Future[bytes | None]] = {}

    @property
    def may_read(self) -> bool:
        """Whether results are looked up there."""
        return self._remote.mode.may_look_up

    @property
    def _may_look(self) -> bool:
        """Whether notes are read: what is executed anyway needs them to be compared under the right key."""
        return self.may_read or self._remote.mode is Mode.VERIFY

    @property
    def may_write(self) -> bool:
        """Whether results are sent there."""
        return self._remote.mode.may_keep

    def fetch(self, actions: Iterable[Action], blobs: BlobStore) -> None:
        """Begin to bring results that will be asked for, several at a time: servers are far away."""
        for action in actions if self.may_read else ():
            key = action.key(self._settings.namespace)
            if key not in self._coming:
                self._coming[key] = self._begun(functools.partial(self._find, action, blobs))

    def fetch_notes(self, kind: str, names: Iterable[str]) -> None:
        """The same for notes."""
        for name in names if self._may_look else ():
            if (kind, name) not in self._coming_notes:
                self._coming_notes[kind, name] = self._begun(functools.partial(self._find_note, kind, name))

    def find(self, action: Action, blobs: BlobStore) -> Result | Unavailable | None:
        """The result of an action, whose blobs are in `blobs` then; why it could not be had; None if there is none.

        Once the server is left alone, one result is said not to be had for that reason, and there is none of the rest.
        """
        coming = self._coming.pop(action.key(self._settings.namespace), None)
        return coming.result() if coming is not None else self._find(action, blobs)

    def find_note(self, kind: str, name: str) -> bytes | None:
        """A note, if there is one; it says what to look at, and whoever uses it verifies it."""
        coming = self._coming_notes.pop((kind, name), None)
        return coming.result() if coming is not None else self._find_note(kind, name)

    def _begun(self, work: Callable[[], T]) -> Future[T]:
        """Do some work soon, and now if there are too many others."""
        from concurrent.futures import Future

        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        if not self._fetchers.offer(run):
            run()
        return future

    def _find(self, action: Action, blobs: BlobStore) -> Result | Unavailable | None:
        problem: Exception | None = None
        for namespace in self._namespaces:
            try:
                result = self._found(action, namespace, blobs)
            except (RemoteFailure, LeftAlone, RecordError, BlobError, OSError) as error:
                problem = problem or error
                self._note_failure(error)
                continue
            if result is not None:
                return result
        if isinstance(problem, LeftAlone):
            return self._left_alone(problem)
        self._journal.asked.append(Asked(Answer.MISS))
        return _unavailable(problem) if problem is not None else None

    def _left_alone(self, problem: LeftAlone) -> Unavailable | None:
        if self._has_told_of_rest:
            return None
        self._has_told_of_rest = True
        return _unavailable(problem)

    def _find_note(self, kind: str, name: str) -> bytes | None:
        action = note_action(kind, name)
        for namespace in self._namespaces if self._may_look else ():
            try:
                record = self._record(action, namespace)
                if record is not None:
                    return read_note(unseal_result(record, action, namespace, self._settings.secret))
            except (RemoteFailure, LeftAlone, RecordError) as error:
                self._note_failure(error)
        return None

    def send(self, action: Action, result: Result, blobs: BlobStore) -> None:
        """Keep a result there, whose blobs are in `blobs`, soon. The first one of a key stays, unless it is damaged."""
        if self.may_write:
            self._senders.offer(lambda: self._counted(lambda: self._sent(action, result, blobs)))

    def send_note(self, kind: str, name: str, payload: bytes) -> None:
        """Keep a note there, soon, in place of the one that was there."""
        if self.may_write and len(payload) <= _MAX_NOTE:
            action, result = note_action(kind, name), note_result(payload, self._origin)
            self._senders.offer(lambda: self._counted(lambda: self._note_sent(action, result)))

    def close(self, *, may_wait: bool = True) -> list[Conflict]:
        """End the run: wait for what is to be sent, if that may be, until the deadline; what was in conflict."""
        self._fetchers.finish(0.0)
        lost = self._senders.finish(self._remote.flush_seconds if may_wait else 0.0)
        self._is_over = True
        held_back, unasked = self._gate.held_back, self._gate.unasked
        self._gate.end()
        self._transport.close()
        if lost:
            self._journal.asked += [Asked(Answer.LOST)] * lost
            self._fail("remote-not-sent", f"{lost} results were not sent before the end of the run")
        self._journal.asked += [Asked(Answer.HELD_BACK)] * unasked
        if held_back:
            self._fail("remote-left-alone", f"{held_back} requests were not made")
        return self._conflicts

    def examine(self) -> dict[str, Any]:
        """What the server is and can, as JSON has it; `problems` are sentences."""
        try:
            found = _asked(lambda server: server.describe(), self._transport)
        except RemoteFailure as failure:
            found = Description("unknown", can_read=False, problems=(str(failure),))
        problems = list(found.problems)
        if found.can_write is False and self.may_write:
            problems.append("the server takes nothing: results are read, none is kept")
        if self._remote.token and is_overheard(self._remote.url):
            problems.append("the token is sent unencrypted: use https")
        if not problems and found.can_write and self.may_write:
            problems += self._trial()
        return {
            "url": self._remote.url,
            "mode": self._remote.mode.value,
            "protocol": found.title,
            "can_read": found.can_read,
            "can_write": found.can_write,
            "write_once": found.is_write_once,
            "checks_content": found.checks_content,
            "token": bool(self._remote.token),
            "sealed": bool(self._settings.secret),
            **found.facts,
            "problems": problems,
        }

    def _trial(self) -> list[str]:
        """What is wrong with a record that was written and comes back."""
        name = os.urandom(8).hex()
        action, namespace = note_action("doctor", name), self._settings.namespace
        try:
            self._note_sent(action, note_result(name.encode(), self._origin))
            record = self._record(action, namespace)
            if record is None:
                return ["a record that was just written is not there"]
            unseal_result(record, action, namespace, self._settings.secret)
        except (RemoteFailure, LeftAlone) as error:
            return [f"a record cannot be written and read: {error}"]
        except RecordError as error:
            return [f"a record that was just written comes back as {error}: no result would ever be believed"]
        return []

    def _found(self, action: Action, namespace: str, blobs: BlobStore) -> Result | None:
        record = self._record(action, namespace)
        if record is None:
            return None
        try:
            result = unseal_result(record, action, namespace, self._settings.secret)
            brought = self._bring(result, blobs)
        except (RecordError, BlobError):
            self._damaged_keys.add(action.key(namespace))
            raise
        self._journal.asked.append(Asked(Answer.HIT, read_bytes=len(record) + brought))
        return result

    def _bring(self, result: Result, blobs: BlobStore) -> int:
        """Fetch the blobs of a result that are not here; how many bytes that were."""
        needed = dict.fromkeys(output.digest for output in result.outputs if output.contents is None)
        absent = [digest for digest in needed if blobs.has(digest) is not None]
        size = sum(digest.size for digest in absent)
        if size > self._settings.max_size // 2:
            raise RecordError(f"a result of {size} bytes, more than half of the limit of {self._settings.max_size}")
        for digest in absent:
            try:
                self._receive(digest, blobs)
            except BlobError as error:
                if error.fault is not Fault.MISSING:
                    self._damaged_blobs.add(digest)
                raise
        return size

    def _sent(self, action: Action, result: Result, blobs: BlobStore) -> None:
        namespace = self._settings.namespace
        key = action.key(namespace)
        record = seal_result(result, namespace, key, self._settings.secret)
        must_replace = self._settings.mode is Mode.RECACHE or key in self._damaged_keys
        size = self._send_blobs(result, blobs)
        if self._put(action, record, replace=must_replace):
            answer = Answer.STORED
        else:
            answer = self._compared(action, key, result, record)
        sent = size + (len(record) if answer is Answer.STORED else 0)
        self._journal.asked.append(Asked(answer, written_bytes=sent))

    def _send_blobs(self, result: Result, blobs: BlobStore) -> int:
        """Send the blobs that the server does not have; how many bytes that were."""
        digests = {output.digest for output in result.outputs if output.contents is None}
        if not digests:
            return 0
        absent = self._write(lambda server: server.missing(digests)) | (digests & self._damaged_blobs)
        for digest in absent:
            # What this disk has damaged must not become everybody's.
            blobs.verify(digest)
            with blobs.as_file(digest) as path:
                self._send_blob(digest, path)
        return sum(digest.size for digest in absent)

    def _compared(self, action: Action, key: str, result: Result, record: bytes) -> Answer:
        """What it means that there is a record already; one that nobody can believe is replaced."""
        namespace = self._settings.namespace
        present = self._write(lambda server: server.get_record(action, namespace))
        try:
            first = unseal_result(present or b"", action, namespace, self._settings.secret)
        except RecordError as error:
            self._note_failure(error)
            return Answer.STORED if self._put(action, record, replace=True) else Answer.LOST
        if first.has_same_outputs(result):
            return Answer.KNOWN
        self._conflicts.append(Conflict(key, f"in the remote cache, {conflict_of(first, result)}"))
        return Answer.CONFLICT

    def _note_sent(self, action: Action, result: Result) -> None:
        namespace = self._settings.namespace
        record = seal_result(result, namespace, action.key(namespace), self._settings.secret)
        self._put(action, record, replace=True)

    def _put(self, action: Action, record: bytes, *, replace: bool) -> bool:
        namespace = self._settings.namespace
        return self._write(lambda server: server.put_record(action, namespace, record, replace=replace))

    def _counted(self, work: Callable[[], None]) -> None:
        """Do what nobody waits for."""
        try:
            work()
        except (LeftAlone, RemoteFailure, RecordError, BlobError, OSError) as error:
            # What was under way at the deadline has been counted.
            if not self._is_over:
                self._journal.asked.append(Asked(Answer.LOST))
                self._note_failure(error)

    def _record(self, action: Action, namespace: str) -> bytes | None:
        return self._read(lambda server: server.get_record(action, namespace))

    def _receive(self, digest: Digest, blobs: BlobStore) -> None:
        self._read(lambda server: blobs.receive(digest, lambda into: server.read_blob(digest, into)))

    def _send_blob(self, digest: Digest, path: Path) -> None:
        self._write(lambda server: server.write_blob(digest, path))

    def _read(self, ask: Callable[[Transport], T]) -> T:
        return self._gate.pass_through(lambda: _asked(ask, self._transport))

    def _write(self, ask: Callable[[Transport], T]) -> T:
        return self._gate.pass_through(lambda: _asked(ask, self._transport), is_write=True)

    def _note_failure(self, error: Exception) -> None:
        """Count what went wrong, unless it is that nothing was asked, which is counted at the end."""
        if isinstance(error, LeftAlone):
            return
        self._fail(f"remote-{_word(error)}", str(error))

    def _fail(self, reason: str, detail: str) -> None:
        self._journal.failed.append(Failed(reason, detail))


def _asked(ask: Callable[[Transport], T], server: Transport) -> T:
    """What a server answers. An error that a transport did not foresee comes of an answer that nobody foresaw."""
    try:
        return ask(server)
    except (RemoteFailure, RecordError, BlobError, OSError):
        raise
    except Exception as error:
        raise RemoteFailure(Reason.PROTOCOL, f"{type(error).__name__}: {error}") from error


def _word(error: Exception) -> str:
    """The word that a failure is counted under."""
    if isinstance(error, RemoteFailure):
        return error.reason.value
    if isinstance(error, BlobError):
        return "missing-blob" if error.fault is Fault.MISSING else "wrong-content"
    if isinstance(error, UntrustedRecord):
        return "untrusted"
    return "record" if isinstance(error, RecordError) else "local"


def _unavailable(error: Exception) -> Unavailable:
    if isinstance(error, UntrustedRecord):
        return Unavailable(MissReason.TRUST, str(error))
    if isinstance(error, BlobError) and error.fault is Fault.MISSING:
        return Unavailable(MissReason.INCOMPLETE_REMOTE, f"the remote cache has lost a part: {error}")
    if isinstance(error, (RecordError, BlobError)):
        return Unavailable(MissReason.INTEGRITY, f"in the remote cache: {error}")
    return Unavailable(MissReason.REMOTE_UNAVAILABLE, str(error))
