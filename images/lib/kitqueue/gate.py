"""What keeps a run from starting that does not wait in line, for kit-launch's `start` (kitrun.front)."""

import time
from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping, NamedTuple, Optional, Set

from kitrun import leases, store

from kitqueue import line

if TYPE_CHECKING:
    from kitqueue import order


class Against(NamedTuple):
    """What keeps a run from starting now. `cordoned` has its cordoned hosts, each with its cordon.

    `held` has the records of the runs that hold its slots. `first` is the reservation for a run in line that it would
    delay.
    """

    cordoned: Dict[str, Any]
    held: Iterable[store.Record] = ()
    first: "Optional[order.Reservation]" = None


def against(launch: Mapping[str, Any], root: str, *, now: bool) -> Optional[Against]:
    """Return what keeps the run from starting, or None. In `leases.starting`. `now`: it may delay the line."""
    hosts = [place["node"] for place in launch["places"]] + [helper["node"] for helper in launch["helpers"]]
    cordoned = cordoned_of(hosts, root)
    held = [] if launch["policy"].get("share") else leases.holders(launch["places"], root)
    first = None if now else reserved(root)
    if first is not None:
        # Imported only where somebody waits: every kit-launch imports this module.
        from kitqueue import order

        slots: Dict[str, Set[int]] = {}
        for host, slot in leases.slots_of(launch["places"]):
            slots.setdefault(host, set()).add(slot)
        taken = {host: frozenset(numbers) for host, numbers in slots.items()}
        if not order.delays(taken, launch["policy"].get("timeout"), first, time.time()):
            first = None
    return Against(cordoned, held, first) if cordoned or held or first else None


def cordoned_of(hosts: Iterable[str], root: str) -> Dict[str, Any]:
    """Return the cordoned ones of these hosts, each with its cordon."""
    cordons = line.cordons(root)
    return {host: cordons[host] for host in hosts if host in cordons}


def reserved(root: str) -> "Optional[order.Reservation]":
    """Return the reservation for the first in line, as the keeper made it last.

    None if it is for a run that has left the line meanwhile, or that somebody holds.
    """
    value = line.state(root).get("reservation")
    if not value:
        return None
    from kitqueue import state

    first = state.reservation_of(value)
    entry = line.read(first.id, root) if first is not None else None
    return first if entry is not None and not entry.get("held") else None


def shown(first: "Optional[order.Reservation]") -> Optional[Dict[str, Any]]:
    """Return a reservation as kit gets it, with the seconds until its slots are needed; None if nobody knows them."""
    if first is None:
        return None
    left = None if first.at is None else max(0.0, first.at - time.time())
    return {"id": first.id, "slots": {host: sorted(slots) for host, slots in first.slots.items()}, "left": left}
