"""From the text of observe.sh to facts; and what is said when a host cannot be looked at."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.errors import SlowError, StepError
from kit.model.observed import HostFacts
from kit.remote.cluster.observe import listener_word, observe, parse, runs_with_ranks
from kit.remote.ssh.transport import Completed
from tests.fakes.facts import host

HOST = host(4)

SYSTEM = """arch x86_64
cores 96
memory_kib 1056489000
os Ubuntu 22.04.4 LTS
disk_free_kib 461373440
"""
ADDRESSES = """1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
2: eth0    inet 10.0.0.4/24 metric 100 brd 10.0.0.255 scope global dynamic eth0\\       valid_lft 2862sec
2: eth0    inet 10.0.0.200/24 brd 10.0.0.255 scope global secondary eth0\\       valid_lft forever
3: docker0    inet 172.17.0.1/16 brd 172.17.255.255 scope global docker0\\       valid_lft forever
4: br-6f1c2d    inet 172.18.0.1/16 brd 172.18.255.255 scope global br-6f1c2d\\       valid_lft forever
7: eth1@if8    inet 192.168.7.4/20 scope global eth1\\       valid_lft forever
9: tun0    inet 10.8.0.6 peer 10.8.0.5/32 scope global tun0\\       valid_lft forever
"""
COMPOSE = {"Name": "compose", "Version": "v2.26.1", "Path": "/usr/libexec/docker/cli-plugins/docker-compose"}


def engine(**more: Any) -> str:
    info: dict[str, Any] = {
        "ServerVersion": "26.1.5",
        "Runtimes": {"runc": {"path": "runc"}, "io.containerd.runc.v2": {"path": "runc"}},
        "ClientInfo": {"Version": "26.1.5", "Plugins": [{"Name": "buildx", "Version": "v0.13.1"}, COMPOSE]},
    }
    return json.dumps({**info, **more})


def container(name: str, labels: str, *, state: str = "running", image: str = "kit:cpu-1") -> str:
    row = {"Names": name, "Labels": labels, "State": state, "Status": "Up 2 hours", "Image": image, "ID": "f" * 64}
    return json.dumps(row)


def seen(**sections: str) -> HostFacts:
    values = {"system": SYSTEM, "addresses": ADDRESSES, "engine": engine(), **sections}
    return parse(HOST, "".join(f"@@ {name}\n{text.rstrip()}\n" for name, text in values.items()) + "@@ end\n")


def test_runs_that_go_on() -> None:
    assert seen(living="20261121-101500-3fa2\n20261121-101501-0000").living == (
        "20261121-101500-3fa2", "20261121-101501-0000",
    )  # fmt: skip
    assert seen().living == seen().waiting == ()
    assert (seen().cordoned, seen(cordoned="yes").cordoned) == (False, True)
    assert seen(waiting="20261121-101500-3fa2\nby-hand-7\n../x").waiting == ("20261121-101500-3fa2",)


def test_the_system() -> None:
    facts = seen()
    assert (facts.arch, facts.cores, facts.memory_mib, facts.os) == ("x86_64", 96, 1031727, "Ubuntu 22.04.4 LTS")
    assert facts.disk_free_mib == 450560
    assert facts.host is HOST


@pytest.mark.parametrize("system", ["", "arch x86_64\ncores \n", "cores many\nmemory_kib\ndisk_free_kib -\n"])
def test_what_a_host_cannot_count_is_nought(system: str) -> None:
    facts = seen(system=system)
    assert (facts.cores, facts.memory_mib, facts.disk_free_mib) == (0, 0, 0)


def test_interfaces_in_their_order_with_secondary_addresses() -> None:
    assert [f"{i.name} {i.address}" for i in seen().interfaces] == [
        "lo 127.0.0.1/8", "eth0 10.0.0.4/24", "eth0 10.0.0.200/24", "docker0 172.17.0.1/16", "br-6f1c2d 172.18.0.1/16",
        "eth1 192.168.7.4/20", "tun0 10.8.0.6/32",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        ("default via 10.0.0.1 dev eth0 proto dhcp src 10.0.0.4 metric 100\n", "eth0"),
        ("default dev tun0 scope link\ndefault via 10.0.0.1 dev eth0\n", "tun0"),
        ("", None),
        ("default via 10.0.0.1 dev\n", None),
    ],
)
def test_the_default_route(route: str, expected: str | None) -> None:
    assert seen(route=route).default_interface == expected


@pytest.mark.parametrize(
    ("text", "version", "compose"),
    [
        (engine(), "26.1.5", "v2.26.1"),
        (engine(ClientInfo={"Plugins": [{"Name": "buildx", "Version": "1"}]}), "26.1.5", None),
        (engine(ClientInfo={"Plugins": None}), "26.1.5", None),
        (engine(ClientInfo={"Plugins": [{"Name": "compose", "Err": "exec format error"}]}), "26.1.5", None),
        # The engine does not answer: the client says so with an empty version, or in words.
        (engine(ServerVersion="", ServerErrors=["Cannot connect to the Docker daemon"]), "", "v2.26.1"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "", None),
        ("no docker on the PATH", "", None),
        ("WARNING: No swap limit support\n" + engine(), "26.1.5", "v2.26.1"),
        ("", "", None),
        ("[1]", "", None),
    ],
)
def test_the_engine(text: str, version: str, compose: str | None) -> None:
    facts = seen(engine=text)
    assert (facts.engine, facts.compose) == (version, compose)


@pytest.mark.parametrize(
    "text",
    [
        # The command of podman-docker, whose first line is on standard error.
        "Emulate Docker CLI using podman. Create /etc/containers/nodocker to quiet msg.\n"
        '{"host":{"arch":"amd64","buildahVersion":"1.37.2","cgroupManager":"systemd"},"store":{},"version":{}}',
        # Podman behind Docker's socket.
        engine(ServerVersion="5.2.2", BuildahVersion="1.37.2", Rootless=False),
    ],
)
def test_podman_in_place_of_docker(text: str) -> None:
    facts = seen(engine=text)
    assert (facts.engine, facts.podman) == ("", True)
    assert not seen(engine=engine()).podman


def test_gpus() -> None:
    lines = "NVIDIA A100-SXM4-40GB, 40960, GPU-5c3b\nTesla T4, [N/A], GPU-77aa\n"
    assert [(g.name, g.memory_mib, g.uuid) for g in seen(gpus=lines).gpus] == [
        ("NVIDIA A100-SXM4-40GB", 40960, "GPU-5c3b"),
        ("Tesla T4", 0, "GPU-77aa"),
    ]


@pytest.mark.parametrize(
    "complaint",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA driver is installed and running.",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.183",
        "No devices were found",
        "Unable to determine the device handle for GPU 0000:00:1E.0: GPU is lost, reboot, please",
    ],
)
def test_a_complaint_of_nvidia_smi_is_no_gpu(complaint: str) -> None:
    facts = seen(gpus=complaint)
    assert (facts.gpus, facts.driver) == ((), "")
    assert facts.gpu_fault == complaint.splitlines()[0]


def test_a_warning_of_nvidia_smi_hides_no_failure() -> None:
    rows = "WARNING: infoROM is corrupted at gpu 0000:17:00.0\nNVIDIA A100-SXM4-40GB, 40960, GPU-5c3b"
    assert seen(gpus=rows).gpu_fault.startswith("WARNING: infoROM")
    lost = "Unable to determine the device handle for GPU 0000:65:00.0: GPU is lost"
    assert seen(gpus=f"{rows}\n{lost}").gpu_fault == lost


def test_containers() -> None:
    labels = "com.docker.compose.project=kit-lab,kit.cluster=lab,kit.service=mpihead,kit.spec=ab12,odd"
    rows = [container("kit-lab-mpihead", labels), container("kit-x-mpinode", "kit.cluster=x", state="exited")]
    first, second = seen(containers="\n".join(rows)).containers
    assert (first.name, first.service, first.cluster, first.spec, first.running, first.image) == (
        "kit-lab-mpihead", "mpihead", "lab", "ab12", True, "kit:cpu-1",
    )  # fmt: skip
    assert (second.cluster, second.service, second.running, second.status) == ("x", "", False, "Up 2 hours")


def test_files_keys_and_record() -> None:
    record = json.dumps({"kit": 1, "name": "lab"}, indent=1)
    facts = seen(
        image="sha256:12ab",
        files="600 ./compose.yaml\n600 ssh/host_ed25519\n",
        digests="aa11  ./compose.yaml\nbb22  ssh/host_ed25519\n",
        host_key="ssh-ed25519 AAAA kit-gpu4",
        client_key="",
        record=record,
    )
    assert facts.modes == {"compose.yaml": "600", "ssh/host_ed25519": "600"}
    assert facts.files == {"compose.yaml": "aa11", "ssh/host_ed25519": "bb22"}
    assert facts.host_key == "ssh-ed25519 AAAA kit-gpu4"
    assert facts.client_key is None
    assert facts.image_id == "sha256:12ab"
    assert facts.record is not None
    assert json.loads(facts.record) == {"kit": 1, "name": "lab"}


def test_a_bare_host_has_none_of_it() -> None:
    facts = seen(image="", containers="", files="", listening="", route="", gpus="")
    assert (facts.image_id, facts.containers, facts.files, facts.record) == (None, (), {}, None)
    assert facts.listening == frozenset()


def test_listeners() -> None:
    assert seen(listening="0400000A:0021\n00000000:0016\n0100007F:1F90").listening == {
        "10.0.0.4:33", "0.0.0.0:22", "127.0.0.1:8080",
    }  # fmt: skip


@given(st.ip_addresses(v=4), st.integers(0, 65535))
def test_listeners_there_and_back(address: ipaddress.IPv4Address, port: int) -> None:
    assert seen(listening=listener_word(str(address), port)).listening == {f"{address}:{port}"}


class Saying:
    """A transport that answers every command with the same."""

    def __init__(self, completed: Completed) -> None:
        self.host = HOST
        self._completed = completed

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        return self._completed

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "message", "hint"),
    [
        (1, b"", b"sudo: a password is required\n", "cannot become it: sudo: a password", "sudo without a password"),
        (127, b"", b"kit: 1: exec: sudo: not found\n", "sudo: not found", "user=root"),
        (0, b"This account is not available.\n", b"", "could not be looked at (exit 0): This account", "POSIX shell"),
        (137, b"@@ system\narch x86_64\n", b"", "(exit 137)", "kit ssh gpu4"),
    ],
)
def test_a_host_that_cannot_be_looked_at(code: int, stdout: bytes, stderr: bytes, message: str, hint: str) -> None:
    transport = Saying(Completed(code=code, stdout=stdout, stderr=stderr))
    with pytest.raises(StepError) as caught:
        observe(transport, folder="/opt/kit/lab", image="kit:1")
    assert message in caught.value.message
    assert hint in str(caught.value.hint)
    assert caught.value.host == "gpu4"


def test_a_slow_engine_is_slow_and_not_absent() -> None:
    transport = Saying(Completed(code=75, stdout=b"@@ system\n", stderr=b"the engine did not report its images\n"))
    with pytest.raises(SlowError, match="did not report its images"):
        observe(transport, folder="/opt/kit/lab", image="kit:1")
    assert seen(engine="", slow="engine").slow


def test_the_runs_that_have_ranks() -> None:
    lines = b"20261121-101500-3fa2 0 41\n20261121-101500-3fa2 1 42\nby-hand-7 0 43\n../x 0 44\nodd\n\n"
    runs = runs_with_ranks(Saying(Completed(code=0, stdout=lines, stderr=b"")), cluster="lab")
    assert runs == {"20261121-101500-3fa2", "by-hand-7"}
    with pytest.raises(StepError, match="whether ranks run here: exit 1") as caught:
        runs_with_ranks(Saying(Completed(code=1, stdout=b"", stderr=b"")), cluster="lab")
    assert (caught.value.host, caught.value.hint) == ("gpu4", "run the same again, or look at the host: kit ssh gpu4")
