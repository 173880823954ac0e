"""The lab on this machine's engine. What counts is read from the engine, the hosts and /proc, not from kit's words."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from kit.errors import InputError, StepError
from kit.events import Silent
from kit.flows.lab.existing import open_engine
from kit.flows.lab.fault import lab_fault
from kit.flows.lab.lab import lab_down, lab_link_rate, lab_status, lab_up
from kit.model.lab import LABEL, LabSpec, LabStatus, network_name
from kit.plan import lab as plan
from kit.remote.lab.fault import names
from tests.integration import rig
from tests.integration.rig import CONNECTIONS, ssh

NAME = f"test-{os.getpid()}"


@pytest.fixture(scope="module")
def engine(bases: docker.DockerClient) -> docker.DockerClient:
    return bases


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[LabStatus]:
    status = lab_up(spec(), folder=folder, reporter=Silent())
    yield status
    lab_down(NAME, folder=folder)


def spec(**changes: object) -> LabSpec:
    return LabSpec(**{"name": NAME, "hosts": 2, "slots": 2, "nics": 2, "link_rate": "200mbit", **changes})  # type: ignore[arg-type]


def labeled(engine: docker.DockerClient, name: str) -> list[object]:
    filters: dict[str, str | list[str] | bool] = {"label": f"{LABEL}={name}"}
    return [
        *engine.containers.list(all=True, filters=filters, ignore_removed=True),
        *engine.networks.list(filters=filters),
        *engine.volumes.list(filters=filters),
    ]


def processes_of(container_ids: list[str]) -> list[str]:
    """Command lines of every process whose control group is one of these containers'."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(name in (process / "cgroup").read_text() for name in container_ids):
                commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return commands


def test_each_host_is_a_machine_of_its_own(lab: LabStatus, folder: Path) -> None:
    assert [host.name for host in lab.hosts] == ["gpu1", "gpu2"]
    for host in lab.hosts:
        assert ssh(folder, host.address, "hostname").stdout.strip() == host.name
        assert ssh(folder, host.address, "docker", "info", "--format", "{{.Name}}").stdout.strip() == host.name
        version = ssh(folder, host.address, "docker", "compose", "version", "--short").stdout
        assert version.removeprefix("v").startswith("2."), version
        assert "inet 172.17.0.1/16" in ssh(folder, host.address, "ip", "-4", "addr", "show", "docker0").stdout
        assert f"inet {host.address}/24" in ssh(folder, host.address, "ip", "-4", "addr", "show", "eth0").stdout


def test_the_shared_memory_of_a_host_has_half_of_the_memory(lab: LabStatus, folder: Path) -> None:
    (total,) = re.findall(r"MemTotal: +([0-9]+) kB", Path("/proc/meminfo").read_text())
    for host in lab.hosts:
        row = ssh(folder, host.address, "df", "-k", "--output=size,target", "/dev/shm").stdout.splitlines()[-1]
        size, target = row.split()
        assert target == "/dev/shm"
        assert int(total) * 0.45 < int(size) < int(total) * 0.55
        assert "drwxrwxrwt" in ssh(folder, host.address, "ls", "-ld", "/dev/shm").stdout


def test_hosts_reach_each_other_by_name(lab: LabStatus, folder: Path) -> None:
    first, second = lab.hosts
    assert second.address in ssh(folder, first.address, "getent", "hosts", second.name).stdout


def test_each_nic_has_its_own_network_and_rate(lab: LabStatus, folder: Path) -> None:
    nics = [ssh(folder, host.address, "ip", "-4", "-o", "address", "show", "eth1").stdout for host in lab.hosts]
    addresses = [re.search(r"inet (\S+)/24", nic) for nic in nics]
    assert addresses[0]
    assert addresses[1]
    first, second = addresses[0][1], addresses[1][1]
    assert first.rpartition(".")[0] == second.rpartition(".")[0] != lab.hosts[0].address.rpartition(".")[0]
    through = ssh(folder, lab.hosts[0].address, "ip", "route", "get", second).stdout
    assert f"dev eth1 src {first}" in through
    assert "rate 200Mbit" in ssh(folder, lab.hosts[0].address, "tc", "qdisc", "show", "dev", "eth1").stdout


