"""The rows of kit top's tables, from the readings of hosts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from kit.model.watch import Gpu, Nic, RankReading, Reading, Seen
from kit.plan.watch.spark import percent

# A host without a reading for this time does not answer.
STALE_S = 5.0
# What a sparkline may show.
KEPT = 60
# NVML's names in words. A reason that another one explains is left out.
_WORDS = {
    "applications_clocks_setting": "set clocks",
    "display_clock_setting": "display",
    "gpu_idle": "idle",
    "hw_power_brake_slowdown": "power brake",
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "heat",
    "sw_power_cap": "power cap",
    "sw_thermal_slowdown": "heat",
    "sync_boost": "sync boost",
}
_SPECIFIC = {"hw_thermal_slowdown", "hw_power_brake_slowdown"}
HEAT = ("heat", "power brake", "hardware slowdown")

Values = Sequence[float | None]


class HostRow(Struct, frozen=True, kw_only=True):
    """A host. `trouble` is why there are no figures, or ''. Rates are of its busiest network device, whose use of the
    link is `link` percent. `gpu` is the mean use of its GPUs. Disk is the fullest file system."""

    name: str
    trouble: str = ""
    cores: int = 0
    cpu: float | None = None
    steal: float | None = None
    iowait: float | None = None
    runq: int = 0
    load: float | None = None
    mem_used: int | None = None
    mem_total: int | None = None
    disk: float | None = None
    busy: float | None = None
    nic: str = ""
    rx: float | None = None
    tx: float | None = None
    link: float | None = None
    gpus: int = 0
    gpu: float | None = None
    other: str = ""
    cpus: Values = ()
    uses: Values = ()

    @property
    def mem(self) -> float | None:
        return percent(self.mem_used, self.mem_total)


class GpuRow(Struct, frozen=True, kw_only=True):
    """A GPU of a host, or `trouble`: why the host's GPUs cannot be read. `held` is what holds its clocks down."""

    host: str
    place: str
    trouble: str = ""
    gpu: Gpu = field(default_factory=lambda: Gpu(index=0))
    held: tuple[str, ...] | None = ()
    uses: Values = ()

    @property
    def mem(self) -> float | None:
        return percent(self.gpu.mem_used, self.gpu.mem_total)


class RankRow(Struct, frozen=True, kw_only=True):
    """A rank. `last` is the last line that it printed."""

    host: str
    reading: RankReading
    last: str = ""


class Tables(Struct, frozen=True, kw_only=True):
    """All rows, in the order of the hosts file, GPUs and ranks."""

    hosts: tuple[HostRow, ...] = ()
    gpus: tuple[GpuRow, ...] = ()
    ranks: tuple[RankRow, ...] = ()


