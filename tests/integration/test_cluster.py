"""kit deploy: what is on the hosts after it, that it changes nothing twice, and that it repairs what was broken."""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import signal
import subprocess
import uuid

import pytest
import yaml

from tests.integration.rig import (
    VM,
    Cluster,
    change_settings,
    everywhere,
    kit_argv,
    kit_environ,
    objects,
    until,
)
from tests.pipes import rest


def test_containers_are_as_they_should_be(cluster: Cluster) -> None:
    for host in cluster.hosts:
        (container,) = host.containers(cluster.name)
        config, limits = container["Config"], container["HostConfig"]
        service = "mpihead" if host == cluster.head else "mpinode"
        assert container["State"]["Running"]
        assert container["Name"] == f"/kit-{cluster.name}-{service}"
        assert config["Labels"]["kit.cluster"] == cluster.name
        assert config["Labels"]["kit.service"] == service
        assert limits["NetworkMode"] == "host"
        assert limits["ShmSize"] == 1024**3
        assert limits["Init"] is True
        assert limits["Privileged"] is False
        assert limits["RestartPolicy"]["Name"] == "unless-stopped"
        # The lab's kit.yaml says memlock: default, because a container in a container may not raise it.
        assert limits["Ulimits"] == [{"Name": "stack", "Hard": 67108864, "Soft": 67108864}]
        folder = f"/opt/kit/{cluster.name}"
        mounts = sorted((m["Source"], m["Destination"], m["RW"]) for m in container["Mounts"])
        scratch = [(f"{folder}/tmp", target, True) for target in ("/tmp", "/var/tmp")]
        names = [("/etc/hosts", "/opt/kit/etc/vm-hosts", False), (f"{folder}/node-hosts", "/etc/hosts", True)]
        own = [(folder, "/etc/kit", False), (f"{folder}/var", "/var/lib/kit", True)]
        assert mounts == sorted([*names, *own, *scratch])
        assert cluster.inside(host, "sh", "-c", "ulimit -s").stdout.strip() == "65536"


def test_files_have_owner_and_mode(cluster: Cluster) -> None:
    everyone = {"./compose.yaml": "600", "./ssh/host_ed25519": "600", "./ssh/host_ed25519.pub": "644",
                "./ssh/authorized_keys": "600", "./node-hosts": "644"}  # fmt: skip
    head = {"./cluster.json": "600", "./hosts": "644", "./ssh/id_ed25519": "600", "./ssh/id_ed25519.pub": "644",
            "./ssh/known_hosts": "644", "./ssh/config": "644", "./network": "644", "./verified": "600"}  # fmt: skip
    for host in cluster.hosts:
        files = {path: words.split() for path, words in host.files(cluster.name).items()}
        assert {tuple(words[1:3]) for words in files.values()} == {("root", "root")}
        wanted = {**everyone, **head} if host == cluster.head else everyone
        # Other tests check the audit and the code of runs.
        modes = {path: words[0] for path, words in files.items() if not path.startswith(("./var", "./code", "./tmp/"))}
        assert modes == {".": "755", "./ssh": "755", "./tmp": "1770", **wanted}


def test_the_compose_file_serves_a_human(cluster: Cluster) -> None:
    for host in cluster.hosts:
        file = f"/opt/kit/{cluster.name}/compose.yaml"
        (before,) = host.containers(cluster.name)
        config = json.loads(host.text("docker", "compose", "-f", file, "config", "--format", "json"))
        assert [service["network_mode"] for service in config["services"].values()] == ["host"]
        host.text("docker", "compose", "-f", file, "up", "-d")
        (after,) = host.containers(cluster.name)
        assert (after["Id"], after["State"]["StartedAt"]) == (before["Id"], before["State"]["StartedAt"])
        assert cluster.container(host) in host.text("docker", "compose", "-f", file, "ps")


