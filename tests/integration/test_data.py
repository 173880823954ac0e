"""kit data on real hosts: a bucket over TLS, a folder here, a folder of a host; what nodes see, and what is nowhere."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.rig import VM, Cluster, Done, change_settings, everywhere, objects, until
from tests.integration.store import BUCKET, KEY, SECRET, Store, store
from tests.pipes import read_until, rest

NAME = "pictures"
FILES, EACH = 12, 500_000
ALL = FILES * EACH
LAST = f"{NAME}/{FILES - 1:02}.bin"
HERE, THERE, PLACE, KEPT, DISK = "labels", "words", "crawl", "kept", "archive"
READ = "import os; [open(f'{top}/{file}', 'rb').read() for top, _, all in os.walk('/data/crawl') for file in all]"
WRITE = "import os; open(f'/data/kept/step-1/{os.environ[\"RANK\"]}', 'wb').write(b'rank' * 1_000_000)"
# A host may know its own list of a folder for a second.
COUNT = "until test -s /data/kept/step-1/0; do sleep 0.1; done; wc -c </data/kept/step-1/0"
BACK = "import sys; file = open('/data/kept/back', 'wb', 0); file.write(b'first'); file.seek(0); file.write(b'F')"
PRINT = 'cd "$KIT_DATA_PICTURES" && sha256sum * | sha256sum'


@dataclass
class Scene:
    """The cluster, with a data set in a bucket, one in a folder of this machine and one in a folder of gpu2."""

    cluster: Cluster
    store: Store

    @property
    def source(self) -> Path:
        return self.store.bucket / NAME

    def kit(self, *words: str, **environ: str) -> Done:
        done = self.cluster.kit("data", *words, **{**self.store.environment, **environ})
        for text in (done.stdout, done.stderr):
            assert SECRET not in text
            assert "Traceback" not in text
        return done

    def seen(self, host: VM, name: str = NAME) -> dict[str, str]:
        """Return what the node of a host sees of a data set: a digest for each file."""
        done = self.cluster.inside(host, "sh", "-c", f"cd /data/{name} && find . -type f -exec sha256sum {{}} +")
        assert done.returncode == 0, done.stderr
        return {path.removeprefix("./"): digest for digest, path in (line.split() for line in done.stdout.splitlines())}

    def everybody_sees(self, folder: Path, name: str = NAME) -> None:
        wanted = sums(folder)
        for host, seen in everywhere(self.cluster.hosts, lambda host: self.seen(host, name)).items():
            assert seen == wanted, host

    def state(self, name: str = NAME) -> dict[str, object]:
        done = self.kit("ls", "--output", "json")
        assert done.returncode == 0, done.stderr
        return next(row for row in objects(done)[-1]["sets"] if row["name"] == name)


def sums(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def scene(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    before = (cluster.folder / "kit.yaml").read_text()
    gateway = f"{cluster.head.address.rpartition('.')[0]}.1"
    here = cluster.folder / HERE
    with store(tmp_path_factory.mktemp("store"), gateway) as running:
        running.put({f"{NAME}/{number:02}.bin": os.urandom(EACH) for number in range(FILES)})
        (here / "deep").mkdir(parents=True)
        for number in range(30):
            (here / f"deep/{number}").write_bytes(os.urandom(10 * number))
        (here / "large").write_bytes(os.urandom(5_000_000))
        everywhere(cluster.hosts, lambda host: host.script("mkdir -p /srv/nvme"))
        cluster.hosts[1].script("mkdir -p /srv/words && echo one >/srv/words/1 && echo two >/srv/words/2")
        one = Scene(cluster, running)
        data = {
            NAME: {"from": f"s3://{BUCKET}/{NAME}", "to": f"/data/{NAME}"},
            HERE: {"from": f"./{HERE}", "to": f"/data/{HERE}"},
            THERE: {"from": "gpu2:/srv/words", "to": f"/data/{THERE}", "stage": "ram", "size": "64mb"},
            PLACE: {"from": f"s3://{BUCKET}/{NAME}", "to": f"/data/{PLACE}", "stage": "none"},
            DISK: {"from": "gpu2:/srv/words", "to": f"/data/{DISK}", "dir": "/srv/nvme"},
            # Nothing is there: the first file makes the folder of a store.
            KEPT: {"from": f"s3://{BUCKET}/{KEPT}", "to": f"/data/{KEPT}", "stage": "none", "write": True},
        }
        change_settings(cluster.folder, data=data)
        try:
            refused = one.kit("stage", NAME)
            assert refused.returncode == 5, refused.stderr
            assert "deployed without the data set pictures" in refused.stderr
            assert "→ run: kit deploy" in refused.stderr
            deployed = cluster.kit("deploy")
            assert deployed.returncode == 0, deployed.stderr
            unmounted = cluster.kit("run", "-H", "gpu2", "--np", "1", "--code", "none", "--", "true")
            assert unmounted.returncode == 4, unmounted.stderr
            assert f"no store is mounted at /data/{KEPT}: what ranks write would stay on" in unmounted.stderr
            mounted = one.kit("mount", KEPT)
            assert mounted.returncode == 0, mounted.stderr
            yield one
        finally:
            cluster.kit("data", "rm", NAME, HERE, THERE, PLACE, KEPT, DISK, "--yes")
            shutil.rmtree(here)
            (cluster.folder / "kit.yaml").write_text(before)
            again = cluster.kit("deploy")
    assert again.returncode == 0, again.stderr


def test_a_bucket_is_read_once_and_every_node_has_it(scene: Scene) -> None:
    wrong = scene.kit("stage", NAME, AWS_SECRET_ACCESS_KEY="a-wrong-secret-key-0123456789")
    assert wrong.returncode == 4, wrong.stderr
    assert "check the keys" in wrong.stderr
    assert "a-wrong-secret-key" not in wrong.stdout + wrong.stderr
    scene.store.forget()
    done = scene.kit("stage", NAME)
    assert done.returncode == 0, done.stderr
    assert f"Staged {NAME} on 4 hosts: gpu[1-4]: {FILES} files, 6 MB" in done.stdout
    assert scene.store.read == ALL
    scene.everybody_sees(scene.source)
    row = scene.state()
    assert (row["state"], row["files"], row["bytes"]) == ("staged", FILES, ALL)
    # Nodes cannot change what all runs read.
    refused = scene.cluster.inside(scene.cluster.head, "touch", f"/data/{NAME}/more")
    assert "Read-only file system" in refused.stderr

    again = scene.kit("stage", NAME)
    assert "nothing to do" in again.stdout, again.stderr
    assert scene.store.read == ALL
    (scene.source / "00.bin").write_bytes(b"changed")
    (scene.source / "01.bin").unlink()
    changed = scene.kit("stage", NAME, "--output", "json")
    assert changed.returncode == 0, changed.stderr
    result = objects(changed)[-1]
    assert (result["new"], result["removed"], result["read"]) == (1, 1, len(b"changed"))
    scene.everybody_sees(scene.source)


def test_folders_of_this_machine_and_of_a_host(scene: Scene) -> None:
    done = scene.kit("stage", HERE, THERE)
    assert done.returncode == 0, done.stderr
    scene.everybody_sees(scene.cluster.folder / HERE, HERE)
    for host in scene.cluster.hosts:
        assert {*scene.seen(host, THERE)} == {"1", "2"}
        # In memory, and not on the disk.
        assert host.text("stat", "-f", "-c", "%T", f"/dev/shm/kit-data/{scene.cluster.name}/{THERE}/files") == "tmpfs\n"


def test_a_copy_on_another_disk_stays_in_sight_without_kit_yaml(scene: Scene) -> None:
    staged = scene.kit("stage", DISK)
    assert staged.returncode == 0, staged.stderr
    copy = f"/srv/nvme/kit-data/{scene.cluster.name}/{DISK}"
    look = 'find "$1" -mindepth 1 ! -path "$1/files"'
    assert all(everywhere(scene.cluster.hosts, lambda host: host.script(look, copy)).values())
    settings = scene.cluster.folder / "kit.yaml"
    before = settings.read_text()
    change_settings(scene.cluster.folder, data={NAME: {"from": f"s3://{BUCKET}/{NAME}", "to": f"/data/{NAME}"}})
    try:
        row = scene.state(DISK)
        assert (row["state"], row["hosts"]) == ("unknown", [host.name for host in scene.cluster.hosts])
        removed = scene.kit("rm", DISK, "--yes")
        assert removed.returncode == 0, removed.stderr
        assert not any(everywhere(scene.cluster.hosts, lambda host: host.script(look, copy)).values())
    finally:
        settings.write_text(before)


def test_verify_finds_an_altered_byte(scene: Scene) -> None:
    assert scene.kit("stage", NAME).returncode == 0
    good = scene.kit("verify", NAME)
    assert good.returncode == 0, good.stdout + good.stderr
    assert f"{NAME}: right on gpu[1-4]" in good.stdout
    file = f"/opt/kit/.data/{scene.cluster.name}/{NAME}/files/02.bin"
    # Four bytes, of which not all can be there already; the time of the file stays.
    alter = 'touch -r "$1" /tmp/then && printf kit! | dd of="$1" bs=1 seek=4711 conv=notrunc && touch -r /tmp/then "$1"'
    scene.cluster.hosts[2].script(alter, file)
    bad = scene.kit("verify", NAME)
    assert bad.returncode == 4
    assert "gpu3: 02.bin has other bytes" in bad.stdout
    assert f"{NAME}: wrong on gpu3" in bad.stdout
    mended = scene.kit("stage", NAME)
    assert mended.returncode == 0, mended.stderr
    assert scene.kit("verify", NAME).returncode == 0


def test_rm_waits_for_runs_and_a_run_stages_what_it_needs(scene: Scene) -> None:
    cluster = scene.cluster
    begun = cluster.kit("run", "-d", "--np", "1", "--", "sleep", "600")
    assert begun.returncode == 0, begun.stderr
    try:
        refused = scene.kit("rm", NAME, "--yes")
        assert refused.returncode == 5, refused.stderr
        assert f"the run {begun.stdout.strip()} is active and can read {NAME}; nothing was removed" in refused.stderr
    finally:
        cluster.kit("stop")
    assert scene.kit("rm", NAME).returncode == 2
    assert scene.kit("rm", NAME, "--dry-run").returncode == 0
    removed = scene.kit("rm", NAME, "--yes")
    assert removed.returncode == 0, removed.stderr
    assert scene.state()["state"] == "not staged"
    assert scene.seen(cluster.head) == {}

    run = cluster.kit("run", "--npernode", "1", "--data", NAME, "--", "sh", "-c", PRINT, **scene.store.environment)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == len(cluster.hosts)
    assert len(set(run.stdout.splitlines())) == 1
    scene.everybody_sees(scene.source)
    shown = cluster.kit("runs", "show", "--output", "json")
    assert objects(shown)[-1]["data"] == [NAME]


def test_a_store_is_read_in_place_and_comes_back_after_its_mounter_was_killed(scene: Scene) -> None:
    cluster = scene.cluster
    _, gpu2, gpu3, _ = cluster.hosts
    done = scene.kit("mount")
    assert done.returncode == 0, done.stderr
    assert f"Mounted {PLACE} on gpu[1-4]: s3://{BUCKET}/{NAME}, in " in done.stdout
    scene.everybody_sees(scene.source, PLACE)
    assert (scene.state(PLACE)["state"], scene.state(PLACE)["hosts"]) == (
        "mounted",
        [host.name for host in cluster.hosts],
    )
    refused = cluster.inside(gpu2, "touch", f"/data/{PLACE}/more")
    assert "Read-only file system" in refused.stderr
    nowhere(scene)

    gpu2.text("docker", "kill", f"kit-{cluster.name}-data-{PLACE}")
    until("gpu2 has lost it", lambda: scene.state(PLACE)["hosts"] == ["gpu1", "gpu3", "gpu4"])
    ended = f"{PLACE}: the mount has ended: Transport endpoint is not connected"
    assert store_mounts(cluster) == [(["gpu2"], ended, "breaks", f"kit data mount {PLACE}")]
    failed = cluster.kit("run", "-H", "gpu2", "--np", "1", "--code", "none", "--", "python3", "-c", READ)
    # The program itself would find no file, and end with 0.
    assert failed.returncode == 4, failed.stderr
    text = f"the mount of /data/{PLACE} has ended: its program (rclone, sshfs …) was killed or has failed"
    assert text in failed.stderr
    words = ("run", "-H", "gpu2", "--np", "1", "--code", "none", "--data", PLACE, "--", "python3", "-c", READ)
    again = cluster.kit(*words, **scene.store.environment)
    assert again.returncode == 0, again.stderr
    scene.everybody_sees(scene.source, PLACE)
    assert store_mounts(cluster) == []

    # A node that starts now has this mount, and no later one.
    gpu3.text("docker", "restart", cluster.container(gpu3))
    assert scene.kit("rm", PLACE, "--yes").returncode == 0
    assert scene.state(PLACE)["state"] == "not mounted"
    assert scene.seen(gpu2, PLACE) == {}
    back = scene.kit("mount", PLACE, "--output", "json")
    assert back.returncode == 0, back.stderr
    assert objects(back)[-1]["restarted"] == ["gpu3"]
    scene.everybody_sees(scene.source, PLACE)
    run = cluster.kit("run", "--npernode", "1", "--code", "none", "--", "python3", "-c", READ)
    assert run.returncode == 0, run.stderr


def test_ranks_write_to_a_store(scene: Scene) -> None:
    cluster = scene.cluster
    words = ("--npernode", "1", "--code", "none", "--checkpoint-dir", f"/data/{KEPT}/step-1")
    run = cluster.kit("run", *words, "--", "python3", "-c", WRITE)
    assert run.returncode == 0, run.stderr
    kept = scene.store.bucket / KEPT / "step-1"
    written = {path.name: path.read_bytes() for path in kept.iterdir()}
    assert written == dict.fromkeys("0123", b"rank" * 1_000_000)
    # Every host sees every file, some with another time of rclone, and each comes once.
    home = scene.source.parent / "pulled"
    pulled = cluster.kit("pull", "latest", "checkpoints", str(home))
    assert pulled.returncode == 0, pulled.stderr
    assert {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()} == {
        f"checkpoints/{name}": data for name, data in written.items()
    }
    # It is no copy: each host reads what another one has written.
    read = cluster.kit("run", "-H", "gpu3", "--np", "1", "--code", "none", "--", "sh", "-c", COUNT)
    assert read.stdout.split() == ["4000000"], read.stderr

    back = cluster.kit("run", "-H", "gpu2", "--np", "1", "--code", "none", "--", "python3", "-c", BACK)
    assert back.returncode == 1, back.stderr
    assert "went back in a file that takes only bytes in order: a file in a mounted store" in back.stderr

    # A killed mounter's mount stays, so that nothing is written to the host's disk instead.
    cluster.hosts[1].text("docker", "kill", f"kit-{cluster.name}-data-{KEPT}")
    lost = cluster.kit("run", "-H", "gpu2", "--np", "1", "--code", "none", "--", "python3", "-c", WRITE)
    assert lost.returncode == 4, lost.stderr
    assert f"the mount of /data/{KEPT} has ended" in lost.stderr
    assert cluster.hosts[1].script(f"ls -A /opt/kit/.data/{cluster.name}/{KEPT}") == "mount\n"
    again = scene.kit("mount", KEPT)
    assert again.returncode == 0, again.stderr


def store_mounts(cluster: Cluster) -> list[tuple[list[str], str, str, str]]:
    """Return what kit doctor sees of mounted stores: hosts, text, severity and what to type."""
    findings = objects(cluster.kit("doctor", "--pairs", "none", "--json"))[-1]["findings"]
    return [
        (sight["hosts"], sight["seen"], sight["severity"] or one["severity"], sight["fix"])
        for one in findings
        if one["id"] == "store-mount"
        for sight in one["seen"]
    ]


def nowhere(scene: Scene) -> None:
    """Check that the secret is in no container's settings, command line, log or file of a host."""
    look = (
        "docker ps -q | xargs docker inspect; for one in /proc/[0-9]*; do tr '\\0\\n' '  ' <$one/cmdline; echo; done"
        " 2>/dev/null; echo; echo '== files'; grep -rlsF --exclude-dir=mount -- \"$1\" /opt /etc /root /tmp"
        " /var/lib/docker/containers /var/log; exit 0"
    )
    # The words of the search are not the secret: sh gets that as an argument, and would find itself.
    half = len(SECRET) // 2
    for host, text in everywhere(scene.cluster.hosts, lambda host: host.script(look, SECRET[:half])).items():
        seen, _, files = text.rpartition("\n== files\n")
        assert "kit-data" in seen, host
        assert not [line for line in seen.splitlines() if SECRET in line], host
        assert files == "", host


