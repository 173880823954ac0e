"""What kit metrics exports: each metric with its name, labels and values, by the conventions of Prometheus.

Units are base units: seconds, bytes, hertz, ratios from 0 to 1. Names of counters end in _total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from kit.model.metrics import Family, Labels, Metric
from kit.model.watch import Disk, Gpu, Nic, RankReading, Reading, Seen

T = TypeVar("T")
Value = float | int | None

# Older readings say nothing of a host now. Its metrics then are missing, except for kit_host_up. A host that is read
# less often has this many periods: it is not down between two readings.
STALE_S, STALE = 30.0, 3


_Rows = Iterable[tuple[Labels, Value]]
# The labels of each metric of a host. One node_exporter may read the files of several clusters, and hosts of these may
# have the same names.
HOST: Labels = ("cluster", "host")


class _Source(Struct, frozen=True, kw_only=True):
    """A metric, and how to read it from a reading: the values of the labels after those of HOST, and the number."""

    metric: Metric
    rows: Callable[[Reading], _Rows]


def families(seen: Sequence[Seen], *, cluster: str, version: str, every: float = 0.0) -> tuple[Family, ...]:
    """Return all metrics of what is known of the hosts now. A value that a host does not have gives no sample.

    `every` is the time between readings in seconds.
    """
    oldest = max(STALE_S, STALE * every)
    fresh = [one for one in seen if one.reading is not None and one.age <= oldest]
    up = {one.host for one in fresh}
    first = (
        Family(metric=INFO, samples=(((cluster, version), 1.0),)),
        Family(metric=UP, samples=tuple(((cluster, one.host), float(one.host in up)) for one in seen)),
    )
    return (*first, *(Family(metric=source.metric, samples=_samples(source, fresh, cluster)) for source in SOURCES))


def _samples(source: _Source, fresh: Sequence[Seen], cluster: str) -> tuple[tuple[Labels, float], ...]:
    return tuple(
        ((cluster, one.host, *labels), float(value))
        for one in fresh
        if one.reading is not None
        for labels, value in source.rows(one.reading)
        if value is not None
    )


INFO = Metric(
    name="kit_info", kind="gauge", help="The cluster and kit's version. Always 1.", labels=("cluster", "version")
)
UP = Metric(
    name="kit_host_up",
    kind="gauge",
    help=f"1 if kit has read the host in the last {STALE_S:.0f} s (--every above 10s: {STALE} times that), else 0.",
    labels=HOST,
)


def _host(name: str, text: str, value: Callable[[Reading], Value]) -> _Source:
    metric = Metric(name=f"kit_host_{name}", kind=_kind(name), help=text, labels=HOST)
    return _Source(metric=metric, rows=lambda reading: [((), value(reading))])


def _by(name: str, text: str, labels: Labels, rows: Callable[[Reading], _Rows]) -> _Source:
    metric = Metric(name=f"kit_host_{name}", kind=_kind(name), help=text, labels=(*HOST, *labels))
    return _Source(metric=metric, rows=rows)


def _gpu(name: str, text: str, value: Callable[[Gpu], Value]) -> _Source:
    return _of_gpus(name, text, ("gpu",), lambda gpu: [((str(gpu.index),), value(gpu))])


def _of_gpus(name: str, text: str, labels: Labels, rows: Callable[[Gpu], _Rows]) -> _Source:
    metric = Metric(name=f"kit_gpu_{name}", kind=_kind(name), help=text, labels=(*HOST, *labels))

    def of_all(reading: Reading) -> Iterator[tuple[Labels, Value]]:
        for gpu in reading.gpus or ():
            yield from rows(gpu)

    return _Source(metric=metric, rows=of_all)


def _rank(name: str, text: str, value: Callable[[RankReading], Value]) -> _Source:
    metric = Metric(name=f"kit_rank_{name}", kind=_kind(name), help=text, labels=(*HOST, "run", "rank"))
    return _Source(
        metric=metric,
        rows=lambda reading: [((rank.run, str(rank.rank)), value(rank)) for rank in reading.ranks],
    )


def _kind(name: str) -> Literal["gauge", "counter"]:
    return "counter" if name.endswith("_total") else "gauge"


def _disk(value: Callable[[Disk], Value]) -> Callable[[Reading], _Rows]:
    return lambda reading: _each(reading.disks, value)


def _nic(value: Callable[[Nic], Value]) -> Callable[[Reading], _Rows]:
    return lambda reading: _each(reading.nics, value)


def _each(devices: Mapping[str, T], value: Callable[[T], Value]) -> list[tuple[Labels, Value]]:
    return [((name,), value(device)) for name, device in devices.items()]


def _pressure(reading: Reading) -> _Rows:
    for resource, pressure in (reading.psi or {}).items():
        yield (resource, "some"), pressure.some / 100
        yield (resource, "full"), pressure.full / 100


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _hertz(mhz: float | None) -> float | None:
    return None if mhz is None else mhz * 1e6


SOURCES: tuple[_Source, ...] = (
    _host("cores", "Cores of the host.", lambda r: r.cores),
    _by("cpu_seconds_total", "Time of the cores since the boot, by mode.", ("mode",), lambda r: _each(r.cpu_s, float)),
    _host("load1", "The system's load average of 1 minute.", lambda r: r.load1),
    _host("running_tasks", "Tasks that run or wait for a core.", lambda r: r.runq),
    _host("blocked_tasks", "Tasks that wait for disks.", lambda r: r.blocked),
    _by("pressure_ratio", "Part of 10 s in which some or all tasks waited.", ("resource", "tasks"), _pressure),
    _host("memory_size_bytes", "Memory of the host.", lambda r: r.mem.total),
    _host("memory_used_bytes", "Memory in use, without caches.", lambda r: r.mem.used),
    _by("filesystem_size_bytes", "Size of a file system.", ("path",), lambda r: _each(r.disk, lambda one: one.total)),
    _by("filesystem_used_bytes", "Use of a file system.", ("path",), lambda r: _each(r.disk, lambda one: one.used)),
    _by("disk_read_bytes_total", "Bytes read from a disk.", ("device",), _disk(lambda d: d.read_bytes)),
    _by("disk_written_bytes_total", "Bytes written to a disk.", ("device",), _disk(lambda d: d.written_bytes)),
    _by("disk_busy_seconds_total", "Time in which a disk worked.", ("device",), _disk(lambda d: d.busy_s)),
    _by("network_receive_bytes_total", "Bytes that a device received.", ("device",), _nic(lambda n: n.rx_bytes)),
    _by("network_transmit_bytes_total", "Bytes that a device sent.", ("device",), _nic(lambda n: n.tx_bytes)),
    _by("network_errors_total", "Packets of a device with errors.", ("device",), _nic(lambda n: n.errors)),
    _by("network_dropped_total", "Packets that a device dropped.", ("device",), _nic(lambda n: n.dropped)),
    _by("network_speed_bytes", "Speed of a device's link in bytes per second.", ("device",), _nic(lambda n: n.speed)),
    _host("gpus", "GPUs of the host that nvidia-smi reports; missing if it failed.", lambda r: _count(r.gpus)),
    _of_gpus(
        "info",
        "A GPU's name and UUID. Always 1.",
        ("gpu", "uuid", "name"),
        lambda gpu: [((str(gpu.index), gpu.uuid, gpu.name), 1)],
    ),
    _gpu("use_ratio", "Part of the time in which the GPU worked.", lambda g: _ratio(g.use)),
    _gpu("memory_size_bytes", "Memory of the GPU.", lambda g: g.mem_total),
    _gpu("memory_used_bytes", "Memory of the GPU in use.", lambda g: g.mem_used),
    _gpu("temperature_celsius", "Temperature of the GPU.", lambda g: g.temp),
    _gpu("power_watts", "Power that the GPU draws.", lambda g: g.power),
    _gpu("power_limit_watts", "Power that the GPU may draw.", lambda g: g.power_limit),
    _gpu("sm_clock_hertz", "Clock of the GPU's multiprocessors.", lambda g: _hertz(g.sm_clock)),
    _gpu("sm_clock_max_hertz", "Highest clock of the GPU's multiprocessors.", lambda g: _hertz(g.sm_clock_max)),
    _of_gpus(
        "throttled",
        "1 for each reason that holds the GPU's clocks down now.",
        ("gpu", "reason"),
        lambda gpu: [((str(gpu.index), reason), 1) for reason in gpu.throttle or ()],
    ),
    _rank("cpu_seconds_total", "Time of cores that the rank's processes used.", lambda r: r.cpu_s),
    _rank("memory_bytes", "Resident memory of the rank's processes.", lambda r: r.rss),
    _rank("threads", "Threads of the rank's processes.", lambda r: r.threads),
    _rank("processes", "Processes of the rank.", lambda r: r.procs),
    _rank("core_wait_seconds_total", "Time that the rank's main thread waited for a core.", lambda r: r.waited_s),
    _rank("disk_wait_seconds_total", "Time that the rank's main process waited for disks.", lambda r: r.disk_s),
    _rank("throttled_seconds_total", "Time that the limit of its container stopped the rank.", lambda r: r.throttled_s),
)  # fmt: skip

METRICS: tuple[Metric, ...] = (INFO, UP, *(source.metric for source in SOURCES))


def _count(gpus: Sequence[Gpu] | None) -> int | None:
    return None if gpus is None else len(gpus)
