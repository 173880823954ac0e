"""Who may talk to the nodes' sshd, and with what keys. Every door is tried; no setting is believed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.rig import ROOT, VM, Cluster, Done, everywhere, until
from tests.integration.spawn import SPAWN

PINNED = ("-F", "none", "-p", "33", "-o", "StrictHostKeyChecking=yes",
          "-o", "UserKnownHostsFile=/etc/kit/ssh/known_hosts")  # fmt: skip
THE_KEY = ("-o", "IdentitiesOnly=yes", "-i", "/etc/kit/ssh/id_ed25519")


def knock(cluster: Cluster, node: VM, *words: str) -> Done:
    """OpenSSH from inside the head, with what the test says and nothing of the cluster's own configuration."""
    return cluster.inside(cluster.head, "ssh", *PINNED, *words[:-1], f"root@{node.address}", words[-1])


def test_the_door_opens_to_the_key(cluster: Cluster) -> None:
    """Without this, all the refusals below would prove nothing."""
    for node in cluster.hosts:
        done = knock(cluster, node, "-o", "BatchMode=yes", *THE_KEY, "hostname")
        assert (done.returncode, done.stdout) == (0, f"{node.name}\n"), done.stderr


def test_sshd_listens_on_the_clusters_address_alone(cluster: Cluster) -> None:
    assert everywhere(cluster.hosts, lambda host: host.listeners(33)) == {h.name: [h.address] for h in cluster.hosts}


def test_a_password_is_refused(cluster: Cluster) -> None:
    ways = ("-o", "PubkeyAuthentication=no", "-o", "PreferredAuthentications=password,keyboard-interactive")
    for node in cluster.hosts:
        done = knock(cluster, node, *ways, "true")
        assert done.returncode == 255
        # The server names all that it would take: the key, and nothing else.
        assert "Permission denied (publickey)." in done.stderr


@pytest.fixture
def other_key(cluster: Cluster) -> Iterator[str]:
    path = "/tmp/it-other-key"
    cluster.inside(cluster.head, "rm", "-f", path, f"{path}.pub")
    assert cluster.inside(cluster.head, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path).returncode == 0
    yield path
    cluster.inside(cluster.head, "rm", "-f", path, f"{path}.pub")


def test_another_key_is_refused(cluster: Cluster, other_key: str) -> None:
    for node in cluster.hosts:
        done = knock(cluster, node, "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i", other_key, "true")
        assert done.returncode == 255
        assert "Permission denied (publickey)." in done.stderr


def test_another_user_is_refused(cluster: Cluster) -> None:
    node = cluster.hosts[1]
    done = cluster.inside(
        cluster.head, "ssh", *PINNED, "-o", "BatchMode=yes", *THE_KEY, f"daemon@{node.address}", "true"
    )
    assert done.returncode == 255
    assert "Permission denied (publickey)." in done.stderr


def test_the_key_is_worth_nothing_elsewhere(cluster: Cluster) -> None:
    """Even stolen, the head's key opens no node from another address than the head's."""
    thief, node = cluster.hosts[1], cluster.hosts[2]
    key = cluster.head.text("cat", f"/opt/kit/{cluster.name}/ssh/id_ed25519")
    pins = cluster.head.text("cat", f"/opt/kit/{cluster.name}/ssh/known_hosts")
    script = (
        "umask 077; d=$(mktemp -d); trap 'rm -r $d' EXIT; cat >$d/all; sed -n '1,/^@@$/{/^@@$/!p}' $d/all >$d/key;"
        " sed '1,/^@@$/d' $d/all >$d/pins; ssh -F none -p 33 -i $d/key -o IdentitiesOnly=yes -o BatchMode=yes"
        " -o StrictHostKeyChecking=yes -o UserKnownHostsFile=$d/pins root@$1 true"
    )
    done = thief.ssh("sh", "-c", script, "sh", node.address, stdin=f"{key}@@\n{pins}")
    assert done.returncode == 255
    assert "Permission denied (publickey)." in done.stderr