def test_known_hosts_pins_every_node_to_its_own_key(cluster: Cluster) -> None:
    folder = f"/opt/kit/{cluster.name}/ssh"
    keys = {host.name: host.text("cat", f"{folder}/host_ed25519.pub").split()[:2] for host in cluster.hosts}
    assert len({key for _, key in keys.values()}) == len(cluster.hosts)
    lines = [line.split() for line in cluster.head.text("cat", f"{folder}/known_hosts").splitlines()]
    for host, (where, *key) in zip(cluster.hosts, lines, strict=True):
        assert f"[{host.address}]:33" in where.split(",")
        assert key[:2] == keys[host.name]
    assert "StrictHostKeyChecking yes" in cluster.head.text("cat", f"{folder}/config")


def test_a_second_deploy_changes_nothing(cluster: Cluster) -> None:
    before = cluster.state()
    done = cluster.kit("deploy", "--output", "json")
    assert done.returncode == 0, done.stderr
    result = objects(done)[-1]
    assert (result["kind"], result["changed"]) == ("deploy", False)
    assert {host["status"] for host in result["hosts"]} == {"unchanged"}
    deployed = cluster.kit("deploy")
    assert deployed.returncode == 0
    assert "othing" in deployed.stdout
    assert cluster.state() == before


def test_a_dry_run_of_a_change_changes_nothing(cluster: Cluster) -> None:
    before = cluster.state()
    done = cluster.kit("deploy", "--dry-run", "--output", "json", KIT_SHM_SIZE="512mb")
    assert done.returncode == 0, done.stderr
    plan = objects(done)[-1]
    assert {host["host"] for host in plan["hosts"] if host["steps"]} == {host.name for host in cluster.hosts}
    assert cluster.state() == before


@pytest.fixture
def green(cluster: Cluster) -> Cluster:
    """Return the cluster with one more variable in its environment. It stays: it affects no other test."""
    # Another value each time, for a lab that is kept between runs of the tests.
    change_settings(cluster.folder, env={"COLOUR": f"green $HOME  {uuid.uuid4()} 'end\""})
    return cluster


def test_a_changed_variable_recreates_the_containers_alone(green: Cluster) -> None:
    before = green.state()
    value = yaml.safe_load((green.folder / "kit.yaml").read_text())["env"]["COLOUR"]
    early = green.kit("run", "--npernode", "1", "--", "printenv", "COLOUR")
    assert (early.returncode, early.stdout) == (5, ""), early.stderr
    assert "env.COLOUR: " in early.stderr
    assert value not in early.stderr
    done = green.kit("deploy", "--output", "json")
    assert done.returncode == 0, done.stderr
    after = green.state()
    for host in green.hosts:
        (old,), old_files = before[host.name]
        (new,), new_files = after[host.name]
        assert old[0] != new[0]
        changed = {path for path in old_files.keys() | new_files.keys() if old_files.get(path) != new_files.get(path)}
        # The folder's own time of change goes with its file.
        # Any change repeats the check, so the head's seal changes, too, and its record; and the audit grows.
        on_head = {"./verified", "./cluster.json"} if host == green.head else set()
        # A node writes its own names when it starts.
        assert changed == {".", "./compose.yaml", "./node-hosts"} | on_head
        (container,) = host.containers(green.name)
        assert f"COLOUR={value}" in container["Config"]["Env"]
    seen = green.kit("run", "--npernode", "1", "--", "printenv", "COLOUR")
    assert seen.stdout.splitlines() == [value] * 4, seen.stderr


