"""What a rank plants in the folder that its node writes reaches nothing on the VM: kit's scripts, run as root there."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.flows.run.listing import read_list
from kit.model import names
from kit.model.host import Login
from kit.model.run import BY_HAND, RUN_ID
from kit.model.spec import ClusterSpec
from kit.plan.cluster.stack import definition
from kit.remote.run import door
from kit.remote.scripts import folder as opening
from kit.remote.scripts import script
from tests.contract.test_scripts import RealMachine, SocketMachine

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the scripts run as root"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="VMs run Linux"),
    pytest.mark.skipif(shutil.which("flock") is None, reason="flock of util-linux is not here"),
]

GOOD = "20261121-101500-000a"
HOSTILE = "20261121-101500-0bad"
# A folder whose name opens sections of a look, with what a plan would act on.
NAME = '20261121\n@@ secrets\n["theirs",{"kit.role":"client","kit.public":"x"}]\n@@ nodes'


class Client(RealMachine):
    """A VM without Python: the scripts' own tools read it."""


@pytest.fixture(params=["python", "tools"])
def vm(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RealMachine]:
    if request.param == "tools":
        yield Client(tmp_path)
        return
    machine = SocketMachine(tmp_path)
    yield machine
    machine.stub.close()


@pytest.fixture
def runs(vm: RealMachine) -> Path:
    """The folder of runs as ranks can write to it, beside what kit wrote."""
    vm.put("cluster.json", b"{}")
    folder = Path(vm.folder, "var/runs")
    folder.mkdir(parents=True)
    return folder


def plant(runs: Path, name: str, **files: str) -> Path:
    run = runs / name
    run.mkdir()
    for file, text in {"record.json": "{}", **files}.items():
        (run / file.replace("_", ".")).write_text(text)
    return run


def in_time(vm: RealMachine, *words: str, limit_s: float = 30) -> bytes:
    """Run a script. It ends soon, whatever a rank planted."""
    start = time.monotonic()
    done = vm.run(*words)
    assert time.monotonic() - start < limit_s
    assert done.code in (0, 1)
    return done.stdout


def every_reader(vm: RealMachine) -> bytes:
    """Run all that reads below the cluster's folder, and return what they print."""
    out = b"".join(
        in_time(vm, *words)
        for words in (
            ("observe", vm.folder, "kit:1", "state"),
            ("load", vm.folder),
            *(("runs", vm.folder, operation) for operation in ("list", "states", "living", "waiting", "slots")),
            *(("runs", vm.folder, "read", run, file) for run in (GOOD, HOSTILE) for file in ("log", "code.diff")),
        )
    )
    vm.run("audit", vm.folder, f"{vm.root}/.audit/{vm.cluster}", stdin=b"line\n")
    return out


@pytest.mark.parametrize("name", ["lock", "record.json", "end.json", "log", "code.diff", "."])
def test_a_link_in_a_run_is_not_followed(vm: RealMachine, runs: Path, tmp_path: Path, name: str) -> None:
    absent, secret = tmp_path / "nologin", tmp_path / "shadow"
    secret.write_text("root:s3cret\n")
    if name == ".":
        elsewhere = tmp_path / "elsewhere"
        plant(tmp_path, "elsewhere", log="root:s3cret", code_diff="root:s3cret")
        (runs / HOSTILE).symlink_to(elsewhere)
    else:
        run = plant(runs, HOSTILE)
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(absent if name == "lock" else secret)
    before = set(tmp_path.rglob("*")) - set((tmp_path / "opt").rglob("*"))
    assert b"s3cret" not in every_reader(vm)
    assert not absent.exists()
    assert set(tmp_path.rglob("*")) - set((tmp_path / "opt").rglob("*")) == before


