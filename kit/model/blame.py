"""Input and output of `kit blame`: what the hosts of a run showed in a few seconds, and who slows the run.

All shares are seconds per second of an interval: a rank whose threads used two cores has cpu 2.0.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Reason = Literal[
    "gpu-throttle", "cgroup-throttle", "steal", "busy-core", "disk", "loader", "link", "more-work", "unknown"
]
Verdict = Literal["blamed", "nobody", "too-few-steps", "hosts-only"]


class Readiness(Struct, frozen=True, kw_only=True):
    """What Horovod counts in a rank, since the rank began (images/lib/kitwatch/readiness.py).

    `tensors` counts those whose operation began. `wait_us` is the sum over them of the time between the rank's enqueue
    and that begin, which comes when all ranks have enqueued. `tail_us` is the part of it in which the rank waited for
    the last tensor of a step. `pending` counts the tensors that wait for other ranks now.
    """

    tensors: int
    wait_us: int
    op_us: int
    bytes: int
    opened_us: int = 0
    steps: int = 0
    tail_us: int = 0
    pending: int = 0


class RankShares(Struct, frozen=True, kw_only=True):
    """One rank in one interval.

    `cpu` and `delay` count all its threads and children: running, and ready without a core. `throttled` is the time in
    which its cgroup's CPU limit stopped it, `disk` the share in which one of its threads waited for a disk. `asleep` is
    the share in which none of its threads ran or was ready, also while it waited for a disk. `workers` is the part of
    `cpu` of its children. `cores` are those that it may use, as the kernel writes them: 0-3,8.
    """

    rank: int
    pid: int
    cpu: float = 0.0
    delay: float = 0.0
    throttled: float = 0.0
    disk: float = 0.0
    asleep: float = 0.0
    workers: float = 0.0
    cores: str = ""
    readiness: Readiness | None = None


class Other(Struct, frozen=True, kw_only=True):
    """A process that is no rank of this run, and used a core. `core` is the one on which it ran last."""

    pid: int
    name: str
    cpu: float
    core: int = 0


class Peer(Struct, frozen=True, kw_only=True):
    """The TCP connections to one other host: bytes that arrived there, and the seconds in which any were under way."""

    address: str
    sent: int
    busy: float


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU. None is what the driver does not say. `throttle` are the reasons why its clock is low."""

    index: int
    name: str = ""
    use: float | None = None
    sm_clock: float | None = None
    throttle: tuple[str, ...] = ()


class HostInterval(Struct, frozen=True, kw_only=True):
    """One host in one interval of `seconds`. `steal` and `iowait` are shares of all its cores' time.

    `part` is the same in intervals without a break of a connection between them (kit.plan.blame.together).
    """

    seconds: float
    cores: int
    steal: float = 0.0
    iowait: float = 0.0
    busy: float = 0.0
    ranks: tuple[RankShares, ...] = ()
    others: tuple[Other, ...] = ()
    peers: tuple[Peer, ...] = ()
    gpus: tuple[Gpu, ...] | None = None
    part: int = 0


class Watched(Struct, frozen=True, kw_only=True):
    """What kit saw of a run. `hosts` has the intervals of each host, all of them about the same time.

    `addresses` are the hosts' addresses in the cluster's network, and `gpus` the numbers of each rank's GPUs. `np` is
    how many ranks the run has, also on hosts that kit could not watch; 0 if nobody knows.
    """

    run: str
    hosts: dict[str, tuple[HostInterval, ...]]
    addresses: dict[str, str]
    gpus: dict[int, tuple[int, ...]]
    np: int = 0


class Gain(Struct, frozen=True, kw_only=True):
    """What a step takes now, and what it would take without the fault, in seconds. `how` says how kit knows it."""

    now: float
    then: float
    how: str

    @property
    def speedup(self) -> float:
        return self.now / self.then


class Culprit(Struct, frozen=True, kw_only=True):
    """Who slows the run. `ranks` is empty for a link. `share` is the part of the time that the others lose by it."""

    host: str
    ranks: tuple[int, ...]
    reason: Reason
    share: float
    evidence: tuple[str, ...]
    fix: str
    gain: Gain | None = None


class RankRow(Struct, frozen=True, kw_only=True):
    """One rank in the whole time, for the table: `wait` is seconds for the mean tensor, the others are shares of it.

    `wait` and `operation` are None for a rank that does not count them: only kit's Horovod does.
    """

    rank: int
    host: str
    wait: float | None
    operation: float | None
    cpu: float
    delay: float
    asleep: float


class BlameResult(Struct, frozen=True, kw_only=True):
    """What `kit blame` says. `why` is why nobody is blamed, or ''. `step` is seconds of a step, or None if unknown."""

    run: str
    verdict: Verdict
    why: str
    seconds: float
    steps: float | None
    step: float | None
    culprit: Culprit | None
    ranks: tuple[RankRow, ...]
    notes: tuple[str, ...] = ()
