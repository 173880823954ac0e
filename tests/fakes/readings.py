"""Readings of a cluster in use: two hosts with GPUs, one without a GPU, and two that have no figures."""

from __future__ import annotations

from kit.errors import UnreachableError
from kit.model.values import replace
from kit.model.watch import Disk, Gpu, Nic, Other, RankReading, Reading, Room, Seen
from kit.plan.watch.rows import History

GB = 10**9
RUN = "20261123-101500-3fa2"


def gpu(index: int, use: float | None = 97.0, **values: object) -> Gpu:
    fields = {
        "uuid": f"GPU-{index}",
        "name": "NVIDIA H200",
        "use": use,
        "mem_used": 90 * GB,
        "mem_total": 150 * GB,
        "temp": 61.0,
        "power": 694.12,
        "power_limit": 700.0,
        "sm_clock": 1755.0,
        "sm_clock_max": 1980.0,
        "throttle": ("sw_power_cap",),
    }
    return Gpu(index=index, **{**fields, **values})  # type: ignore[arg-type]


def rank(number: int, **values: object) -> RankReading:
    fields = {
        "pid": 4000 + number,
        "comm": "python3",
        "procs": 5,
        "cpu": 412.0 - 10 * number,
        "cpu_s": 1890.5 + number,
        "rss": (6 + number) * GB,
        "threads": 64,
        "state": "R",
        "wchan": "0",
        "allowed": "0-15",
    }
    return RankReading(run=RUN, rank=number, **{**fields, **values})  # type: ignore[arg-type]


def reading(cpu: float = 64.0, **values: object) -> Reading:
    fields = {
        "at": 1795000000.0,
        "seconds": 1.0,
        "cores": 96,
        "cpu": cpu,
        "steal": 0.0,
        "iowait": 1.2,
        "runq": 61,
        "load1": 58.3,
        "mem": Room(total=1082 * GB, used=251 * GB),
        "disk": {"/": Room(total=100 * GB, used=45 * GB)},
        "disks": {"nvme0n1": Disk(read=5e8, written=0.0, busy=31.0)},
        "nics": {"eth0": Nic(rx=1.1e9, tx=1.2e9, speed=3125000000), "eth1": Nic(rx=10.0, tx=10.0)},
        "gpus": (gpu(0), gpu(1, 93.0)),
        "ranks": (rank(0), rank(1)),
    }
    return Reading(**{**fields, **values})  # type: ignore[arg-type]


def cluster() -> tuple[tuple[Seen, ...], History]:
    """Return what kit knows of five hosts, and the history of some seconds."""
    hot = gpu(1, 99.0, temp=91.0, sm_clock=1200.0, throttle=("hw_slowdown", "hw_thermal_slowdown"))
    bare = gpu(0, None, name="NVIDIA A100-SXM4-40GB MIG", power_limit=None, throttle=None, sm_clock=None)
    second = reading(
        88.0,
        runq=140,
        steal=7.5,
        gpus=(bare, hot),
        ranks=(rank(2, state="D", wchan="folio_wait_bit"), rank(3)),
        others=(Other(pid=9, comm="stress-ng", cpu=99.7, core=3),),
    )
    head = reading(2.0, cores=8, runq=0, load1=0.1, gpus=(), ranks=(), nics={"eth0": Nic(rx=5e3, tx=12345.0)})
    lost = UnreachableError("no SSH connection: connect to host 10.0.0.4 port 22: Connection timed out", host="gpu3")
    history = History()
    for number, cpu in enumerate((5.0, 20.0, 50.0, 80.0, 100.0, 64.0), 1):
        first = replace(reading(cpu), gpus=(gpu(0, 97.0), gpu(1, 10.0 * number)))
        history.add([Seen(host="gpu1", reading=first, number=number)])
    seen = (
        Seen(host="head", reading=head, number=1),
        Seen(host="gpu1", reading=reading(), number=7),
        Seen(host="gpu2", reading=second, number=1),
        Seen(host="gpu3", error=lost),
        Seen(host="gpu4", reading=reading(), number=9, age=21.0),
    )
    history.add(seen)
    return seen, history


LAST = {
    0: "epoch 3 step 120 loss 0.3412 1204 img/s",
    1: "epoch 3 step 120 loss 0.3398 1201 img/s",
    2: "\x1b[31mWARNING\x1b[0m reading shard 17 took 4.2 s \x1b]0;title\x07of the data set on a slow disk, again",
    3: "验证集 准确率 91.3 %",
}