class History:
    """The last values of each host and GPU, for sparklines."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._values: dict[str, deque[float | None]] = {}

    def add(self, seen: Sequence[Seen]) -> None:
        """Take the new readings. A reading that it has already counts once."""
        for one in seen:
            if one.reading is None or self._numbers.get(one.host) == one.number:
                continue
            self._numbers[one.host] = one.number
            self._append(one.host, one.reading.cpu)
            self._append(f"{one.host} gpus", mean_use(one.reading))
            for gpu in one.reading.gpus or ():
                self._append(f"{one.host}:{gpu.index}", gpu.use)

    def _append(self, name: str, value: float | None) -> None:
        self._values.setdefault(name, deque(maxlen=KEPT)).append(value)

    def of(self, name: str) -> Values:
        return tuple(self._values.get(name, ()))


def mean_use(reading: Reading) -> float | None:
    uses = [gpu.use for gpu in reading.gpus or () if gpu.use is not None]
    return sum(uses) / len(uses) if uses else None


def held(gpu: Gpu) -> tuple[str, ...] | None:
    """Return in words what holds the clocks down, or None if the driver does not say."""
    if gpu.throttle is None:
        return None
    names = [name for name in gpu.throttle if name != "hw_slowdown" or not _SPECIFIC & set(gpu.throttle)]
    return tuple(dict.fromkeys(_WORDS.get(name, name) for name in names))


def tables(seen: Sequence[Seen], history: History, *, run: str = "", last: Mapping[int, str] | None = None) -> Tables:
    """Return the rows of these hosts. `run` keeps the ranks of one run, of which `last` has the last lines."""
    hosts = tuple(host_row(one, history) for one in seen)
    gpus = tuple(row for one in seen for row in _gpu_rows(one, history))
    lines = certain(last or {}, seen, run)
    ranks = [
        RankRow(host=one.host, reading=rank, last=lines.get(rank.rank, ""))
        for one in seen
        if one.reading is not None and not trouble(one)
        for rank in one.reading.ranks
        if not run or rank.run == run
    ]
    return Tables(
        hosts=hosts, gpus=gpus, ranks=tuple(sorted(ranks, key=lambda row: (row.reading.run, row.reading.rank)))
    )


def certain(last: Mapping[int, str], seen: Sequence[Seen], run: str) -> Mapping[int, str]:
    """Return the last lines of a run, without those of a number that ranks on several hosts have.

    Ranks keep the number of their start. After resets of an elastic run, two may have started with the same one.
    """
    numbers = Counter(
        rank.rank
        for one in seen
        if one.reading is not None and not trouble(one)
        for rank in one.reading.ranks
        if rank.run == run
    )
    return {rank: line for rank, line in last.items() if numbers[rank] < 2}


def trouble(one: Seen) -> str:
    """Return why a host has no figures now, or ''."""
    if one.error is not None:
        return one.error.message
    if one.reading is None:
        return "waiting for its first reading"
    return f"no reading for {one.age:.0f} s" if one.age > STALE_S + (one.reading.seconds or 0.0) else ""


def host_row(one: Seen, history: History) -> HostRow:
    reading, why = one.reading, trouble(one)
    if reading is None or why:
        return HostRow(name=one.host, trouble=why)
    name, nic = busiest(reading.nics)
    other = reading.others[0] if reading.others else None
    return HostRow(
        name=one.host,
        cores=reading.cores,
        cpu=reading.cpu,
        steal=reading.steal,
        iowait=reading.iowait,
        runq=reading.runq,
        load=reading.load1,
        mem_used=reading.mem.used if reading.mem.total else None,
        mem_total=reading.mem.total or None,
        disk=_most(percent(room.used, room.total) for room in reading.disk.values()),
        busy=_most(disk.busy for disk in reading.disks.values()),
        nic=name,
        rx=nic.rx,
        tx=nic.tx,
        link=percent(_most((nic.rx, nic.tx)), nic.speed),
        gpus=len(reading.gpus or ()),
        gpu=mean_use(reading),
        other=f"{other.comm} {other.cpu:.0f}%" if other is not None else "",
        cpus=history.of(one.host),
        uses=history.of(f"{one.host} gpus"),
    )


def busiest(nics: Mapping[str, Nic]) -> tuple[str, Nic]:
    """Return the network device that carries the most now, or has since the boot."""

    def traffic(name: str) -> tuple[float, int]:
        nic = nics[name]
        return (nic.rx or 0.0) + (nic.tx or 0.0), nic.rx_bytes + nic.tx_bytes

    name = max(nics, key=traffic, default="")
    return name, nics.get(name, Nic())


def _gpu_rows(one: Seen, history: History) -> list[GpuRow]:
    reading = one.reading
    if reading is None or trouble(one):
        return []
    if reading.gpus is None:
        why = reading.gpu_fault or "nvidia-smi has not answered yet"
        return [GpuRow(host=one.host, place=one.host, trouble=why)]
    return [
        GpuRow(
            host=one.host,
            place=f"{one.host}:{gpu.index}",
            gpu=gpu,
            held=held(gpu),
            uses=history.of(f"{one.host}:{gpu.index}"),
        )
        for gpu in reading.gpus
    ]


def _most(values: object) -> float | None:
    known = [value for value in values if value is not None]  # type: ignore[attr-defined]
    return max(known, default=None)
