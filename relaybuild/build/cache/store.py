"""The cache: looks up the result of an action, keeps one, and never fails a build; does not know what actions do.

A driver asks with `Cache.run` where a result is bytes, and with `Cache.lookup`, `Hit.place` and `Cache.store` where it
is files. What goes wrong is counted in the journal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaybuild.build.cache import slots
from relaybuild.build.cache.action import Action
from relaybuild.build.cache.cas import BlobError, BlobStore, Fault
from relaybuild.build.cache.folder import CacheFolder, host_name, open_folder
from relaybuild.build.cache.hit import DamagedResult, Hit, Miss
from relaybuild.build.cache.index import IndexFailure
from relaybuild.build.cache.journal import Executed, Failed, Journal, Looked, MissReason, Storing
from relaybuild.build.cache.locks import Lease, exclusive
from relaybuild.build.cache.memo import Inputs
from relaybuild.build.cache.outcome import Contents, Parted, Stored, conflict_of, describe, file_of, problem_of
from relaybuild.build.cache.record import Entry, OtherVersion, RecordError, Result, UntrustedRecord, products, reference
from relaybuild.build.cache.records import Records
from relaybuild.build.cache.runs import finish_run
from relaybuild.build.cache.settings import CacheSettings, Mode
from relaybuild.digest import Digest, digest_file

if TYPE_CHECKING:
    import threading

    from relaybuild.build.cache.remote.client import Conflict, RemoteCache

CLAIM_SECONDS = 60.0
_MAX_RESERVE = 1_000_000_000

_SENT = (Storing.STORED, Storing.KNOWN, Storing.NOT_WRITABLE)
_WEAK = (MissReason.NEVER_SEEN, MissReason.EVICTED, MissReason.BYPASSED)
"""Reasons that say nothing of what a remote cache may have had."""


class Cache:
    """One run's view of a cache folder. Only bugs of the caller raise, and `Hit`s that turn out damaged."""

    def __init__(self, settings: CacheSettings, folder: CacheFolder | None, clock: Callable[[], float]) -> None:
        """See `open_cache`."""
        self.settings = settings
        self.journal = Journal()
        self.folder = folder
        self._clock = clock
        self._given: list[Inputs] = []
        self._made: dict[tuple[int, ...], Digest] = {}
        self._is_off = folder is None or settings.mode is Mode.OFF
        self._may_write = folder is not None and folder.is_writable and settings.mode.may_keep
        self._opened_remote: RemoteCache | None = None
        self._is_remote_closed = settings.remote is None or settings.remote.mode is Mode.OFF or self._is_off
        self._transit: BlobStore | None = None
        self._asides: list[threading.Thread] = []
        if folder is not None:
            view = folder if self._may_write else replace(folder, is_writable=False)
            self.blobs = BlobStore(view)
            self.records = Records(view, self._fail, settings.secret, clock)
            self._lease = Lease(view)

    @property
    def is_written(self) -> bool:
        """Whether results are kept, and others are kept out while they are made."""
        return self._may_write

    def inputs(self) -> Inputs:
        """Digests of files that this run reads, remembered between runs."""
        given = Inputs(None if self._is_off else self.records, self._clock)
        self._given.append(given)
        return given

    def files_read(self) -> set[str]:
        """The files whose digests were asked for in this run, through `inputs`."""
        self.settle()
        return {path for given in self._given for path in given}

    def aside(self, work: Callable[[], None]) -> None:
        """Do something beside the run that matters only to later ones, or once `settle` has waited for it.

        It may read and write records and digest files, and must not raise.
        """
        import threading

        thread = threading.Thread(target=work, name="relaybuild-aside", daemon=True)
        self._asides.append(thread)
        thread.start()

    def settle(self) -> None:
        """Wait for what was begun with `aside`."""
        while self._asides:
            self._asides.pop().join()

    def flush(self) -> None:
        """Write down what was used and is to be remembered, and let go of the index: others may use it."""
        self.settle()
        self.records.flush()

    def lookup(self, action: Action, *, slot: str = "") -> Hit | Miss:
        """The result of an action, or why there is none. `slot` names the place in the project where it comes up."""
        found = self._find(action, slot)
        self._note(action, slot, found)
        return found

    def look_again(self, action: Action, missed: Miss, *, slot: str = "") -> Hit | Miss:
        """Ask once more for what was missed, as the same action or as one of which more is known now: another process
        may have made it meanwhile. The journal counts one answer.
        """
        is_same = action.key(self.settings.namespace) == missed.key
        if is_same and not self._is_here(action):
            return missed
        found = self._find(action, slot, may_ask=not is_same)
        if isinstance(found, Miss) and is_same:
            return missed
        looked = self.journal.looked
        looked.remove(next(event for event in reversed(looked) if event.key == missed.key))
        self._note(action, slot, found)
        return found

    def run(
        self,
        action: Action,
        execute: Callable[[], Mapping[str, bytes | Digest]],
        *,
        slot: str = "",
        inputs: Inputs | None = None,
    ) -> dict[str, bytes]:
        """The outputs of an action as bytes, from the cache or by executing it; other processes wait for one of them.

        An output that is a digest is returned as `record.reference` writes it. What `execute` raises passes through,
        and nothing is stored.
        """
        found = self._read(action, slot)
        if isinstance(found, Miss) and self._may_write:
            with self.claim(action):
                # Another process may have been faster.
                again = self._read(action, slot, may_ask=False)
                if isinstance(again, Miss):
                    return self._executed(action, execute, slot, inputs, found)
                found = again
        if isinstance(found, Miss):
            return self._executed(action, execute, slot, inputs, found)
        hit, outputs = found
        self._note(action, slot, hit)
        return outputs

    @contextlib.contextmanager
    def claim(self, action: Action, timeout: float = CLAIM_SECONDS) -> Iterator[bool]:
        """Let no other process that claims this action in while the block runs, or go ahead after `timeout` seconds.

        Gives whether others are kept out.
        """
        if self.folder is None or not self._may_write:
            yield False
            return
        with exclusive(self.folder, action.key(self.settings.namespace), timeout) as is_ours:
            yield is_ours

    def fetch(self, actions: Sequence[Action]) -> None:
        """Begin to bring what a remote cache has of actions that will be looked up, and this machine does not have."""
        remote = None if self.settings.mode.must_execute else self._remote()
        if remote is not None and remote.may_read:
            remote.fetch((action for action in actions if not self._is_here(action)), self._transit_blobs())

    def fetch_notes(self, kind: str, names: Sequence[str]) -> None:
        """The same for notes."""
        remote = self._remote()
        if remote is not None:
            remote.fetch_notes(kind, names)

    def find_note(self, kind: str, name: str) -> bytes | None:
        """A note of the remote cache; None if there is none, or no such cache."""
        remote = self._remote()
        return remote.find_note(kind, name) if remote is not None else None

    def send_note(self, kind: str, name: str, payload: bytes) -> None:
        """Give a note to the remote cache, if there is one."""
        remote = self._remote()
        if remote is not None:
            remote.send_note(kind, name, payload)

    def examine_remote(self) -> dict[str, Any] | None:
        """What the server of the remote cache is and can, as JSON has it; None where there is no such cache."""
        if self.settings.remote is None:
            return None
        from relaybuild.build.cache.remote.client import RemoteCache

        remote = RemoteCache(self.settings, self.settings.remote, self.journal, host_name())
        try:
            return remote.examine()
        finally:
            remote.close()

    def bypass(self, layer: str, name: str, why: str, *, slot: str = "") -> None:
        """Write down that something was not even looked up, and why (`plugin-without-id`)."""
        self.journal.looked.append(Looked(layer, name, slot, "", MissReason.BYPASSED, why))

    def store(
        self,
        action: Action,
        outputs: Mapping[str, Contents],
        *,
        slot: str = "",
        seconds: float = 0.0,
        inputs: Inputs | None = None,
    ) -> Stored:
        """Keep the outputs of an action that was executed, all of them or nothing, unless there is a result already.

        `inputs` are the files it read: if one has changed since it was digested, nothing is stored. Raises ValueError
        for no outputs, OSError for an output file that cannot be read.
        """
        if not outputs:
            raise ValueError("an action without outputs has no result")
        result = self._described(outputs, seconds)
        key = action.key(self.settings.namespace)
        storing, detail, size = self._stored(action, key, outputs, result, inputs)
        if storing in _SENT:
            self._send(action, outputs, result)
        past = self._remember(action, key, slot, result, storing)
        is_same = past is not None and past.result.has_same_outputs(result)
        is_unstable = storing is Storing.CONFLICT or slots.is_contradicted(past, key, result)
        if storing is Storing.CONFLICT and self.settings.mode is Mode.VERIFY:
            self._disprove(key, detail)
        self.journal.executed.append(
            Executed(
                action.layer,
                action.name,
                slot,
                key,
                seconds,
                storing,
                detail,
                products(result.outputs),
                is_same,
                is_unstable,
                size,
            )
        )
        return Stored(storing, result)

    def _spoiled(self, hit: Hit, error: Exception) -> DamagedResult:
        """Forget the entry of a hit that turned out damaged, and count it as a miss; the error to raise."""
        self._fail("damaged", str(error))
        self.records.forget(f"ac/{hit.namespace}", [hit.key])
        for place, event in enumerate(self.journal.looked):
            if event.key == hit.key and event.reason is None:
                self.journal.looked[place] = replace(event, reason=_reason(error), detail=str(error), saved=0.0)
        return DamagedResult(str(error))

    def close(self, *, may_wait: bool = True) -> None:
        """End the run: wait for what is sent, write down what was used and done, and make room if there is too much."""
        if may_wait:
            self.settle()
        if self._opened_remote is not None:
            for conflict in self._opened_remote.close(may_wait=may_wait):
                self._tell_conflict(conflict)
            self._opened_remote = None
            self._is_remote_closed = True
        if self.folder is None:
            return
        self._lease.end()
        self.records.flush()
        if self._may_write:
            finish_run(self.folder, self.journal, self.records, self.blobs, self.settings.max_size, self._clock())
            self.records.flush()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_exception: object) -> None:
        # Who interrupts a run does not want to wait for a server.
        self.close(may_wait=kind is None or issubclass(kind, Exception))

    def _fail(self, reason: str, detail: str) -> None:
        self.journal.failed.append(Failed(reason, detail))

    def _note(self, action: Action, slot: str, found: Hit | Miss) -> None:
        if isinstance(found, Miss):
            event = Looked(action.layer, action.name, slot, found.key, found.reason, found.detail, found.changes)
        else:
            seconds, is_remote = found.result.seconds, found.is_remote
            event = Looked(action.layer, action.name, slot, found.key, saved=seconds, is_remote=is_remote)
        self.journal.looked.append(event)

    def _find(self, action: Action, slot: str, may_ask: bool = True) -> Hit | Miss:
        """`lookup`, of which nothing is written down in the journal. `may_ask`: a remote cache, too."""
        own = action.key(self.settings.namespace)
        if self._is_off:
            return Miss(own, MissReason.BYPASSED, "no cache")
        if self.settings.mode.must_execute:
            return Miss(own, MissReason.BYPASSED, self.settings.mode.value)
        found = self._local(action, slot) if self.settings.mode.may_look_up else None
        if isinstance(found, Hit):
            return found
        elsewhere = self._elsewhere(action, own, slot) if may_ask else None
        if isinstance(elsewhere, Hit):
            return elsewhere
        missed = found or Miss(own, MissReason.BYPASSED, self.settings.mode.value)
        return elsewhere if elsewhere is not None and missed.reason in _WEAK else missed

    def _local(self, action: Action, slot: str) -> Hit | Miss:
        """What this machine has."""
        own = action.key(self.settings.namespace)
        problem: Exception | None = None
        for namespace in dict.fromkeys((self.settings.namespace, *self.settings.trusted)):
            try:
                hit = self._hit(action, namespace)
            except (RecordError, BlobError) as error:
                problem = problem or error
                continue
            if hit is not None:
                self._lease.hold(hit.key)
                self._remember(action, hit.key, slot, hit.result, Storing.KNOWN)
                return hit
        if problem is not None:
            return Miss(own, _reason(problem), str(problem))
        past = slots.recall(self.records, action.layer, slot) if slot else None
        return Miss(own, *slots.why_missing(past, action, own))

    def _is_here(self, action: Action) -> bool:
        """Whether this machine has a record of an action, without a look at it."""
        try:
            return self.settings.mode.may_look_up and any(
                self.records.read(f"ac/{namespace}", action.key(namespace)) is not None
                for namespace in (self.settings.namespace, *self.settings.trusted)
            )
        except RecordError:
            return False

    def _elsewhere(self, action: Action, key: str, slot: str) -> Hit | Miss | None:
        """What the remote cache has, which this machine has too from then on; None if it was not asked or has nothing.

        Whose it was there, it is this run's own here: a run writes to its own namespace only.
        """
        remote = self._remote()
        if remote is None or not remote.may_read:
            return None
        blobs = self._transit_blobs()
        self._lease.hold(key)
        found = remote.find(action, blobs)
        if found is None:
            return None
        if not isinstance(found, Result):
            return Miss(key, found.reason, found.detail)
        if self._may_write:
            try:
                self.records.write(f"ac/{self.settings.namespace}", key, Entry(found, action.encode()).encode())
            except IndexFailure as failure:
                self._fail(failure.reason, str(failure))
        self._remember(action, key, slot, found, Storing.KNOWN)
        return Hit(key, self.settings.namespace, found, blobs, self._spoiled, is_remote=True)

    def _send(self, action: Action, outputs: Mapping[str, Contents], result: Result) -> None:
        """Give a result to the remote cache, if there is one that takes it."""
        remote = self._remote()
        if remote is None or not remote.may_write:
            return
        blobs = self._transit_blobs()
        if not self._may_write:
            try:
                self._put_blobs(outputs, result, blobs)
            except OSError as error:
                self._fail(errno.errorcode.get(error.errno or 0, "OSError"), str(error))
                return
        remote.send(action, result, blobs)

    def _remote(self) -> RemoteCache | None:
        """The remote cache of this run, which is opened when it is first needed. Raises UserError if it cannot be."""
        if self._opened_remote is None and not self._is_remote_closed and self.settings.remote is not None:
            from relaybuild.build.cache.remote.client import RemoteCache

            origin = self.settings.origin or host_name()
            self._opened_remote = RemoteCache(self.settings, self.settings.remote, self.journal, origin)
        return self._opened_remote

    def _transit_blobs(self) -> BlobStore:
        """Where blobs are that come from a remote cache or go there: a temporary place if this cache is not written."""
        if self._may_write:
            return self.blobs
        if self._transit is None:
            folder = _temporary_folder()
            _remove_with(self, folder)
            self._transit = BlobStore(folder)
        return self._transit

    def _tell_conflict(self, conflict: Conflict) -> None:
        """Let the journal say of what was executed that others had another result of it."""
        self._disprove(conflict.key, conflict.detail)
        for place, event in enumerate(self.journal.executed):
            if event.key == conflict.key:
                self.journal.executed[place] = replace(event, detail=conflict.detail, is_unstable=True)

    def _disprove(self, key: str, detail: str) -> None:
        """Let the journal give the reason for which something was executed again, which turned out another one."""
        for place, event in enumerate(self.journal.looked):
            if event.key == key and event.reason is MissReason.BYPASSED:
                self.journal.looked[place] = replace(event, reason=MissReason.NONDETERMINISTIC, detail=detail)

    def _hit(self, action: Action, namespace: str) -> Hit | None:
        """The complete result of an action in a namespace; raises RecordError and BlobError for a damaged one, which is
        gone then."""
        key, kind = action.key(namespace), f"ac/{namespace}"
        payload = self.records.read(kind, key)
        if payload is None:
            return None
        try:
            entry = Entry.decode(payload)
            if entry.action != action.encode():
                raise RecordError("the record of another action")
            if action.outputs and action.outputs != tuple(output.name for output in entry.result.outputs):
                raise RecordError("a result without all outputs")
            for output in entry.result.outputs:
                if output.contents is None and (fault := self.blobs.has(output.digest)) is not None:
                    raise BlobError(output.digest, fault)
        except (RecordError, BlobError) as error:
            self._fail("damaged" if not _is_missing(error) else "missing-blob", str(error))
            self.records.forget(kind, [key])
            raise
        return Hit(key, namespace, entry.result, self.blobs, self._spoiled)

    def _read(self, action: Action, slot: str, may_ask: bool = True) -> tuple[Hit, dict[str, bytes]] | Miss:
        """A hit with all that it holds, or the miss that it is where that cannot be read."""
        found = self._find(action, slot, may_ask)
        if isinstance(found, Miss):
            return found
        try:
            return found, found.read_all()
        except DamagedResult as error:
            cause = error.__cause__
            return Miss(found.key, _reason(cause) if isinstance(cause, Exception) else MissReason.INTEGRITY, str(error))

    def _executed(
        self,
        action: Action,
        execute: Callable[[], Mapping[str, bytes | Digest]],
        slot: str,
        inputs: Inputs | None,
        miss: Miss,
    ) -> dict[str, bytes]:
        self._note(action, slot, miss)
        begin = time.perf_counter()
        outputs = execute()
        self.store(action, outputs, slot=slot, seconds=time.perf_counter() - begin, inputs=inputs)
        return {name: reference(value) if isinstance(value, Digest) else value for name, value in outputs.items()}

    def _described(self, outputs: Mapping[str, Contents], seconds: float) -> Result:
        described = tuple(describe(name, outputs[name], self._digest_of_output) for name in sorted(outputs))
        return Result(described, self._clock(), seconds, self.settings.origin or host_name())

    def _digest_of_output(self, file: Parted) -> Digest:
        """The digest of a file that this run has made: a library is the output of a link, and then of an artifact."""
        found = os.stat(file.path)
        # that it is moved changes the other time
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        if state not in self._made:
            self._made[state] = self._kept(file, found.st_size) or digest_file(file.path)
        return self._made[state]

    def _kept(self, file: Parted, size: int) -> Digest | None:
        """The digest of a file that is kept already now, so that it is read once; None where it may not be kept."""
        if not self._may_write or self.folder is None or size > self.settings.max_size // 2:
            return None
        try:
            return (
                self.blobs.put_file(file.path, cuts=file.cuts) if size and _has_room(self.folder.root, size) else None
            )
        except OSError:
            # It comes up again where the result is stored.
            return None

    def _stored(
        self, action: Action, key: str, outputs: Mapping[str, Contents], result: Result, inputs: Inputs | None
    ) -> tuple[Storing, str, int]:
        """What became of a result, a sentence about it, and the bytes that were written."""
        if problem := problem_of(action, result):
            return Storing.INCOMPLETE, problem, 0
        if inputs is not None and (changed := inputs.changed()):
            return Storing.RACY_INPUT, f"'{changed[0].name}' was changed while it was in use", 0
        if not self._may_write or self.folder is None:
            return Storing.NOT_WRITABLE, "", 0
        size = sum(output.digest.size for output in result.outputs)
        if size > self.settings.max_size // 2:
            return Storing.TOO_LARGE, f"{size} bytes are more than half of the limit of {self.settings.max_size}", 0
        try:
            if not _has_room(self.folder.root, size):
                return Storing.NO_SPACE, "too little of the file system is free", 0
            self._lease.hold(key)
            self._put_blobs(outputs, result, self.blobs)
            return (*self._publish(action, key, result), size)
        except OSError as error:
            word = errno.errorcode.get(error.errno or 0, "OSError")
            self._fail(word, str(error))
            return Storing.FAILED, word, 0
        except IndexFailure as failure:
            self._fail(failure.reason, str(failure))
            return Storing.FAILED, failure.reason, 0

    def _put_blobs(self, outputs: Mapping[str, Contents], result: Result, blobs: BlobStore) -> None:
        for output in result.outputs:
            contents = outputs[output.name]
            if output.contents is not None or isinstance(contents, Digest):
                continue
            if isinstance(contents, bytes):
                digest = blobs.put_bytes(contents)
            else:
                file = file_of(contents)
                digest = blobs.put_file(file.path, output.digest, file.cuts)
            if digest != output.digest:
                raise OSError(f"'{output.name}' was changed while it was stored")

    def _publish(self, action: Action, key: str, result: Result) -> tuple[Storing, str]:
        """Write the record, the last step; the first writer of a key wins."""
        kind = f"ac/{self.settings.namespace}"
        payload = Entry(result, action.encode()).encode()
        if self.records.write(kind, key, payload):
            return Storing.STORED, ""
        try:
            present = self.records.read(kind, key)
            first = Entry.decode(present).result if present is not None else None
        except RecordError:
            first = None
        is_same = first is not None and first.has_same_outputs(result)
        if first is None or self.settings.mode is Mode.RECACHE:
            self.records.write(kind, key, payload, replace=True)
        if first is None:
            return Storing.STORED, ""
        return (Storing.KNOWN, "") if is_same else (Storing.CONFLICT, conflict_of(first, result))

    def _remember(self, action: Action, key: str, slot: str, result: Result, storing: Storing) -> slots.Past | None:
        """Write down what was done in a slot; what was done there before."""
        if not slot or self._is_off:
            return None
        past = slots.recall(self.records, action.layer, slot)
        if self._may_write and slots.is_news(past, key, storing):
            slots.remember(self.records, action.layer, slot, slots.Past(key, action, result, storing))
        return past


