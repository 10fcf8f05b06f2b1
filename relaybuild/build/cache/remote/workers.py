"""Work that is done beside a run by a few threads, and waited for at its end; does not know what the work is."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

MAX_WAITING = 4096


class Workers:
    """A few threads and what waits for them. What finds no place, or is not done in time, is counted as lost."""

    def __init__(self, threads: int = 4, max_waiting: int = MAX_WAITING) -> None:
        """No thread is started before there is something to do."""
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(max_waiting)
        self._threads = threads
        self._started = 0
        self._undone = 0
        self._lost = 0
        self._changed = threading.Condition()
        self._has_ended = False

    def offer(self, work: Callable[[], None]) -> bool:
        """Do some work soon, which must not raise; False if it was lost."""
        with self._changed:
            try:
                if self._has_ended:
                    raise queue.Full
                self._waiting.put_nowait(work)
            except queue.Full:
                self._lost += 1
                return False
            self._undone += 1
            if self._started < min(self._threads, self._undone):
                self._started += 1
                # A thread that waits for a server must not keep the process alive.
                threading.Thread(target=self._run, name="relaybuild-worker", daemon=True).start()
            return True

    def finish(self, seconds: float) -> int:
        """Wait until all is done, for at most so many seconds, and take no more work; how much was lost."""
        end = time.monotonic() + seconds
        with self._changed:
            self._has_ended = True
            while self._undone and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            self._lost += self._undone
            self._undone = 0
            lost, self._lost = self._lost, 0
        return lost

    def _run(self) -> None:
        while True:
            try:
                work = self._waiting.get(timeout=0.05 if self._has_ended else 1.0)
            except queue.Empty:
                if self._has_ended:
                    return
                continue
            try:
                if not self._is_too_late():
                    work()
            finally:
                with self._changed:
                    self._undone = max(self._undone - 1, 0)
                    self._changed.notify_all()

    def _is_too_late(self) -> bool:
        """Whether nobody waits for work that is still there."""
        with self._changed:
            return self._has_ended and not self._undone
