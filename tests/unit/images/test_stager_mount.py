"""kit-data as a mounter: a store's files are read in place, by the real rclone and this machine's FUSE."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.stagers import Order, Stager, Stagers
from tests.fuse import mountable
from tests.integration.rig import until
from tests.integration.store import KEY, RCLONE, SECRET, Store, store
from tests.processes import files_of_processes
from tests.sockets import own_addresses

fuse, mounting = launcher.load("kitdata.fuse"), launcher.load("kitdata.mounting")

LARGE = os.urandom(9 << 20)
PROGRAM = "from kitdata import rclone\nrclone.Rclone.__init__.__kwdefaults__['program'] = {!r}\n"


pytestmark = pytest.mark.usefixtures("mountable")
__all__ = ["mountable"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store(tmp_path_factory.mktemp("store"), own_addresses(21)[20]) as running:
        running.put({"train/shard": LARGE, "train/deep/er/some": b"0123456789", "train/empty": b""})
        running.put({"other/file": b"another"})
        yield running


@dataclass
class Mounter:
    """One mounter of this machine, and what a test orders it to mount."""

    stagers: Stagers
    running: Store
    made: list[Order] = field(default_factory=list)

    @property
    def stager(self) -> Stager:
        return self.stagers.all[0]

    @property
    def point(self) -> Path:
        return self.stager.folder / "mount"

    def source(self, path: str = "data/train", **changes: str) -> dict[str, Any]:
        settings = {
            "TYPE": "s3",
            "PROVIDER": "Other",
            "ENDPOINT": self.running.url,
            "ACCESS_KEY_ID": KEY,
            "SECRET_ACCESS_KEY": SECRET,
            **changes,
        }
        env = {f"RCLONE_CONFIG_KIT_{name}": value for name, value in settings.items()}
        ca = self.running.ca.read_text()
        return {"kind": "rclone", "remote": f"kit:{path}", "env": env, "label": f"s3://{path}", "ca": ca}

    def order(self, **words: Any) -> dict[str, Any]:
        """Start the mounter if it does not run, and return its only answer."""
        self.stager.start()
        order = self.stagers.order(self.stager, **words)
        last = order.end()
        assert order.answers == [last]
        assert SECRET not in str(last)
        return last

    def mount(self, *path: str, **changes: str) -> dict[str, Any]:
        return self.order(op="mount", source=self.source(*path, **changes))

    def mount_to_write(self, *path: str, **changes: str) -> dict[str, Any]:
        return self.order(op="mount", source=self.source(*path, **changes), write=True)

    def mounted(self) -> bool:
        """Return what the mounter says of itself."""
        answer: bool = self.order(op="hello")["hello"]["mounted"]
        return answer

    def processes(self) -> dict[int, str]:
        """Return the programs that name the mount point in their arguments: rclone, and what mounts for it."""
        programs = {}
        for file in files_of_processes("cmdline"):
            with contextlib.suppress(OSError):
                words = file.read_bytes().split(b"\0")
                if str(self.point).encode() in words:
                    programs[int(file.parent.name)] = words[0].decode()
        return programs

    def rclones(self) -> list[int]:
        """Return the processes of rclone that serve this mount."""
        return [number for number, program in self.processes().items() if program == RCLONE]

    def plain(self) -> bool:
        """Return whether the mount point is an empty folder, with nothing mounted there."""
        return not fuse.kinds(str(self.point)) and not list(self.point.iterdir())

    def close(self) -> None:
        self.stager.kill()
        for number in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        until("rclone has ended", lambda: not self.processes())
        fuse.detach(str(self.point))
        self.stagers.close()


@pytest.fixture
def mounter(tmp_path: Path, real: Store) -> Iterator[Mounter]:
    made = Mounter(Stagers(1, tmp_path), real)
    made.stager.hook = PROGRAM.format(RCLONE)
    yield made
    made.close()


def test_files_are_read_in_place(mounter: Mounter) -> None:
    assert mounter.mount() == {"mounted": {"already": False}}
    assert fuse.kinds(str(mounter.point)) == ["fuse.rclone"]
    point = mounter.point
    assert sorted(path.name for path in point.iterdir()) == ["deep", "empty", "shard"]
    assert (point / "deep/er/some").read_bytes() == b"0123456789"
    assert (point / "empty").read_bytes() == b""
    assert (point / "shard").stat().st_size == len(LARGE)
    with (point / "shard").open("rb") as file:
        for offset, length in ((7 << 20, 3 << 20), (0, 10), (5_000_001, 100_000)):
            file.seek(offset)
            assert file.read(length) == LARGE[offset : offset + length]
    assert (point / "shard").read_bytes() == LARGE
    assert mounter.mounted()


def test_everybody_may_read_and_nobody_may_write(mounter: Mounter) -> None:
    mounter.mount()
    point = mounter.point
    modes = {name: stat.S_IMODE((point / name).stat().st_mode) for name in ("shard", "deep")}
    assert modes == {"shard": 0o644, "deep": 0o755}
    (mount,) = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {point} " in line]
    assert {"ro", "nosuid", "nodev"} <= set(mount.split()[5].split(","))
    # `df` shows which store it is, and two hosts with the same name have the same files.
    kind, name = mount.split(" - ")[1].split()[:2]
    assert (kind, name) == ("fuse.rclone", "s3://data/train")
    assert {"allow_other", "default_permissions"} <= set(mount.split()[-1].split(","))
    for call in (
        lambda: (point / "new").write_bytes(b""),
        lambda: (point / "shard").open("r+b"),
        (point / "shard").unlink,
        (point / "folder").mkdir,
    ):
        with pytest.raises(OSError, match="Read-only file system"):
            call()
    assert (mounter.running.bucket / "train/shard").read_bytes() == LARGE


def test_what_is_written_is_in_the_store_when_it_is_closed(mounter: Mounter) -> None:
    # Nothing is there yet: the first file makes the folder of a store.
    assert mounter.mount_to_write("data/kept") == {"mounted": {"already": False}}
    point, kept = mounter.point, mounter.running.bucket / "kept"
    assert list(point.iterdir()) == []
    (mount,) = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {point} " in line]
    assert {"rw", "nosuid", "nodev"} <= set(mount.split()[5].split(","))
    # More than one part of an upload.
    large = LARGE * 2
    with (point / "large").open("wb") as file:
        file.write(large[:5])
        file.write(large[5:])
    assert (kept / "large").read_bytes() == large
    (point / "deep/er").mkdir(parents=True)
    # Other hosts see the folder before it has files.
    assert (kept / "deep/er").is_dir()
    (point / "deep/er/step-1").write_bytes(b"one")
    assert (kept / "deep/er/step-1").read_bytes() == b"one"
    (point / "deep/er/step-1").write_bytes(b"another")
    assert (kept / "deep/er/step-1").read_bytes() == (point / "deep/er/step-1").read_bytes() == b"another"
    # A store has no owners: every user of a node may write.
    assert stat.S_IMODE(point.stat().st_mode) == 0o777
    assert stat.S_IMODE((point / "large").stat().st_mode) == 0o666


def test_a_store_that_encrypts_with_kms_is_read_and_written(mounter: Mounter, tmp_path: Path) -> None:
    (tmp_path / "kms").mkdir()
    with store(tmp_path / "kms", own_addresses(25)[24]) as running:
        running.kms, mounter.running = True, running
        # As for Amazon's S3, rclone knows how it makes the ETag of a file in parts.
        mounter.mount_to_write("data/kept", PROVIDER="AWS", FORCE_PATH_STYLE="true")
        point, kept = mounter.point, running.bucket / "kept"
        (point / "latest").write_bytes(b"first")
        for name, content in (("small", b"1" * 1000), ("large", LARGE * 2), ("step", b"other")):
            (point / name).write_bytes(content)
            assert (kept / name).read_bytes() == content
        (point / "empty").touch()
        until("the empty file is in the store", (kept / "empty").exists)
        # Of the same size as the file that it replaces. S3 can only copy, and the copy has another ETag.
        (point / "step").rename(point / "latest")
        (point / "latest").rename(point / "before")
        assert (kept / "before").read_bytes() == (point / "before").read_bytes() == b"other"
        assert sorted(path.name for path in kept.iterdir()) == ["before", "empty", "large", "small"]
        assert (point / "large").read_bytes() == LARGE * 2


@pytest.mark.parametrize("write", [False, True])
def test_only_the_md5s_of_s3_may_be_none(write: bool) -> None:
    etags, sure = (set(mounting.flags(write=write, etags=etags)) for etags in (True, False))
    assert "--no-checksum" in etags - sure
    assert ("--size-only" in etags) is write
    assert not sure & {"--no-checksum", "--size-only", "--ignore-checksum"}


def test_a_file_is_written_from_its_start_to_its_end(mounter: Mounter) -> None:
    mounter.mount_to_write("data/ordered")
    file = mounter.point / "file"
    file.write_bytes(b"first")
    with pytest.raises(OSError, match="Operation not permitted"), file.open("ab") as end:
        end.write(b"more")
    with (mounter.point / "back").open("wb", buffering=0) as back:
        back.write(b"first")
        back.seek(0)
        with pytest.raises(OSError, match="Illegal seek"):
            back.write(b"F")
    assert (mounter.running.bucket / "ordered/file").read_bytes() == b"first"


def test_a_store_that_is_away_is_an_error_of_the_writer(mounter: Mounter, tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    # rclone tries for minutes, which is right for a checkpoint, and too long for a test.
    mounter.stager.hook += "from kitdata import mounting\nmounting._LIMITS = ('--low-level-retries', '1')\n"
    with store(tmp_path / "away", own_addresses(23)[22]) as running:
        mounter.running = running
        mounter.mount_to_write("data/kept")
        running.down()
        with pytest.raises(OSError, match="Input/output error"):
            (mounter.point / "file").write_bytes(b"lost?")
        running.up()
        (mounter.point / "file").write_bytes(b"kept")
        assert (running.bucket / "kept/file").read_bytes() == b"kept"


def test_no_bucket_is_made(mounter: Mounter) -> None:
    failed = mounter.mount_to_write("no-such-bucket/kept")["failed"]
    assert (failed["kind"], failed["text"]) == ("source-missing", "s3://no-such-bucket/kept is not there")
    assert not (mounter.running.bucket.parent / "no-such-bucket").exists()


def test_a_writable_mount_without_its_rclone_lets_nobody_write_to_the_disk(mounter: Mounter) -> None:
    mounter.mount_to_write("data/later")
    (number,) = mounter.rclones()
    os.kill(number, signal.SIGKILL)
    until("the mounter has seen it", lambda: not mounter.mounted())
    with pytest.raises(OSError, match="Transport endpoint is not connected"):
        (mounter.point / "file").write_bytes(b"")
    assert mounter.mount_to_write("data/later") == {"mounted": {"already": False}}
    (mounter.point / "file").write_bytes(b"again")
    assert (mounter.running.bucket / "later/file").read_bytes() == b"again"


def test_files_that_a_mount_would_hide_are_named(mounter: Mounter) -> None:
    mounter.stager.start()
    mounter.point.mkdir()
    (mounter.point / "step-7").write_bytes(b"written while nothing was mounted")
    failed = mounter.mount_to_write("data/kept")["failed"]
    assert (failed["kind"], "has files (step-7), which the mount would hide" in failed["text"]) == ("mount-files", True)
    assert (mounter.point / "step-7").read_bytes() == b"written while nothing was mounted"


@pytest.mark.parametrize(
    ("path", "changes", "kind", "words"),
    [
        ("data/train", {"SECRET_ACCESS_KEY": "wrong-wrong-wrong"}, "source-refused", "the secret key is wrong"),
        ("data/train", {"ACCESS_KEY_ID": "WRONGWRONG"}, "source-refused", "it does not know this access key"),
        ("no-such-bucket", {}, "source-missing", "s3://no-such-bucket is not there"),
        ("data/nothing here", {}, "source-missing", "s3://data/nothing here has no files, or is not there"),
        ("data/train", {"ENDPOINT": "https://nowhere.invalid"}, "source-lost", "its name cannot be found"),
        ("data/train/empty", {}, "source-file", "s3://data/train/empty is a single file: only a folder"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_as_by_a_staging(
    mounter: Mounter, path: str, changes: dict[str, str], kind: str, words: str
) -> None:
    failed = mounter.mount(path, **changes)["failed"]
    assert (failed["kind"], words in failed["text"]) == (kind, True), failed
    assert "wrong-wrong" not in failed["text"]
    assert not mounter.mounted()
    assert mounter.plain()
    # The next order is not held up by this one.
    assert mounter.mount() == {"mounted": {"already": False}}


def test_a_store_that_is_away(mounter: Mounter, tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    with store(tmp_path / "away", own_addresses(22)[21]) as running:
        running.put({"train/a": b"0123"})
        mounter.running = running
        running.down()
        failed = mounter.mount()["failed"]
        assert (failed["kind"], failed["text"]) == (
            "source-lost",
            "s3://data/train does not answer: the connection is refused",
        )
        assert not mounter.rclones()
        assert mounter.plain()
        running.up()
        assert "mounted" in mounter.mount()
        assert (mounter.point / "a").read_bytes() == b"0123"


def test_the_same_order_again(mounter: Mounter) -> None:
    mounter.mount()
    (before,) = mounter.rclones()
    assert mounter.mount() == {"mounted": {"already": True}}
    assert mounter.rclones() == [before]


def test_two_orders_at_once_mount_once(mounter: Mounter) -> None:
    mounter.stager.start()
    orders = [mounter.stagers.order(mounter.stager, op="mount", source=mounter.source()) for _ in range(2)]
    assert sorted(order.end()["mounted"]["already"] for order in orders) == [False, True]
    assert fuse.kinds(str(mounter.point)) == ["fuse.rclone"]


def test_another_source_is_busy(mounter: Mounter) -> None:
    mounter.mount()
    text = "another source is mounted here, or this one with other keys or another write:"
    busy = {"failed": {"kind": "busy", "host": None, "text": text}}
    assert mounter.mount("data/other") == busy
    assert mounter.mount_to_write() == busy
    # Another key is another source, whether it is right or not.
    assert mounter.mount("data/train", SECRET_ACCESS_KEY="wrong-wrong-wrong") == busy
    assert (mounter.point / "deep/er/some").read_bytes() == b"0123456789"


@pytest.mark.parametrize(
    "source", [{"kind": "folder", "path": "/", "label": "/"}, {"kind": "feed", "label": "./x"}, {}]
)
def test_only_what_rclone_reads_can_be_mounted(mounter: Mounter, source: dict[str, str]) -> None:
    assert mounter.order(op="mount", source=source)["failed"]["kind"] == "internal"
    assert not mounter.mounted()


def test_an_rclone_that_ends_leaves_a_plain_folder(mounter: Mounter) -> None:
    mounter.mount()
    (number,) = mounter.rclones()
    os.kill(number, signal.SIGKILL)
    until("nothing is mounted any more", lambda: not mounter.mounted())
    assert mounter.plain()
    assert mounter.mount("data/other") == {"mounted": {"already": False}}
    assert (mounter.point / "file").read_bytes() == b"another"


def test_a_mount_that_somebody_detaches_is_made_again(mounter: Mounter) -> None:
    mounter.mount()
    # With an open file, rclone goes on.
    file = os.open(mounter.point / "shard", os.O_RDONLY)
    (before,) = mounter.rclones()
    fuse.detach(str(mounter.point))
    assert not mounter.mounted()
    assert mounter.rclones() == [before]
    assert mounter.mount() == {"mounted": {"already": False}}
    (after,) = mounter.rclones()
    assert after != before
    assert (mounter.point / "deep/er/some").read_bytes() == b"0123456789"
    with contextlib.suppress(OSError):
        os.close(file)


def test_without_open_files_rclone_ends_with_its_mount(mounter: Mounter) -> None:
    mounter.mount()
    fuse.detach(str(mounter.point))
    until("rclone has ended", lambda: not mounter.rclones())
    assert not mounter.mounted()
    assert mounter.plain()


# No time without work is too short to end, once a file opens the gate. Each look at that adds a byte to a file.
SHORT = """
import os
from kitdata import station
finished = station.Station.finished.fget
def look(self):
    if not os.path.exists({gate!r}):
        return False
    with open({looks!r}, "ab") as out:
        out.write(b".")
    return finished(self)
