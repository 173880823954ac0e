"""kit-scratch: an empty /tmp when a node starts, without what a user mounted below it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.node import BIN, in_namespace, needs_mounts, prepared, program

PROGRAM = BIN / "kit-scratch"


def load() -> Any:
    loader = importlib.machinery.SourceFileLoader("kit_scratch", str(PROGRAM))
    spec = importlib.util.spec_from_loader("kit_scratch", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # NamedTuple looks its module up.
    sys.modules[spec.name] = module
    loader.exec_module(module)
    return module


scratch = load()

# A node with the folder of the VM at /tmp, /var/tmp and /etc/kit, a named volume, two folders of the user on the same
# file system, and a file.
TABLE = rb"""10 9 0:50 / / rw - overlay overlay rw
11 10 8:1 /opt/kit/lab /etc/kit ro - ext4 /dev/sda1 rw
12 10 8:1 /opt/kit/lab/tmp /tmp rw - ext4 /dev/sda1 rw
13 10 8:1 /opt/kit/lab/tmp /var/tmp rw - ext4 /dev/sda1 rw
14 12 8:1 /home/me/my\040data /tmp/my\040data rw - ext4 /dev/sda1 rw
15 13 8:1 /home/me/code /var/tmp/code/mine rw - ext4 /dev/sda1 rw
16 12 8:17 / /tmp/a/b/volume rw - ext4 /dev/sdb1 rw
17 14 0:60 / /tmp/my\040data/inner rw - tmpfs tmpfs rw
18 12 8:1 /home/me/\134\303\251 /tmp/\134\303\251 rw - ext4 /dev/sda1 rw
19 10 8:1 /home/me/tmp /tmpfiles rw - ext4 /dev/sda1 rw
"""


def test_every_mount_below_the_folder_stays_whatever_path_it_was_mounted_by() -> None:
    mounts = scratch.read_mounts(TABLE.splitlines())
    expected = {"my data", "code/mine", "a/b/volume", os.fsdecode(b"\\\xc3\xa9")}
    assert scratch.mounts_in("/tmp", mounts) == expected
    assert scratch.folders_above(expected) == {"code", "a", "a/b"}


def test_a_folder_that_is_not_a_mount_itself_has_those_below_it() -> None:
    table = [b"10 9 8:1 / / rw - ext4 a rw", b"11 10 8:1 /x /srv/scratch/x rw - ext4 a rw"]
    assert scratch.mounts_in("/srv/scratch", scratch.read_mounts(table)) == {"x"}


def emptied(folder: Path, *mounts: str) -> list[str]:
    emptying = scratch.Emptying(str(folder), set(mounts))
    emptying.run()
    failures: list[str] = emptying.failures
    return failures


def test_all_goes_but_mounts_and_the_folders_that_lead_there(tmp_path: Path) -> None:
    top, elsewhere = tmp_path / "tmp", tmp_path / "elsewhere"
    (top / "ompi/deep").mkdir(parents=True)
    (top / "a/data").mkdir(parents=True)
    elsewhere.mkdir()
    for path in (top / "ompi/deep/x", top / "a/left", top / "a/data/mine", top / "file", elsewhere / "theirs"):
        path.write_text("x")
    (top / "link").symlink_to(elsewhere)
    (top / "a/link").symlink_to(elsewhere / "theirs")
    assert emptied(top, "a/data", "file") == []
    assert sorted(str(path.relative_to(top)) for path in top.rglob("*")) == ["a", "a/data", "a/data/mine", "file"]
    assert (elsewhere / "theirs").read_text() == "x"


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, elsewhere = tmp_path / "tmp", tmp_path / "elsewhere"
    (top / "folder").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "theirs").write_text("x")
    real = os.open

    def swap(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if path == "folder":
            (top / "folder").rmdir()
            (top / "folder").symlink_to(elsewhere)
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(scratch.os, "open", swap)
    assert len(emptied(top)) == 1
    assert (elsewhere / "theirs").read_text() == "x"


def test_folders_that_are_nested_deeper_than_python_calls_go(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d" * 20, dir_fd=at)
        inside = os.open("d" * 20, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inside
    os.close(at)
    assert emptied(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@needs_mounts
def test_what_cannot_be_deleted_is_named_and_no_reason_to_fail(tmp_path: Path) -> None:
    # The table that the program reads is older than the mount.
    (tmp_path / "tmp/held\x1b").mkdir(parents=True)
    (tmp_path / "old").write_text("10 9 8:1 / / rw - ext4 a rw\n")
    done = in_namespace(
        f"cd {tmp_path}/tmp/held*",
        "mount -t tmpfs none .",
        "cd ../..; touch tmp/held*/ tmp/other",
        f"sed 's|^MOUNTS = .*|MOUNTS = \"{tmp_path}/old\"|' {PROGRAM} >program",
        f"python3 -IS program {tmp_path}/tmp",
        "mountpoint -q tmp/held*",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"kit-scratch: cannot delete {tmp_path}/tmp/held?: it is another file system\n"
    assert not (tmp_path / "tmp/other").exists()


@needs_mounts
@pytest.mark.parametrize("target", ["/tmp", "/var/tmp"])
def test_a_node_starts_with_volumes_below_tmp_and_keeps_their_files(tmp_path: Path, target: str) -> None:
    """The real start.sh, on folders of one file system."""
    done = in_namespace(
        *prepared(tmp_path),
        program("start.sh"),
        program("kit-scratch"),
        "cd /run/kit-test; mkdir -p data/deep kit/tmp/left/over",
        "touch data/deep/mine one kit/tmp/left/x kit/tmp/one",
        "mount --bind /run/kit-test/kit/tmp /tmp; mount --bind /run/kit-test/kit/tmp /var/tmp",
        f"mkdir -p {target}/sets/mine; mount --bind /run/kit-test/data {target}/sets/mine",
        f"mount --bind /run/kit-test/one {target}/one",
        "sh /opt/kit/bin/start.sh",
        f"find /run/kit-test/data /run/kit-test/one {target}/left {target}/sets | sort",
    )
    kept = ["data", "data/deep", "data/deep/mine", "one"]
    seen = ["", "/mine", "/mine/deep", "/mine/deep/mine"]
    assert done.stdout.split() == sorted(
        [*(f"/run/kit-test/{name}" for name in kept), *(f"{target}/sets{name}" for name in seen)]
    ), done.stderr
