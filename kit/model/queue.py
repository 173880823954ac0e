"""The line of runs that wait on the head, the reason why each waits, and cordoned hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from kit.model.run import Member

# How the run after which another one starts must have ended.
How = Literal["ok", "failed", "any"]
# Why a run waits. new: the head has not looked at it yet. never: a run after which it starts did not end that way.
# hosts: it does not fit on the hosts that take runs now. gone: it does not fit on the hosts of the cluster.
# slots: other runs hold its slots. turn: another run is first. error: its turn came, and it could not start.
# broken: the head cannot start it at all. unknown: this kit cannot read the head's reason.
Kind = Literal["new", "held", "after", "never", "hosts", "gone", "slots", "turn", "error", "broken", "unknown"]
# Why a host takes no run: it is cordoned, it is no longer in the cluster, or it does not answer.
Out = Literal["cordoned", "gone", "silent"]
# What `kit queue move`, `hold`, `release` and `rm` do with a run in line (images/lib/kitqueue/desk.py).
Change = Literal["first", "last", "priority", "hold", "release", "remove"]

# Priorities of --priority.
LEAST_PRIORITY, MOST_PRIORITY = -100, 100
# The most runs of one --array.
MOST_ARRAY = 1000


class After(Struct, frozen=True, kw_only=True):
    """The run that must have ended before, by its id or the beginning of it, and how."""

    run: str
    how: How = "ok"


class Turn(Struct, frozen=True, kw_only=True):
    """The options of `kit run --queue` about the line. `array` are the indexes of a run for each, or empty."""

    priority: int = 0
    after: tuple[After, ...] = ()
    array: tuple[int, ...] = ()


class Reason(Struct, frozen=True, kw_only=True):
    """Why a run waits. `at`: when it can start at the latest, and `about`: about when it starts; None if unknown.

    `runs` are the first of those that it waits for, and `more` is how many others there are. `out` are its hosts that
    take no run, each with the reason. `text` is what the head says about an error.
    """

    kind: Kind = "new"
    runs: tuple[str, ...] = ()
    at: float | None = None
    about: float | None = None
    more: int = 0
    out: tuple[tuple[str, Out], ...] = ()
    text: str = ""


class WaitingRun(Struct, frozen=True, kw_only=True):
    """A run in line. Times are in seconds since 1970, by the head's clock.

    `counts` are the slots that it needs on each host, and `hosts` are those that it may get. `limit` is its --timeout
    in seconds, or None. `by` is user@machine of the person who queued it. `array` is None for a run on its own.
    `data` are the data sets of its --data.
    """

    id: str
    np: int
    counts: tuple[int, ...]
    hosts: tuple[str, ...]
    command: tuple[str, ...] = ()
    by: str = ""
    queued: float = 0.0
    priority: int = 0
    limit: float | None = None
    after: tuple[After, ...] = ()
    array: Member | None = None
    data: tuple[str, ...] = ()
    reason: Reason = field(default_factory=Reason)


class Reserved(Struct, frozen=True, kw_only=True):
    """Slots that are reserved for `run`, the first in line, by host. `left`: seconds until it needs them, if known."""

    run: str
    slots: Mapping[str, frozenset[int]]
    left: float | None = None


class Cordon(Struct, frozen=True, kw_only=True):
    """A host on which no new run is placed, since `at`."""

    host: str
    why: str
    by: str = ""
    at: float = 0.0


class Line(Struct, frozen=True, kw_only=True):
    """The runs in line, in the order of their turns.

    `now` is the head's time, in seconds since 1970. The times of runs and cordons are by its clock, and not by that of
    your machine. None if the head does not send it.
    """

    cluster: str
    runs: tuple[WaitingRun, ...] = ()
    cordons: tuple[Cordon, ...] = ()
    now: float | None = None


class Queued(Struct, frozen=True, kw_only=True):
    """Runs that joined the line. `ahead` is how many runs were in line before them. `array` is the id of the array."""

    runs: tuple[str, ...]
    ahead: int
    np: int
    hosts: tuple[str, ...]
    array: str = ""


class Changed(Struct, frozen=True, kw_only=True):
    """Runs in line after a change. `others` are those in line that wait for one of them.

    `owners` has user@machine of those runs of both that other people queued.
    """

    how: Change
    runs: tuple[str, ...]
    others: tuple[str, ...] = ()
    owners: Mapping[str, str] = field(default_factory=dict)


class HostRow(Struct, frozen=True, kw_only=True):
    """A host of the hosts file, with its cordon if it has one."""

    name: str
    address: str
    cordon: Cordon | None = None


class HostRows(Struct, frozen=True, kw_only=True):
    """The hosts with their cordons. `now` is as in Line."""

    cluster: str
    hosts: tuple[HostRow, ...]
    now: float | None = None