# What faults change: files of the host, /proc, /sys, links, rates, filters, programs.
_STATE = r"""
md5sum /etc/ssh/sshd_config /etc/bash.bashrc /etc/hosts /etc/machine-id /proc/swaps 2>&1
sort /proc/mounts; find /usr/local /etc /boot /lib/modules -newer /usr/local/sbin/init -name '*kit-lab*' 2>&1
ls -A /sys/class /sys/devices/system /sys/devices/system/cpu/cpu0 /proc/sys/net/ipv4/neigh /usr/local/sbin /boot
ls -d /lib/modules 2>&1; cd /proc/sys; cat kernel/osrelease kernel/pid_max net/ipv4/tcp_[rw]mem
cat net/ipv4/tcp_congestion_control
cat net/ipv4/conf/all/rp_filter; cd /sys/class/net; cat eth0/mtu eth0/speed eth0/address eth0/carrier_changes
cat /sys/kernel/mm/transparent_hugepage/defrag /sys/devices/system/cpu/online
tc qdisc show dev eth0 | sed 's/qdisc tbf [0-9a-f]*//'
iptables -S INPUT; ip -o link show | grep -c .; ip -4 route; ss -Hltn | awk '{print $4}' | grep -v 127.0.0.11 | sort
sshd -T | grep maxstartups; df / /tmp /var/tmp --output=target; docker compose version; ls -A /var/lib/kit-lab/faults
"""


def test_all_faults_at_once_leave_no_trace_once_mended(lab: LabStatus, folder: Path) -> None:
    """What each looks like is the doctor's test. Those of GPUs and of a deployed node are not possible here."""
    name, address = lab.hosts[1].name, lab.hosts[1].address
    possible = [fault for fault in names() if fault not in ("shm", "head-ssh") and not fault.startswith("gpu-")]
    with pytest.raises(StepError, match="no node runs on this host"):
        lab_fault(name, "shm", name=NAME, folder=folder)
    before = ssh(folder, address, _STATE).stdout
    # python3 is gone with its fault, and clock-offset needs it. mac needs the host that docker-pool hides.
    for fault in sorted(possible, key=lambda name: (name == "python", name != "mac")):
        lab_fault(name, fault, name=NAME, folder=folder)
    assert lab_fault(name, name=NAME, folder=folder).faults == tuple(possible)
    assert ssh(folder, address, _STATE).stdout != before
    lab_fault(name, "tcp-buffers", name=NAME, folder=folder)  # twice is once
    assert lab_fault(name, "all", name=NAME, folder=folder, mend=True).faults == ()
    assert ssh(folder, address, _STATE).stdout == before
    assert ssh(folder, address, "python3", "-c", "'print(1)'").stdout == "1\n"


def test_the_other_login_has_sudo(lab: LabStatus, folder: Path) -> None:
    done = ssh(folder, lab.hosts[0].address, "sudo", "-n", "id", "-u", user="ubuntu")
    assert done.stdout.strip() == "0", done.stderr
    assert ssh(folder, lab.hosts[0].address, "id", "-u", user="ubuntu").stdout.strip() != "0"


def test_a_container_runs_inside_a_host(lab: LabStatus, folder: Path) -> None:
    """The smallest container there is: one static file, made here, and run with the host's network and a limit."""
    script = (
        "set -e; d=$(mktemp -d); cp /usr/bin/docker-init $d/tini; tar -C $d -c . | docker import - tiny:1 >/dev/null;"
        " docker run --rm --network host --memory 100m --shm-size 32m tiny:1 /tini --version"
    )
    done = ssh(folder, lab.hosts[0].address, script)
    assert done.returncode == 0, done.stderr
    assert "tini version" in done.stdout


def test_a_password_is_refused(lab: LabStatus, folder: Path) -> None:
    done = ssh(
        folder,
        lab.hosts[0].address,
        "true",
        BatchMode="no",
        PubkeyAuthentication="no",
        PreferredAuthentications="password,keyboard-interactive",
        NumberOfPasswordPrompts="1",
    )
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_a_wrong_host_key_is_refused(lab: LabStatus, folder: Path, tmp_path: Path) -> None:
    one, other = (line.split() for line in (folder / ".kit/lab/known_hosts").read_text().splitlines())
    assert one[2] != other[2]  # made inside each host, so no two are alike
    swapped = tmp_path / "known_hosts"
    swapped.write_text(f"{one[0]} {other[1]} {other[2]}\n")
    done = ssh(folder, one[0], "true", UserKnownHostsFile=str(swapped))
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_the_image_holds_no_key(engine: docker.DockerClient, lab: LabStatus) -> None:
    image = engine.containers.list(filters={"label": f"{LABEL}={NAME}"})[0].image
    assert image is not None
    save = subprocess.Popen(["docker", "save", image.id or ""], stdout=subprocess.PIPE)
    listing = _names_in_layers(save)
    assert any(name.endswith("usr/sbin/sshd") for name in listing)
    assert not [name for name in listing if "ssh_host_" in name or name.endswith(("id_ed25519", "authorized_keys"))]