def test_nothing_is_forwarded(cluster: Cluster) -> None:
    node = cluster.hosts[1]
    # The node's own VM listens on 22, so an open tunnel would bring its banner.
    tunnel = knock(cluster, node, "-o", "BatchMode=yes", *THE_KEY, "-W", f"{node.address}:22", "")
    assert tunnel.returncode == 255
    assert "SSH-2.0" not in tunnel.stdout
    assert "administratively prohibited" in tunnel.stderr
    remote = ("-o", "ExitOnForwardFailure=yes", "-R", "127.0.0.1:9999:127.0.0.1:22")
    done = knock(cluster, node, "-o", "BatchMode=yes", *THE_KEY, *remote, "true")
    assert done.returncode == 255
    assert "remote port forwarding failed" in done.stderr
    agent = 'eval "$(ssh-agent)" >&2; ssh "$@"; code=$?; kill $SSH_AGENT_PID; exit $code'
    session = ("-o", "BatchMode=yes", *THE_KEY, "-A", f"root@{node.address}", 'echo "agent=$SSH_AUTH_SOCK x=$DISPLAY"')
    done = cluster.inside(cluster.head, "env", "DISPLAY=127.0.0.1:9", "sh", "-c", agent, "sh", *PINNED, "-Y", *session)
    assert done.stdout.strip() == "agent= x=", done.stderr


def test_a_session_has_the_images_environment(cluster: Cluster) -> None:
    for node in cluster.hosts:
        session = dict(
            line.split("=", 1)
            for line in knock(cluster, node, "-o", "BatchMode=yes", *THE_KEY, "env").stdout.splitlines()
            if "=" in line
        )
        (container,) = node.containers(cluster.name)
        own = dict(entry.split("=", 1) for entry in container["Config"]["Env"])
        assert {"PATH", "NCCL_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE", "KIT_NODE"} <= own.keys()
        assert {name: session.get(name) for name in own} == own


def test_a_node_that_is_not_the_pinned_one_gets_no_rank(cluster: Cluster) -> None:
    """gpu3 answers with another key than the head knows: nothing starts anywhere. The next deploy repairs the pin."""
    path = f"/opt/kit/{cluster.name}/ssh/known_hosts"
    right = cluster.head.text("cat", path)
    lines = [line.split(" ", 1) for line in right.splitlines()]
    lines[2][1] = lines[3][1]
    wrong = "".join(f"{where} {key}\n" for where, key in lines)
    cluster.head.text("sh", "-c", 'cat >"$1"', "sh", path, stdin=wrong)
    done = cluster.kit("run", "--", "touch", "/dev/shm/it-ran")
    assert done.returncode not in (0, 70)
    assert "Host key verification failed" in done.stderr
    assert cluster.marked() == {}
    for host in cluster.hosts:
        assert cluster.inside(host, "test", "-e", "/dev/shm/it-ran").returncode == 1, host.name

    assert cluster.kit("deploy").returncode == 0
    assert cluster.head.text("cat", path) == right
    assert cluster.kit("run", "--", "true").returncode == 0


# A rank writes where root on the VM reads: in the folder that its node has for what runs leave.
PLANT = r"""
cd /var/lib/kit && mkdir -p runs && cd runs
mkdir 20991231-235959-0bad 20991231-235959-0fee
echo '{"places":[1]}' >20991231-235959-0bad/record.json
ln -s /etc/it-planted 20991231-235959-0bad/lock
ln -s /etc/it-planted ../audit
echo '{"id":"../../etc","started":4000000000,"command":["true"]}' >20991231-235959-0fee/record.json
mkfifo 20991231-235959-0fee/lock 20991231-235959-0fee/log
ln -s /etc 20991231-235959-0dad
mkdir "$(printf '20991231\n@@ secrets\n["theirs",{"kit.role":"client"}]\n@@ nodes')"
# Nor may it hold a lock for which a deploy waits.
flock /etc/kit sleep 600 >/dev/null 2>&1 &
echo $!
"""
UPROOT = r"""
pkill -P "$1"; kill "$1"; cd /var/lib/kit && rm -rf audit runs/20991231*
"""


def test_what_a_rank_plants_reaches_nothing_on_the_vm(cluster: Cluster) -> None:
    """It is root in its container. kit's scripts are root on the VM."""
    assert cluster.kit("run", "--", "true").returncode == 0
    planted = cluster.inside(cluster.head, "sh", "-c", PLANT)
    assert planted.returncode == 0, planted.stderr
    try:
        start = time.monotonic()
        before = cluster.head.text("sh", "-c", "cat /opt/kit/.audit/* | wc -l; ls /etc")
        done = {words: cluster.kit(*words.split()) for words in ("ps", "runs", "runs show", "deploy --dry-run")}
        assert {words: one.returncode for words, one in done.items()} == dict.fromkeys(done, 0)
        assert "theirs" not in done["deploy --dry-run"].stdout
        assert "record of run 20991231-235959-0bad" in done["runs"].stderr
        assert "20991231-235959-0fee" in done["runs"].stdout
        assert "../../etc" not in "".join(one.stdout for one in done.values())
        # Each of them would wait 15 s for the lock, or without an end at the FIFO.
        assert time.monotonic() - start < 40
        assert cluster.head.text("sh", "-c", "cat /opt/kit/.audit/* | wc -l; ls /etc") == before
    finally:
        cluster.inside(cluster.head, "sh", "-c", UPROOT, "sh", planted.stdout.strip())