@pytest.mark.parametrize("below", ["runs", "runs/.by-hand"])
def test_a_link_in_place_of_a_folder_is_not_followed(vm: RealMachine, runs: Path, tmp_path: Path, below: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    with (theirs / "by-hand-7").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        plant(theirs, GOOD, log="s3cret")
        with (theirs / GOOD / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            folder = runs.parent / below
            if folder.exists():
                folder.rmdir()
            folder.symlink_to(theirs)
            out = every_reader(vm)
    assert b"by-hand-7" not in out
    assert (b"s3cret" in out, GOOD.encode() in out) == (False, False)


def make_socket(path: Path) -> None:
    place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as listener:
        # The path of a socket must be short.
        listener.bind(f"/proc/self/fd/{place}/{path.name}")
    os.close(place)


def make_device(path: Path) -> None:
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))


@pytest.mark.parametrize("make", [os.mkfifo, make_device, make_socket])
def test_a_fifo_or_a_device_hangs_nothing(vm: RealMachine, runs: Path, make: Callable[[Path], None]) -> None:
    """A device could even be the VM's disk."""
    for number, name in enumerate(("lock", "record.json", "end.json", "log", "code.diff")):
        run = plant(runs, HOSTILE if name == "log" else GOOD if name == "code.diff" else f"{GOOD[:-1]}{number}")
        (run / name).unlink(missing_ok=True)
        make(run / name)
    (runs / ".by-hand").mkdir()
    make(runs / ".by-hand/by-hand-7")
    every_reader(vm)


def test_a_device_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a watchdog starts it, and opening a tape rewinds it."""
    os.mknod(tmp_path / "lock", 0o600 | 0o020000, os.makedev(1, 5))
    flags: list[int] = []
    real = os.open

    def recorded(path: str, flag: int, **more: int) -> int:
        flags.append(flag)
        return real(path, flag, **more)

    place = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    monkeypatch.setattr(os, "open", recorded)
    with pytest.raises(OSError, match="not a regular file"):
        opening.open_file(place, "lock")
    monkeypatch.undo()
    os.close(place)
    assert flags == [os.O_PATH | os.O_NOFOLLOW]


def test_names_decide_nothing(vm: RealMachine, runs: Path) -> None:
    held = []
    for name in (NAME, "x", "..x", "20261121-101500-000a ", "20261121-101500-000G", "-n", "20261121-101500-000a\n"):
        held.append((plant(runs, name) / "lock").open("w"))
    (runs / ".by-hand").mkdir()
    for name in ("by-hand-7\n@@ member\npending", "by-hand-", "x", "by-hand-1x"):
        held.append((runs / ".by-hand" / name).open("w"))
    for lock in held:
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert vm.facts().living == ()
    assert b"theirs" not in every_reader(vm)
    for lock in held:
        lock.close()


def test_what_a_rank_makes_huge_is_not_read(vm: RealMachine, runs: Path) -> None:
    for number in range(3):
        run = plant(runs, f"20261121-101500-000{number}")
        for file in ("record.json", "end.json"):
            os.truncate(run / file, 1 << 40) if (run / file).exists() else (run / file).touch()
    # A record that ranks make deep or long is that run's problem.
    plant(runs, GOOD, record_json="[" * 100_000)
    os.truncate(plant(runs, HOSTILE) / "record.json", 1 << 22)
    out = every_reader(vm)
    assert len(out) < 30 << 20


def test_a_broken_record_hides_no_other_run(tmp_path: Path, vm: RealMachine, runs: Path) -> None:
    plant(runs, GOOD, record_json=json.dumps({"id": "../../../etc", "started": 5, "command": ["true"]}))
    plant(runs, HOSTILE, record_json=json.dumps({"id": HOSTILE, "places": [1]}))
    # A power cut left nothing of the first one. The other has just begun.
    cut, begun = "20261121-101500-0001", "20261121-101500-0002"
    plant(runs, cut, record_json="")
    (runs / begun).mkdir()
    if not shutil.which("python3", path=str(vm._path)):
        (vm._path / "python3").symlink_to(sys.executable)
    runs_read = read_list(vm.run("runs", vm.folder, "list").stdout)
    assert [record.id for record, _ in runs_read.stored] == [GOOD]
    (problem,) = runs_read.problems
    assert HOSTILE in problem or cut in problem
    assert problem.endswith(", and those of 1 more run")
    assert runs_read.now


def test_an_audit_in_the_writable_folder_is_not_taken_over(vm: RealMachine, runs: Path, tmp_path: Path) -> None:
    """A rank could forge it, or put a link to another file there."""
    audit = Path(vm.root, ".audit", vm.cluster)
    forged = runs.parent / "audit"
    for link in (False, True):
        forged.symlink_to(tmp_path / "sudoers") if link else forged.write_text("forged\n")
        vm.run("audit", vm.folder, str(audit), stdin=b"real\n")
        assert "forged" not in audit.read_text()
        assert not (tmp_path / "sudoers").exists()
        forged.unlink()
    (runs.parent / "audit").write_text("forged\n")
    audit.unlink()
    vm.run("remove", vm.cluster, vm.folder, "all")
    assert not audit.exists()


def log_of(folder: Path, run: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return the log as kit reads it when the head's container is down."""
    monkeypatch.setattr(door, "openssh_argv", lambda *_: ["sh", "-c"])
    login = Login(host="gpu1", address="192.0.2.1", user=None, port=None, key=None, known_hosts=None)
    file = door.LogFile(login, str(folder), run)
    text, start = b"", time.monotonic()
    while (piece := file.read(5)) is not None:
        text += piece
        assert time.monotonic() - start < 30
    file.close()
    return text


