"""The result of a ship, and what kit says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from kit.errors import KitError
from kit.model.text import size
from kit.remote.ship.faults import Words
from kit.remote.ship.lanes import Lane


class Shipped(Struct, frozen=True, kw_only=True):
    """The result of a ship: `sent` bytes left this machine, and after `wire_s` the last host had all of them.

    `load_s` is how long each engine unpacked, mostly at the same time.
    """

    failures: Mapping[str, KitError] = field(default_factory=dict)
    sent: int = 0
    wire_s: float = 0.0
    load_s: Mapping[str, float] = field(default_factory=dict)


def went(words: Words, source: Lane | None, done: Sequence[Lane], sent: int, wire_s: float) -> str:
    """Return from where the cargo went where, in `wire_s` seconds, or "" if every host had all of it.

    `sent` bytes of it left this machine: none if it came from the host `source`.
    """
    moved = [lane.host for lane in done if lane.need]
    if not moved:
        return ""
    where = "from host to host" if len(moved) > 1 else "to the host"
    if source:
        where = f"from {source.host} to {moved[0] if len(moved) == 1 else f'{len(moved)} hosts'}"
    left = f"{size(sent)} left this machine and " if sent else ""
    return f"{words.cargo}: {left}went {where} in {wire_s:.1f} s"
