"""kit tune's effects: a host's facts as text, the probe of TCP for real, and a file that is changed in one piece."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kit.errors import InputError, KitError, StepError
from kit.model.host import Host
from kit.remote.ssh.transport import Completed, Transport
from kit.remote.tune import wire as tune
from tests.fakes.facts import node

CAPTURES = Path(__file__).parents[4] / "tests/captures/nvidia-smi"

TEXT = """\
threads 32
core 0:0
core 0:1
core 1:0
core 1:1
socket 0
socket 1
numa 0
numa 1
other eth1 25000 9000
other ib0 -1 2044
nic eth0 10000 1500
address 1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
address 2: eth0    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0
address 3: eth1@if7    inet 10.1.0.1/16 brd 10.1.255.255 scope global eth1
congestion cubic
gpu Tesla T4
gpu Tesla T4
topo \t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\x1b[0m
topo GPU0\t X \tPHB\t0-15\t0
topo GPU1\tPHB\t X \t0-15\t0
topo Legend:
topo   SYS  = Connection traversing PCIe as well as the SMP interconnect
end
"""


def test_facts_from_the_text() -> None:
    machine = tune.parse(node(1), TEXT)
    assert (machine.name, machine.slots, machine.threads, machine.cores, machine.sockets, machine.numa) == (
        "gpu1",
        2,
        32,
        4,
        2,
        2,
    )
    assert (machine.nic, machine.nic_mbit, machine.mtu, machine.congestion) == ("eth0", 10000, 1500, "cubic")
    assert machine.others == (("eth1", 25000),)
    assert [(address.name, str(address.address)) for address in machine.addresses] == [
        ("lo", "127.0.0.1/8"), ("eth0", "10.0.0.1/24"), ("eth1", "10.1.0.1/16"),
    ]  # fmt: skip
    assert (machine.address, machine.up) == ("10.0.0.1", ("eth0", "eth1", "ib0"))
    assert (machine.gpus, machine.gpu_links) == (("Tesla T4", "Tesla T4"), ("PHB",))


def test_what_a_host_does_not_tell_is_not_known() -> None:
    machine = tune.parse(node(1), "threads 2\nnic eth0 -1 1500\nend\n")
    assert (machine.cores, machine.sockets, machine.numa, machine.nic_mbit, machine.gpus) == (0, 1, 1, None, ())
    assert tune.parse(node(1), "end\n").nic == ""
    assert (machine.addresses, machine.up) == ((), ("eth0",))


class Here:
    """A transport to this very machine."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def host(self) -> Host:
        return self._host

    def run(self, argv: list[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        argv = [sys.executable if word == "python3" else word for word in argv]
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout_s, check=False)
        return Completed(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def close(self) -> None:
        pass


def here(host: Host) -> Transport:
    return Here(host)  # type: ignore[return-value]


def test_the_script_runs_on_this_machine() -> None:
    machine = tune.machine(here(Host(name="gpu1", address="127.0.0.1")), node(1, address="127.0.0.1"))
    assert machine.threads >= 1
    assert machine.sockets >= 1
    if shutil.which("ip"):
        assert "127.0.0.1" in {str(item.address.ip) for item in machine.addresses}


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "OMP_THREAD_LIMIT"])
def test_a_variable_of_the_login_changes_no_number_of_threads(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """nproc goes by it, and kit tune would then divide 1 core, or cores that are not there."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1000")
    monkeypatch.setenv(variable, "1000" if variable == "OMP_NUM_THREADS" else "1")
    machine = tune.machine(here(Host(name="gpu1", address="127.0.0.1")), node(1, address="127.0.0.1"))
    assert machine.threads == len(os.sched_getaffinity(0))


def test_cores_that_a_container_sees_and_may_not_use_do_not_count() -> None:
    """/sys of a container has all of the machine."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        machine = tune.machine(here(Host(name="gpu1", address="127.0.0.1")), node(1, address="127.0.0.1"))
    finally:
        os.sched_setaffinity(0, allowed)
    assert machine.threads == 1
    assert (machine.cores or 1, machine.sockets, machine.numa) == (1, 1, 1)
    assert tune.parse(node(1), "threads 1\ncore 0:0\ncore 0:1\nend\n").cores == 1


@pytest.mark.parametrize(
    ("printed", "code", "gpus"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, ()),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.183", 18, ()),
        ("No devices were found", 0, ()),
        ("GPU-5b1c-0a, NVIDIA H200\nGPU-5b1c-0b, Odd, Inc. GPU", 0, ("NVIDIA H200", "Odd, Inc. GPU")),
        # nvidia-smi warns of a broken infoROM after its rows, with exit code 14.
        ("GPU-5b1c-0a, Tesla T4\nWARNING: infoROM is corrupted at gpu 0000:01:00.0", 14, ("Tesla T4",)),
    ],
)
def test_complaints_of_nvidia_smi_are_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, code: int, gpus: tuple[str, ...]
) -> None:
    (tmp_path / "printed").write_text(f"{printed}\n")
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat '{tmp_path}/printed'\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    machine = tune.machine(here(Host(name="gpu1", address="127.0.0.1")), node(1, address="127.0.0.1"))
    assert machine.gpus == gpus


