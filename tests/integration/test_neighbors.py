"""A second cluster on two of the hosts, by a login that is not root: it comes, runs and goes; the first one stays."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial

import pytest
import yaml

from tests.integration.rig import Cluster, everywhere, objects, until

PORT = 34
# What a debugger needs, and a change of the image's files. Prints what was possible.
LOOSE = """
setpriv --reuid=1000 --regid=1000 --clear-groups sleep 600 & other=$!
until grep -q "^Uid:.1000" /proc/$other/status; do sleep 0.01; done
readlink /proc/$other/cwd >/dev/null && echo processes of others
kill $other
touch /usr/bin/it-loose && rm /usr/bin/it-loose && echo files of the image
"""


@pytest.fixture(scope="module")
def second(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("second")
    hosts = cluster.hosts[1:3]
    settings = yaml.safe_load((cluster.folder / "kit.yaml").read_text())
    login = {"user": "ubuntu", "key": str(cluster.folder / ".kit/lab/id_ed25519"),
             "known_hosts": str(cluster.folder / ".kit/lab/known_hosts")}  # fmt: skip
    name = f"{cluster.name}-2"
    more = {"name": name, "ssh": login, "ssh_port": PORT, "cpus": "exclusive", "devices": ["/dev/it:/dev/other:r"],
            "security": {"capabilities": ["SYS_PTRACE"], "read_only": False}}  # fmt: skip
    (folder / "kit.yaml").write_text(yaml.safe_dump({**settings, **more}))
    (folder / "hosts").write_text("".join(f"{host.address} name={host.name} slots=2\n" for host in hosts))
    cluster_two = Cluster(name=name, folder=folder, hosts=hosts)
    # Stand-ins for devices: /dev/null by the name of an RDMA device, and /dev/zero.
    make = "mkdir /dev/infiniband && mknod /dev/infiniband/uverbs0 c 1 3 && mknod /dev/it c 1 5"
    everywhere(hosts, lambda host: host.text("sh", "-c", make))
    yield cluster_two
    cluster_two.kit("down", "--yes", "--purge", "--force")
    everywhere(hosts, lambda host: host.text("rm", "-r", "/dev/infiniband", "/dev/it"))


def test_a_port_that_is_taken_is_reported_before_anything_is_done(second: Cluster) -> None:
    host = second.hosts[1]
    host.text(
        "/usr/sbin/sshd", "-f", "/dev/null", "-o", f"ListenAddress={host.address}:{PORT}", "-o",
        "PidFile=/run/it-sshd.pid", "-h", "/etc/ssh/ssh_host_ed25519_key",
    )  # fmt: skip
    try:
        until("somebody listens there", lambda: host.listeners(PORT))
        done = second.kit("deploy")
        assert done.returncode == 4, done.stderr
        assert f"{host.name}: port {PORT} is taken" in done.stderr
        assert "ssh_port:" in done.stderr
        assert everywhere(second.hosts, lambda h: (h.containers(second.name), h.files(second.name))) == {
            h.name: ([], {}) for h in second.hosts
        }
    finally:
        host.text("sh", "-c", "kill $(cat /run/it-sshd.pid)")
        until("the port is free", lambda: not host.listeners(PORT))


def test_two_clusters_side_by_side(second: Cluster, cluster: Cluster) -> None:
    before = cluster.state()
    done = second.kit("deploy", "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert objects(done)[-1]["changed"] is True
    assert cluster.state() == before
    for host in second.hosts:
        (container,) = host.containers(second.name)
        assert container["State"]["Running"]
        assert host.listeners(PORT) == [host.address]
        assert host.listeners(33) == [host.address]
        devices = {
            device["PathInContainer"]: device["CgroupPermissions"] for device in container["HostConfig"]["Devices"]
        }
        assert devices["/dev/other"] == "r"
        assert "CAP_IPC_LOCK" in container["HostConfig"]["CapAdd"]
        seen = second.kit(
            "exec", host.name, "--", "sh", "-c", "stat -c %t:%T /dev/infiniband/* && head -c 3 /dev/other | wc -c"
        )
        assert seen.stdout.split() == ["1:3", "3"], seen.stderr
        # What the login may not read, root owns.
        assert {tuple(words.split()[1:3]) for words in host.files(second.name).values()} == {("root", "root")}
        assert host.ssh("cat", f"/opt/kit/{second.name}/ssh/host_ed25519", user="ubuntu").returncode != 0
    run = second.kit("run", "--npernode", "1", "--", "hostname")
    assert sorted(run.stdout.split()) == [host.name for host in second.hosts], run.stderr
    assert objects(second.kit("deploy", "--output", "json"))[-1]["changed"] is False

    keys = [c.hosts[0].text("cat", f"/opt/kit/{c.name}/ssh/id_ed25519.pub").split()[1] for c in (cluster, second)]
    assert keys[0] != keys[1]


def test_the_fence_is_open_where_kit_yaml_opens_it(second: Cluster, cluster: Cluster) -> None:
    possible = {one.name: one.kit("exec", "gpu2", "--", "sh", "-c", LOOSE).stdout for one in (second, cluster)}
    assert possible == {second.name: "processes of others\nfiles of the image\n", cluster.name: ""}


AFFINITY = "import os, sys, time; print(sorted(os.sched_getaffinity(0)), flush=True); time.sleep(float(sys.argv[1]))"


def test_two_runs_on_a_host_have_cpus_for_themselves(second: Cluster) -> None:
    """Also if Open MPI would bind the ranks of both to the first cores."""
    command = ("--npernode", "1", "--", "python3", "-c", AFFINITY, "600")
    runs = [second.kit("run", "-d", *command).stdout.strip() for _ in range(2)]
    lines = [until("its ranks are up", partial(_two, second, run)) for run in runs]
    assert [json.loads(line) for line in lines[0]] == [[0], [0]]
    assert [json.loads(line) for line in lines[1]] == [[1], [1]]
    third = second.kit("run", "--npernode", "1", "--", "true")
    assert third.returncode != 0
    assert "2 free slots are needed" in third.stderr
    assert "the CPUs of its slots, for itself" in second.kit("runs", "show", runs[1]).stdout
    assert second.kit("stop", runs[0]).returncode == 0
    # The CPUs are free again with the slots.
    again = second.kit("run", "--npernode", "1", "--report-bindings", "--", "python3", "-c", AFFINITY, "0")
    assert again.stdout.split("\n")[:2] == ["[0]", "[0]"], again.stderr
    assert again.stderr.count("cores 0 (of 1 for the run here)") == 2
    assert second.kit("stop", runs[1]).returncode == 0
    whole = second.kit("run", "--", "python3", "-c", AFFINITY, "0")
    assert set(whole.stdout.splitlines()) == {"[0, 1]"}, whole.stderr
    one = second.kit("run", "--cpus", "1", "--", "python3", "-c", AFFINITY, "0")
    assert set(one.stdout.splitlines()) == {"[0]"}, one.stderr


def _two(second: Cluster, run: str) -> list[str]:
    """Return what both ranks of a run have printed, or nothing yet."""
    lines = [line for line in second.kit("logs", run).stdout.splitlines() if line.startswith("[")]
    return lines if len(lines) == 2 else []


GREEDY = """
import os, time
kept = []
while os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    kept.append(b"x" * (16 << 20))
    time.sleep(0.02)
