"""One launch of MPI: the place of each rank, and the exact mpirun command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from kit.model.run import Place
from kit.model.spec import NcclNetwork

# More slots or cores than any host has. kit makes lists of them.
MOST_SLOTS = 65536


class Node(Struct, frozen=True, kw_only=True):
    """A host as MPI sees it. `address` is in the cluster's network; `cores` is 0 if not known.

    `gpus` is how many GPUs its ranks can use. Each MIG device counts as one. `mig`: some of them are MIG devices.
    """

    name: str
    address: str
    slots: int
    cores: int = 0
    gpus: int = 0
    mig: bool = False


class Placement(Struct, frozen=True, kw_only=True):
    """Ranks 0..np-1 in blocks: `counts[i]` ranks on `nodes[i]`. Nodes without ranks are left out."""

    nodes: tuple[Node, ...]
    counts: tuple[int, ...]

    @property
    def np(self) -> int:
        return sum(self.counts)


class Helper(Struct, frozen=True, kw_only=True):
    """A server or the scheduler of MXNet's parameter server. It holds no slot and does not count as a rank.

    Helpers come after the ranks of the placement: the servers, then the scheduler.
    """

    role: Literal["server", "scheduler"]
    node: str
    address: str


class RunPolicy(Struct, frozen=True, kw_only=True):
    """What the run's supervisor does by itself. Times are in seconds; None means no limit.

    `operator`: stop or keep the run when kit is gone; None for a detached run. `share` allows slots that another run
    holds. `retry_on`: retry after any failure, or only after a lost host. With `min_np`, the next attempt leaves out
    lost hosts while at least that many ranks remain. An elastic run has `min_np` to `max_np` ranks.
    `memory` is how many bytes the ranks of a host may use together. `idle_gpu`: end the run if all its GPUs were idle
    for that long.
    `clean`: end the background processes of ranks after a successful
    run, too. `keep_s` and `keep`: for how long, and how many, finished runs are kept.
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
    max_np: int | None = None
    memory: int | None = None
    idle_gpu: float | None = None
    checkpoints: str | None = None
    clean: bool = True
    keep_s: float = 30 * 86400.0
    keep: int = 200


class LaunchPlan(Struct, frozen=True, kw_only=True):
    """The request to the launcher on the head. --dry-run prints it. `code` is the snapshot's digest, or ''.

    `torchrun`: mpirun starts one torchrun on each host, which starts the ranks there. `elastic` is for
    kit-elastic, which is then in mpirun's place; empty for other runs. `assumed` are the hosts whose slots a dry run
    cannot know.
    """

    run_id: str
    placement: Placement
    hostfile: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    policy: RunPolicy = field(default_factory=RunPolicy)
    helpers: tuple[Helper, ...] = ()
    code: str = ""
    torchrun: bool = False
    elastic: Mapping[str, Any] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


class ClusterRecord(Struct, frozen=True, kw_only=True):
    """The cluster as deploy recorded it on the head (cluster.json). Runs use this record, not local files.

    `data_networks` are those of `interfaces:`, for the data of MPI; without them, `network` has the data, too.
    `settings` are those of kit.yaml that need a deploy (kit.plan.cluster.drift). It is empty if an older kit deployed.
    `version` is that of the kit that deployed, such as 0.1.0, or '' if an older kit deployed, which did not record it.
    """

    name: str
    image: str
    network: str
    ssh_port: int
    nodes: tuple[Node, ...]
    head_runs_ranks: bool
    data_networks: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""


class RunRequest(Struct, frozen=True, kw_only=True):
    """The options of `kit run`.

    `env` has (name, value); the value None forwards the variable. `as_deployed` accepts a cluster that was deployed
    with other settings than kit.yaml has now. An empty command means kit.yaml's. With the launcher ps, the ranks are
    the workers of a parameter server, and `servers` is its number of servers. With torchrun, `max_restarts` is how
    often torchrun restarts the ranks. `code` is the value of --code, or `none`, as you wrote it; None: the command line
    says nothing. The spec has it as a whole path. `workdir` is a folder of the code, in which the ranks start; '' for
    its top. `data` are data sets that must be staged first. `again` is the run to start once more. `given` are the
    fields, here and of `policy`, that the command line sets; empty if it sets none of --again, --retry-on and --min-np,
    which make kit look at it. `stdin` is the
    descriptor of a pipe or file whose content rank 0 gets as its standard input. `terminal`: the only rank gets kit's
    terminal. `gpus_per_rank` replaces that of kit.yaml.
    `cpus` is how many CPUs the ranks of a host may use together. `nccl_require` replaces that of kit.yaml.
    `now`: take free slots even if they are reserved for a run in line.
    `ignore_busy_gpus`: start even if other processes use the GPUs. `gpus` is the value of `kit local --gpus`.
    """

    np: int | None = None
    npernode: int | None = None
    env: tuple[tuple[str, str | None], ...] = ()
    hosts: str | None = None
    oversubscribe: bool = False
    gpus_per_rank: int | None = None
    cpus: int | None = None
    nccl_require: NcclNetwork | None = None
    gpus: str | None = None
    report_bindings: bool = False
    ignore_busy_gpus: bool = False
    tag_output: bool = False
    dry_run: bool = False
    as_deployed: bool = False
    detach: bool = False
    wait: bool = False
    now: bool = False
    launcher: Literal["mpi", "ps", "torchrun", "elastic"] = "mpi"
    servers: int | None = None
    max_restarts: int | None = None
    policy: RunPolicy = field(default_factory=RunPolicy)
    code: str | None = None
    workdir: str = ""
    data: tuple[str, ...] = ()
    again: str | None = None
    given: frozenset[str] = frozenset()
    stdin: int | None = None
    terminal: bool = False
    command: tuple[str, ...] = ()