def test_a_detached_staging_and_no_secret_anywhere(scene: Scene) -> None:
    assert scene.kit("rm", NAME, "--yes").returncode == 0
    # The others are there at once; for this one the staging waits.
    with scene.store.slow(LAST):
        detached_and_watched(scene)


def detached_and_watched(scene: Scene) -> None:
    detached = scene.kit("stage", "-d", NAME, "--limit", "100mbit")
    assert detached.returncode == 0, detached.stderr
    assert f"{NAME} is being staged on 4 hosts" in detached.stdout
    assert scene.state()["state"] == "staging"
    refused = scene.kit("rm", NAME, "--yes")
    assert refused.returncode == 5, refused.stderr
    assert f"end it: kit data stop {NAME}" in refused.stderr
    with scene.cluster.running("data", "stage", NAME, **scene.store.environment) as watching:
        noted = read_until(watching, watching.stderr, f"{NAME} is already being staged since")
        nowhere(scene)
        own = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        assert not [line for line in own.splitlines() if SECRET in line and "rclone serve" not in line]
        scene.store.go_on()
        out, err = rest(watching, timeout=120)
    assert watching.returncode == 0, err
    assert f"Staged {NAME} on 4 hosts" in out
    assert KEY not in noted + out + err
    scene.everybody_sees(scene.source)


