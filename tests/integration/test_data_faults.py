"""Whatever breaks while data is staged: what the operator sees, what is kept, and that the next staging completes it.

tests/integration/data_faults.py has the rows. Nothing here believes kit's words: hosts are compared with the source.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration import data_faults as faults
from tests.integration.data_faults import ROWS
from tests.integration.rig import CONNECTIONS, VM, Cluster, Done, change_settings, everywhere, objects, until
from tests.integration.store import BUCKET, KEY, SECRET, Store, store
from tests.integration.test_fault_matrix import full, power, small_disk
from tests.pipes import read_until, rest

pytestmark = pytest.mark.timeout(600)

NAME = "pictures"
# The same files, for too little memory.
IN_MEMORY = "in-memory"
# Too large for two files to travel as one piece.
FILES, EACH = 12, 2_200_000
ALL = FILES * EACH
# 1 MB/s for each host: so the others still get what one has read long ago.
SLOW = ("--limit", "8mbit")
SHARE = 0.4
Kit = subprocess.Popen[str]


@dataclass
class Scene:
    """The cluster with a data set of an S3 server on this machine."""

    cluster: Cluster
    store: Store
    settings: dict[str, dict[str, object]]

    @property
    def source(self) -> Path:
        return self.store.bucket / NAME

    @property
    def folder(self) -> str:
        return f"/opt/kit/.data/{self.cluster.name}/{NAME}"

    def host(self, name: str) -> VM:
        return next(host for host in self.cluster.hosts if host.name == name)

    def stage(self, *words: str, **environ: str) -> Done:
        return self.cluster.kit("data", "stage", NAME, *words, **{**self.store.environment, **environ})

    @contextlib.contextmanager
    def staging(self, *words: str) -> Iterator[Kit]:
        """A `kit data stage` with SHARE of the source read. It reads the rest after `store.go_on`."""
        files = sorted(path.relative_to(self.store.bucket).as_posix() for path in self.source.iterdir())
        at_once = files[: int(SHARE * FILES)]
        self.store.forget()
        running = self.cluster.running("data", "stage", NAME, *words, **self.store.environment)
        with self.store.slow(*files[len(at_once) :]), running as process:
            until(f"{SHARE:.0%} are read", lambda: process.poll() is not None or self.store.whole(*at_once))
            assert process.poll() is None, rest(process, timeout=60)
            yield process

    def joined(self) -> Done:
        """Another `kit data stage`, of which the source waits until it watches the first one."""
        words = ("data", "stage", NAME, "--output", "json")
        with self.cluster.running(*words, **self.store.environment) as process:
            seen = read_until(process, process.stderr, "already being staged")
            self.store.go_on()
            out, err = rest(process, timeout=200)
        return Done(process.args, process.returncode, out, seen + err)

    def saw(self, fault: str, process: Kit | Done) -> None:
        """The row of this fault: how kit ended, and what it said."""
        row = ROWS[fault]
        if isinstance(process, subprocess.Popen):
            out, err = rest(process, timeout=200)
        else:
            out, err = process.stdout, process.stderr
        text = f"{fault}: exit {process.returncode}\n{out[-2000:]}\n{err[-4000:]}"
        assert process.returncode == row.code, text
        for words in row.sees:
            assert words in err + out, f"{words!r} is not in what kit says; {text}"
        assert "Traceback" not in err, text
        for secret in (KEY, SECRET):
            assert secret not in err + out

    def nobody_left(self) -> None:
        """No stager runs. It ends by itself some seconds after its staging."""
        look = "docker ps --all --quiet --filter label=kit.data; pgrep -x rclone; exit 0"
        until("no stager is left", lambda: not any(everywhere(self.cluster.hosts, lambda h: h.script(look)).values()))

    def sums_on(self, host: VM) -> dict[str, str]:
        """The SHA-256 of each file of the data set on a host, by its path. Nothing that is unfinished is there."""
        line = 'cd "$1/files" && find . -type f -exec sha256sum {} + | sed "s|\\./||"; ls -A "$1" | sed "s/^/has /"'
        rows = [row.split(maxsplit=1) for row in host.script(line, self.folder).splitlines()]
        own = {"manifest.json", "staged.json", "unchanged-since"}
        assert {name for digest, name in rows if digest == "has"} == {"files", *own}
        return {path: digest for digest, path in rows if digest != "has"}

    def source_is_on(self, *names: str) -> None:
        """The files of these hosts, of all if none is named, are those of the source, and nothing else is there."""
        wanted = sums(self.source)
        hosts = [host for host in self.cluster.hosts if not names or host.name in names]
        for name, found in everywhere(hosts, self.sums_on).items():
            assert found == wanted, name

    def completes(self, *, most_read: int | None = None) -> None:
        """The next staging makes all hosts complete, and reads at most this number of bytes from the source."""
        done = self.stage("--output", "json")
        assert done.returncode == 0, done.stderr
        result = staged(done)
        assert most_read is None or result["read"] <= most_read, result
        self.source_is_on()

    def deployed(self) -> None:
        deploy = self.cluster.kit("deploy")
        assert deploy.returncode == 0, deploy.stderr

    def gone(self) -> None:
        """Remove the data set everywhere."""
        done = self.cluster.kit("data", "rm", NAME, "--yes")
        assert done.returncode == 0, done.stderr

    def nothing_came(self) -> None:
        # `done` lists what has come.
        look = 'find "$1" "$2" -type f ! -name done 2>/dev/null | head -n 3; exit 0'
        memory = f"/dev/shm/kit-data/{self.cluster.name}"
        left = everywhere(self.cluster.hosts, lambda host: host.script(look, self.folder, memory))
        assert not any(left.values()), left


def sums(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def staged(done: Done) -> dict[str, Any]:
    """What `kit data stage --output json` says at its end."""
    (result,) = (one for one in objects(done) if "watched" in one)
    return result


@pytest.fixture(scope="module")
def prepared(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The data set in kit.yaml, and the store that has it. Afterwards kit.yaml is what it was."""
    before = (cluster.folder / "kit.yaml").read_text()
    gateway = f"{cluster.head.address.rpartition('.')[0]}.1"
    with store(tmp_path_factory.mktemp("store"), gateway) as running:
        running.put({f"{NAME}/{number:02}.bin": os.urandom(EACH) for number in range(FILES)})
        origin = {"from": f"s3://{BUCKET}/{NAME}"}
        settings: dict[str, dict[str, object]] = {
            NAME: {**origin, "to": "/data/pictures"},
            IN_MEMORY: {**origin, "to": "/data/in-memory", "stage": "ram", "size": "10mb"},
        }
        scene = Scene(cluster, running, settings)
        try:
            change_settings(cluster.folder, data=settings)
            scene.deployed()
            yield scene
            scene.gone()
        finally:
            (cluster.folder / "kit.yaml").write_text(before)
            scene.deployed()


