"""What runs make: folders on every host, kit pull, kit runs rm."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from kit.flows.image.build import ImageResult
from tests.integration.rig import VM, Cluster, engine, everywhere, objects

# Each host has a file that no other host has, one that all have, and a checkpoint. One of them is not small.
SCRIPT = """
set -e
cd "$KIT_OUTPUT_DIR"
echo "result of $KIT_NODE"
hostname >only-$KIT_NODE
hostname >all
mkdir -p deep/er
head -c 3000000 /dev/urandom >deep/er/large-$KIT_NODE
sha256sum deep/er/large-$KIT_NODE
echo checkpoint >"$KIT_CHECKPOINT_DIR/of-$KIT_NODE"
ln -s /etc/passwd out
ln -s all alias-$KIT_NODE
"""
NAMES = ("gpu1", "gpu2", "gpu3", "gpu4")


def test_what_a_run_makes_on_every_host_comes_home_and_goes_on_request(cluster: Cluster, tmp_path: Path) -> None:
    made = cluster.kit("run", "--npernode", "1", "--output", "json", "--", "sh", "-c", SCRIPT)
    assert made.returncode == 0, made.stderr
    run = objects(made)[-1]["id"]

    home = tmp_path / "home"
    # As any login that kit uses: here with sudo.
    pull = cluster.kit("pull", run, str(home), "--ssh-user", "ubuntu")
    assert pull.returncode == 0, pull.stderr
    assert "leads out of the folder" in pull.stderr
    log = (home / "log.txt").read_text()
    for name in NAMES:
        assert (home / "output" / f"only-{name}").read_text() == f"{name}\n"
        assert (home / name / "output" / "all").read_text() == f"{name}\n"
        assert (home / "checkpoints" / f"of-{name}").read_text() == "checkpoint\n"
        data = (home / "output/deep/er" / f"large-{name}").read_bytes()
        assert hashlib.sha256(data).hexdigest() in log
        assert (home / "output" / f"alias-{name}").readlink() == Path("all")
    assert "0 | result of gpu1" in log
    assert not list(home.rglob("out"))

    again = cluster.kit("pull", run, str(home), "--output", "json")
    assert again.returncode == 0, again.stderr
    assert {host["host"]: host["files"] for host in objects(again)[-1]["hosts"]} == dict.fromkeys(NAMES, 0)

    refused = cluster.kit("runs", "rm", run)
    assert refused.returncode == 2
    removed = cluster.kit("runs", "rm", run[:-1], "--yes", "--output", "json")
    assert removed.returncode == 0, removed.stderr
    assert objects(removed)[-1]["runs"][0]["hosts"] == list(NAMES)
    there = f"/opt/kit/{cluster.name}/var/runs/{run}"
    assert everywhere(cluster.hosts, lambda host: host.ssh("test", "-e", there).returncode) == dict.fromkeys(NAMES, 1)
    assert cluster.kit("pull", run, str(home)).returncode == 2


def test_a_live_run_can_be_pulled_and_not_removed(cluster: Cluster, tmp_path: Path) -> None:
    shared = f"/dev/shm/kit-results-{cluster.name}"
    wait = f"until [ -e {shared} ]; do sleep 0.1; done"
    script = f'touch "$KIT_CHECKPOINT_DIR/first"; echo half >"$KIT_OUTPUT_DIR/model"; echo made; {wait}'
    with cluster.running(
        "run", "-H", "gpu2", "--np", "1", "--checkpoint-dir", f"{shared}-c/new", "--", "sh", "-c", script
    ) as run:
        assert run.stdout
        assert run.stdout.readline() == "made\n"
        pull = cluster.kit("pull", "latest", "output", str(tmp_path))
        assert pull.returncode == 0, pull.stderr
        assert "is still running" in pull.stderr
        assert (tmp_path / "output/model").read_text() == "half\n"
        living = objects(cluster.kit("pull", "latest", "log", str(tmp_path), "--output", "json"))[-1]["run"]
        refused = cluster.kit("runs", "rm", living, "--yes")
        assert refused.returncode == 5
        # The folder that --checkpoint-dir names was made.
        done = cluster.kit("exec", "gpu2", "--", "sh", "-c", f"ls {shared}-c/new; touch {shared}")
        assert done.stdout == "first\n"
        assert run.wait(120) == 0
    cluster.kit("exec", "gpu2", "--", "rm", "-rf", shared, f"{shared}-c")


@contextlib.contextmanager
def shared_by_all(cluster: Cluster, image: str, folder: Path, place: str) -> Iterator[None]:
    """Mount a folder of this machine in the nodes of all hosts."""
    program = Path(__file__).with_name("shared_mount.py").read_text()

    def mount(host: VM, source: str) -> None:
        pid = host.text("docker", "inspect", "--format", "{{.State.Pid}}", cluster.container(host)).strip()
        lab = f"container:kit-lab-{cluster.name}-{host.name}"
        rights = [word for name in ("SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE") for word in ("--cap-add", name)]
        rights += [word for name in ("seccomp", "apparmor") for word in ("--security-opt", f"{name}=unconfined")]
        engine(
            "run", "--rm", *rights, "--network", "none", "--pid", lab, "--volume", f"{folder}:/shared",
            "--entrypoint", "python3", image, "-c", program, source, place, pid,
        )  # fmt: skip

    made = cluster.kit("exec", "--", "mkdir", place)
    assert made.returncode == 0, made.stderr
    mounted: list[VM] = []
    try:
        for host in cluster.hosts:
            mount(host, "/shared")
            mounted.append(host)
        yield
    finally:
        for host in mounted:
            mount(host, "-")
        cluster.kit("exec", "--", "rmdir", place)


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_checkpoints_that_all_hosts_share_come_home_once(cluster: Cluster, image: ImageResult, tmp_path: Path) -> None:
    shared, home, place = tmp_path / "shared", tmp_path / "home", f"/dev/shm/kit-shared-{cluster.name}"
    (shared / "job").mkdir(parents=True)
    (shared / "job" / "earlier").write_text("of another run\n")
    os.utime(shared / "job" / "earlier", (1_700_000_000, 1_700_000_000))
    script = (
        'cd "$KIT_CHECKPOINT_DIR"; echo "$KIT_NODE" >"of-$KIT_NODE"; ln -sf /etc/passwd out; '
        '[ "$OMPI_COMM_WORLD_RANK" != 0 ] || { echo model >model; ln -sf model latest; }'
    )
    made = {f"of-{name}": f"{name}\n" for name in NAMES} | {"model": "model\n"}
    with shared_by_all(cluster, image.tag, shared, place):
        options = ("--npernode", "1", "--checkpoint-dir", f"{place}/job", "--output", "json")
        run = objects(cluster.kit("run", *options, "--", "sh", "-c", script))[-1]["id"]
        pull = cluster.kit("pull", run, "checkpoints", str(home), "--output", "json")
        assert pull.returncode == 0, pull.stderr
        # As the reading through a link is: `latest`.
        assert files(home / "checkpoints") == {**made, "latest": "model\n"}
        assert (home / "checkpoints" / "latest").is_symlink()
        assert [path.name for path in home.iterdir()] == ["checkpoints"]
        (result,) = objects(pull)
        assert result["others"] == [{"hosts": list(NAMES), "files": 1, "size": 15}]
        assert result["checkpoints"] == f"gpu1:{place}/job"
        again = objects(cluster.kit("pull", run, "checkpoints", str(home), "--all-checkpoints", "--output", "json"))
        assert sum(host["files"] for host in again[-1]["hosts"]) == 1
        assert (home / "checkpoints" / "earlier").read_text() == "of another run\n"
        shown = cluster.kit("runs", "show", run).stdout
        assert f"gpu1:{place}/job (--checkpoint-dir); kit pull brings home what changed there" in shown
        removed = cluster.kit("runs", "rm", run, "--yes")
        assert removed.returncode == 0, removed.stderr
    # kit runs rm deletes nothing there.
    left = {name: text for name, text in files(shared / "job").items() if name not in ("out", "latest")}
    assert left == {**made, "earlier": "of another run\n"}


def test_files_go_into_containers_and_come_back(cluster: Cluster, tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "data").write_bytes(data)
    place = f"/dev/shm/kit-cp-{cluster.name}"
    try:
        there = cluster.kit("cp", str(tmp_path / "tree"), f"gpu[1-4]:{place}")
        assert there.returncode == 0, there.stderr
        # In the containers, and not on the VMs.
        assert everywhere(cluster.hosts, lambda host: host.ssh("test", "-e", place).returncode) == dict.fromkeys(
            NAMES, 1
        )
        back = cluster.kit("cp", f"gpu[2-3]:{place}/data", str(tmp_path / "back"), "--ssh-user", "ubuntu")
        assert back.returncode == 0, back.stderr
        assert {path.parent.name: path.read_bytes() for path in (tmp_path / "back").rglob("data")} == {
            "gpu2": data, "gpu3": data,
        }  # fmt: skip
    finally:
        cluster.kit("exec", "--", "rm", "-rf", place)
    lost = cluster.kit("cp", f"gpu1:{place}/data", str(tmp_path))
    assert (lost.returncode, "no such file" in lost.stderr) == (4, True), lost.stderr
    vm = cluster.kit("cp", "--vm", f"head:/opt/kit/{cluster.name}/hosts", str(tmp_path / "hosts"))
    assert vm.returncode == 0, vm.stderr
    assert (tmp_path / "hosts").read_text() == cluster.head.text("cat", f"/opt/kit/{cluster.name}/hosts")