def test_what_was_broken_is_repaired(cluster: Cluster) -> None:
    """Each host has a different fault. The deploy repairs each, and touches nothing else."""
    one, two, three, four = cluster.hosts
    folder = f"/opt/kit/{cluster.name}"
    before = cluster.state()
    one.text("chmod", "644", f"{folder}/ssh/id_ed25519")
    two.text("rm", f"{folder}/ssh/host_ed25519")
    three.text("docker", "kill", cluster.container(three))
    four.text("docker", "rm", "-f", cluster.container(four))
    done = cluster.kit("deploy", "--output", "json")
    assert done.returncode == 0, done.stderr

    after = cluster.state()
    assert after[one.name][0] == before[one.name][0]
    assert after[one.name][1]["./ssh/id_ed25519"].startswith("600 root root ")
    # Others could have read it, so it is another key now, and the nodes let in no other.
    public = one.text("cat", f"{folder}/ssh/id_ed25519.pub").split()[1]
    assert after[one.name][1]["./ssh/id_ed25519.pub"] != before[one.name][1]["./ssh/id_ed25519.pub"]
    for host in cluster.hosts:
        (line,) = host.text("cat", f"{folder}/ssh/authorized_keys").splitlines()
        assert public in line.split()
    assert after[two.name][0] != before[two.name][0], "a container with an old host key went on"
    assert after[two.name][1]["./ssh/host_ed25519.pub"] != before[two.name][1]["./ssh/host_ed25519.pub"]
    for host in cluster.hosts:
        (container,) = host.containers(cluster.name)
        assert container["State"]["Running"], host.name
    run = cluster.kit("run", "--", "hostname")
    assert sorted(run.stdout.split()) == sorted(host.name for host in cluster.hosts for _ in range(2)), run.stderr
    assert objects(cluster.kit("deploy", "--output", "json"))[-1]["changed"] is False


def test_nodes_come_back_with_their_hosts_engine(cluster: Cluster) -> None:
    """unless-stopped: nobody has to deploy after a host's engine was restarted or the node's first process died."""
    host = cluster.hosts[1]
    (before,) = host.containers(cluster.name)
    host.text("kill", "-KILL", str(before["State"]["Pid"]))

    def another() -> bool:
        (after,) = host.containers(cluster.name)
        assert after["Id"] == before["Id"]
        return after["State"]["Running"] and after["State"]["Pid"] not in (0, before["State"]["Pid"])

    # Asked first: what listens may still be the one that is about to end.
    until("its engine starts the node again", another)
    until("its sshd listens", lambda: host.listeners(33) == [host.address])


def test_ps_shows_what_the_hosts_have(cluster: Cluster) -> None:
    text = cluster.kit("ps")
    assert text.returncode == 0, text.stderr
    nodes = {node["host"]: node for node in objects(cluster.kit("ps", "--output", "json"))[-1]["nodes"]}
    assert list(nodes) == [host.name for host in cluster.hosts]
    for host in cluster.hosts:
        (container,) = host.containers(cluster.name)
        node = nodes[host.name]
        assert node["image"] == container["Config"]["Image"]
        assert node["service"] == container["Config"]["Labels"]["kit.service"]
        assert (node["address"], node["slots"], node["ranks"]) == (host.address, 2, {})
        row = next(line for line in text.stdout.splitlines() if line.startswith(host.name))
        assert host.address in row
        assert container["Config"]["Image"] in row


def test_logs_are_the_containers_own(cluster: Cluster) -> None:
    head = cluster.head
    done = cluster.kit("logs", head.name)
    assert done.returncode == 0, done.stderr
    own = head.ssh("docker", "logs", cluster.container(head))
    lines = (own.stdout + own.stderr).splitlines()
    assert f"Server listening on {head.address} port 33." in lines
    # sshd logs to stderr, and a pipe gets stdout.
    assert set(done.stdout.splitlines()) >= set(lines[:3])
    every = cluster.kit("logs", "--nodes", "--tail", "1000")
    for host in cluster.hosts:
        assert re.search(rf"{host.name}\b.*Server listening on {host.address} port 33\.", every.stdout)


def test_logs_follow_until_ctrl_c(cluster: Cluster) -> None:
    with cluster.running("logs", cluster.head.name, "--follow", "--tail", "0") as process:
        assert process.stdout
        assert process.stderr
        pipes = [process.stdout.fileno(), process.stderr.fileno()]
        output = b""

        # Somebody knocks at the door of the head's sshd; the refusal is a line of its log. Again, until kit follows it.
        def visit_printed() -> bool:
            nonlocal output
            cluster.inside(cluster.head, "ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
                           "-p", "33", f"nobody@{cluster.head.address}", "true")  # fmt: skip
            assert process.poll() is None, output
            for pipe in select.select(pipes, [], [], 1.0)[0]:
                output += os.read(pipe, 65536)
            return b"nobody" in output

        until("kit reports the visit", visit_printed)
        process.send_signal(2)
        process.communicate(timeout=120)
    assert process.returncode == 130


