"""The hosts of a ship, and how far each of them is."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Thread

from msgspec import Struct

from kit.errors import KitError
from kit.model.host import Login
from kit.remote.ship.porters import Porter


class Target(Struct, frozen=True, kw_only=True):
    """A host that needs the cargo. `address` is where other hosts of the cluster reach it."""

    login: Login
    address: str


class Lane:
    """One host, and how far it is."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.host = target.login.host
        self.porter: Porter | None = None
        # Whether its porter has its order to begin, its turn (on the head), had to wait, and has ended or was killed.
        self.begun = False
        self.entered = False
        self.waited = False
        self.gone = False
        # Each layer that it needs, with the bytes that it has; None until its porter has reported them.
        self.need: dict[str, int] | None = None
        self.held = 0
        self.port = 0
        self.upstream: Lane | None = None
        self.turn = 0
        # The serial of its latest question, and the threads that answer it and earlier ones.
        self.serial = 0
        self.answers: list[Thread] = []
        self.received = False
        self.done = False
        self.load_s = 0.0
        self.failed: KitError | None = None

    @property
    def over(self) -> bool:
        return self.done or self.failed is not None


def in_order(lanes: Iterable[Lane]) -> list[Lane]:
    """Return the hosts that are ready, those that need most first: no host passes on what it does not need itself."""
    ready = [lane for lane in lanes if lane.need is not None and not lane.failed]
    return sorted(ready, key=lambda lane: (lane.held, -sum((lane.need or {}).values())))


def living(lane: Lane | None) -> Lane | None:
    """Return the lane, or the first one upstream of it that has not failed. None is this machine."""
    while lane is not None and lane.failed:
        lane = lane.upstream
    return lane