@pytest.fixture
def scene(prepared: Scene) -> Iterator[Scene]:
    """No data on any host."""
    CONNECTIONS.forget()
    prepared.gone()
    yield prepared
    prepared.nobody_left()


def test_the_source_dies(scene: Scene) -> None:
    # The hosts read all files at the same time. So at 40 % of the bytes, it may be that no file is whole.
    whole = int(SHARE * FILES)
    scene.store.forget()
    scene.store.die_after_files(whole)
    try:
        scene.saw(faults.SOURCE_DIES, scene.stage())
    finally:
        scene.store.up()
    scene.completes(most_read=ALL - whole * EACH)


def test_a_host_dies_while_it_passes_data_on(scene: Scene) -> None:
    with scene.staging(*SLOW) as staging:
        power(scene.cluster, "gpu3", "kill")
        try:
            scene.store.go_on()
            scene.saw(faults.HOST_DIES, staging)
            scene.source_is_on("gpu1", "gpu2", "gpu4")
        finally:
            power(scene.cluster, "gpu3", "start")
            until("gpu3 is back", lambda: scene.host("gpu3").ssh("docker", "info").returncode == 0)
    # Its nodes came back with its engine.
    scene.deployed()
    scene.completes(most_read=0)


def test_what_cannot_be_staged_is_refused_before_the_first_byte(scene: Scene) -> None:
    scene.store.forget()
    with small_disk(scene.host("gpu2"), scene.folder, "8m"):
        scene.saw(faults.DISK_SMALL, scene.stage())
    scene.saw(faults.MEMORY, scene.cluster.kit("data", "stage", IN_MEMORY, **scene.store.environment))
    scene.saw(faults.WRONG_KEYS, scene.stage(AWS_SECRET_ACCESS_KEY="another-secret-key-0123456789"))
    elsewhere = {**scene.settings[NAME], "from": f"s3://nobody-has-this/{NAME}"}
    change_settings(scene.cluster.folder, data={**scene.settings, NAME: elsewhere})
    try:
        scene.saw(faults.NO_BUCKET, scene.stage())
    finally:
        change_settings(scene.cluster.folder, data=scene.settings)
    assert scene.store.read == 0
    scene.nothing_came()


