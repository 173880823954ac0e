"""The reader as kit sends it, on this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kit.model.doctor import DATA_ROOT, Command, Disk, File, Files, Links, Lookup, Mount, Mounts, Read, Seen
from kit.model.host import Host
from kit.model.nvidia.state import state
from kit.remote.doctor.read import Look, program, read_host
from kit.remote.doctor.reader import main as reader
from kit.remote.doctor.reader import places
from kit.remote.ssh.transport import Completed
from tests.fakes.head import until
from tests.fuse import mountable, silent_mount

__all__ = ["mountable"]


class Here:
    """A transport to this machine, without root."""

    def __init__(self, environ: dict[str, str] | None = None) -> None:
        self.host = Host(name="gpu1", address="192.0.2.1")
        self.environ = os.environ | (environ or {})

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout_s, check=False, env=self.environ)
        return Completed(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def close(self) -> None:
        pass


def seen(*reads: Read, node: Sequence[str] = ()) -> Seen:
    return read_host(Here(), reads, node=node).seen


def test_files_and_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\xff\n")
    (tmp_path / "long").write_bytes(b"x" * (places.FILE + 1))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    names = ("a", "long", "pipe", "link", "missing", ".")
    host = seen(*(File(path=f"{tmp_path}/{name}") for name in names), File(path="/dev/zero"))
    assert host.file(f"{tmp_path}/a") == "one\ufffd\n"
    assert host.file(f"{tmp_path}/link") == "one\ufffd\n"
    assert len(host.file(f"{tmp_path}/long") or "") == places.FILE
    none = {path for path, text in host.files.items() if text is None}
    assert none == {f"{tmp_path}/pipe", f"{tmp_path}/missing", f"{tmp_path}/.", "/dev/zero"}


@pytest.mark.parametrize("name", ["pipe", "device", "folder"])
def test_what_is_no_file_is_not_even_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Opening a pipe wakes who waits at its other end, and opening a watchdog starts it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(os, "open", lambda *words: pytest.fail(f"this was opened: {words}"))
    assert places.content(f"{tmp_path}/{name}", 10) is None


def test_many_files_are_cut(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / f"f{n}").write_text("y" * (reader.SMALL + 5))
    (tmp_path / "folder").mkdir()
    host = seen(Files(pattern=f"{tmp_path}/f*"))
    assert {path: len(text) for path, text in host.glob(f"{tmp_path}/f*").items()} == {
        f"{tmp_path}/f{n}": reader.SMALL for n in range(3)
    }


def test_no_more_files_than_the_limit(tmp_path: Path) -> None:
    for n in range(places.FILES + 10):
        (tmp_path / str(n)).touch()
    assert len(seen(Files(pattern=f"{tmp_path}/*")).glob(f"{tmp_path}/*")) == places.FILES


def test_links_and_other_names(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to("/nowhere/x")
    (tmp_path / "file").touch()
    assert seen(Links(pattern=f"{tmp_path}/*")).link(f"{tmp_path}/*") == {
        f"{tmp_path}/gone": "/nowhere/x",
        f"{tmp_path}/file": "",
    }


def test_programs_run_side_by_side_each_with_its_limit(tmp_path: Path) -> None:
    # Each waits for the others.
    wait = f"touch {tmp_path}/$0; until [ $(ls {tmp_path} | wc -l) = 4 ]; do sleep 0.02; done"
    slow = [Command(argv=("sh", "-c", wait, str(n)), timeout_s=60) for n in range(4)]
    late = Command(argv=("sh", "-c", "echo begun; sleep 60"), timeout_s=1)
    host = seen(
        *slow, late, Command(argv=("no-such-program-of-kit",)), Command(argv=("sh", "-c", "echo a; echo b >&2; exit 3"))
    )
    assert [ran.code for ran in map(host.commands.get, slow) if ran] == [0, 0, 0, 0]
    ran = host.commands[late]
    assert ran is not None
    assert (ran.code, ran.out) == (None, "begun\n")
    assert host.ran("no-such-program-of-kit") is None
    three = host.ran("sh", "-c", "echo a; echo b >&2; exit 3")
    assert three is not None
    assert (three.code, three.out, three.err) == (3, "a\n", "b\n")


def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    host = seen(Command(argv=("sh", "-c", f"sleep 300 & echo $! > {file}; echo left"), timeout_s=20))
    assert [ran.out for ran in host.commands.values() if ran] == ["left\n"]
    pid = file.read_text().strip()
    deadline = time.monotonic() + 10
    while _lives(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _lives(pid)


def _lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_endless_output_is_cut() -> None:
    host = seen(Command(argv=("sh", "-c", "yes | head -c 3000000"), timeout_s=20))
    (ran,) = host.commands.values()
    assert ran is not None
    assert (ran.code, len(ran.out)) == (0, reader.OUTPUT)


def test_the_state_of_ten_gpus_with_many_clocks_is_whole(tmp_path: Path) -> None:
    """A GeForce lists its 200 clocks for each of its four or five clocks of the memory."""
    text = (Path(__file__).parents[3] / "captures/nvidia-smi/h200x1-580/state.xml").read_text()
    clock = r"\t*<supported_mem_clock>[\s\S]*?</supported_mem_clock>\n"
    start, *clocks = re.findall(rf"[\s\S]*?<supported_clocks>|{clock}", text)
    before, gpu = start.split("<gpu ", 1)
    one = f"<gpu {gpu}{''.join(clocks * 4)}</supported_clocks></gpu>"
    (tmp_path / "state.xml").write_text(f"{before}{one * 10}</nvidia_smi_log>\n")
    (ran,) = seen(Command(argv=("cat", f"{tmp_path}/state.xml"))).commands.values()
    assert ran is not None
    assert len(state(ran.out).gpus) == 10


def test_of_a_long_log_the_newest_lines_remain() -> None:
    numbers = Command(argv=("seq", "1", "400000"), timeout_s=20, tail=True)
    host = seen(numbers, Command(argv=("sh", "-c", "echo one; echo two"), tail=True))
    ran = host.commands[numbers]
    assert ran is not None
    assert len(ran.out) == reader.OUTPUT
    assert ran.out.endswith("\n399999\n400000\n")
    short = host.ran("sh", "-c", "echo one; echo two")
    assert short is not None
    assert short.out == "one\ntwo\n"


def test_together_the_answers_have_a_limit(tmp_path: Path) -> None:
    for n in range(reader.TOTAL // places.FILE + 3):
        (tmp_path / f"{n:03}").write_bytes(b"z" * places.FILE)
    reads = [File(path=str(path)) for path in sorted(tmp_path.iterdir())]
    host = seen(*reads)
    assert 0 < len(host.files) < len(reads), "what is too much is missing, and not None"
    assert all(host.files.values())


def test_a_disk_a_name_and_the_own_name() -> None:
    host = seen(Disk(path="/"), Disk(path="/no/such"), Lookup(name="localhost"), Lookup(name="no.such.name.invalid"))
    room = host.room("/")
    assert room is not None
    assert 0 < room.free < room.total
    assert host.room("/no/such") is None
    assert "127.0.0.1" in host.addresses["localhost"]
    assert host.addresses["no.such.name.invalid"] == ()


def test_the_disk_of_the_engines_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "daemon.json"
    monkeypatch.setattr(places, "DAEMON_JSON", str(file))
    assert places.room(DATA_ROOT) is None
    for text in ("", "{", "[]", '{"data-root": 1}', '{"data-root": "data"}', '{"data-root": "/no/such"}'):
        file.write_text(text)
        assert places.room(DATA_ROOT) is None
    file.write_text(f'{{"data-root": "{tmp_path}"}}')
    # Other tests write to this disk meanwhile.
    disk, real = os.statvfs(tmp_path), os.statvfs
    monkeypatch.setattr(os, "statvfs", lambda path: disk if path == str(tmp_path) else real(path))
    assert places.room(DATA_ROOT) == places.room(str(tmp_path)) != places.room("/proc")


def test_a_read_in_the_node_gets_the_words_before_it_and_is_left_out_without() -> None:
    inside = Command(argv=("echo", "x"), node=True)
    assert seen(inside).commands == {}
    ran = seen(inside, node=("echo", "in")).ran("echo", "x", node=True)
    assert ran is not None
    assert ran.out == "in echo x\n"
    # No node runs, or the node has no such program.
    none = Command(argv=("echo 'Error response from daemon: No such container: x' >&2; exit 1",), node=True)
    assert seen(none, node=("sh", "-c")).commands == {none: None}


def test_a_command_waits_for_what_it_is_about(tmp_path: Path) -> None:
    here, gone = (Command(argv=("echo", "x"), only_with=name) for name in (str(tmp_path), f"{tmp_path}/gone"))
    some, none = (Command(argv=("echo", "x"), only_with=name) for name in ("sh", "no-such-program-of-kit"))
    ran = {command: ran.out if ran else None for command, ran in seen(here, gone, some, none).commands.items()}
    assert ran == {here: "x\n", gone: None, some: "x\n", none: None}


def test_a_host_without_the_clusters_folder_has_no_node(tmp_path: Path) -> None:
    inside = Command(argv=("x",), node=True)
    for folder, out in ((str(tmp_path), "x\n"), (f"{tmp_path}/gone", None)):
        ran = read_host(Here(), [inside], node=("echo",), folder=folder).seen.commands[inside]
        assert (ran.out if ran else None) == out


def test_the_look_runs_beside_and_gets_its_mark() -> None:
    look = Look(["sh", "-c", "read -r mark; echo found $mark; exit 7"], "m1")
    answer = read_host(Here(), [File(path="/etc/hostname")], look=look).look
    assert answer is not None
    assert (answer.done.text, answer.done.code, answer.mark) == ("found m1\n", 7, "m1")


def test_sbin_is_on_the_path_and_programs_speak_english() -> None:
    here = Here({"PATH": "/usr/bin:/bin", "LC_ALL": "de_DE.UTF-8"})
    done = read_host(here, [Command(argv=("sh", "-c", "echo $PATH $LC_ALL"))]).seen
    (ran,) = done.commands.values()
    assert ran is not None
    path, language = ran.out.split()
    assert {"/usr/sbin", "/sbin"} <= set(path.split(":"))
    assert language == "C"


def test_the_reader_ends_when_kit_is_gone(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    argv = ["sh", "-c", f"touch {begun}; exec sleep 300"]
    request: dict[str, Any] = {"mark": "m", "limit": 300, "look": None, "reads": [["run", argv, 300, "", False]]}
    text = f"{program()}\nmain({json.dumps(json.dumps(request))})\n"
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(text.encode())
    process.stdin.close()
    until(begun.exists)
    process.stdout.close()
    # Long before the program that it started ends.
    assert process.wait(60) == 1
    process.stderr.close()


def test_a_late_program_ends_at_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the limit of the whole, which would hide what the program printed."""
    from kit.remote.doctor import read  # noqa: PLC0415

    monkeypatch.setattr(read, "LIMIT_S", 10.0)
    late = Command(argv=("sh", "-c", "echo begun; exec sleep 60"), timeout_s=0.5)
    ran = seen(late).commands[late]
    assert ran is not None
    assert (ran.code, ran.out) == (None, "begun\n")


