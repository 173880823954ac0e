"""The results of verbs: what happened on each host, and the figures for users and scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from kit.errors import NotReadyError, UnreachableError

if TYPE_CHECKING:
    from kit.model.changes import HostChange
    from kit.model.launch import LaunchPlan
    from kit.model.plan import Plan
    from kit.model.queue import WaitingRun
    from kit.model.results import RunSize
    from kit.model.run import Failure, RunRecord


class HostResult(Struct, frozen=True, kw_only=True):
    """One host after a verb. `status` is ok, unchanged or failed."""

    host: str
    status: str
    text: str = ""


class DeployResult(Struct, frozen=True, kw_only=True):
    """`changes` is what the hosts file changes for a cluster that was deployed before: its head, names, addresses."""

    plan: Plan
    dry_run: bool
    changed: bool
    hosts: tuple[HostResult, ...]
    seconds: float
    changes: tuple[HostChange, ...] = ()


class RunResult(Struct, frozen=True, kw_only=True):
    """A run of `kit run`. `exit_code` is the job's; None for a dry run or a detached run.

    `stopped` is why kit ended the run, or '' if it ended by itself. `folded` counts lines that kit did not print
    because they only followed from `failure`; the run's log has them. `interrupted`: Ctrl-C came, but the run ended by
    itself before kit could stop it. A caller with more to do than this run stops there. `record` is the run as
    `kit wait` would return it; None for a dry run.
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
    record: RunRecord | None = None


class RunsResult(Struct, frozen=True, kw_only=True):
    """The cluster's runs, the latest first. `waiting` are those in line, in the order of their turns.

    `now` is the time by the head's clock, as in kit.model.queue.Line.
    """

    cluster: str
    runs: tuple[RunRecord, ...]
    waiting: tuple[WaitingRun, ...] = ()
    now: float | None = None


class LocalResult(Struct, frozen=True, kw_only=True):
    """A run on this machine's engine. `argv` is the mpirun command; `exit_code` is the job's, None for a dry run.

    `made` is the folder with what the run made, or '' if it made nothing.
    """

    image: str
    argv: tuple[str, ...]
    exit_code: int | None
    seconds: float
    made: str = ""


class NodeStatus(Struct, frozen=True, kw_only=True):
    """A row of `kit ps`. `ranks` maps a run's id to its ranks on the host.

    `gpu_models` names the host's GPUs, and `gpus_free` counts those that no run holds and no other program uses; it
    is None for a host without GPUs. `notes` are problems with its engine, its container and its GPUs.
    `address` is the host's address for MPI, `ssh` the one that kit connects to. `down`: the host answered, and its node
    does not run. A host that kit cannot reach has a `problem` instead.
    """

    host: str
    address: str
    service: str
    state: str
    image: str
    slots: int
    gpus: int
    ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    problem: str | None = None
    ssh: str = ""
    down: bool = False
    gpu_models: tuple[str, ...] = ()
    gpus_free: int | None = None
    notes: tuple[str, ...] = ()


class PsResult(Struct, frozen=True, kw_only=True):
    """`differs` has the settings of kit.yaml that a deploy would change: `shm_size: 1gb → 2gb`.

    `version` is that of the kit that deployed, '' for one that did not record it, and None if nothing is deployed.
    """

    cluster: str
    nodes: tuple[NodeStatus, ...]
    differs: tuple[str, ...] = ()
    version: str | None = None

    @property
    def exit_code(self) -> int:
        """The code of the worst host: a node that is down, a host that kit cannot reach, or 0."""
        problem = any(node.problem for node in self.nodes)
        down = any(node.down for node in self.nodes)
        return NotReadyError.exit_code if down else UnreachableError.exit_code if problem else 0


class OutputGroup(Struct, frozen=True, kw_only=True):
    """Hosts whose command gave the same output and the same exit code.

    `failed`: the command did not run there, and `output` says why.
    """

    hosts: tuple[str, ...]
    exit_code: int
    output: str
    failed: bool = False


class ExecResult(Struct, frozen=True, kw_only=True):
    groups: tuple[OutputGroup, ...]

    @property
    def exit_code(self) -> int:
        return max((group.exit_code for group in self.groups), default=0)


class DownResult(Struct, frozen=True, kw_only=True):
    """`removed` has what kit removed from each host; an empty tuple if there was nothing to remove.

    `kept` are the runs whose results stay on their hosts, and `data` the data sets that stay there. `left` are hosts of
    the last deploy that are no longer in the hosts file: the cluster's nodes stay there. `homes` are the hosts on which
    the home folders of ranks stay, because somebody wrote into them.
    """

    cluster: str
    removed: dict[str, tuple[str, ...]]
    kept: tuple[RunSize, ...] = ()
    data: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()


class DownPreview(Struct, frozen=True, kw_only=True):
    """What `kit down` would do with the runs of a cluster: delete them, or keep what they made.

    `keeps_homes`: what jobs wrote to HOME stays. `unknown` are the hosts that did not say which runs they have.
    """

    cluster: str
    deletes: tuple[RunSize, ...]
    keeps: tuple[RunSize, ...]
    keeps_homes: bool
    unknown: tuple[str, ...] = ()


class FileResult(Struct, frozen=True, kw_only=True):
    """The text of a file that kit would write on `host`."""

    host: str
    text: str
