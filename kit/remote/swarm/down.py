"""Which nodes of a swarm have been down for so long that kit need not wait for their tasks. No I/O and no clock."""

from __future__ import annotations

from collections.abc import Iterable

# A wait for tasks goes on this long without progress if only tasks of nodes that are down are missing. A node that has
# just started is back sooner.
DOWN_S = 60.0
# A node that is down only briefly, as when its engine restarts, must not end the wait.
STEADY_S = 15.0
# Each question is one more command on the manager, which is busy with the tasks.
ASK_S = 5.0


class DownNodes:
    """Remembers since when nodes are down in every answer. All times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._asked: float | None = None
        self._since: dict[str, float] = {}

    def is_due(self, now: float, changed: float) -> bool:
        """Return whether to ask the manager again. `changed` is the time of the last progress."""
        if now - changed < DOWN_S - STEADY_S:
            return False
        return self._asked is None or now - self._asked >= ASK_S

    def note(self, now: float, down: Iterable[str]) -> None:
        """Take the manager's answer: the nodes that are down now."""
        self._asked = now
        self._since = {node: self._since.get(node, now) for node in down}

    def steady(self, changed: float) -> list[str]:
        """Return the nodes that have been down for STEADY_S by the last answer, if it came DOWN_S after `changed`."""
        if self._asked is None or self._asked - changed < DOWN_S:
            return []
        return [node for node, since in self._since.items() if self._asked - since >= STEADY_S]