def test_the_probe_finds_a_rate_for_every_host() -> None:
    nodes = [node(n, address="127.0.0.1") for n in (1, 2, 3)]
    hosts = {item.name: Host(name=item.name, address="127.0.0.1") for item in nodes}
    rates = tune.wire_rates(nodes, hosts, here, seconds=0.3)
    assert set(rates) == {"gpu1", "gpu2", "gpu3"}
    # In bytes a second, not megabytes: a loopback is not a slow link, even if this machine pauses for a while.
    assert all(rate > 1e5 for rate in rates.values())


def test_the_probe_finds_a_rate_where_a_host_pauses() -> None:
    """No time is left for sending when it comes to that."""
    nodes = [node(1, address="127.0.0.1")]
    hosts = {"gpu1": Host(name="gpu1", address="127.0.0.1")}
    assert tune.wire_rates(nodes, hosts, here, seconds=0.0)["gpu1"] > 0


def test_no_two_hosts_of_a_probe_have_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "PORTS", (20000, 20002))
    seen: list[str] = []

    class Told(Here):
        def run(self, argv: list[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            seen.append(argv[argv.index("-") + 2])
            return Completed(code=0, stdout=b'{"received": 1, "seconds": 1}', stderr=b"")

    nodes = [node(n) for n in (1, 2, 3)]
    hosts = {item.name: Host(name=item.name, address=item.address) for item in nodes}
    tune.wire_rates(nodes, hosts, Told, seconds=0.1)  # type: ignore[arg-type]
    assert sorted(seen) == ["20000", "20001", "20002"]


def test_a_probe_that_fails_names_the_host() -> None:
    nodes = [node(n, address="127.0.0.1") for n in (1, 2)]
    nodes[1] = node(2, address="203.0.113.9")
    hosts = {item.name: Host(name=item.name, address=item.address) for item in nodes[1:]}
    with pytest.raises(StepError, match="gpu2: TCP could not be measured"):
        tune.wire_rates(nodes[1:], hosts, here, seconds=0.1)


def test_a_file_is_replaced_in_one_piece(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "kit.yaml"
    real.write_text("name: a\n")
    real.chmod(0o640)
    link.symlink_to(real)
    tune.replace_text(link, before="name: a\n", after="name: b\r\n")
    assert real.read_bytes() == b"name: b\r\n"
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kit.yaml", "real.yaml"]
    tune.replace_text(tmp_path / "new.yaml", before="", after="x\n")
    assert (tmp_path / "new.yaml").read_text() == "x\n"


def test_what_somebody_changed_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "kit.yaml"
    path.write_text("name: theirs\n")
    with pytest.raises(InputError, match="changed while kit tune measured"):
        tune.replace_text(path, before="name: a\n", after="name: b\n")
    assert path.read_text() == "name: theirs\n"


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(KitError, match="cannot be written"):
        tune.replace_text(tmp_path / "none" / "kit.yaml", before="", after="x")
    with pytest.raises(InputError, match="cannot be read"):
        tune.read_text(tmp_path)


def test_a_link_from_a_gpu_to_a_nic_is_not_between_gpus() -> None:
    matrix = (CAPTURES / "h200x2-570/topology.txt").read_text()
    assert "SYS" in matrix
    text = "".join(f"topo {line}\n" for line in matrix.splitlines())
    assert tune.parse(node(1), text).gpu_links == ("NV18",)