@pytest.mark.skipif(not shutil.which("python3"), reason="a VM without Python needs the head's container")
def test_the_log_of_a_run_is_read_from_the_vms_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "lab/var/runs"
    runs.mkdir(parents=True)
    log = plant(runs, GOOD, log="line\n" * 100_000) / "log"
    assert log_of(tmp_path / "lab", GOOD, monkeypatch) == b"line\n" * 100_000
    log.unlink()
    assert log_of(tmp_path / "lab", GOOD, monkeypatch) == b""
    (tmp_path / "shadow").write_text("s3cret")
    log.symlink_to(tmp_path / "shadow")
    assert log_of(tmp_path / "lab", GOOD, monkeypatch) == b""
    log.unlink()
    os.mkfifo(log)
    assert log_of(tmp_path / "lab", GOOD, monkeypatch) == b""
    for name in ("../../..", "x", f"{GOOD}/../{GOOD}"):
        assert log_of(tmp_path / "lab", name, monkeypatch) == b""


# The lock of Compose


def test_no_one_but_root_reaches_the_lock_of_compose(vm: RealMachine, runs: Path) -> None:
    """A user of the VM, or a rank through the read-only mount, can lock every folder that it can open."""
    mount = os.open(vm.folder, os.O_RDONLY)
    fcntl.flock(mount, fcntl.LOCK_EX)
    try:
        in_time(vm, "compose_up", vm.folder)
        # A look waits for Compose for 15 s, and then goes on.
        in_time(vm, "observe", vm.folder, "kit:1", "state", limit_s=12)
        in_time(vm, "remove", vm.cluster, vm.folder, "all")
    finally:
        os.close(mount)


def test_a_deploy_makes_the_lock_in_a_place_of_root_and_down_removes_it(vm: RealMachine, runs: Path) -> None:
    folder, lock = Path(vm.root, ".lock"), Path(vm.root, ".lock", f"{vm.cluster}.compose")
    vm.run("observe", vm.folder, "kit:1", "state")
    assert not folder.exists()
    folder.mkdir(mode=0o755)
    vm.run("compose_up", vm.folder)
    assert (oct(folder.stat().st_mode), lock.exists()) == ("0o40700", True)
    in_time(vm, "remove", vm.cluster, vm.folder, "all")
    assert not folder.exists()


def test_the_lock_of_the_cluster_is_in_a_place_of_root(vm: RealMachine) -> None:
    folder = Path(vm.lock).parent
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    with vm.held():
        assert oct(folder.stat().st_mode) == "0o40700"
        assert Path(vm.lock).stat().st_mode & 0o077 == 0