def test_private_keys_are_nowhere_but_in_their_files(cluster: Cluster) -> None:
    files = everywhere(
        cluster.hosts,
        lambda host: host.script(
            'cd "/opt/kit/$1/ssh"; for f in *; do ! grep -q "PRIVATE KEY" $f || echo $f; done', cluster.name
        ).split(),
    )
    assert files == {h.name: ["host_ed25519", "id_ed25519"] if h == cluster.head else ["host_ed25519"]
                     for h in cluster.hosts}  # fmt: skip

    secrets = set()
    for host in cluster.hosts:
        for name in files[host.name]:
            body = host.text("cat", f"/opt/kit/{cluster.name}/ssh/{name}").splitlines()[1:-1]
            # The first lines of any such file are alike: cipher, kdf and the like.
            secrets |= {line for line in body[1:] if len(line) > 20}
    assert len(secrets) >= 2 * (len(cluster.hosts) + 1)

    plan = cluster.kit("deploy", "--dry-run", "--verbose", "--output", "json", KIT_SHM_SIZE="512mb")
    output = cluster.printed + plan.stdout + plan.stderr
    assert "ssh/id_ed25519" in output
    assert "PRIVATE KEY" not in output
    assert not [line for line in secrets if line in output]

    look = (
        "docker ps -aq | xargs docker inspect; docker image inspect $(docker images -q); docker logs $1 2>&1; ps axwwe"
    )
    for host in cluster.hosts:
        text = host.script(look, cluster.container(host))
        assert cluster.container(host) in text
        assert not re.search(r"PRIVATE KEY-----", text)
        assert not [line for line in secrets if line in text]
    # This machine: keys are made in memory and go to their host by ssh.
    for path in cluster.folder.rglob("*"):
        if path.is_file():
            assert not [line for line in secrets if line in path.read_text()]


# Run by a rank. Prints what each attack achieved: "done", or the name of the error.
ATTACKS = Path(__file__).with_name("attacks.py").read_text(encoding="utf-8")
KEPT = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT"}
BITS = {0: "CHOWN", 1: "DAC_OVERRIDE", 3: "FOWNER", 6: "SETGID", 7: "SETUID", 10: "NET_BIND_SERVICE", 18: "SYS_CHROOT"}


def test_a_rank_stays_behind_the_fence(cluster: Cluster) -> None:
    """Ranks of the head are children of `docker exec`, and the others of sshd."""
    done = cluster.kit("run", "-np", "2", "--npernode", "1", "-H", "gpu1,gpu2", "--", "python3", "-c", ATTACKS)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == 2
    for result in results:
        mask = int(result.pop("bounding"), 16)
        assert mask == sum(1 << bit for bit, name in BITS.items() if name in KEPT)
        assert result == {
            "raw socket": "EPERM",
            "packet socket": "EPERM",
            "mount": "EPERM",
            "device": "EPERM",
            "write into /usr": "EROFS",
            "write into /etc": "EROFS",
            "write into kit's programs": "EROFS",
            "write into /etc/kit": "EROFS",
            "effective user after a set-user-ID program": "1000",
            "no_new_privs": "1",
            "seccomp": "2",
            # What every workload needs.
            "program in /tmp": "done",
            "write into /var/tmp": "done",
            "write into HOME": "done",
            "write into /run": "done",
            "write into the working folder": "done",
        }


BESIDE = """
import ctypes
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
mpi.MPI_Finalize()
"""
EITHER = '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec python3 -c "$3"; exec python3 -c "$1" "$2"'


@pytest.mark.parametrize(
    ("number", "args", "spawns"), [(0, "", False), (1, "", False), (1, "--mca orte_fork_agent env", True)]
)
def test_the_daemons_start_nothing_but_the_run(cluster: Cluster, number: int, args: str, *, spawns: bool) -> None:
    host = cluster.hosts[number]
    run = ("run", "-np", "2", "--npernode", "1", "-H", "gpu1,gpu2", "--")
    words = ("sh", "-c", EITHER, "sh", SPAWN, host.address, BESIDE)
    try:
        done = cluster.kit(*run, *words, **({"KIT_MPI_ARGS": args} if args else {}))
        there = cluster.inside(host, "cat", "/tmp/spawned")
        assert (there.returncode == 0, there.stdout.strip()) == (spawns, "0" if spawns else ""), done.stderr
        assert ("kit refuses MPI_Comm_spawn" in done.stdout + done.stderr) != spawns
        assert spawns or done.returncode != 0
    finally:
        cluster.inside(host, "rm", "-f", "/tmp/spawned")


