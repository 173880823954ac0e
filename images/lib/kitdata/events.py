"""The events of a staging, for everybody who watches it. A watcher that does not read never holds up the staging."""

import collections
import threading
from typing import Any, Deque, Dict, Iterator, List, Optional

Event = Dict[str, Any]
# Events that wait for one watcher. Beyond, only those that end a staging and those that only come once are kept.
MOST_WAITING = 1000


class Events:
    """What has happened in one staging. It ends with `done` or `failed`."""

    def __init__(self, request: Event) -> None:
        self._changed = threading.Condition()
        self._request = request
        self._plan: Optional[Event] = None
        self._end: Optional[Event] = None
        self._watchers: List[Deque[Event]] = []

    @property
    def ended(self) -> bool:
        with self._changed:
            return self._end is not None

    def add(self, event: Event) -> None:
        """Take an event. What comes after the end is dropped."""
        with self._changed:
            if self._end is not None:
                return
            if "plan" in event:
                self._plan = event
            if "done" in event or "failed" in event:
                self._end = event
            for watcher in self._watchers:
                # Only the newest progress matters.
                if "progress" in event and watcher and "progress" in watcher[-1]:
                    watcher.pop()
                if len(watcher) < MOST_WAITING or self._end is not None:
                    watcher.append(event)
            self._changed.notify_all()

    def follow(self) -> Iterator[Event]:
        """Yield the request and the last plan, then the events from now on, to the end."""
        waiting: Deque[Event] = collections.deque([{"request": self._request}])
        with self._changed:
            if self._plan is not None:
                waiting.append(self._plan)
            if self._end is not None:
                waiting.append(self._end)
            self._watchers.append(waiting)
        try:
            while True:
                with self._changed:
                    while not waiting:
                        self._changed.wait()
                    event = waiting.popleft()
                yield event
                if "done" in event or "failed" in event:
                    return
        finally:
            with self._changed:
                # By identity: two watchers for whom nothing waits are equal.
                self._watchers = [one for one in self._watchers if one is not waiting]
