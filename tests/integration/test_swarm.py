"""Swarm on real engines: the containers of Compose and of Swarm compared, every verb, healing, and swarms of others.

A separate cluster on the lab's hosts: first by Compose, then by Swarm.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration import properties
from tests.integration.rig import VM, Cluster, Done, everywhere, objects, until
from tests.integration.store import BUCKET, store

PORT = 35
FOLDER = "/srv/kit-it"
OWN = ("KIT_NODE", "KIT_ADDRESS", "NCCL_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE")
# What differs from launch to launch.
OF_A_RUN = (
    "KIT_RUN",
    "KIT_READINESS",
    "MASTER_PORT",
    "JAX_COORDINATOR_ADDRESS",
    "OMPI_",
    "PMIX_",
    "ORTE_",
    "SSH_CONN",
    "SSH_CLIENT",
    "KIT_CHECKPOINT",
    "KIT_OUTPUT",
    "HOSTNAME",
    "XDG_",
    "PRTE_",
)
SETTINGS = {
    "ssh_port": PORT,
    "shm_size": "128mb",
    "cpus": 1.5,
    "memory": "3gb",
    "env": {"GREETING": "a {{b}} $c", "EMPTY": "", "TOKEN": "it-s3cret"},
    "volumes": [f"{FOLDER}:/data:ro", "it-scratch:/scratch"],
    "ulimits": {"memlock": "default", "nofile": 4096},
    "user": "1000:1001",
    "data": {"crawl": {"from": f"s3://{BUCKET}/crawl", "to": "/data-sets/crawl", "stage": "none"}},
}
# Run by a rank. Prints what each attack achieved.
ATTACKS = Path(__file__).with_name("attacks.py").read_text(encoding="utf-8")


def swarm_state(host: VM) -> str:
    return host.text("docker", "info", "--format", "{{.Swarm.LocalNodeState}}").strip()


def node_of(cluster: Cluster, host: VM) -> dict[str, Any]:
    """The one container of the cluster that runs on this host."""
    (container,) = (c for c in host.containers(cluster.name) if c["State"]["Running"])
    return container


def ranks_environment(cluster: Cluster) -> dict[str, str]:
    """All that a rank sees, by rank; sorted, without what is of one launch."""
    words = "import os, json; print(os.environ['OMPI_COMM_WORLD_RANK'], json.dumps(dict(os.environ)))"
    done = cluster.kit("run", "-np", "4", "--npernode", "1", "--", "python3", "-c", words)
    assert done.returncode == 0, done.stderr
    by_rank = {}
    for line in done.stdout.splitlines():
        rank, _, environment = line.partition(" ")
        kept = {k: v for k, v in json.loads(environment).items() if not k.startswith(OF_A_RUN)}
        text = json.dumps(kept, sort_keys=True, indent=1)
        by_rank[rank] = re.sub(r"/var/lib/kit/runs/[^/]+/work", "/var/lib/kit/runs/RUN/work", text)
    assert len(by_rank) == 4
    return by_rank


def attacked(cluster: Cluster) -> list[dict[str, str]]:
    """What the attacks of a rank on the head and of one elsewhere achieve."""
    done = cluster.kit("run", "-np", "2", "--npernode", "1", "-H", "gpu1,gpu2", "--", "python3", "-c", ATTACKS)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@dataclass
class Both:
    """What the engines report about each host's node under Compose and under Swarm, and what ranks see and achieve."""

    cluster: Cluster
    compose: dict[str, dict[str, Any]]
    swarm: dict[str, dict[str, Any]]
    compose_ranks: dict[str, str]
    compose_attacks: list[dict[str, str]]
    printed: str