def test_a_fork_bomb_ends_at_the_limit(cluster: Cluster) -> None:
    """With the limit of kit.yaml, the bomb would take this machine's memory. So it gets a lower one for a moment."""
    node = cluster.hosts[1]
    (container,) = node.containers(cluster.name)
    assert container["HostConfig"]["PidsLimit"] == 32768
    bomb = "import os, time\nfor n in range(600):\n    if os.fork() == 0: time.sleep(60); os._exit(0)"
    try:
        node.text("docker", "update", "--pids-limit", "200", container["Id"])
        done = cluster.kit("run", "-np", "1", "-H", node.name, "--", "python3", "-c", bomb)
    finally:
        node.text("docker", "update", "--pids-limit", "32768", container["Id"])
    assert done.returncode not in (0, 70)
    assert "BlockingIOError" in done.stderr + done.stdout
    assert cluster.marked() == {}


def test_users_of_the_vm_do_not_reach_scratch_space(cluster: Cluster) -> None:
    path = f"/opt/kit/{cluster.name}/tmp"
    for host in cluster.hosts[:2]:
        assert host.text("stat", "-c", "%a %u %g", path).split() == ["1770", "0", "0"], host.name
        assert host.ssh("touch", f"{path}/it-planted", user="ubuntu").returncode != 0, host.name


HOLD = "import horovod.mxnet as hvd, time; hvd.init(); print('up', flush=True); time.sleep(600)"
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)"


def printed_rules() -> list[str]:
    text = (ROOT / "docs" / "nodes.md").read_text(encoding="utf-8")
    block = text.partition("## Ports of Open MPI, and a firewall")[2].split("```")[1]
    return block.strip().splitlines()


def open_to_all(host: VM) -> set[int]:
    """The TCP ports on which somebody listens on all of the host's addresses."""
    rows = [row.split()[3].rpartition(":") for row in host.text("ss", "-Hltn").splitlines()]
    return {int(port) for address, _, port in rows if address in ("0.0.0.0", "*", "[::]")}  # noqa: S104


def reaches(one: VM, other: VM, ports: set[int]) -> set[int]:
    return {port for port in ports if one.ssh("python3", "-c", CONNECT, other.address, str(port)).returncode == 0}


def test_the_printed_firewall_lets_runs_work_and_keeps_strangers_out(cluster: Cluster) -> None:
    """The rules of docs/nodes.md, with two hosts as the cluster's network, and a third one as the stranger."""
    first, second, stranger = cluster.hosts[:3]
    inside, before = (first, second), open_to_all(second)
    run = cluster.kit("run", "-d", "-H", f"{first.name},{second.name}", "--np", "2", "--npernode", "1", "--",
                      "python3", "-c", HOLD).stdout.strip()  # fmt: skip
    try:
        until("both ranks have connected", lambda: cluster.kit("logs", run).stdout.count("up") == 2)
        ports = open_to_all(second) - before
        # The daemon and the rank. Without rules, a stranger reaches both: Open MPI has no setting against that.
        assert len(ports) >= 2
        assert reaches(stranger, second, ports) == ports
        for host in inside:
            host.script("iptables-save >/run/it-rules")
        for host in inside:
            for line in printed_rules():
                if line.startswith("ip6tables") and host.ssh("ip6tables", "-S", "INPUT").returncode:
                    continue
                for source in inside if " -s 10.0.0.0/24 " in line else inside[:1]:
                    host.script(line.replace("10.0.0.0/24", source.address))
        assert reaches(stranger, second, ports) == set()
        assert reaches(first, second, ports) == ports
        words = ("hvd_check", "--framework", "mxnet", "--json")
        done = cluster.kit("run", "-H", f"{first.name},{second.name}", "--np", "2", "--npernode", "1", "--", *words)
        assert (done.returncode, json.loads(done.stdout)["right"]) == (0, True), done.stderr
    finally:
        for host in inside:
            host.script(
                "iptables -P INPUT ACCEPT; ip6tables -P INPUT ACCEPT; ip6tables -F INPUT; "
                "[ ! -e /run/it-rules ] || iptables-restore </run/it-rules; rm -f /run/it-rules"
            )
        cluster.kit("stop", run)
    cluster.wait_for_none()