time.sleep(600)
"""


def test_a_run_that_uses_more_memory_than_it_may_ends_with_the_cause(second: Cluster) -> None:
    done = second.kit("run", "--npernode", "1", "--memory", "200mb", "--", "python3", "-c", GREEDY)
    assert done.returncode == 137, done.stderr
    # How much more depends on how soon kit looked.
    words = rf"its ranks on {second.hosts[1].name} used (\d+) MiB of memory, and --memory allows 200 MiB on each host"
    match = re.search(words, done.stderr)
    assert match, done.stderr
    assert int(match[1]) > 200
    assert second.marked() == {}


def test_hosts_that_lack_what_kit_yaml_gives_to_nodes_are_named(second: Cluster) -> None:
    """Before anything is changed. The lab's adapters have no port."""
    settings = yaml.safe_load((second.folder / "kit.yaml").read_text())
    more = {"rdma": "require", "cpus": 99, "memory": "9999gb", "hugepages": "9999gb", "devices": ["/dev/it-none"]}
    demanding = second.folder / "demanding.yaml"
    demanding.write_text(yaml.safe_dump({**settings, **more}))
    done = second.kit("deploy", "--config", str(demanding))
    assert done.returncode == 4
    for words in (
        "no active RDMA port (no port at all)", "CPUs, and cpus: 99", "of memory, and memory: 9999gb",
        "huge pages, and hugepages: 9999gb", "has no /dev/it-none",
    ):  # fmt: skip
        assert words in done.stderr


