"""kitwatch.gauges: readings of a host whose /proc and /sys are folders of the test, and of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.model import names
from tests.fakes import launcher

files: Any = launcher.load("kitwatch.files")
gauges: Any = launcher.load("kitwatch.gauges")
system: Any = launcher.load("kitwatch.system")
devices: Any = launcher.load("kitwatch.devices")
run_metrics: Any = launcher.load("kitrun.metrics")
Host = Callable[..., None]

# Captured on a VM with 2 cores, in ticks of 10 ms.
STAT = """\
cpu  {user} 0 1000 {idle} 500 0 200 {steal} 7 0
cpu0 {one} 0 500 5000 250 0 100 0 7 0
cpu1 1000 0 500 5000 250 0 100 0 0 0
intr 1 2 3
procs_running {running}
procs_blocked 1
"""
NET = """\
Inter-|   Receive                                  |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier
    lo: 2350847351    7439492    0    0    0     0    0    0 2350847351 7439492    0    0    0     0       0    0
  eth0: {rx}  249378    1    2    0     0    0    0 {tx}  143037    3    4    0     0       0          0
  eth1: 5  249378    1    2    0     0    0    0 5  143037    3    4    0     0       0          0
docker0: 1170312   17869    0    0    0     0    0    0 1350712735   31331    0   40    0     0       0          0
"""
DISKS = """\
   7       0 loop0 5 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 259       0 nvme0n1 8590626 582661 {read} 8588334 2880535 6283344 200 14059154 0 {busy} 23454319 5043219 197 1 7 3 8
 259       1 nvme0n1p1 8590626 582661 1000 8588334 2880535 6283344 200 14059154 0 1626648 23454319 0 0 0 0 0 0
   8       0 sda 0 0 0 0 0 0 0 0 0 0 0
"""
MEMORY = "MemTotal:       24683656 kB\nMemFree:         1000000 kB\nMemAvailable:   14683656 kB\n"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Write a file of the host's /proc or /sys."""
    monkeypatch.setattr(files, "PROC", str(tmp_path / "proc"))
    monkeypatch.setattr(files, "SYS", str(tmp_path / "sys"))
    monkeypatch.setattr(files, "TICKS", 100)

    def write(path: str, text: str, **values: int) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text.format(**values) if values else text)

    return write


def busy(host: Host, ticks: int, *, steal: int = 0, running: int = 3, rx: int = 1000, busy: int = 0) -> None:
    host(
        "proc/stat",
        STAT,
        user=2000 + ticks,
        idle=10000 + 200 - ticks - steal,
        steal=steal,
        running=running,
        one=1000 + ticks,
    )
    host("proc/net/dev", NET, rx=rx, tx=500)
    host("proc/diskstats", DISKS, read=1000 + busy, busy=busy)
    host("proc/meminfo", MEMORY)
    host("proc/loadavg", "0.93 1.00 0.90 2/118 16591\n")


def test_two_readings_have_rates(host: Host, tmp_path: Path) -> None:
    at = 100.0
    watched = gauges.Gauges(gpu=False, paths=[str(tmp_path), str(tmp_path / "proc"), "/nowhere"], clock=lambda: at)
    busy(host, 0)
    host("proc/stat", STAT, user=2000, idle=10000, steal=0, running=1, one=1000)
    host("sys/class/net/eth0/speed", "10000\n")
    host("sys/class/net/eth1/operstate", "down\n")
    first = watched.read()
    assert (first["seconds"], first["cpu"], first["per_core"], first["nics"]["eth0"]["rx"]) == (None, None, None, None)
    assert (first["runq"], first["blocked"], first["cores"], first["load1"], first["psi"]) == (0, 1, 2, 0.93, None)
    assert first["mem"] == {"total": 24683656 << 10, "used": 10000000 << 10}
    # Both paths are on one file system.
    assert list(first["disk"]) == [str(tmp_path)]
    at = 102.0
    busy(host, 100, steal=20, rx=3001, busy=1000)
    second = watched.read()
    assert (second["cpu"], second["steal"], second["seconds"]) == (60.0, 10.0, 2.0)
    assert second["runq"] == 2
    assert second["nics"] == {
        "eth0": {
            "rx_bytes": 3001, "tx_bytes": 500, "errors": 4, "dropped": 6, "rx": 1000.5, "tx": 0.0, "speed": 1250000000,
        }
    }  # fmt: skip
    assert second["disks"]["nvme0n1"]["read"] == 500 * 512
    assert (second["disks"]["nvme0n1"]["busy"], list(second["disks"])) == (50.0, ["nvme0n1"])