def test_a_program_that_cannot_be_ended_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """No signal ends a program that waits in a driver, as an nvidia-smi that hangs."""
    groups: list[int] = []
    monkeypatch.setattr(reader, "kill", groups.append)
    try:
        reading = reader.Reading({"reads": [], "look": None})
        begun = time.monotonic()
        assert reading.run(["sh", "-c", "echo begun; exec sleep 30"], None, 0.5, reader.OUTPUT) == [None, "begun\n", ""]
        assert time.monotonic() - begun < 15
    finally:
        for group in groups:
            os.killpg(group, signal.SIGKILL)
            os.waitpid(group, 0)


def test_the_mark_is_new_each_time_and_no_argument() -> None:
    """Every user of a VM sees the arguments of all processes, and could let a program print an answer."""

    class Recording(Here):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            done = super().run(argv, stdin=stdin, timeout_s=timeout_s)
            mark = done.stdout.split()[1]
            assert len(mark) == 32
            assert mark in stdin
            assert mark.decode() not in " ".join(argv)
            marks.add(mark)
            return done

    marks: set[bytes] = set()
    for _ in range(3):
        read_host(Recording(), [File(path="/proc/version")])
    assert len(marks) == 3


@pytest.mark.parametrize("limit", [0.5])
def test_a_read_that_never_ends_hides_only_itself(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the whole is the last resort. A command has its own, so it is longer here."""
    from kit.remote.doctor import read  # noqa: PLC0415

    monkeypatch.setattr(read, "LIMIT_S", limit)
    host = seen(Command(argv=("sleep", "30"), timeout_s=30), File(path="/proc/version"))
    assert host.commands == {}
    assert host.file("/proc/version")


TABLE = """\
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
61 27 0:60 / /mnt/one ro,nosuid shared:7 master:3 - fuse.rclone rclone ro
62 27 0:61 / /mnt/a\\040b\\134 ro - fuse.rclone rclone ro
63 27 0:62 / /mnt/one ro - fuse.rclone rclone ro
64 27 0:63 / /mnt/other ro - fuse.sshfs x ro
65 27 0:64 / /mnt/dash - fuse.rclone
66 27 0:65 / /mnt/none ro -
67 27 0:66
"""


def mounts(folder: Path, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    file = folder / "mountinfo"
    file.write_text(table)
    monkeypatch.setattr(places, "MOUNT_TABLE", str(file))


def read_mounts(limit: float = 20.0) -> Any:
    request = {"reads": [["mounts", "fuse.rclone", limit]], "look": None}
    reading = reader.Reading(request)
    reading.work()
    return reading.answer()


def test_mounts_of_one_type_and_how_their_folders_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts(tmp_path, monkeypatch, TABLE)
    monkeypatch.setattr(reader, "fault_of", lambda place: "ENOTCONN" if " " in place else "")
    assert read_mounts()["reads"] == [
        {"/mnt/one": ["0:62", ""], "/mnt/a b\\": ["0:61", "ENOTCONN"], "/mnt/dash": ["0:64", ""]}
    ]
    monkeypatch.setattr(places, "MOUNT_TABLE", f"{tmp_path}/none")
    assert read_mounts() == {"reads": [None], "missing": [], "look": None}


def test_a_mount_that_does_not_answer_is_late_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts(tmp_path, monkeypatch, TABLE)
    gone = threading.Event()

    def opened(place: str) -> str:
        # Far longer than the limit, but not forever.
        return "" if place != "/mnt/one" or gone.wait(10) else "waited"

    monkeypatch.setattr(reader, "fault_of", opened)
    (answer,) = read_mounts(0.2)["reads"]
    gone.set()
    assert answer == {"/mnt/one": ["0:62", None], "/mnt/a b\\": ["0:61", ""], "/mnt/dash": ["0:64", ""]}


def test_more_mounts_than_the_limit_are_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without those that are left out, a store could look as if it were not mounted."""
    lines = [f"61 27 0:{n} / /mnt/{n} ro - fuse.rclone rclone ro\n" for n in range(reader.MOUNTS + 1)]
    mounts(tmp_path, monkeypatch, "".join(lines[:-1]))
    monkeypatch.setattr(reader, "fault_of", lambda _: "")
    answer = read_mounts()
    assert (len(answer["reads"][0]), answer["missing"]) == (reader.MOUNTS, [])
    mounts(tmp_path, monkeypatch, "".join(lines))
    assert read_mounts() == {"reads": [None], "missing": [0], "look": None}


def test_only_folders_are_opened_and_no_link_is_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    faults = {name: places.fault_of(f"{tmp_path}/{name}") for name in (".", "pipe", "file", "link", "gone")}
    assert faults == {".": "", "pipe": "ENOTDIR", "file": "ENOTDIR", "link": "ENOTDIR", "gone": "ENOENT"}


@pytest.mark.usefixtures("mountable")
def test_a_real_mount_whose_server_is_silent_and_then_gone(tmp_path: Path) -> None:
    point = tmp_path / "a mount"
    point.mkdir()
    short, long = (Mounts(kind="fuse.rclone", timeout_s=seconds) for seconds in (0.5, 30.0))

    def look(read: Mounts) -> Mount | None:
        return (seen(read).mounted("fuse.rclone") or {}).get(str(point))

    with silent_mount(point) as end:
        (device,) = [
            line.split()[2] for line in Path("/proc/self/mountinfo").read_text().splitlines() if "a\\040mount" in line
        ]
        assert look(short) == Mount(device=device, fault=None)
        end()
        assert look(long) == Mount(device=device, fault="ENOTCONN")
    assert look(long) is None
