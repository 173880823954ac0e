"""Hosts and logins that fail: the host is named, with the cause and the next step, and nothing is half done."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rig import CONNECTIONS, Cluster, Done, kit, objects, until


def copied(cluster: Cluster, folder: Path, **changes: str) -> Path:
    """A folder with the cluster's own hosts, kit.yaml and login, in which a test may spoil something."""
    settings = (cluster.folder / "kit.yaml").read_text()
    for name in ("id_ed25519", "known_hosts"):
        settings = settings.replace(f".kit/lab/{name}", changes.get(name, str(cluster.folder / ".kit/lab" / name)))
    (folder / "kit.yaml").write_text(settings)
    (folder / "hosts").write_text(changes.get("hosts", (cluster.folder / "hosts").read_text()))
    return folder


def refused(done: Done, code: int, *words: str) -> None:
    assert done.returncode == code, done.stdout + done.stderr
    assert "→" in done.stderr, "no next step is shown"
    assert "Traceback" not in done.stderr
    missing = [word for word in words if word not in done.stderr]
    assert not missing, done.stderr


def test_an_unknown_login_is_refused_with_a_hint(cluster: Cluster) -> None:
    before = cluster.state()
    done = cluster.kit("deploy", "--ssh-user", "nobody")
    refused(done, 3, "nobody@", "user=")
    assert cluster.state() == before


def test_a_wrong_key_is_refused_with_a_hint(cluster: Cluster, tmp_path: Path) -> None:
    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    refused(cluster.kit("deploy", "--ssh-key", str(key)), 3, "refused the login", "key=")
    refused(cluster.kit("deploy", "--ssh-key", str(tmp_path / "none")), 3, "does not exist")


def test_a_host_with_another_key_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    lines = [line.split(" ", 1) for line in (cluster.folder / ".kit/lab/known_hosts").read_text().splitlines()]
    lines[1][1] = lines[2][1]
    wrong = tmp_path / "known_hosts"
    wrong.write_text("".join(f"{where} {key}\n" for where, key in lines))
    before = cluster.state()
    folder = copied(cluster, tmp_path, known_hosts=str(wrong))
    refused(kit(folder, "deploy"), 3, "gpu2", "host key", "ssh-keygen")
    done = kit(folder, "exec", "--", "hostname")
    assert done.returncode == 3
    assert "ssh-keygen" in done.stdout + done.stderr
    # Without code, a run logs in to the head alone, whose key is right.
    assert kit(folder, "run", "--code", "none", "--", "true").returncode == 0
    assert cluster.state() == before
    # With code, it logs in to every host, and starts no rank if one is not the pinned one.
    refused(kit(folder, "run", "--", "true"), 3, "gpu2", "host key", "ssh-keygen")


def test_an_unknown_host_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    none = tmp_path / "known_hosts"
    none.write_text("")
    folder = copied(cluster, tmp_path, known_hosts=str(none))
    refused(kit(folder, "deploy"), 3, "gpu", "not known here", "ssh ")
    refused(kit(folder, "run", "--", "true"), 3, "gpu1")


@pytest.fixture
def lost(cluster: Cluster, bases: Any) -> Iterator[str]:
    """gpu4 is switched off, as from the cloud's console."""
    (container,) = bases.containers.list(filters={"name": f"kit-lab-{cluster.name}-gpu4$"})
    container.stop(timeout=10)
    CONNECTIONS.forget()
    yield "gpu4"
    CONNECTIONS.forget()
    up = cluster.kit("lab", "up", "--name", cluster.name, "--hosts", "4", "--slots", "2")
    assert up.returncode == 0, up.stderr
    assert cluster.kit("deploy").returncode == 0
    until("gpu4's node is back", lambda: cluster.hosts[3].listeners(33) == [cluster.hosts[3].address])


def test_a_lost_host_is_named_and_the_others_stay_as_they_are(cluster: Cluster, lost: str) -> None:
    others = Cluster(name=cluster.name, folder=cluster.folder, hosts=cluster.hosts[:3])
    before = others.state()
    # With a change to make, so that there was something to leave half done.
    done = cluster.kit("deploy", KIT_SHM_SIZE="512mb")
    refused(done, 3, "gpu4", cluster.hosts[3].address)
    assert others.state() == before

    shown = cluster.kit("ps", "--output", "json")
    assert shown.returncode == 3
    nodes = {node["host"]: node["state"] for node in objects(shown)[-1]["nodes"]}
    assert nodes.pop("gpu4") == "unreachable"
    assert all(state.startswith("Up") for state in nodes.values())

    # The rest of the cluster works on.
    done = cluster.kit("run", "-H", "gpu[1-3]", "--", "hostname")
    assert sorted(done.stdout.split()) == ["gpu1", "gpu1", "gpu2", "gpu2", "gpu3", "gpu3"], done.stderr
    # A run that needs the lost host fails, names it by its address, and leaves no rank on those that did start.
    done = cluster.kit("run", "--", "sleep", "300")
    assert done.returncode not in (0, 70)
    assert cluster.hosts[3].address in done.stderr
    assert others.marked() == {}


def test_a_lost_head_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    nowhere = cluster.head.address.rpartition(".")[0] + ".250"
    folder = copied(cluster, tmp_path, hosts=f"{nowhere} name=gpu1 slots=2\n")
    refused(kit(folder, "run", "--", "true"), 3, nowhere)


def test_a_login_that_cannot_become_root_is_reported(cluster: Cluster) -> None:
    host = cluster.hosts[1]
    (rule,) = host.text("grep", "-l", "^ubuntu", "-r", "/etc/sudoers.d").split()
    host.text("mv", rule, "/root/it-rule")
    try:
        refused(cluster.kit("deploy", "--ssh-user", "ubuntu"), 4, "gpu2", "root", "sudo without a password")
    finally:
        host.text("mv", "/root/it-rule", rule)
