"""When a server is asked again and when it is left alone, with limits to waiting and to failures; asks nothing.

A server that is busy is asked again after a while. One that has failed a few times in a row is left alone for the rest
of the run, and one that takes nothing is only read from: the next run begins anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import field
from typing import TypeVar

from relaybuild.build.cache.remote.transport import Reason, RemoteFailure
from relaybuild.dataclass import dataclass

T = TypeVar("T")

MAX_FAILURES = 3
PATIENCE_SECONDS = 20.0
_MAX_TRIES = 5
_FIRST_WAIT = 0.2

_HARMLESS = (Reason.WRONG_CONTENT, Reason.TOO_LARGE)
"""These say something of one blob, and nothing of the server."""


class LeftAlone(Exception):
    """A server was not asked, because of what came of asking it before."""


@dataclass
class Gate:
    """Lets requests through to a server. Any thread may use it.

    All waits for a busy server take `patience` seconds at most, those for reading and those for writing.
    """

    patience: float = PATIENCE_SECONDS
    _in_a_row: int = 0
    _left: dict[bool, float] = field(default_factory=dict)
    _closed: dict[bool, str] = field(default_factory=dict)
    _held_back: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ended: threading.Event = field(default_factory=threading.Event)

    def pass_through(self, ask: Callable[[], T], *, is_write: bool = False) -> T:
        """What `ask` answers. Raises RemoteFailure once nothing more is to be hoped for, and LeftAlone."""
        tries = 0
        while True:
            self._enter(is_write)
            try:
                answer = ask()
            except RemoteFailure as failure:
                tries += 1
                if failure.reason is not Reason.BUSY or tries == _MAX_TRIES or not self._wait(failure, tries, is_write):
                    self._count(failure, is_write)
                    raise
                continue
            self._in_a_row = 0
            return answer

    @property
    def held_back(self) -> int:
        """How many requests were not made."""
        return sum(self._held_back.values())

    @property
    def unasked(self) -> int:
        """How many of these were questions."""
        return self._held_back[False]

    def end(self) -> None:
        """Let nobody through any more, nor wait."""
        self._close("the run has ended")
        self._ended.set()

    def _enter(self, is_write: bool) -> None:
        if is_write in self._closed:
            with self._lock:
                self._held_back[is_write] += 1
            raise LeftAlone(self._closed[is_write])

    def _close(self, why: str) -> None:
        self._closed = {False: why, True: why}

    def _wait(self, failure: RemoteFailure, tries: int, is_write: bool) -> bool:
        """Wait for a busy server; False if that would take too long."""
        seconds = failure.retry_after if failure.retry_after is not None else _FIRST_WAIT * 2**tries
        with self._lock:
            left = self._left.get(is_write, self.patience)
            if seconds > left:
                return False
            self._left[is_write] = left - seconds
        return not self._ended.wait(seconds)

    def _count(self, failure: RemoteFailure, is_write: bool) -> None:
        if failure.reason in _HARMLESS:
            return
        if is_write and failure.reason in (Reason.READ_ONLY, Reason.REFUSED):
            self._closed = {True: f"the server takes nothing ({failure.detail})", **self._closed}
            return
        with self._lock:
            self._in_a_row += 1
            if self._in_a_row >= MAX_FAILURES:
                self._close(f"the server was left alone after {MAX_FAILURES} failures, the last: {failure}")
