"""What a session of kit bench comes to: figures with their spread, what follows from them; two sessions compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

Workload = Literal["training", "perf", "paced", "network", "none"]
Better = Literal["higher", "lower"]
# img/s; B/s: bytes a second; bit/s, as links are sold; s: seconds; 1: a share of one; x: times as much.
Unit = Literal["img/s", "B/s", "bit/s", "s", "1", "x"]
State = Literal["measured", "failed", "not run"]
Verdict = Literal["better", "worse", "noise", "unknown"]


class Stat(Struct, frozen=True, kw_only=True):
    """A figure over the repeats that count. `mad` is the median of the distances from the median, not scaled."""

    median: float
    low: float
    high: float
    mad: float
    values: tuple[float, ...]

    @property
    def count(self) -> int:
        return len(self.values)


class Spread(Struct, frozen=True, kw_only=True):
    """How much the repeats of `cases` cases vary. `sd` is the pooled standard deviation of the logarithms: 0.05 is 5 %.

    `freedom` is the number of its degrees of freedom.
    """

    sd: float
    freedom: int
    cases: int


class Measure(Struct, frozen=True, kw_only=True):
    """One metric of a case. `size` is the message's in bytes, if the metric depends on a size.

    `primary`: compared between sessions. A metric that says the same in another unit is not. `spread` is the session's
    for this metric, or the case's if it varies more than the others. None with one repeat, or values of 0 and less.
    """

    metric: str
    unit: Unit
    better: Better
    stat: Stat
    size: int | None = None
    primary: bool = True
    spread: Spread | None = None


class Scaling(Struct, frozen=True, kw_only=True):
    """How a case compares with the one of fewest ranks in its series. `speedup` is 1 there, and ideal np / base_np.

    The spreads go from the slowest repeat over the base's fastest to the fastest over its slowest.
    """

    base_np: int
    ideal: float
    speedup: Stat
    efficiency: Stat


class Used(Struct, frozen=True, kw_only=True):
    """What the counted repeats of a case used of their hosts. `count` is how many were long enough for readings.

    `memory` is the greatest peak of the ranks of one host in bytes, and `gpu_memory` that of one GPU. The others are
    medians over the repeats: `cores` that the ranks of all hosts used on average, of `of_cores`; `gpus` is the mean use
    of the GPUs as a share of one; the bytes that all hosts `received` and `sent`. None is not known. `left_out` hosts
    are not in any of them, because there were too many.
    """

    count: int = 0
    memory: float | None = None
    cores: float | None = None
    of_cores: float | None = None
    gpus: float | None = None
    gpu_memory: float | None = None
    received: float | None = None
    sent: float | None = None
    left_out: int = 0


class CaseSummary(Struct, frozen=True, kw_only=True):
    """A case with all that its repeats came to. `failures` and `disturbed` hold the reasons, one a repeat.

    `planned` and `counted` are numbers of repeats without warm-up. `disturbed_counted`: the disturbed repeats are in
    the figures, because too few others are there. `used` is None if nobody looked.
    """

    id: str
    title: str
    rung: str
    proves: str
    series: str
    x: int | str
    np: int
    state: State
    workload: Workload
    simulated: bool
    planned: int
    counted: int
    warmups: int = 0
    failures: tuple[str, ...] = ()
    disturbed: tuple[str, ...] = ()
    disturbed_counted: bool = False
    measures: tuple[Measure, ...] = ()
    scaling: Scaling | None = None
    used: Used | None = None
    command: tuple[str, ...] = ()
    npernode: int | None = None
    gpus_per_rank: int = 0
    launcher: str = "mpi"
    servers: int = 0
    env: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    own_algorithm: bool = False

    def measure(self, metric: str, size: int | None = None) -> Measure | None:
        return next(
            (candidate for candidate in self.measures if (candidate.metric, candidate.size) == (metric, size)), None
        )


class Choice(Struct, frozen=True, kw_only=True):
    """One setting among others. `times` is how many times as good as the base it is, 2 being twice as good.

    If the verdict is unknown, `repeats` of each setting would decide; None if kit cannot say.
    """

    label: str
    case: str
    np: int
    stat: Stat
    times: float
    verdict: Verdict
    repeats: int | None = None
    spread: Spread | None = None


class Group(Struct, frozen=True, kw_only=True):
    """Settings side by side: the same work, measured by the same metric; the first choice is the base."""

    series: str
    metric: str
    unit: Unit
    better: Better
    size: int | None
    simulated: bool
    choices: tuple[Choice, ...]


class Summary(Struct, frozen=True, kw_only=True):
    """A session, summed up. `statements` and `recommendations` are sentences for a reader."""

    session: str
    preset: str
    cluster: str
    started: str
    facts: Mapping[str, str]
    cases: tuple[CaseSummary, ...]
    groups: tuple[Group, ...] = ()
    statements: tuple[str, ...] = ()
    recommendations: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        return any(case.simulated for case in self.cases)


class Change(Struct, frozen=True, kw_only=True):
    """One metric of a case in both sessions. `percent` is (b - a) / a, 5.0 for 5 %.

    If the verdict is unknown, `repeats` of each session would decide; None if kit cannot say.
    """

    case: str
    title: str
    metric: str
    unit: Unit
    better: Better
    size: int | None
    a: Stat
    b: Stat
    percent: float
    verdict: Verdict
    repeats: int | None = None


class Comparison(Struct, frozen=True, kw_only=True):
    """`only_a` and `only_b`: case id → why the other has no figure of it. `differences`: what → (in a, in b).

    `by_chance`: how many of the changes would be called beyond the noise if nothing had changed at all.
    """

    a: str
    b: str
    changes: tuple[Change, ...]
    only_a: Mapping[str, str]
    only_b: Mapping[str, str]
    differences: Mapping[str, tuple[str, str]]
    by_chance: float