def test_a_disk_is_full(scene: Scene) -> None:
    host = scene.host("gpu2")
    with small_disk(host, scene.folder, "40m"):
        with scene.staging() as staging:
            full(host, scene.folder)
            scene.store.go_on()
            scene.saw(faults.DISK_FULL, staging)
        host.script('rm "$1/filler"', scene.folder)
        scene.completes(most_read=0)


def test_files_change_while_they_are_read(scene: Scene) -> None:
    """What was read before the change is the old version of a file, and never half of one."""
    old = sums(scene.source)
    with scene.staging() as staging:
        for number in range(FILES):
            # At once, as in an object store: nobody ever sees a part of the new version.
            fresh = scene.store.bucket.parent / "fresh"
            fresh.write_bytes(os.urandom(EACH + 1))
            fresh.replace(scene.source / f"{number:02}.bin")
        scene.store.go_on()
        scene.saw(faults.CHANGED, staging)
    new = sums(scene.source)
    (first, *others) = (scene.sums_on(host) for host in scene.cluster.hosts)
    assert all(other == first for other in others)
    assert all(digest in (old[path], new[path]) for path, digest in first.items())
    assert first != old
    scene.completes()


def test_two_stagings_at_once(scene: Scene) -> None:
    with scene.staging() as first:
        second = scene.joined()
        scene.saw(faults.TWO, second)
        scene.saw(faults.TWO, first)
    result = staged(second)
    assert result["watched"]
    assert result["read"] <= ALL + EACH
    scene.source_is_on()


def test_kit_down_meanwhile(scene: Scene) -> None:
    with scene.staging() as staging:
        down = scene.cluster.kit("down", "--yes", "--force")
        try:
            assert down.returncode == 0, down.stderr
            scene.saw(faults.DOWN, staging)
            scene.nobody_left()
        finally:
            scene.deployed()
    # How much is read again is in test_data.py.
    scene.completes()


def test_the_operator_is_killed(scene: Scene) -> None:
    with scene.staging() as staging:
        staging.kill()
        staging.wait()
        assert staging.returncode == ROWS[faults.OPERATOR_KILLED].code
        again = scene.joined()
        assert again.returncode == 0, again.stderr
        result = staged(again)
        assert result["watched"]
    scene.source_is_on()
    scene.nobody_left()


# A root shell's look for secrets: containers, their logs, command lines, and small files of the data set and of kit.
LOOK = r"""
docker ps -aq | xargs docker inspect; docker ps -q --filter label=kit.data | xargs -n 1 docker logs 2>&1
ps axww; find "$1" /opt/kit /run /tmp /var/tmp -xdev -type f -size -900k -exec cat {} + 2>/dev/null; exit 0
"""


def test_a_stager_shows_no_keys_and_listens_for_its_cluster_only(scene: Scene) -> None:
    with scene.staging() as staging:
        for host in scene.cluster.hosts:
            text = host.script(LOOK, scene.folder)
            assert f"kit-{scene.cluster.name}-data-{NAME}" in text
            # Another user of the VM sees the environment of its own processes only.
            text += host.ssh("ps", "axwwe", user="ubuntu").stdout
            assert not [secret for secret in (KEY, SECRET) if secret in text], host.name
            assert "PRIVATE KEY-----" not in text.replace("OPENSSH PRIVATE KEY-----", "")
            (stager,) = json.loads(host.script("docker ps -q --filter label=kit.data | xargs docker inspect"))
            config = stager["HostConfig"]
            assert (config["CapDrop"], config["ReadonlyRootfs"], config["Privileged"]) == (["ALL"], True, False)
            assert config["Binds"] == [f"{scene.folder}:/data"]
            assert "no-new-privileges" in config["SecurityOpt"][0]
            pids = host.text("docker", "top", stager["Id"], "-eo", "pid").split()[1:]
            rows = host.text("ss", "-Hltnp").splitlines()
            mine = {row.split()[3] for row in rows if any(f"pid={pid}," in row for pid in pids)}
            assert {address.rpartition(":")[0] for address in mine} == {host.address}
            assert len(mine) == 1
        scene.store.go_on()
        out, err = rest(staging, timeout=200)
        assert staging.returncode == 0, err
        assert not [secret for secret in (KEY, SECRET) if secret in out + err]
    scene.source_is_on()
    scene.nobody_left()
    for path in scene.cluster.folder.rglob("*"):
        if path.is_file():
            assert not [secret for secret in (KEY, SECRET) if secret.encode() in path.read_bytes()]