def test_a_staging_goes_on_after_kit_down(scene: Scene) -> None:
    cluster = scene.cluster
    assert scene.kit("rm", NAME, "--yes").returncode == 0
    assert scene.kit("mount", PLACE).returncode == 0
    kept = f"/opt/kit/.data/{cluster.name}/{NAME}/coming/done"
    running = cluster.running("data", "stage", NAME, **scene.store.environment)
    with scene.store.slow(LAST), running as process:
        # The first line is of the machine, and each further one lists a piece that is there.
        look = 'sed 1d "$1" 2>/dev/null; exit 0'
        until("a part is kept", lambda: any(everywhere(cluster.hosts, lambda host: host.script(look, kept)).values()))
        down = cluster.kit("down", "--yes")
        assert down.returncode == 0, down.stderr
        _, err = rest(process, timeout=120)
    assert process.returncode == 4, err
    # Its stager ended first: no host is lost, whichever is quick.
    assert "its stager ended before the staging did (kit down" in err
    assert f"what came is kept; go on: kit data stage {NAME}" in err
    look = "docker ps --all --quiet --filter label=kit.data; pgrep -x rclone; grep fuse.rclone /proc/mounts; exit 0"
    assert not any(everywhere(cluster.hosts, lambda host: host.script(look)).values())
    not_ready = scene.kit("stage", NAME)
    assert not_ready.returncode == 5, not_ready.stderr
    assert "→ run: kit deploy" in not_ready.stderr
    deployed = cluster.kit("deploy")
    assert deployed.returncode == 0, deployed.stderr
    scene.store.forget()
    done = scene.kit("stage", NAME)
    assert done.returncode == 0, done.stderr
    assert scene.store.read < ALL
    scene.everybody_sees(scene.source)
