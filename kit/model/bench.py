"""What a benchmark measures and what came of it: cases, samples, and the folder of a session that holds both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# From what a cluster can do at the least to what it is for. A rung that fails ends the climb.
Rung = Literal["reach", "hello", "ring", "collectives", "training"]
RUNGS: tuple[Rung, ...] = ("reach", "hello", "ring", "collectives", "training")

# The files of a session's folder: what was planned, one sample a line (appended as it comes), and what is made of both.
META, SAMPLES, CSV, REPORT = "session.json", "samples.jsonl", "results.csv", "report.html"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One thing to measure, repeated. `id` is the same in every session that measures it (compare goes by it).

    `series` and `x` are its position in a plot: `x` is the number of ranks, or a label.
    `settings` are kit.yaml's, changed for this case (dotted name to value); `env` is set for every rank. `proves` says
    what a pass proves. `warmup` repeats come first; they are recorded but never counted. With `gpus_per_rank`, the run
    gives each rank that many GPUs; with 0, ranks choose among those of the run. `own_algorithm`: the case chooses an
    algorithm of Open MPI, so the parameters in kit.yaml's mpi.args that would choose one are left out.
    """

    id: str
    rung: Rung
    title: str
    proves: str
    command: tuple[str, ...]
    np: int = 1
    npernode: int | None = None
    gpus_per_rank: int = 0
    series: str = ""
    x: int | str = ""
    env: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    own_algorithm: bool = False
    launcher: Literal["mpi", "ps"] = "mpi"
    servers: int = 0
    network: Literal["host", "bare", "bridge", "overlay"] = "host"
    simulated: bool = False
    repeats: int = 3
    warmup: int = 0
    timeout_s: float = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One repeat of a case: `result` is the JSON object that the workload printed last, on rank 0.

    `at` is the start in UTC, ISO 8601; `seconds` the wall time of the whole launch. `failure` is None when it passed.
    `disturbed` says why it should not be trusted: another run on the hosts, a load that was not ours. `used` is what
    the run used of its hosts (kit.plan.bench.report.used): {} for one that was too short, None if nobody looked.
    """

    case: str
    repeat: int
    at: str
    seconds: float
    warmup: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None
    disturbed: str | None = None
    used: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """What session.json holds: the plan of the session, and on what it was measured.

    `facts` are the cluster's, in words for a reader: hosts, cores, GPUs, links, image, kit's version, settings.
    `preset` is "ladder" by default. `skipped` are cases that could not run here, each with the reason.
    """

    id: str
    preset: str
    cluster: str
    started: str
    cases: tuple[Case, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    format: int = 1