def open_cache(settings: CacheSettings, clock: Callable[[], float] = time.time) -> Cache:
    """Open, and make if it is not there, the cache of a run; `clock` gives seconds since the epoch.

    Raises UserError for a folder that others could write to, unless it is shared. A folder that cannot be made or
    written is no error: the cache then has nothing, or keeps nothing.
    """
    if settings.folder is None or settings.mode is Mode.OFF:
        if settings.remote is None or settings.remote.mode is Mode.OFF:
            return Cache(settings, None, clock)
        return _passing(settings, clock)
    return Cache(settings, open_folder(settings.folder, is_shared=settings.is_shared), clock)


def _passing(settings: CacheSettings, clock: Callable[[], float]) -> Cache:
    """A cache that is gone with the run, in front of a remote one."""
    folder = _temporary_folder()
    cache = Cache(replace(settings, folder=folder.root.parent, mode=Mode.READ_WRITE), folder, clock)
    _remove_with(cache, folder)
    return cache


def _temporary_folder() -> CacheFolder:
    import tempfile

    return open_folder(Path(tempfile.mkdtemp(prefix="relaybuild-cache-")))


def _remove_with(owner: Cache, folder: CacheFolder) -> None:
    """Remove a temporary folder when a cache goes."""
    import shutil
    import weakref

    weakref.finalize(owner, shutil.rmtree, folder.root.parent, ignore_errors=True)


def _is_missing(error: Exception) -> bool:
    return isinstance(error, BlobError) and error.fault is Fault.MISSING


def _reason(error: Exception) -> MissReason:
    if isinstance(error, OtherVersion):
        return MissReason.FORMAT_VERSION
    if isinstance(error, UntrustedRecord):
        return MissReason.TRUST
    return MissReason.EVICTED if _is_missing(error) else MissReason.INTEGRITY


def reserve_of(path: Path) -> int:
    """Bytes of a file system that the cache leaves free: 5 %, or 1 GB where that is less. Raises OSError."""
    found = os.statvfs(path)
    return min(_MAX_RESERVE, found.f_blocks * found.f_frsize // 20)


def _has_room(path: Path, size: int) -> bool:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize - size >= reserve_of(path)