def test_its_port_belongs_to_it(second: Cluster, cluster: Cluster) -> None:
    """A deploy of a third cluster on the same port fails, and names the port's owner."""
    done = second.kit("deploy", "--name", f"{second.name}-3")
    assert done.returncode == 4
    assert second.name in done.stderr


def test_down_leaves_nothing_of_it_and_all_of_the_other(second: Cluster, cluster: Cluster) -> None:
    before = cluster.state()
    made = second.kit("run", "--", "sh", "-c", 'hostname >"$KIT_CHECKPOINT_DIR/one"')
    assert made.returncode == 0, made.stderr
    with second.running("run", "--npernode", "1", "--", "sleep", "300") as run:
        second.wait_for_ranks(run, {host.name: [rank] for rank, host in enumerate(second.hosts)})
        spared = second.kit("down", "--yes")
        assert spared.returncode == 5
        assert "kit down --force" in spared.stderr
        assert second.kit("down").returncode == 2
        assert all(host.containers(second.name) for host in second.hosts)
        down = second.kit("down", "--yes", "--force", "--output", "json")
        assert down.returncode == 0, down.stdout + down.stderr
        # At once: down itself has taken ranks and nodes away.
        for host in second.hosts:
            assert host.containers(second.name) == []
            names = {path.rpartition("/")[2] for path in host.files(second.name)}
            assert {"one", "checkpoints"} <= names, "what a run made is gone"
            assert not names & {"compose.yaml", "ssh", "code"}
            assert host.listeners(PORT) == []
            left = host.script('grep -lzsx "KIT_CLUSTER=$1" /proc/[0-9]*/environ || true', second.name)
            assert left == ""
            volumes = host.text("docker", "volume", "ls", "-q")
            assert second.name not in volumes
        run.wait(180)
        assert run.returncode not in (0, 70)
    assert cluster.state() == before
    removed = objects(down)[-1]["removed"]
    assert all(removed[host.name] for host in second.hosts)

    (kept,) = (run for run in objects(down)[-1]["kept"] if run["checkpoints"])
    assert kept["hosts"] == [host.name for host in second.hosts]
    audit = second.kit("audit", "--output", "json")
    assert objects(audit)[-1]["verb"] == "down"

    purged = second.kit("down", "--purge", "--yes", "--output", "json")
    assert all(objects(purged)[-1]["removed"].values())
    assert all(host.files(second.name) == {} for host in second.hosts)
    again = second.kit("down", "--yes", "--output", "json")
    assert again.returncode == 0
    assert objects(again)[-1]["removed"] == {host.name: [] for host in second.hosts}
    assert "othing" in second.kit("down", "--yes").stdout
    refused = second.kit("run", "--", "true")
    assert refused.returncode == 5
    assert "kit deploy" in refused.stderr
