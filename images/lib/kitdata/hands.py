"""Threads for calls into a file system that may never return: a mount whose server is gone holds its callers forever.

A call that takes too long is given up, and its thread is left behind. Until that thread returns, no further call is
tried: each would be held as well.
"""

import queue
import threading
from typing import Any, Callable, List, Optional, TypeVar

T = TypeVar("T")


class Held(Exception):
    """A call did not return in time, or an earlier one still has not."""


class Hands:
    """Runs calls in threads that are kept for the next call. `patience` is in seconds."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._idle: List[_Hand] = []
        self._held = 0
        self._lock = threading.Lock()

    def call(self, what: "Callable[[], T]") -> "T":
        """Return what the call returns, or raise what it raises. Raises Held."""
        with self._lock:
            if self._held:
                raise Held
            hand = self._idle.pop() if self._idle else None
        if hand is None:
            hand = _Hand(self._back)
            hand.start()
        job = _Job(what)
        hand.jobs.put(job)
        if not job.done.wait(self._patience):
            with self._lock:
                if not job.done.is_set():
                    job.left = True
                    self._held += 1
                    raise Held
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[no-any-return]

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for hand in idle:
            hand.jobs.put(None)

    def _back(self, hand: "_Hand", job: "_Job") -> None:
        with self._lock:
            job.done.set()
            if job.left:
                self._held -= 1
            self._idle.append(hand)


class _Job:
    def __init__(self, what: "Callable[[], Any]") -> None:
        self.what = what
        self.done = threading.Event()
        self.left = False
        self.result: Any = None
        self.error: Optional[BaseException] = None


class _Hand(threading.Thread):
    def __init__(self, back: "Callable[[_Hand, _Job], None]") -> None:
        # A thread that a mount holds must not keep this process from ending.
        super().__init__(name="kit-data-hand", daemon=True)
        self.jobs: queue.Queue[Optional[_Job]] = queue.Queue()
        self._back = back

    def run(self) -> None:
        while True:
            job = self.jobs.get()
            if job is None:
                return
            try:
                job.result = job.what()
            except BaseException as error:  # it belongs to the caller
                job.error = error
            self._back(self, job)
            del job