def _names_in_layers(save: subprocess.Popen[bytes]) -> list[str]:
    assert save.stdout
    names = []
    with tarfile.open(fileobj=save.stdout, mode="r|") as outer:
        for member in outer:
            if member.isfile() and (member.name.endswith("layer.tar") or "blobs/" in member.name):
                stream = outer.extractfile(member)
                with contextlib.suppress(tarfile.ReadError), tarfile.open(fileobj=stream, mode="r|*") as layer:
                    names += [entry.name for entry in layer]
    assert save.wait() == 0
    return names


def test_the_files_are_private_and_relative(lab: LabStatus, folder: Path) -> None:
    assert (folder / ".kit/lab/id_ed25519").stat().st_mode & 0o777 == 0o600
    assert str(folder) not in (folder / "kit.yaml").read_text()


def test_links_are_shaped_both_ways(lab: LabStatus, engine: docker.DockerClient, folder: Path) -> None:
    """From the qdiscs themselves: at the host's end, and at the far end in the machine's network."""
    for host in lab.hosts:
        near = ssh(folder, host.address, "tc", "qdisc", "show", "dev", "eth0").stdout
        assert "tbf" in near
        assert "rate 200Mbit" in near
        index = ssh(folder, host.address, "cat", "/sys/class/net/eth0/iflink").stdout.strip()
        far = next(p.parent.name for p in Path("/sys/class/net").glob("*/ifindex") if p.read_text().strip() == index)
        image = engine.containers.list(filters={"label": f"{LABEL}={NAME}"})[0].image
        assert image
        show = rig.engine("run", "--rm", "--network", "host", str(image.id), "tc", "qdisc", "show", "dev", far)
        assert "rate 200Mbit" in show


def test_what_shapes_links_leaves_no_volume(lab: LabStatus, engine: docker.DockerClient, folder: Path) -> None:
    """It looks only at what the lab's own containers mount: other tests make volumes meanwhile."""
    began = engine.info()["SystemTime"]
    lab_link_rate("200mbit", NAME, folder=folder)

    def events(*filters: str) -> list[dict[str, Any]]:
        words = ["docker", "events", "--since", began, "--until", engine.info()["SystemTime"], "--format", "{{json .}}"]
        words += [word for condition in filters for word in ("--filter", condition)]
        lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
        return [json.loads(line) for line in lines]

    created = {event["id"] for event in events("type=container", "event=create", f"label={LABEL}={NAME}")}
    assert created, "no container shaped the links"
    actors = [event["Actor"] for event in events("type=volume", "event=mount")]
    volumes = {actor["ID"] for actor in actors if actor["Attributes"].get("container") in created}
    assert volumes, "the container mounted no volume"
    assert not volumes & {volume.name for volume in engine.volumes.list()}


def test_up_again_changes_nothing(lab: LabStatus, engine: docker.DockerClient, folder: Path) -> None:
    def state() -> list[tuple[str, str]]:
        containers = engine.containers.list(filters={"label": f"{LABEL}={NAME}"})
        return sorted((c.id or "", c.attrs["State"]["StartedAt"]) for c in containers)

    before, files = state(), {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}
    again = lab_up(spec(), folder=folder, reporter=Silent())
    assert not again.changed
    assert again.hosts == lab.hosts
    assert state() == before
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()} == files


def test_another_shape_or_folder_is_refused(lab: LabStatus, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="another shape") as shape:
        lab_up(spec(hosts=3), folder=folder, reporter=Silent())
    assert "kit lab down" in (shape.value.hint or "")
    with pytest.raises(InputError, match="belongs to the folder"):
        lab_up(spec(), folder=tmp_path, reporter=Silent())
    with pytest.raises(InputError, match="belongs to the folder"):
        lab_down(NAME, folder=tmp_path)
    assert lab_status(NAME, folder=folder).state == "running"


def test_stopped_and_lost_hosts_come_back(lab: LabStatus, engine: docker.DockerClient, folder: Path) -> None:
    by_host = {c.attrs["Config"]["Hostname"]: c for c in engine.containers.list(filters={"label": f"{LABEL}={NAME}"})}
    pinned = (folder / ".kit/lab/known_hosts").read_text().splitlines()
    by_host["gpu1"].stop(timeout=20)
    by_host["gpu2"].remove(force=True)
    CONNECTIONS.forget()
    assert lab_status(NAME, folder=folder).state == "stopped"

    again = lab_up(spec(), folder=folder, reporter=Silent())
    assert again.changed
    assert [(h.name, h.address) for h in again.hosts] == [(h.name, h.address) for h in lab.hosts]
    now = (folder / ".kit/lab/known_hosts").read_text().splitlines()
    assert now[0] == pinned[0]  # a stopped host keeps its key
    assert now[1] != pinned[1]  # a new one has a new key, and it is pinned
    for host in again.hosts:
        assert ssh(folder, host.address, "docker", "info").returncode == 0
        assert "rate 200Mbit" in ssh(folder, host.address, "tc", "qdisc", "show", "dev", "eth0").stdout


