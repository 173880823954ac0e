"""The turn of a ship of code at the head: one ship has it at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kit.model.code import Needed


class Turn:
    """Where a ship takes its turn, and which snapshots the hosts keep when it makes them remove old ones.

    `store` is the folder of the code on each host. `renewed` asks the head again for what runs need.
    """

    def __init__(self, *, head: str, store: str, needed: Needed, renewed: Callable[[], Needed]) -> None:
        self.head = head
        self.store = store
        self._needed = needed
        self._renewed = renewed

    def renew(self) -> None:
        """Add what runs need that began while this ship waited, with code that was there already."""
        self._needed = self._needed.joined(self._renewed())

    def order(self, now: float) -> Mapping[str, Any]:
        """Return the words for a porter's order `begin` that goes out at the time `now`."""
        return {"needed": {"digests": list(self._needed.digests), "age_s": self._needed.age_s(now)}}
