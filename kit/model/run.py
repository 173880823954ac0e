"""A run as the head keeps it: what was started, where its ranks are, how it ended and what went wrong first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# As kit.remote.run.door makes them: 20261121-101500-3fa2.
RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")

RunState = Literal["running", "ended", "lost"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """The first thing that went wrong in a run; what it did to the other ranks is not told.

    `kind`: a rank ended badly; a host went away; mpirun itself gave up before any rank did. `host` is '' where none can
    be named. A rank that a signal ended has `signal` (SIGKILL) and no `exit_code`. `lines` are that rank's last lines
    (of standard error, or of standard output where it wrote none there), `mpirun` mpirun's own. `role` is what the rank
    was to MXNet's parameter server: `worker 3`, `server 0`, `scheduler`; '' in a run without one.
    """

    kind: Literal["rank", "host", "mpirun"]
    host: str = ""
    rank: int | None = None
    role: str = ""
    exit_code: int | None = None
    signal: str = ""
    oom: bool = False
    lines: tuple[str, ...] = ()
    mpirun: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The ranks of a run on one node, and the slots (GPU numbers, where there are GPUs) that it holds there."""

    node: str
    address: str
    ranks: int
    slots: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """One run. Times are seconds since 1970, by the head's clock.

    `state`: lost means that nobody watches over the run any more, and it did not end by itself: its head was killed.
    `env` holds names alone: a value may be a secret. `by` is user@machine of whoever started it. `stopped` says why kit
    ended it (a person, a deadline, an operator who went away), '' where it ended by itself. `left` counts the processes
    that were still there after the end, by host; a host that could not be asked is not in it. `roles` are those of the
    ranks behind the command's own, in their order: servers, then the scheduler.
    """

    id: str
    cluster: str
    image: str
    command: tuple[str, ...]
    places: tuple[Place, ...]
    roles: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    by: str = ""
    state: RunState = "running"
    started: float = 0.0
    ended: float | None = None
    attempt: int = 0
    exit_code: int | None = None
    stopped: str = ""
    failure: Failure | None = None
    left: dict[str, int] | None = None

    @property
    def np(self) -> int:
        return sum(place.ranks for place in self.places)
