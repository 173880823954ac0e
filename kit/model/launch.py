"""One launch of MPI: which rank goes where, and the exact words of mpirun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kit.model.run import Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A host as MPI sees it: `address` in the cluster's network; `cores` is 0 when not known."""

    name: str
    address: str
    slots: int
    cores: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Ranks 0..np-1 in blocks: `counts[i]` ranks on `nodes[i]`. Nodes with no rank are left out."""

    nodes: tuple[Node, ...]
    counts: tuple[int, ...]

    @property
    def np(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Helper:
    """A process of a run that is none of the command's ranks and holds no slot: a part of MXNet's parameter server.

    Helpers are the ranks behind those of the placement, in their order: servers, then the one scheduler.
    """

    role: Literal["server", "scheduler"]
    node: str
    address: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPolicy:
    """What the run's supervisor does by itself. Times are seconds; None is no limit.

    `operator`: what becomes of the run when whoever started it goes away: stop, or keep; None for a run that nobody
    waits for. `share` lets it use slots that another run holds. `retry_on` is any failure, or a lost host only; with
    `min_np` the next attempt goes without hosts that were lost, as long as so many ranks stay. `clean`: what ranks
    leave in the background ends with a run that ended well, too. `keep_s` and `keep` say how long, and how many, runs
    that ended are remembered.
    """

    operator: Literal["stop", "keep"] | None = "stop"
    share: bool = False
    start_timeout: float | None = None
    timeout: float | None = None
    stall_timeout: float | None = None
    retries: int = 0
    retry_on: Literal["any", "lost-host"] = "any"
    backoff: float = 1.0
    min_np: int | None = None
    checkpoints: str | None = None
    clean: bool = True
    keep_s: float = 30 * 86400.0
    keep: int = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPlan:
    """What the launcher in the head is asked to do; --dry-run prints it."""

    run_id: str
    placement: Placement
    hostfile: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    policy: RunPolicy = field(default_factory=RunPolicy)
    helpers: tuple[Helper, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterRecord:
    """What deploy wrote on the head (cluster.json): the truth about the cluster that a run reads there."""

    name: str
    image: str
    network: str
    ssh_port: int
    nodes: tuple[Node, ...]
    head_runs_ranks: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """What `kit run` was asked for.

    `env` holds (name, value), value None to forward. An empty command is kit.yaml's. With the launcher ps the ranks are
    the workers of a parameter server with so many `servers`.
    """

    np: int | None = None
    npernode: int | None = None
    env: tuple[tuple[str, str | None], ...] = ()
    hosts: str | None = None
    oversubscribe: bool = False
    tag_output: bool = False
    dry_run: bool = False
    detach: bool = False
    wait: bool = False
    launcher: Literal["mpi", "ps"] = "mpi"
    servers: int | None = None
    policy: RunPolicy = field(default_factory=RunPolicy)
    command: tuple[str, ...] = ()