def test_files_of_a_person_are_never_written_over(engine: docker.DockerClient, tmp_path: Path) -> None:
    other = f"{NAME}-own"
    (tmp_path / "hosts").write_text("10.0.0.1\n")
    with pytest.raises(InputError, match="not the lab's") as caught:
        lab_up(spec(name=other), folder=tmp_path, reporter=Silent())
    assert caught.value.file == str(tmp_path / "hosts")
    assert [p.name for p in tmp_path.iterdir()] == ["hosts"]
    assert not labeled(engine, other)


def test_an_interrupted_up_takes_away_what_it_began(engine: docker.DockerClient, tmp_path: Path) -> None:
    other = f"{NAME}-cut"
    code = (
        "import signal, sys; from pathlib import Path; from kit.errors import Interrupted;"
        "from kit.events import Silent; from kit.flows.lab.lab import lab_up; from kit.model.lab import LabSpec\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores it
        "try: lab_up(LabSpec(name=sys.argv[1], hosts=2), folder=Path(sys.argv[2]), reporter=Silent())\n"
        "except Interrupted: sys.exit(130)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, other, str(tmp_path)])
    try:
        while not labeled(engine, other):
            assert child.poll() is None
            time.sleep(0.02)
        child.send_signal(2)
        assert child.wait(timeout=180) == 130
        assert not labeled(engine, other)
        assert not list(tmp_path.iterdir())
    finally:
        child.kill()
        child.wait()
        lab_down(other, folder=tmp_path)


def test_a_killed_up_is_completed_by_the_next(engine: docker.DockerClient, tmp_path: Path) -> None:
    other = f"{NAME}-kill"
    code = (
        "import sys; from pathlib import Path; from kit.events import Silent;"
        "from kit.flows.lab.lab import lab_up; from kit.model.lab import LabSpec\n"
        "lab_up(LabSpec(name=sys.argv[1], hosts=2), folder=Path(sys.argv[2]), reporter=Silent())\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, other, str(tmp_path)])
    while not labeled(engine, other):
        assert child.poll() is None
        time.sleep(0.02)
    child.kill()
    child.wait()
    try:
        status = lab_up(spec(name=other, link_rate=None, nics=1), folder=tmp_path, reporter=Silent())
        assert status.state == "running"
        assert all(ssh(tmp_path, host.address, "docker", "info").returncode == 0 for host in status.hosts)
    finally:
        lab_down(other, folder=tmp_path)
    assert not labeled(engine, other)
    assert not list(tmp_path.iterdir())


def test_the_container_of_a_host_is_known_by_its_labels(
    lab: LabStatus, engine: docker.DockerClient, folder: Path
) -> None:
    """The engine adds the image's labels to them."""
    container = engine.containers.get(f"{network_name(NAME)}-{lab.hosts[0].name}")
    with open_engine() as of_lab:
        existing = of_lab.find(NAME)
        assert existing.network
        subnets = [network.subnet for network in (existing.network, *existing.more_nics)]
        image = container.attrs["Config"]["Image"]
        ours, others = (
            plan.host_containers(spec(), folder=str(path), image=image, subnets=subnets, public_key="none")[0]
            for path in (folder, folder / "other")
        )
        assert set(ours.labels) < set(container.labels)
        of_lab.create(ours)
        with pytest.raises(StepError, match="already in use"):
            of_lab.create(others)
    assert engine.containers.get(container.name or "").id == container.id


def test_down_leaves_nothing_and_keeps_what_a_person_changed(engine: docker.DockerClient, tmp_path: Path) -> None:
    other = f"{NAME}-down"
    lab_up(spec(name=other, user="ubuntu"), folder=tmp_path, reporter=Silent())
    ids = [c.id or "" for c in engine.containers.list(filters={"label": f"{LABEL}={other}"})]
    networks = {n.id for n in engine.networks.list(filters={"label": f"{LABEL}={other}"})}
    assert any("dockerd" in line for line in processes_of(ids))
    with (tmp_path / "kit.yaml").open("a") as file:
        file.write("# mine\n")

    removed = lab_down(other, folder=tmp_path)

    assert (removed.containers, removed.volumes, removed.networks) == (2, 2, 2)
    assert [path.name for path in removed.kept] == ["kit.yaml"]
    assert [path.name for path in tmp_path.iterdir()] == ["kit.yaml"]
    assert not labeled(engine, other)
    assert not processes_of(ids)
    assert not networks & {n.id for n in engine.networks.list()}
    assert lab_down(other, folder=tmp_path).empty