def test_cores_one_by_one(host: Host) -> None:
    busy(host, 0)
    before = system.counters()
    host("proc/stat", "cpu 0\ncpu0 1100 0 500 5000 250 0 100 0\ncpu1 1000 0 500 5100 250 0 100 0\n")
    assert system.cores(system.counters(), before)["per_core"] == [100, 0]
    # A core came or went, so the lists cannot be compared.
    host("proc/stat", "cpu 0\ncpu1 1000 0 500 5100 250 0 100 0\n")
    assert system.cores(system.counters(), before)["per_core"] is None


def test_time_that_the_kernel_takes_back_makes_no_counter_fall(host: Host) -> None:
    watched = gauges.Gauges(gpu=False, paths=())

    def seconds(idle: int, iowait: int, user: int = 100) -> list[float]:
        host("proc/stat", f"cpu {user} 0 0 {idle} {iowait} 0 0 0\ncpu0 {user} 0 0 {idle} {iowait} 0 0 0\n")
        return [watched.read()["cpu_s"][mode] for mode in ("idle", "iowait", "user")]

    assert seconds(1000, 200) == [10.0, 2.0, 1.0]
    assert seconds(999, 150) == [10.0, 2.0, 1.0]
    # Still below what was shown before.
    assert seconds(1100, 190) == [11.0, 2.0, 1.0]
    # A container's own /proc/stat may begin again.
    assert seconds(1200, 300, user=50) == [12.0, 3.0, 0.5]


def test_the_disks_of_runs_are_those_of_a_vm_and_of_a_node() -> None:
    assert {names.ROOT, names.STATE_MOUNT} <= set(gauges.PATHS)


def test_pressure(host: Host) -> None:
    assert system.pressure() is None
    host("proc/pressure/cpu", "some avg10=0.18 avg60=5.55 avg300=3.89 total=1\nfull avg10=0.00 avg60=0.00 total=0\n")
    # Kernels before 5.13 have no full line for the cores.
    host("proc/pressure/io", "some avg10=1.50 avg60=5.55 avg300=3.89 total=1\n")
    assert system.pressure() == {"cpu": {"some": 0.18, "full": 0.0}, "io": {"some": 1.5}}


def test_a_device_that_came_back_has_no_negative_rate() -> None:
    rates = devices.disk_rates({"sda": {"read_bytes": 5.0}}, {"sda": {"read_bytes": 900.0}}, 1.0)
    assert rates["sda"]["read"] == 0.0
    assert devices.disk_rates({"sdb": {"read_bytes": 5.0}}, {"sda": {"read_bytes": 900.0}}, 1.0)["sdb"]["read"] is None


@pytest.mark.parametrize(
    ("below", "real", "counted"),
    [
        # A bond of two, a VLAN on it, and a bridge on that one.
        ({"bond0": "eth0 eth1", "bond0.5": "bond0", "br0": "bond0.5 vnet0"}, "eth0 eth1", "eth0 eth1"),
        # Azure: eth0 counts its virtual function, and is above it.
        ({"eth0": "enP1s1", "eth0.5": "eth0"}, "eth0 enP1s1", "eth0"),
        # What is below is in another network namespace, or is no device that carries anything.
        ({"eth0": "", "macvlan0": "eth9"}, "", "eth0 macvlan0"),
        ({"eth0": "", "lxdbr0": "veth1"}, "eth0", "eth0"),
    ],
)
def test_a_sum_of_devices_has_each_byte_once(
    host: Host, tmp_path: Path, below: dict[str, str], real: str, counted: str
) -> None:
    names = list(dict.fromkeys([*below, *real.split()]))
    for name in names:
        folder = tmp_path / "sys" / "class" / "net" / name
        for word in below.get(name, "").split():
            (folder / f"lower_{word}").mkdir(parents=True)
        if name in real.split():
            (folder / "device").mkdir(parents=True)
        if "br" in name:
            (folder / "bridge").mkdir(parents=True)
    known = {name: {"rx_bytes": 10.0, "tx_bytes": 1.0} for name in [*names, "mlx5_0/1"]}
    assert sorted(devices.lowest(known)) == sorted([*counted.split(), "mlx5_0/1"])
    reading = {"nics": known, "disks": {}, "cores": 1, "mem": {"used": 0, "total": 0}}
    point = run_metrics.point_of(reading, memory=0, cpu=None)
    assert (point["received"], point["sent"]) == (10 * len(devices.lowest(known)), len(devices.lowest(known)))