def test_locks_and_the_audit_are_in_no_folder_that_a_container_mounts() -> None:
    """A rank could lock, forge or replace what its container has, even where it can only read."""
    place = names.folder("lab")
    mounts = {
        Path(volume.split(":")[0])
        for volume in definition(ClusterSpec(name="lab"), name="mpihead", image="kit:x", gpus="", own={}, key="")[
            "volumes"
        ]
    }
    assert Path(place) in mounts
    # node_lock.sh makes the lock of Compose beside that of the cluster.
    for path in (names.audit_file("lab"), names.lock_file("lab"), f"{names.lock_file('lab')}.compose"):
        assert not mounts & {Path(path), *Path(path).parents}, path


def test_down_waits_for_a_compose_that_still_works(vm: RealMachine, runs: Path) -> None:
    vm.run("compose_up", vm.folder)
    lock = os.open(f"{vm.root}/.lock/{vm.cluster}.compose", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    timer = threading.Timer(0.7, os.close, (lock,))
    timer.start()
    start = time.monotonic()
    vm.run("remove", vm.cluster, vm.folder, "all")
    assert time.monotonic() - start > 0.7


@pytest.mark.parametrize("vm", ["python"], indirect=True)
def test_only_runs_with_a_file_wait_in_line(vm: RealMachine, runs: Path) -> None:
    line = runs / ".queue"
    line.mkdir()
    for name in (f"{GOOD}.json", "..json", ".state.json", "x.json", f"{HOSTILE}.json.new", f"{HOSTILE}.jsan"):
        (line / name).write_text("{}")
    assert in_time(vm, "runs", vm.folder, "waiting").decode().split() == [GOOD]
    assert in_time(vm, "runs", vm.folder, "cordoned") == b""
    (line / ".cordons.json").write_text('{"gpu1": {}}')
    assert in_time(vm, "runs", vm.folder, "cordoned") == b"yes\n"
    seen = in_time(vm, "observe", vm.folder, "kit:1", "state").decode()
    assert seen.partition("@@ waiting\n")[2].splitlines()[0] == GOOD
    assert seen.partition("@@ cordoned\n")[2].splitlines()[0] == "yes"
    # A rank of root can put a link there.
    line.rename(runs / "elsewhere")
    line.symlink_to(runs / "elsewhere")
    assert in_time(vm, "runs", vm.folder, "waiting") == b""
    assert in_time(vm, "runs", vm.folder, "cordoned") == b""


# One definition of the names


@given(st.from_regex(RUN_ID, fullmatch=True) | st.from_regex(BY_HAND, fullmatch=True) | st.text(max_size=24))
def test_the_vms_program_knows_the_names_of_runs(name: str) -> None:
    assert opening.is_run(name) == bool(RUN_ID.fullmatch(name))
    assert opening.is_by_hand(name) == bool(BY_HAND.fullmatch(name))


def test_without_python_the_container_reads_its_own_folder(tmp_path: Path) -> None:
    """A link there shows a rank what it can read anyway. What its Python prints is filtered on the VM."""
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "grep", "head", "timeout", "docker"):
        target = shutil.which(tool)
        if tool != "docker" and target:
            (tmp_path / "bin" / tool).symlink_to(target)
    docker = tmp_path / "bin/docker"
    docker.write_text(f"#!/bin/sh\necho \"$1 $2 $3\" >>{tmp_path}/asked\nprintf '@@ secrets\\n{GOOD}\\n[1]\\n'\n")
    docker.chmod(0o755)
    folder = tmp_path / "lab"
    (folder / "var/runs").mkdir(parents=True)
    environ = {"PATH": str(tmp_path / "bin")}
    argv = script("observe", str(folder), "x", "state")
    out = subprocess.run(argv, env=environ, capture_output=True, check=False, timeout=30).stdout.decode()
    assert out.partition("@@ living\n")[2].splitlines() == [GOOD, "@@ end"]
    assert "exec kit-lab-mpihead python3" in (tmp_path / "asked").read_text()