station.Station.finished = property(look)
station.IDLE_S = -1.0
"""


def test_it_ends_only_when_nothing_is_mounted(mounter: Mounter, tmp_path: Path) -> None:
    looks = tmp_path / "looks"
    looks.touch()
    mounter.stager.hook += SHORT.format(gate=str(mounter.stagers.gate), looks=str(looks))
    mounter.mount()
    process = mounter.stager.process
    assert process is not None
    mounter.stagers.release()
    until("it has looked whether it may end", lambda: looks.stat().st_size >= 3)
    assert process.poll() is None
    (number,) = mounter.rclones()
    os.kill(number, signal.SIGKILL)
    assert process.wait(60) == 0
    assert mounter.plain()


def test_a_signal_detaches_the_mount(mounter: Mounter) -> None:
    mounter.mount()
    process = mounter.stager.process
    assert process is not None
    # Of an open file, too: a lazy detach does not wait for it.
    file = os.open(mounter.point / "shard", os.O_RDONLY)
    mounter.stager.signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert mounter.plain()
    assert not mounter.rclones()
    with pytest.raises(OSError, match="not connected"):
        os.close(file)


# rclone waits before it mounts, until a file opens the gate.
WAITING = """#!/bin/sh
touch {begun}
while [ ! -e {gate} ]; do sleep 0.05; done
exec {program} "$@"
"""


def helper(mounter: Mounter, folder: Path, script: str, **values: Path) -> None:
    """Put a script in place of the program that mounts for rclone. `{program}` is that program."""
    folder.mkdir()
    (folder / "fusermount3").symlink_to(launcher.BIN / "kit-data")
    file = folder / "script"
    names = {**values, "program": folder / "fusermount3"}
    file.write_text(script.format(**{name: shlex.quote(str(path)) for name, path in names.items()}))
    file.chmod(0o755)
    mounter.stager.hook += f"from kitdata import mounting\nmounting.HELPER = {str(file)!r}\n"


def test_a_signal_while_it_mounts(mounter: Mounter, tmp_path: Path) -> None:
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    helper(mounter, tmp_path / "helper", WAITING, begun=begun, gate=gate)
    mounter.stager.start()
    order = mounter.stagers.order(mounter.stager, op="mount", source=mounter.source())
    until("rclone wants to mount", begun.exists)
    mounter.stager.signal(signal.SIGTERM)
    assert mounter.stager.process is not None
    assert mounter.stager.process.wait(60) == 0
    # The program goes on, finds that rclone has ended, and takes its mount away.
    gate.touch()
    until("the program has ended", lambda: not mounter.processes())
    assert mounter.plain()
    assert not [answer for answer in order if "mounted" in answer]


def test_a_mount_that_everybody_has_left_is_replaced(mounter: Mounter) -> None:
    mounter.mount()
    (number,) = mounter.rclones()
    mounter.stager.kill()
    os.kill(number, signal.SIGKILL)

    def why() -> int:
        try:
            mounter.point.stat()
        except OSError as error:
            return error.errno or 0
        return 0

    until("the mount is dead", lambda: why() == errno.ENOTCONN)
    assert fuse.kinds(str(mounter.point)) == ["fuse.rclone"]
    assert mounter.mount("data/other") == {"mounted": {"already": False}}
    assert fuse.kinds(str(mounter.point)) == ["fuse.rclone"]
    assert (mounter.point / "file").read_bytes() == b"another"


def test_what_is_no_folder_stays(mounter: Mounter, tmp_path: Path) -> None:
    mounter.point.symlink_to(tmp_path)
    failed = mounter.mount()["failed"]
    assert (failed["kind"], failed["text"]) == ("mount", f"{mounter.point} is no plain folder")
    assert mounter.point.is_symlink()


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("#!/bin/sh\necho 'Operation not permitted' >&2\nexit 1\n", "Operation not permitted"),
        ("#!/bin/sh\nexit 3\n", "fusermount: exit status 3"),
    ],
)
def test_a_host_that_cannot_mount(mounter: Mounter, tmp_path: Path, script: str, text: str) -> None:
    helper(mounter, tmp_path / "helper", script)
    failed = mounter.mount()["failed"]
    assert (failed["kind"], failed["text"]) == ("mount", text)
    assert not mounter.mounted()
    assert mounter.plain()


def test_a_host_without_fuse(mounter: Mounter) -> None:
    mounter.stager.hook += "from kitdata import fuse\nfuse.DEVICE = '/nonexistent/fuse'\n"
    failed = mounter.mount()["failed"]
    words = "this host has no FUSE: /nonexistent/fuse cannot be opened: No such file or directory"
    assert (failed["kind"], failed["text"]) == ("mount", words)


# Of the program that mounts: its words, and then what it does.
NOTES = '#!/bin/sh\nprintf \'%s\\n\' "$@" >{words}\nexec {program} "$@"\n'


def test_secrets_are_on_no_command_line_and_in_no_file(mounter: Mounter, tmp_path: Path) -> None:
    helper(mounter, tmp_path / "helper", NOTES, words=tmp_path / "words")
    mounter.mount()
    (number,) = mounter.rclones()
    process = mounter.stager.process
    assert process is not None
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (number, process.pid)]
    lines.append((tmp_path / "words").read_bytes())
    private = Path(mounter.stager.env["KIT_DATA_SOCKET"]).parent
    lines += [path.read_bytes() for path in private.rglob("*") if path.is_file() and not path.is_symlink()]
    lines.append(os.fsencode(" ".join(map(str, private.rglob("*")))))
    for line in lines:
        assert SECRET.encode() not in line
        assert KEY.encode() not in line
    # The end of the mount leaves nothing in memory.
    mounter.stager.signal(signal.SIGTERM)
    process.wait(60)
    assert [path.name for path in private.iterdir()] == ["socket"]


@pytest.mark.parametrize(
    "words",
    [["-o", "rw", "--", "/"], ["-o", "rw", "--", "{other}"], ["-u", "--", "{point}"], ["{point}"], []],
)
def test_the_program_that_mounts_does_nothing_else(tmp_path: Path, words: list[str]) -> None:
    point, other = tmp_path / "mount", tmp_path / "other"
    point.mkdir()
    other.mkdir()
    program = tmp_path / "fusermount3"
    program.symlink_to(launcher.BIN / "kit-data")
    command = [str(program), *(word.format(point=point, other=other) for word in words)]
    for env in ({"KIT_DATA_MOUNT": str(point), "_FUSE_COMMFD": "0"}, {"_FUSE_COMMFD": "0"}):
        full = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **env}
        done = subprocess.run(command, env=full, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, "this program mounts only for kit-data\n")
    assert not fuse.kinds(str(point))
    assert not fuse.kinds(str(other))


def test_a_mount_that_rclone_does_not_take_is_detached(tmp_path: Path) -> None:
    """Give it a file that is not a socket, so the program cannot hand on the connection to the kernel."""
    point = tmp_path / "mo unt"
    point.mkdir()
    program = tmp_path / "fusermount3"
    program.symlink_to(launcher.BIN / "kit-data")
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "KIT_DATA_MOUNT": str(point),
        "_FUSE_COMMFD": "0",
    }
    command = [str(program), "-o", "rw", "--", str(point)]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{point} cannot be mounted: ")
    assert not fuse.kinds(str(point))