@pytest.fixture(scope="module")
def both(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("swarm")
    settings = yaml.safe_load((cluster.folder / "kit.yaml").read_text())
    access = {"key": str(cluster.folder / ".kit/lab/id_ed25519"),
              "known_hosts": str(cluster.folder / ".kit/lab/known_hosts")}  # fmt: skip
    name = f"{cluster.name}-s"
    settings = {**settings, **SETTINGS, "name": name, "ssh": {**settings["ssh"], **access}}
    (folder / "kit.yaml").write_text(yaml.safe_dump(settings))
    (folder / "hosts").write_text("".join(f"{h.address} name={h.name} slots=2\n" for h in cluster.hosts))
    one = Cluster(name=name, folder=folder, hosts=cluster.hosts)
    try:
        done = one.kit("deploy")
        assert done.returncode == 0, done.stderr
        compose = everywhere(one.hosts, lambda host: node_of(one, host))
        ranks, attacks = ranks_environment(one), attacked(one)
        for host in one.hosts:
            host.text("docker", "run", "--rm", "--volume", f"kit-{name}_it-scratch:/s", compose[host.name]["Image"],
                      "touch", "/s/kept")  # fmt: skip
        # The folder goes: Compose's engine had made it, and Swarm's would not.
        by_compose = one.kit("deploy", "--orchestrator", "swarm", "--dry-run", "--verbose")
        (folder / "kit.yaml").write_text(yaml.safe_dump({**settings, "orchestrator": "swarm"}))
        done = one.kit("deploy", "--verbose", "--progress", "plain")
        assert done.returncode == 0, done.stderr
        printed = by_compose.stdout + done.stdout + done.stderr
        swarm = everywhere(one.hosts, lambda host: node_of(one, host))
        yield Both(
            cluster=one,
            compose=compose,
            swarm=swarm,
            compose_ranks=ranks,
            compose_attacks=attacks,
            printed=printed,
        )
    finally:
        one.kit("down", "--yes", "--purge", "--force")
        for host in one.hosts:
            host.script(
                f"docker swarm leave --force; docker volume rm kit-{name}_it-scratch; rmdir {FOLDER}; exit 0",
            )


@pytest.fixture
def deployed(both: Both) -> Cluster:
    """The cluster by Swarm, as it should be."""
    done = both.cluster.kit("deploy")
    assert done.returncode == 0, done.stderr
    return both.cluster


def test_the_containers_of_both_differ_in_what_the_table_says_alone(both: Both) -> None:
    differ = {row.path for row in properties.ROWS if row.tried and not row.same}
    nodes_only = {"Config.Env"}
    for host in both.cluster.hosts:
        compose, swarm = both.compose[host.name], both.swarm[host.name]
        differences = properties.compared(compose, swarm)
        expected = differ - nodes_only if host == both.cluster.head else differ
        assert set(differences) - {"Config.Env"} == expected - {"Config.Env"}, differences
        known = dict(properties.flat(compose)).keys() | dict(properties.flat(swarm)).keys()
        for row in properties.ROWS:
            if row.tried:
                assert row.path in known or any(path.startswith(f"{row.path}.") for path in known), row.path
        assert properties.mounts(swarm) == properties.mounts(compose)
        given, own = set(compose["Config"]["Env"]), set(swarm["Config"]["Env"])
        assert {word.partition("=")[0] for word in given ^ own} == (set() if host == both.cluster.head else set(OWN))


# A rank's user, and what it can do to the cluster's keys, the supervisor, and the records of runs.
TRIES = """
id -u; id -g; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status
for key in /etc/kit/ssh/*_ed25519 /run/secrets/*; do [ ! -r "$key" ] || echo read $key; done
! kill -0 1 2>/dev/null || echo signal
! ls /var/lib/kit/runs 2>/dev/null || echo list
! (echo >>/var/lib/kit/runs/$KIT_RUN/record.json) 2>/dev/null || echo record
! mv /var/lib/kit/runs/$KIT_RUN/output /var/lib/kit/runs/$KIT_RUN/log 2>/dev/null || echo log
for folder in . "$KIT_OUTPUT_DIR" "$KIT_CHECKPOINT_DIR" "$HOME" /tmp; do
  touch "$folder/it-made-$KIT_NODE" && stat -c %u:%g "$folder/it-made-$KIT_NODE"
done
"""


def test_ranks_of_a_user_reach_neither_keys_nor_records(both: Both) -> None:
    done = both.cluster.kit(
        "run", "-np", "4", "--npernode", "1", "--tag-output", "--output", "json", "--", "sh", "-c", TRIES
    )
    assert done.returncode == 0, done.stderr
    words: dict[str, list[str]] = {}
    for line in objects(done):
        if line["kind"] == "line":
            words.setdefault(line["source"], []).append(line["text"].split()[-1])
    assert len(words) == 4
    for source, last in words.items():
        assert last == ["1000", "1001", "0" * 16, "1", "2", *["1000:1001"] * 5], source


def test_a_rank_stays_behind_the_fence(both: Both) -> None:
    """The ranks of a user have fewer rights than those of root, whose attacks are in test_security.py."""
    results = attacked(both.cluster)
    assert results == both.compose_attacks
    assert len(results) == 2
    for result in results:
        fences = ("raw socket", "packet socket", "mount", "device", "no_new_privs", "seccomp")
        assert [result[name] for name in fences] == ["EPERM"] * 4 + ["1", "2"]
        programs = ("write into /usr", "write into /etc", "write into kit's programs", "write into /etc/kit")
        assert [result[name] for name in programs] == ["EROFS"] * 4
        workload = ("program in /tmp", "write into /var/tmp", "write into HOME")
        assert [result[name] for name in workload] == ["done"] * 3


def test_horovod_sums_right(both: Both) -> None:
    done = both.cluster.kit("run", "--", "hvd_check", "--framework", "mxnet", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["ranks"], result["sum"], result["right"]) == (8, 36, True)


def test_a_command_of_exec_gains_no_privileges(both: Both) -> None:
    done = both.cluster.kit("exec", "--output", "json", "--", "grep", "NoNewPrivs", "/proc/self/status")
    groups = objects(done)[-1]["groups"]
    assert [(len(group["hosts"]), group["output"].split()) for group in groups] == [(4, ["NoNewPrivs:", "1"])]


def test_shared_memory_is_the_same_from_inside(both: Both) -> None:
    for host in both.cluster.hosts:
        done = host.text("docker", "exec", node_of(both.cluster, host)["Id"], "grep", " /dev/shm ", "/proc/mounts")
        kind, where, _, options = done.split()[:4]
        assert where == "/dev/shm"
        assert kind in ("tmpfs", "shm")
        assert set(options.split(",")) >= {"rw", "nosuid", "nodev", "noexec", "size=131072k"}
        mode = host.text("docker", "exec", node_of(both.cluster, host)["Id"], "stat", "-c", "%a", "/dev/shm")
        assert mode.strip() == "1777"


def test_ranks_see_the_same_environment(both: Both) -> None:
    assert ranks_environment(both.cluster) == both.compose_ranks


def test_volumes_keep_what_is_in_them(both: Both) -> None:
    done = both.cluster.kit("exec", "--fold", "--", "ls", "/scratch")
    assert done.returncode == 0, done.stderr
    assert "kept" in done.stdout
    assert "4 hosts" in done.stdout


def test_checkpoints_of_a_volume_come_home_from_each_host(both: Both, tmp_path: Path) -> None:
    """Each host has a volume of this name, so equal names are different files."""
    made = both.cluster.kit("exec", "--", "sh", "-c", "mkdir -m 777 /scratch/job; echo old >/scratch/job/earlier; "
                            "touch -d 2026-01-01 /scratch/job/earlier")  # fmt: skip
    assert made.returncode == 0, made.stderr
    script = 'cd "$KIT_CHECKPOINT_DIR" && hostname >all && hostname >"of-$KIT_NODE" && chmod 600 all'
    run = both.cluster.kit("run", "--npernode", "1", "--checkpoint-dir", "/scratch/job", "--", "sh", "-c", script)
    assert run.returncode == 0, run.stderr
    pull = both.cluster.kit("pull", "latest", "checkpoints", str(tmp_path), "--output", "json")
    assert pull.returncode == 0, pull.stderr
    names = [host.name for host in both.cluster.hosts]
    assert {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == {
        **{f"{name}/checkpoints/all": f"{name}\n" for name in names},
        **{f"checkpoints/of-{name}": f"{name}\n" for name in names},
    }
    assert objects(pull)[-1]["others"] == [{"hosts": names, "files": 1, "size": 4}]


def test_with_nothing_to_do_nothing_is_done(deployed: Cluster) -> None:
    before = deployed.state()
    done = deployed.kit("deploy", "--output", "json")
    assert objects(done)[-1]["changed"] is False
    assert deployed.state() == before


def test_private_keys_are_in_memory_alone(both: Both) -> None:
    for host in both.cluster.hosts:
        places = host.script(
            f"grep -rls 'PRIVATE KEY' /opt/kit/{both.cluster.name} /var/lib/docker/containers/*/*.json; exit 0"
        )
        assert places == ""
        own = ["host_ed25519", "id_ed25519"] if host == both.cluster.head else ["host_ed25519"]
        inside = node_of(both.cluster, host)["Id"]
        secrets = host.text("docker", "exec", inside, "sh", "-c", "cd /run/secrets && stat -c '%n %a %u' *")
        assert secrets.splitlines() == [f"{name} 400 0" for name in own]
        kinds = host.text("docker", "exec", inside, "sh", "-c", "stat -f -c %T /run/secrets/*").split()
        assert set(kinds) == {"tmpfs"}
    assert "PRIVATE" not in both.printed
    assert "SWMTKN" not in both.printed
    assert "it-s3cret" not in both.printed
    files = both.cluster.head.files(both.cluster.name)
    assert files["./stack.yaml"].startswith("600 root root ")
    hosts = [line.split()[2] for line in
             both.cluster.head.text("cat", f"/opt/kit/{both.cluster.name}/ssh/known_hosts").splitlines()]  # fmt: skip
    assert hosts[0] != hosts[1] == hosts[2] == hosts[3]


def test_a_node_listens_on_the_clusters_network_alone(deployed: Cluster) -> None:
    for host in deployed.hosts:
        assert host.listeners(PORT) == [host.address]
        assert set(host.listeners(7946)) == {host.address}
        assert host.listeners(2377) == ([host.address] if host == deployed.head else [])


def test_the_life_of_a_run(deployed: Cluster) -> None:
    run = deployed.kit("run", "-d", "--", "sh", "-c", "echo here; sleep 300").stdout.strip()
    until(
        "all ranks run", lambda: deployed.ranks() == {h.name: [2 * n, 2 * n + 1] for n, h in enumerate(deployed.hosts)}
    )
    assert objects(deployed.kit("runs", "--output", "json"))[-1]["runs"][0]["state"] == "running"
    refused = deployed.kit("deploy", KIT_SHM_SIZE="256mb")
    assert refused.returncode == 5
    assert run in refused.stderr
    shown = objects(deployed.kit("ps", "--output", "json"))[-1]["nodes"]
    assert [len(node["ranks"][run]) for node in shown] == [2, 2, 2, 2]
    until("all ranks were heard", lambda: deployed.kit("logs", run).stdout.count("here") == 8)
    stopped = deployed.kit("stop", run)
    assert stopped.returncode == 0, stopped.stderr
    deployed.wait_for_none()
    assert deployed.kit("wait", run).returncode != 0
    assert "here" in deployed.kit("attach", run).stdout
    assert "Server listening" in deployed.kit("logs", deployed.hosts[1].name).stdout


def test_swarm_itself_starts_a_node_again(deployed: Cluster) -> None:
    host = deployed.hosts[2]
    before = node_of(deployed, host)["Id"]
    # Swarm may be quicker to take away what has ended; and whichever comes second is refused.
    host.ssh("docker", "rm", "--force", before)

    until("the new one runs", lambda: one_runs(deployed, host, but=before))
    until("its sshd listens again", lambda: host.listeners(PORT) == [host.address])
    run = deployed.kit("run", "--", "hostname")
    assert run.returncode == 0, run.stderr


def test_a_store_is_mounted_for_the_nodes_of_a_swarm(deployed: Cluster, tmp_path: Path) -> None:
    _, gpu2, gpu3, _ = deployed.hosts
    gateway = f"{deployed.head.address.rpartition('.')[0]}.1"
    see = ("run", "--npernode", "1", "--code", "none", "--", "sh", "-c", "cat /data-sets/crawl/*")
    with store(tmp_path, gateway) as running:
        running.put({"crawl/1": b"one\n", "crawl/2": b"two\n"})

        def kit(*words: str) -> Done:
            return deployed.kit(*words, **running.environment)

        def mounted() -> tuple[str, list[str]]:
            (row,) = objects(kit("data", "ls", "--output", "json"))[-1]["sets"]
            return row["state"], row["hosts"]

        done = kit("data", "mount")
        assert done.returncode == 0, done.stderr
        assert "Mounted crawl on gpu[1-4]" in done.stdout
        run = kit(*see)
        assert (run.returncode, sorted(run.stdout.split())) == (0, ["one"] * 4 + ["two"] * 4), run.stderr

        gpu2.text("docker", "kill", f"kit-{deployed.name}-data-crawl")
        until("gpu2 has lost it", lambda: mounted() == ("partly", ["gpu1", "gpu3", "gpu4"]))
        failed = kit("run", "-H", "gpu2", "--np", "1", *see[3:])
        assert failed.returncode == 4, failed.stderr
        assert (
            "the mount of /data-sets/crawl has ended: its program (rclone, sshfs …) was killed or has failed"
            in failed.stderr
        )

        # Swarm starts a node by itself. It sees the mount that is there, and no later one until kit restarts it.
        before = node_of(deployed, gpu3)["Id"]
        gpu3.ssh("docker", "rm", "--force", before)
        until("Swarm starts gpu3 again", lambda: one_runs(deployed, gpu3, but=before))
        until("its sshd listens again", lambda: gpu3.listeners(PORT) == [gpu3.address])
        assert kit("data", "mount").returncode == 0
        run = kit(*see)
        assert (run.returncode, sorted(run.stdout.split())) == (0, ["one"] * 4 + ["two"] * 4), run.stderr
        removed = kit("data", "rm", "crawl", "--yes")
        assert removed.returncode == 0, removed.stderr
        assert mounted() == ("not mounted", [])
        back = kit("data", "mount", "--output", "json")
        assert back.returncode == 0, back.stderr
        assert objects(back)[-1]["restarted"] == ["gpu3"]
        run = kit(*see)
        assert (run.returncode, sorted(run.stdout.split())) == (0, ["one"] * 4 + ["two"] * 4), run.stderr
        assert kit("data", "rm", "crawl", "--yes").returncode == 0
    mounts = everywhere(deployed.hosts, lambda host: host.script("grep fuse.rclone /proc/mounts; exit 0"))
    assert not any(mounts.values())


def one_runs(cluster: Cluster, host: VM, *, but: str) -> bool:
    """Return whether one container of the cluster runs on the host, and not the one with this ID."""
    return [c["Id"] != but for c in host.containers(cluster.name) if c["State"]["Running"]] == [True]


def test_a_host_that_left_the_swarm_is_brought_back(deployed: Cluster) -> None:
    host = deployed.hosts[3]
    others = everywhere(deployed.hosts[:3], lambda h: node_of(deployed, h)["Id"])
    host.text("docker", "swarm", "leave", "--force")
    until("its node is gone", lambda: not [c for c in host.containers(deployed.name) if c["State"]["Running"]])
    done = deployed.kit("deploy")
    assert done.returncode == 0, done.stderr
    assert everywhere(deployed.hosts[:3], lambda h: node_of(deployed, h)["Id"]) == others
    members = deployed.head.text("docker", "node", "ls", "--format", "{{.Hostname}}").split()
    assert sorted(members) == sorted(h.name for h in deployed.hosts)
    assert objects(deployed.kit("deploy", "--output", "json"))[-1]["changed"] is False


def test_the_files_work_by_hand(deployed: Cluster) -> None:
    stack = deployed.kit("stack")
    assert stack.returncode == 0, stack.stderr
    head = deployed.head
    assert stack.stdout == head.text("cat", f"/opt/kit/{deployed.name}/stack.yaml")
    before = everywhere(deployed.hosts, lambda h: node_of(deployed, h)["Id"])
    head.text("docker", "compose", "--file", "/dev/stdin", "config", "--quiet", stdin=stack.stdout)
    by_hand = ["docker", "stack", "deploy", "--resolve-image", "never", "--prune", "--compose-file", "-"]
    head.text(*by_hand, f"kit-{deployed.name}", stdin=stack.stdout)
    assert objects(deployed.kit("deploy", "--output", "json"))[-1]["changed"] is False
    assert everywhere(deployed.hosts, lambda h: node_of(deployed, h)["Id"]) == before
    for host in deployed.hosts[:2]:
        compose = deployed.kit("compose", host.name)
        assert compose.returncode == 0, compose.stderr
        host.text("docker", "compose", "--file", "/dev/stdin", "config", "--quiet", stdin=compose.stdout)
        assert list(yaml.safe_load(compose.stdout)["services"]) == ["mpihead" if host == head else "mpinode"]


def test_two_clusters_share_a_swarm_and_down_of_one_leaves_it(deployed: Cluster) -> None:
    other = Cluster(name=f"{deployed.name}2", folder=deployed.folder, hosts=deployed.hosts)
    environ = {"KIT_NAME": other.name, "KIT_SSH_PORT": str(PORT + 1)}
    try:
        done = other.kit("deploy", **environ)
        assert done.returncode == 0, done.stderr
        before = everywhere(deployed.hosts, lambda h: node_of(deployed, h)["Id"])
    finally:
        down = other.kit("down", "--yes", "--purge", **environ)
        for host in other.hosts:
            host.script(f"docker volume rm kit-{other.name}_it-scratch; exit 0")
    assert down.returncode == 0, down.stderr
    assert everywhere(other.hosts, lambda h: h.containers(other.name)) == {h.name: [] for h in other.hosts}
    assert everywhere(deployed.hosts, lambda h: node_of(deployed, h)["Id"]) == before
    assert everywhere(deployed.hosts, swarm_state) == {h.name: "active" for h in deployed.hosts}


MAKES = 'echo "$KIT_NODE" >"$KIT_OUTPUT_DIR/made"; echo 7 >"$KIT_CHECKPOINT_DIR/step"'


def keeps_what_a_run_made(deployed: Cluster, folder: Path) -> str:
    """Remove the cluster but not what a run made, and deploy it over that. Return the run, which can be pulled."""
    made = deployed.kit("run", "-np", "4", "--npernode", "1", "--", "sh", "-c", MAKES)
    assert made.returncode == 0, made.stderr
    run = str(objects(deployed.kit("runs", "--output", "json"))[-1]["runs"][0]["id"])
    down = deployed.kit("down", "--yes")
    assert down.returncode == 0, down.stderr
    assert everywhere(deployed.hosts, swarm_state) == {h.name: "inactive" for h in deployed.hosts}
    again = deployed.kit("deploy")
    assert again.returncode == 0, again.stderr
    pulled = deployed.kit("pull", run, str(folder))
    assert pulled.returncode == 0, pulled.stderr
    found = sorted(file.read_text().strip() for file in folder.rglob("made"))
    assert found == [host.name for host in deployed.hosts]
    assert [file.read_text() for file in folder.rglob("step")] == ["7\n"] * 4
    after = deployed.kit("run", "--", "sh", "-c", MAKES)
    assert after.returncode == 0, after.stderr
    return run


def test_down_leaves_nothing_and_back_to_compose_neither(deployed: Cluster, tmp_path: Path) -> None:
    back = deployed.kit("deploy", KIT_ORCHESTRATOR="compose")
    assert back.returncode == 0, back.stderr
    assert everywhere(deployed.hosts, swarm_state) == {h.name: "inactive" for h in deployed.hosts}
    assert "com.docker.compose.project" in node_of(deployed, deployed.head)["Config"]["Labels"]
    assert objects(deployed.kit("runs", "--output", "json"))[-1]["runs"], "the history of runs stays"

    assert deployed.kit("deploy").returncode == 0
    run = keeps_what_a_run_made(deployed, tmp_path)
    down = deployed.kit("down", "--yes", "--purge")
    assert down.returncode == 0, down.stderr
    assert run not in down.stdout
    assert everywhere(deployed.hosts, swarm_state) == {h.name: "inactive" for h in deployed.hosts}
    for host in deployed.hosts:
        assert host.containers(deployed.name) == []
        assert host.files(deployed.name) == {}
        assert host.script("ls /opt/kit/.swarm 2>/dev/null; exit 0") == ""
    again = deployed.kit("down", "--yes", "--output", "json")
    assert objects(again)[-1]["removed"] == {host.name: [] for host in deployed.hosts}


def test_a_swarm_of_somebody_elses_is_used_and_left_as_it_was(both: Both) -> None:
    cluster = both.cluster
    cluster.kit("down", "--yes")
    first, second = cluster.hosts[:2]
    first.text("docker", "swarm", "init", "--advertise-addr", first.address)
    try:
        second.text("docker", "swarm", "init", "--advertise-addr", second.address)
        refused = cluster.kit("deploy")
        assert refused.returncode == 4
        assert f"{second.name}: is in another swarm" in refused.stderr
        assert everywhere(cluster.hosts, lambda h: h.containers(cluster.name)) == {h.name: [] for h in cluster.hosts}
        second.text("docker", "swarm", "leave", "--force")
        done = cluster.kit("deploy")
        assert done.returncode == 0, done.stderr
        assert "dispatcher-heartbeat" in done.stderr
        assert cluster.kit("down", "--yes").returncode == 0
        states = everywhere(cluster.hosts, swarm_state)
        assert states == {h.name: "active" if h == first else "inactive" for h in cluster.hosts}
        assert first.text("docker", "secret", "ls", "--quiet") == ""
        assert first.text("docker", "service", "ls", "--quiet") == ""
    finally:
        everywhere(cluster.hosts, lambda h: h.script("docker swarm leave --force; exit 0"))
