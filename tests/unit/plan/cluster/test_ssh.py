"""The files that let the head, and nobody else, log in to every node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kit.model.host import Host
from kit.model.spec import SshSpec
from kit.plan.cluster.ssh import authorized_keys, client_config, known_hosts, login
from tests.fakes.facts import node

NODES = (node(1), node(2))
KEYS = {"gpu1": "ssh-ed25519 AAAA1 kit-gpu1", "gpu2": "ssh-ed25519 AAAA2 kit-gpu2"}


@pytest.mark.parametrize(
    ("port", "first"),
    [
        (33, b"[10.0.0.1]:33,[gpu1]:33 ssh-ed25519 AAAA1 kit-gpu1"),
        (22, b"10.0.0.1,gpu1 ssh-ed25519 AAAA1 kit-gpu1"),
    ],
)
def test_known_hosts_pins_address_and_name(port: int, first: bytes) -> None:
    lines = known_hosts(NODES, KEYS, port).splitlines()
    assert lines[0] == first
    assert len(lines) == 2


@pytest.mark.parametrize("port", [22, 33])
def test_openssh_finds_the_pinned_keys(tmp_path: Path, port: int) -> None:
    file = tmp_path / "known_hosts"
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = key.with_suffix(".pub").read_text().strip()
    file.write_bytes(known_hosts(NODES, {"gpu1": public, "gpu2": public}, port))
    for name in ("10.0.0.2", "gpu2"):
        wanted = name if port == 22 else f"[{name}]:{port}"
        done = subprocess.run(["ssh-keygen", "-F", wanted, "-f", file], capture_output=True, check=False)
        assert done.returncode == 0, wanted


def test_only_the_head_may_log_in_and_only_with_its_key() -> None:
    line = authorized_keys("ssh-ed25519 AAAA kit", "10.0.0.1").decode()
    assert line == 'restrict,pty,from="10.0.0.1" ssh-ed25519 AAAA kit\n'


@pytest.mark.parametrize("target", ["gpu2", "10.0.0.2"])
def test_openssh_reads_the_config(tmp_path: Path, target: str) -> None:
    file = tmp_path / "config"
    file.write_bytes(client_config(NODES, 33))
    output = subprocess.run(["ssh", "-G", "-F", file, target], capture_output=True, text=True, check=True).stdout
    options = dict(line.split(" ", 1) for line in output.splitlines() if " " in line)
    assert options["hostname"] == "10.0.0.2"
    assert (options["port"], options["user"], options["batchmode"]) == ("33", "root", "yes")
    assert options["stricthostkeychecking"] in ("yes", "true")
    assert options["userknownhostsfile"] == "/etc/kit/ssh/known_hosts"
    assert options["identityfile"] == "/etc/kit/ssh/id_ed25519"


def test_other_hosts_are_reached_as_before(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_bytes(client_config(NODES, 33))
    output = subprocess.run(["ssh", "-G", "-F", file, "github.com"], capture_output=True, text=True, check=True).stdout
    assert "port 22\n" in output
    assert "/etc/kit" not in output


def test_the_hosts_file_goes_before_the_spec() -> None:
    spec = SshSpec(user="ubuntu", port=2222, key="k", known_hosts="kh")
    bare = login(Host(name="a", address="1.2.3.4"), spec)
    assert (bare.user, bare.port, bare.key, bare.known_hosts) == ("ubuntu", 2222, "k", "kh")
    own = login(Host(name="a", address="1.2.3.4", user="root", port=22, key="mine"), spec)
    assert (own.user, own.port, own.key, own.address, own.host) == ("root", 22, "mine", "1.2.3.4", "a")
