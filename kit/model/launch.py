"""One launch of MPI: which rank goes where, and the exact words of mpirun."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
class LaunchPlan:
    """What the launcher in the head is asked to do; --dry-run prints it."""

    run_id: str
    placement: Placement
    hostfile: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


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

    `env` holds (name, value), value None to forward. An empty command is kit.yaml's.
    """

    np: int | None = None
    npernode: int | None = None
    env: tuple[tuple[str, str | None], ...] = ()
    hosts: str | None = None
    oversubscribe: bool = False
    tag_output: bool = False
    dry_run: bool = False
    command: tuple[str, ...] = ()