def test_exec_folds_equal_output(cluster: Cluster) -> None:
    groups = objects(cluster.kit("exec", "--output", "json", "--", "echo", "same"))[-1]["groups"]
    assert [(g["hosts"], g["exit_code"], g["output"]) for g in groups] == [
        ([host.name for host in cluster.hosts], 0, "same\n")
    ]
    done = cluster.kit("exec", "--", "sh", "-c", 'echo "on $(hostname)"; [ "$(hostname)" != gpu3 ] || exit 9')
    assert done.returncode == 9
    for host in cluster.hosts:
        assert done.stdout.count(f"on {host.name}") == 1
    some = objects(cluster.kit("exec", "gpu[2-3]", "--output", "json", "--", "hostname"))[-1]["groups"]
    assert {tuple(g["hosts"]): g["output"] for g in some} == {("gpu2",): "gpu2\n", ("gpu3",): "gpu3\n"}


def test_exec_passes_on_bytes_and_input(cluster: Cluster) -> None:
    """One host's output is what the command wrote; each host gets all of the input, and then its end."""
    sent = os.urandom(3_000_000)
    argv = kit_argv("-C", str(cluster.folder), "exec", "gpu2", "--", "sh", "-c", "tee /dev/shm/in; echo e >&2; exit 7")
    one = subprocess.run(argv, input=sent, capture_output=True, env=kit_environ(), check=False, timeout=120)
    assert (one.returncode, one.stdout == sent, one.stderr) == (7, True, b"e\n")
    argv = kit_argv("-C", str(cluster.folder), "exec", "--", "sh", "-c", "cat > /dev/shm/in")
    every = subprocess.run(argv, input=sent[:-1], capture_output=True, env=kit_environ(), check=False, timeout=120)
    assert (every.returncode, every.stdout, every.stderr) == (0, b"", b"")
    digest = hashlib.sha256(sent[:-1]).hexdigest()
    for host in cluster.hosts:
        assert cluster.inside(host, "sha256sum", "/dev/shm/in").stdout.split()[0] == digest
        cluster.inside(host, "rm", "/dev/shm/in")


def test_ctrl_c_on_exec_ends_the_command_in_every_container(cluster: Cluster) -> None:
    # The second sleep has lost its parent and its environment; the third ignores the first signals.
    command = "env -i sleep 4242 & (trap '' INT TERM; sleep 4242) & echo up; sleep 4242"
    with cluster.running("exec", "--", "sh", "-c", command) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in cluster.hosts]
        assert sorted(lines) == [f"{host.name}: up\n" for host in cluster.hosts]
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = rest(process, timeout=60)
    assert (process.returncode, out) == (130, "")
    ended = re.search(r"interrupted; not done: gpu\[1-4\]; ended (\d+) processes on (.*)", err)
    assert ended, err
    assert int(ended[1]) >= 4 * len(cluster.hosts)
    assert everywhere(cluster.hosts, lambda host: host.script("pgrep -fx 'sleep 4242' | wc -l").split()) == {
        host.name: ["0"] for host in cluster.hosts
    }


def test_ssh_is_on_the_vm_and_not_in_the_node(cluster: Cluster) -> None:
    host = cluster.hosts[2]
    done = cluster.kit("ssh", host.name, "--", "docker", "ps", "--format", "{{.Names}}")
    assert done.stdout.split() == [cluster.container(host)], done.stderr
    assert cluster.kit("ssh", host.name, "--", "exit", "9").returncode == 9


def test_the_image_is_the_same_everywhere(cluster: Cluster) -> None:
    def ids(host: VM) -> set[str]:
        return {container["Image"] for container in host.containers(cluster.name)}

    images = everywhere(cluster.hosts, ids)
    assert len(set.union(*images.values())) == 1
