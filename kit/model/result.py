"""What the verbs return: what happened on each host, and the figures that a person or a script wants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kit.model.launch import LaunchPlan
    from kit.model.plan import Plan
    from kit.model.run import Failure, RunRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class HostResult:
    """One host after a verb. `status` is ok, unchanged or failed."""

    host: str
    status: str
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeployResult:
    plan: Plan
    dry_run: bool
    changed: bool
    hosts: tuple[HostResult, ...]
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResult:
    """`exit_code` is the job's; None for a dry run, and for a run that nobody waited for.

    `stopped` says why kit ended it, '' where it ended by itself. `folded` counts lines that were not told, for they
    only were the aftermath of `failure`; the run's log has them. `interrupted`: Ctrl-C came, and the run had ended by
    itself before it could be stopped: whoever has more to do than this run stops there.
    """

    plan: LaunchPlan
    exit_code: int | None
    seconds: float
    stopped: str = ""
    failure: Failure | None = None
    folded: int = 0
    attempts: int = 1
    left: dict[str, int] = field(default_factory=dict)
    interrupted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsResult:
    cluster: str
    runs: tuple[RunRecord, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalResult:
    """A run on this machine's engine. `argv` are mpirun's words; `exit_code` is the job's, None for a dry run."""

    image: str
    argv: tuple[str, ...]
    exit_code: int | None
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeStatus:
    """A row of `kit ps`. `ranks` maps a run's id to its ranks on the host."""

    host: str
    address: str
    service: str
    state: str
    image: str
    slots: int
    gpus: int
    ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    problem: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PsResult:
    cluster: str
    nodes: tuple[NodeStatus, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputGroup:
    """Hosts whose command ended alike: the same output and the same exit code."""

    hosts: tuple[str, ...]
    exit_code: int
    output: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecResult:
    groups: tuple[OutputGroup, ...]

    @property
    def exit_code(self) -> int:
        return max((group.exit_code for group in self.groups), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class DownResult:
    """`removed` says for each host what was taken off it; an empty tuple means that nothing was there."""

    cluster: str
    removed: dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileResult:
    """A file as kit would write it on `host`."""

    host: str
    text: str
