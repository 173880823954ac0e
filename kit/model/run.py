"""A run as the head keeps it: the command, the places of its ranks, its ending and its first failure."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

# kit.remote.run.door makes such ids: 20261121-101500-3fa2. kit/remote/scripts/folder.py accepts no others on a VM.
RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
# The mark of ranks that a person started in the head's shell (images/lib/kitrun/by_hand.py).
BY_HAND = re.compile(r"by-hand-[0-9]{1,10}")

RunState = Literal["running", "ended", "lost"]


class EndedBefore(Struct, frozen=True, kw_only=True):
    """A rank that ended without an error while others still needed it."""

    rank: int
    host: str = ""


class Failure(Struct, frozen=True, kw_only=True):
    """The first failure of a run, without its consequences on other ranks.

    `kind`: a rank failed, a host was lost, a host could not provide the run's code, so that no rank started, or mpirun
    gave up before any rank failed. `host` is '' if it is not known. A rank that was killed has a `signal` (SIGKILL) and
    no `exit_code`. `lines` are the rank's last lines of standard error, after NCCL's warnings on standard output, or
    its last lines of standard output if it wrote no errors. `mpirun` are mpirun's lines. `role` is the rank's role with
    MXNet's parameter server (`worker 3`, `server 0`, `scheduler`), or ''. `before` is a rank whose end without an
    error made this rank fail, or None.
    """

    kind: Literal["rank", "host", "code", "mpirun"]
    host: str = ""
    rank: int | None = None
    role: str = ""
    exit_code: int | None = None
    signal: str = ""
    oom: bool = False
    lines: tuple[str, ...] = ()
    mpirun: tuple[str, ...] = ()
    before: EndedBefore | None = None


class Place(Struct, frozen=True, kw_only=True):
    """The ranks of a run on one node, and the slots that it holds there.

    `of` is how many slots the node had then, which gives a slot its GPUs and CPUs; 0 if nobody knows.
    """

    node: str
    address: str
    ranks: int
    slots: tuple[int, ...] = ()
    of: int = 0


class RunCode(Struct, frozen=True, kw_only=True):
    """The snapshot of code that a run started in. `size` is in bytes, of all files.

    `folder` is the operator's folder, and `origin` the URL of its repository, without a login. The fields of git are
    empty outside of a git work tree. `dirty`: the folder differed from the commit.
    """

    digest: str
    folder: str = ""
    files: int = 0
    size: int = 0
    commit: str = ""
    branch: str = ""
    origin: str = ""
    dirty: bool = False


class HostUse(Struct, frozen=True, kw_only=True):
    """What a run used of one host, by readings every 10 s. None is a value that the host does not have.

    `memory_peak` is the memory of the ranks in bytes, and `cpu_mean` the cores that they used. The rest is of the whole
    host: `host_memory_peak`, `host_memory_size` and `cores`, and the bytes that its devices `received`, `sent`, `read`
    and wrote (`written`) between the first and the last reading. `gpu_mean` is the mean use of the run's GPUs in
    percent, and `gpus` their number, 0 from an earlier kit; `gpu_memory_peak` and `gpu_memory_size` are those of one
    GPU in bytes.
    """

    memory_peak: int = 0
    host_memory_peak: int = 0
    host_memory_size: int = 0
    cpu_mean: float | None = None
    cores: int = 0
    gpu_mean: float | None = None
    gpus: int = 0
    gpu_memory_peak: int | None = None
    gpu_memory_size: int | None = None
    received: int = 0
    sent: int = 0
    read: int = 0
    written: int = 0


class RunUse(Struct, frozen=True, kw_only=True):
    """What a run used of its hosts. `every` is the time between readings in seconds.

    `left_out` hosts are not among `hosts`, because there were too many.
    """

    hosts: dict[str, HostUse]
    every: float = 10.0
    readings: int = 0
    left_out: int = 0

    @property
    def gpu_mean(self) -> float | None:
        """Return the mean use of all GPUs in percent, or None without GPUs.

        Hosts count alike if nobody knows how many GPUs they have.
        """
        known = [(host.gpu_mean, max(host.gpus, 1)) for host in self.hosts.values() if host.gpu_mean is not None]
        return sum(mean * gpus for mean, gpus in known) / sum(gpus for _, gpus in known) if known else None


class Member(Struct, frozen=True, kw_only=True):
    """A run of an array: the array's id, which no run has, its index, and how many runs the array has."""

    of: str
    index: int
    size: int


class RunRecord(Struct, frozen=True, kw_only=True):
    """One run. Times are seconds since 1970, by the head's clock. `most_np` is the most ranks that it had: a retry, or
    an elastic run, may go on with fewer.

    `state`: lost means that the run's supervisor was killed with its head, so that the run has no ending. `env` has
    only names, because a value may be a secret. `by` is user@machine of the person who started it. `stopped` is why
    kit ended the run (a person, a time limit, a lost operator), or '' if it ended by itself. `left` counts the
    processes that remained after the end, by host, without hosts that could not be asked. `roles` are the roles of the
    ranks after the command's own, in their order: servers, then the scheduler. `code` is None for a run without code.
    `exclusive`: the run has the CPUs of its slots for itself. `cpus` and `memory` (bytes) are what its ranks on each
    host may use together; None means no limit. `data` are the data sets that kit staged for it where they were missing.
    `metrics` is what it used of its hosts; None for a run that was too short or has not ended. `array` is None for a
    run on its own.
    """

    id: str
    cluster: str
    image: str
    command: tuple[str, ...]
    places: tuple[Place, ...]
    most_np: int = 0
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
    code: RunCode | None = None
    exclusive: bool = False
    cpus: int | None = None
    memory: int | None = None
    data: tuple[str, ...] = ()
    metrics: RunUse | None = None
    array: Member | None = None

    @property
    def np(self) -> int:
        return sum(place.ranks for place in self.places)


class ShownRun(Struct, frozen=True, kw_only=True):
    """A run with what `kit runs` leaves out.

    `log` is the path of its log on the head's VM. `work` is the path of its working folder on each VM that ran ranks,
    or '' for a run without code. `checkpoints` is HOST:PATH of the folder that --checkpoint-dir named, or ''
    without one. `diff` is the difference of the code from its commit, cut after a limit if
    `diff_cut`; a byte that is no text is a lone surrogate (surrogateescape).
    """

    record: RunRecord
    head: str
    log: str
    work: str
    checkpoints: str = ""
    diff: str = ""
    diff_cut: bool = False