@pytest.mark.parametrize(
    ("kind", "adapter", "counted"),
    [
        # IP over InfiniBand, whose port counts it as well.
        ("32", "mlx5_0", ["eth0", "mlx5_0/1"]),
        # RoCE: the network device does not count RDMA, and the port nothing else.
        ("1", "mlx5_0", ["eth0", "ib0", "mlx5_0/1"]),
        # The port of another adapter, which counts no bytes.
        ("32", "mlx5_9", ["eth0", "ib0", "mlx5_0/1"]),
    ],
)
def test_a_sum_of_devices_has_what_ip_sends_over_infiniband_once(
    host: Host, tmp_path: Path, kind: str, adapter: str, counted: list[str]
) -> None:
    host("sys/class/net/ib0/type", f"{kind}\n")
    host("sys/class/net/ib0/dev_port", "0\n")
    host("sys/class/net/eth0/type", "1\n")
    (tmp_path / "sys/class/net/ib0/device/infiniband" / adapter).mkdir(parents=True)
    assert sorted(devices.lowest(dict.fromkeys(["eth0", "ib0", "mlx5_0/1"]))) == counted
    host("sys/class/net/ib0/dev_port", "1\n")
    assert sorted(devices.lowest(dict.fromkeys(["eth0", "ib0", "mlx5_0/1"]))) == ["eth0", "ib0", "mlx5_0/1"]


def test_rdma_goes_past_the_network_devices(host: Host) -> None:
    host("proc/net/dev", "a\nb\n")
    port = "sys/class/infiniband/mlx5_0/ports/1"
    host(f"{port}/state", "4: ACTIVE\n")
    host(f"{port}/rate", "200 Gb/sec (4X HDR)\n")
    host(f"{port}/counters/port_rcv_data", "250\n")
    host(f"{port}/counters/port_xmit_data", "500\n")
    host("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n")
    now = devices.nics()
    assert devices.nic_rates(now, None, 0)["mlx5_0/1"] == {
        "rx_bytes": 1000, "tx_bytes": 2000, "errors": 0, "dropped": 0, "rx": None, "tx": None, "speed": 25_000_000_000,
    }  # fmt: skip
    assert list(now) == ["mlx5_0/1"]


def test_a_port_of_rdma_without_counters_is_no_port_of_0_bytes(host: Host) -> None:
    host("proc/net/dev", "a\nb\n")
    for adapter in ("efa_0", "mlx5_1", "mlx5_2", "mlx5_3"):
        host(f"sys/class/infiniband/{adapter}/ports/1/state", "4: ACTIVE\n")
    # EFA counts bytes, and not words of 4 bytes.
    host("sys/class/infiniband/efa_0/ports/1/hw_counters/rx_bytes", "250\n")
    host("sys/class/infiniband/efa_0/ports/1/hw_counters/tx_bytes", "500\n")
    for name in ("port_rcv_data", "port_xmit_data"):
        host(f"sys/class/infiniband/mlx5_1/ports/1/counters/{name}", "N/A (no PMA)\n")
        host(f"sys/class/infiniband/mlx5_3/ports/1/counters/{name}", "0\n")
    assert {name: (one["rx_bytes"], one["tx_bytes"]) for name, one in devices.nics().items()} == {
        "efa_0/1": (250, 500),
        "mlx5_3/1": (0, 0),
    }
    assert devices.rdma_ports() == ["efa_0/1", "mlx5_1/1", "mlx5_2/1", "mlx5_3/1"]


@pytest.mark.parametrize("text", ["-1\n", "0\n", "", "x"])
def test_a_virtual_link_may_not_know_its_speed(host: Host, text: str) -> None:
    host("sys/class/net/eth0/speed", text)
    assert devices.speed("eth0") is None


def test_a_host_without_files_has_a_reading(host: Host) -> None:
    reading = gauges.Gauges(gpu=False, paths=()).read()
    assert (reading["cores"], reading["nics"], reading["disks"], reading["load1"]) == (0, {}, {}, None)


def test_this_machine() -> None:
    watched = gauges.Gauges(gpu=False, paths=["/"])
    watched.read()
    reading = json.loads(json.dumps(watched.read()))
    assert reading["cores"] >= 1
    assert 0 < reading["mem"]["used"] < reading["mem"]["total"]
    assert len(reading["per_core"]) == reading["cores"]


def test_a_long_file_is_read_to_its_end(host: Host) -> None:
    host("proc/long", "x" * 300_000)
    assert len(files.read(files.PROC + "/long")) == 300_000
    assert files.read(files.PROC) == b""


@pytest.mark.parametrize(("cpus", "text"), [([], ""), ([3], "3"), ([8, 0, 1, 2, 3, 10, 11], "0-3,8,10-11")])
def test_lists_of_cpus(cpus: list[int], text: str) -> None:
    assert files.cpu_list(cpus) == text
