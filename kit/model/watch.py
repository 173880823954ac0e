"""What hosts do: the readings that images/lib/kitwatch makes there. None is a value that the host does not have.

Amounts are in bytes, rates in bytes per second, shares in percent, times in seconds.
"""

from __future__ import annotations

from msgspec import Struct, field

from kit.errors import KitError
from kit.model.blame import Peer, Readiness


class Gpu(Struct, frozen=True, kw_only=True):
    """A GPU. `temp` is in °C, `power` in W, clocks are in MHz.

    `throttle` has NVML's names of what holds the clocks down: sw_power_cap, hw_thermal_slowdown, gpu_idle, …
    """

    index: int
    uuid: str = ""
    name: str = ""
    use: float | None = None
    mem_used: int | None = None
    mem_total: int | None = None
    temp: float | None = None
    power: float | None = None
    power_limit: float | None = None
    sm_clock: float | None = None
    sm_clock_max: float | None = None
    throttle: tuple[str, ...] | None = None


class RankReading(Struct, frozen=True, kw_only=True):
    """A rank of a run on a host, with its children. `cpu` is in percent of one core, of all its processes. `cpu_s` also
    has the time of children that have ended, and never falls.

    `pid` is that of its main process in the VM, to which `comm`, `state`, `wchan`, `core` (on which it ran last),
    `allowed` (cores: 0-3) and `waited_s` belong. `waited_s` is the time on run queues; `waited_all_s` is that of all
    threads, if it was wanted. `disk_s` is the time that it waited for disks. `throttled` is how often the limit of its
    container stopped it, and `throttled_s` for how long. All of these count from its start, or its container's.
    """

    run: str
    rank: int
    pid: int
    comm: str = ""
    procs: int = 1
    cpu: float = 0.0
    cpu_s: float = 0.0
    rss: int = 0
    threads: int = 1
    state: str = ""
    wchan: str = ""
    core: int | None = None
    allowed: str | None = None
    waited_s: float | None = None
    waited_all_s: float | None = None
    disk_s: float | None = None
    throttled: int | None = None
    throttled_s: float | None = None


class Other(Struct, frozen=True, kw_only=True):
    """A process of no run that uses a core. `core` is the one on which it ran last."""

    pid: int
    comm: str
    cpu: float
    core: int | None = None


class Nic(Struct, frozen=True, kw_only=True):
    """A network device that has a link, or a port of an RDMA adapter (mlx5_0/1). `speed` is in bytes per second.

    `rx_bytes`, `tx_bytes`, `errors` and `dropped` count since the boot.
    """

    rx: float | None = None
    tx: float | None = None
    speed: int | None = None
    rx_bytes: int = 0
    tx_bytes: int = 0
    errors: int = 0
    dropped: int = 0


class Disk(Struct, frozen=True, kw_only=True):
    """A disk. `busy` is the percentage of the time in which it worked; the rest counts since the boot."""

    read: float | None = None
    written: float | None = None
    busy: float | None = None
    read_bytes: int = 0
    written_bytes: int = 0
    busy_s: float = 0.0


class Room(Struct, frozen=True, kw_only=True):
    """How much of something is there, and in use."""

    total: int = 0
    used: int = 0


class Pressure(Struct, frozen=True, kw_only=True):
    """The percentage of the last 10 s in which some tasks, or all, waited for something."""

    some: float = 0.0
    full: float = 0.0


class Reading(Struct, frozen=True, kw_only=True):
    """One look at a host. `at` is its time of day, `seconds` the time since the reading before.

    `per_core` has the use of each core. `cpu_s` has seconds since the boot by mode: user, nice, system, idle, iowait,
    irq, softirq, steal. `runq` tasks run or wait for a core, `blocked` ones wait for disks. `psi` is by cpu, memory,
    io. `disk` is by path, the others are by device. `gpus` is None if nvidia-smi failed, for which `gpu_fault` has the
    reason. `others` are the three processes of no run that use the most.
    """

    at: float
    seconds: float | None = None
    cores: int = 0
    cpu: float | None = None
    steal: float | None = None
    iowait: float | None = None
    per_core: tuple[int, ...] | None = None
    cpu_s: dict[str, float] = field(default_factory=dict)
    runq: int = 0
    blocked: int = 0
    load1: float | None = None
    mem: Room = Room()
    psi: dict[str, Pressure] | None = None
    disk: dict[str, Room] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)
    nics: dict[str, Nic] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] | None = ()
    gpu_fault: str = ""
    ranks: tuple[RankReading, ...] = ()
    others: tuple[Other, ...] = ()


class Suspect(Struct, frozen=True, kw_only=True):
    """How a rank passed the time since the reading before; see kit.model.blame.RankShares. It was looked at for
    `looked` seconds."""

    rank: int
    looked: float = 0.0
    cpu: float = 0.0
    delay: float = 0.0
    disk: float = 0.0
    asleep: float = 0.0
    workers: float = 0.0
    readiness: Readiness | None = None


class Suspects(Struct, frozen=True, kw_only=True):
    """The ranks of the run that kit blame looks at, and the connections to each other host."""

    ranks: tuple[Suspect, ...] = ()
    peers: tuple[Peer, ...] = ()


class SuspectReading(Reading, frozen=True, kw_only=True):
    """A reading for kit blame.

    kit sets `heard`, the moment at which it read it, by its own clock that only rises, and `stream`, which counts the
    programs that it started on the host: it starts another one after each break of the connection.
    """

    suspects: Suspects = Suspects()
    heard: float = 0.0
    stream: int = 0


class Seen(Struct, frozen=True, kw_only=True):
    """What kit knows of a host now: its newest reading, which is `age` seconds old, and why there is no newer one.

    `number` counts the readings. `age` is 0 if the reading is the last one that kit wanted.
    """

    host: str
    reading: Reading | None = None
    age: float = 0.0
    number: int = 0
    error: KitError | None = None
