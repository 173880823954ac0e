"""A snapshot has the files that belong to the code, and reports what cannot be part of it."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.errors import InputError
from kit.model.code import Snapshot
from kit.remote.code import git as history
from kit.remote.code import hashes, limits, listing, manifests, snapshot
from kit.remote.code.snapshot import take
from kit.remote.ship.porter import manifest
from kit.remote.ship.porter.manifest import Entry
from tests.fakes.repository import git, repository, write


def entries(taken: Snapshot) -> dict[str, Entry]:
    return {os.fsdecode(entry.path): entry for entry in manifest.parse(taken.manifest)}


def names(taken: Snapshot) -> list[str]:
    return list(entries(taken))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the clock of the scan ahead, so that files just written are trusted."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 10_000_000_000)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the files that are read."""
    opened: list[str] = []
    real = snapshot._file

    def recorded(top: Path, at: int, path: bytes) -> object:
        opened.append(os.fsdecode(path))
        return real(top, at, path)

    monkeypatch.setattr(snapshot, "_file", recorded)
    return opened


# What belongs to it


def test_a_plain_folder_is_taken_unchanged(top: Path) -> None:
    write(top, {"train.py": "print(1)\n", "lib/net.py": "", "run.sh": "#!/bin/sh\n"})
    (top / "run.sh").chmod(0o700)
    (top / "empty" / "inner").mkdir(parents=True)
    (top / "latest.py").symlink_to("train.py")
    taken = take(top)
    digest = hashlib.sha256(b"print(1)\n").hexdigest()
    assert entries(taken) == {
        "empty/inner": Entry("d", 0o755, "", 0, b"empty/inner", b""),
        "latest.py": Entry("l", 0o777, "", 0, b"latest.py", b"train.py"),
        "lib/net.py": Entry("f", 0o644, hashlib.sha256().hexdigest(), 0, b"lib/net.py", b""),
        "run.sh": Entry("f", 0o755, hashlib.sha256(b"#!/bin/sh\n").hexdigest(), 10, b"run.sh", b""),
        "train.py": Entry("f", 0o644, digest, 9, b"train.py", b""),
    }
    assert (taken.folder, taken.files, taken.size, taken.git) == (top, 3, 19, None)
    assert taken.digest == hashlib.sha256(taken.manifest).hexdigest()


def test_an_empty_folder_has_an_empty_manifest(top: Path) -> None:
    assert take(top).manifest == manifest.EMPTY


def test_git_says_which_files_belong_to_a_work_tree(top: Path) -> None:
    repository(top, {"train.py": "1", "gone.py": "1", "old/name.py": "1", ".gitignore": "*.log\n/data/\n"})
    write(top, {"new.py": "1", "a.log": "1", "data/x.bin": "1", ".git-not/x": "1"})
    (top / "gone.py").unlink()
    (top / "nothing").mkdir()
    assert names(take(top)) == [".git-not/x", ".gitignore", "new.py", "old/name.py", "train.py"]


def test_a_folder_below_a_work_tree_has_its_own_paths(top: Path) -> None:
    repository(top, {"app/train.py": "1", "app/lib/net.py": "1", "other/x.py": "1", ".gitignore": "*.log\n"})
    write(top, {"app/a.log": "1", "app/new.py": "1"})
    assert names(take(top / "app")) == ["lib/net.py", "new.py", "train.py"]


def test_names_that_are_not_text_are_kept(top: Path) -> None:
    repository(top)
    for name in (b"with space", b"new\nline\tand\\more", b"\xff\xfe", "é".encode()):
        (top / os.fsdecode(name)).write_text("1")
    inside = [entry.path for entry in manifest.parse(take(top).manifest)]
    assert inside == sorted([b"with space", b"new\nline\tand\\more", b"\xff\xfe", "é".encode()])
    shutil.rmtree(top / ".git")
    assert [entry.path for entry in manifest.parse(take(top).manifest)] == inside


def test_submodules_and_repositories_inside_come_along(tmp_path: Path, top: Path) -> None:
    deep = repository(tmp_path / "deep", {"deep.py": "1", ".gitignore": "*.o\n"})
    lib = repository(tmp_path / "lib", {"net.py": "1"})
    git(lib, "submodule", "--quiet", "add", str(deep), "deep")
    git(lib, "commit", "-q", "-m", "deep")
    repository(top, {"train.py": "1"})
    git(top, "submodule", "--quiet", "add", str(lib), "vendor/lib")
    git(top, "submodule", "--quiet", "update", "--init", "--recursive")
    git(top, "commit", "-q", "-m", "lib")
    write(top, {"vendor/lib/deep/a.o": "1", "vendor/lib/deep/new.py": "1"})
    repository(top / "clone", {"x.py": "1", ".gitignore": "*.o\n"})
    write(top, {"clone/y.py": "1", "clone/y.o": "1"})
    assert names(take(top)) == [
        ".gitmodules", "clone/.gitignore", "clone/x.py", "clone/y.py", "train.py", "vendor/lib/.gitmodules",
        "vendor/lib/deep/.gitignore", "vendor/lib/deep/deep.py", "vendor/lib/deep/new.py", "vendor/lib/net.py",
    ]  # fmt: skip


def test_a_submodule_that_is_not_checked_out_has_no_files(tmp_path: Path, top: Path) -> None:
    repository(top, {"train.py": "1"})
    git(top, "submodule", "--quiet", "add", str(repository(tmp_path / "lib", {"net.py": "1"})), "lib")
    git(top, "submodule", "--quiet", "deinit", "--force", "lib")
    assert names(take(top)) == [".gitmodules", "train.py"]


@pytest.mark.parametrize("how", ["gone", "empty folder", "broken file"])
def test_a_submodule_whose_repository_is_not_there_is_refused(tmp_path: Path, top: Path, how: str) -> None:
    repository(top, {"train.py": "1"})
    git(top, "submodule", "--quiet", "add", str(repository(tmp_path / "lib", {"net.py": "1"})), "vendor/lib")
    git(top, "commit", "-q", "-m", "lib")
    if how == "gone":
        # As in a container that has the work tree alone.
        shutil.rmtree(top / ".git" / "modules")
    else:
        (top / "vendor" / "lib" / ".git").unlink()
        if how == "empty folder":
            (top / "vendor" / "lib" / ".git").mkdir()
        else:
            (top / "vendor" / "lib" / ".git").write_text("gitdir: /nowhere\n")
    error = refused(top, f"git does not know the files of {top}/vendor/lib")
    assert "git submodule update --init" in str(error.hint)
    write(top, {".kitignore": "vendor/\n"})
    assert names(take(top)) == [".gitmodules", ".kitignore", "train.py"]


def test_a_repository_inside_without_files_is_left_out(top: Path) -> None:
    repository(top, {"train.py": "1"})
    git(top, "init", "-q", "inner")
    write(top, {"inner/.gitignore": "*\n", "inner/x.o": "1"})
    assert names(take(top)) == ["train.py"]


def test_a_tracked_folder_that_became_a_link_is_a_link(top: Path) -> None:
    repository(top, {"a/x.py": "1", "b/x.py": "1", "c": "1"})
    shutil.rmtree(top / "a")
    (top / "a").symlink_to("b")
    (top / "c").unlink()
    write(top, {"c/inner": "1"})
    assert names(take(top)) == ["a", "b/x.py", "c/inner"]


def test_paths_in_conflict_come_once(top: Path) -> None:
    repository(top, {"a.py": "1"})
    git(top, "checkout", "-q", "-b", "other")
    write(top, {"a.py": "2"})
    git(top, "commit", "-qam", "two")
    git(top, "checkout", "-q", "main")
    write(top, {"a.py": "3"})
    git(top, "commit", "-qam", "three")
    with pytest.raises(Exception, match="merge"):
        git(top, "merge", "-q", "other")
    assert names(take(top)) == ["a.py"]


def test_a_folder_that_the_work_tree_above_ignores_is_a_plain_folder(top: Path) -> None:
    # A home folder that is a repository often ignores all that it does not name.
    repository(top, {".gitignore": "*\n", "dir/.keep": ""})
    write(top, {"dir/project/train.py": "1", "dir/project/data/x": "1"})
    taken = take(top / "dir" / "project")
    assert (names(taken), taken.git) == (["data/x", "train.py"], None)


def test_a_broken_repository_is_a_plain_folder(top: Path) -> None:
    (top / ".git").mkdir()
    write(top, {"train.py": "1"})
    assert names(take(top)) == ["train.py"]


def test_settings_for_another_repository_are_ignored(
    tmp_path: Path, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = repository(tmp_path / "other", {"other.py": "1"})
    repository(top, {"train.py": "1"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert names(take(top)) == ["train.py"]


def test_a_snapshot_does_not_write_to_the_repository(top: Path) -> None:
    repository(top, {"train.py": "1"})
    os.utime(top / "train.py", (1, 1))
    index = (top / ".git" / "index").read_bytes()
    take(top)
    assert (top / ".git" / "index").read_bytes() == index


IGNORE = """\
# a comment
*.log
!keep.log
/data/*
!/data/small
build/
docs/**/*.pdf
"""
FILES = [
    ".kitignore", "a.log", "keep.log", "data/big", "data/small", "sub/data/x", "build/x", "sub/build/keep.log",
    "sub/building", "docs/a.pdf", "docs/x/y/b.pdf", "docs/x/b.txt",
]  # fmt: skip
KEPT = [".kitignore", "data/small", "docs/x/b.txt", "keep.log", "sub/building", "sub/data/x"]


@pytest.mark.parametrize("in_git", [False, True], ids=["plain", "git"])
def test_kitignore_leaves_out_what_gitignore_would(top: Path, in_git: bool) -> None:
    write(top, dict.fromkeys(FILES, "1"))
    (top / ".kitignore").write_text(IGNORE)
    if in_git:
        repository(top)
    assert [name for name, entry in entries(take(top)).items() if entry.kind == "f"] == KEPT
    # git agrees on the syntax.
    shutil.rmtree(top / ".git", ignore_errors=True)
    git(top, "init", "-q")
    listed = git(top, "ls-files", "--others", "--exclude-from=.kitignore")
    assert sorted(listed.split()) == KEPT


@pytest.mark.parametrize("in_git", [False, True], ids=["plain", "git"])
def test_an_allow_list_of_kitignore_takes_code_in_folders(top: Path, in_git: bool) -> None:
    write(top, {".kitignore": "*\n!*/\n!*.py\n", "a.py": "1", "data/x.bin": "1", "lib/b.py": "1", "lib/deep/c.py": "1"})
    if in_git:
        repository(top)
    taken = entries(take(top)).items()
    assert [name for name, entry in taken if entry.kind == "f"] == ["a.py", "lib/b.py", "lib/deep/c.py"]


def test_kitignore_counts_beside_gitignore(top: Path) -> None:
    repository(top, {"a.py": "1", "b.bin": "1", ".gitignore": "*.log\n", ".kitignore": "*.bin\n"})
    write(top, {"c.log": "1", "d.bin": "1"})
    assert names(take(top)) == [".gitignore", ".kitignore", "a.py"]


def test_a_folder_with_ignored_files_alone_is_an_empty_folder(top: Path) -> None:
    write(top, {".kitignore": "/data/*\n", "data/x": "1", "data/y/z": "1"})
    assert names(take(top)) == [".kitignore", "data"]


@pytest.mark.parametrize("in_git", [False, True], ids=["plain", "git"])
def test_the_folders_of_git_and_kit_never_come_along(top: Path, in_git: bool) -> None:
    write(top, {"train.py": "1", ".kit/lab/id_ed25519": "secret", "sub/.kit/lab/id_ed25519": "secret", ".kitten": "1"})
    if in_git:
        repository(top)
    else:
        write(top, {"sub/.git": "gitdir: /elsewhere\n", "other/.git/config": ""})
    assert [name for name in names(take(top)) if name not in ("other", "sub")] == [".kitten", "train.py"]


@pytest.mark.parametrize("in_git", [False, True], ids=["plain", "git"])
def test_what_kit_pull_brought_home_does_not_come_along(top: Path, in_git: bool) -> None:
    write(top, {"train.py": "1"})
    if in_git:
        repository(top)
    write(top, {"kit-20261121-101500-3fa2/output/model": "x", "kit-20261121-101500-3fa2/.gitignore": "*\n"})
    assert names(take(top)) == ["train.py"]


def test_sessions_of_kit_bench_do_not_come_along(top: Path) -> None:
    write(top, {"train.py": "1", "bench/20261121-164407-ladder/report.html": "x", "bench/20261121-164407-egs-2/a": "x"})
    assert names(take(top)) == ["train.py"]
    # What is yours does.
    write(top, {"bench/run.py": "1", "bench/20261121-mine/a": "1", "deep/bench/20261121-164407-egs/a": "1"})
    yours = ["bench/20261121-mine/a", "bench/run.py", "deep/bench/20261121-164407-egs/a", "train.py"]
    assert [name for name in names(take(top)) if "." in name or name.endswith("/a")] == yours


@pytest.mark.parametrize("in_git", [False, True], ids=["plain", "git"])
def test_files_of_kit_timeline_do_not_come_along_unless_git_has_them(top: Path, in_git: bool) -> None:
    written = ["kit-timeline-20261121-164407-3fa2-2.json", "kit-timeline-20261121-164407-3fa2.json"]
    yours = ["kit-timeline-mine.json", "sub/kit-timeline-20261121-164407-3fa2.json", "train.py"]
    write(top, {"train.py": "1"})
    if in_git:
        repository(top)
    write(top, dict.fromkeys((*written, *yours), "1"))
    assert [name for name in names(take(top)) if name != "sub"] == sorted([*yours, *(written if in_git else ())])


def test_a_pattern_that_cannot_be_read_is_refused(top: Path) -> None:
    (top / ".kitignore").write_text("ok\n!\n")
    with pytest.raises(InputError, match=r"\.kitignore has a pattern"):
        take(top)


def test_a_kitignore_that_would_take_long_is_refused(top: Path) -> None:
    """Each star takes time, and the file may come from a repository of a stranger."""
    (top / ".kitignore").write_text("*a" * 500_000)
    with pytest.raises(InputError, match=r"\.kitignore has 1 MB; kit reads up to 250 kB"):
        take(top)
    with pytest.raises(InputError, match=r"^code/\.kitignore has 1 MB"):
        listing.chosen("code", [b"a"], [], b"*a" * 500_000)
    write(top, {".kitignore": f"/b\n#{'x' * 249_990}", "a": "1", "b": "1"})
    assert names(take(top)) == [".kitignore", "a"]


@pytest.mark.parametrize("target", ["/dev/null", "."])
@pytest.mark.parametrize("in_git", [True, False])
def test_a_kitignore_that_is_no_file_is_refused_unread(top: Path, target: str, in_git: bool) -> None:
    """/dev/zero has no end: kit took all memory of the machine."""
    if in_git:
        repository(top, {"train.py": "1"})
    (top / ".kitignore").symlink_to(target)
    with pytest.raises(InputError, match=r"\.kitignore is not a file$"):
        take(top)


def test_a_kitignore_may_be_a_link_to_another_file(top: Path) -> None:
    write(top, {".dockerignore": "b\n", "a": "1", "b": "1"})
    (top / ".kitignore").symlink_to(".dockerignore")
    assert names(take(top)) == [".dockerignore", ".kitignore", "a"]


# What cannot be part of it


def refused(folder: Path, match: str) -> InputError:
    with pytest.raises(InputError, match=match) as error:
        take(folder)
    assert error.value.hint
    return error.value


def test_a_folder_that_is_missing_or_a_file(top: Path) -> None:
    refused(top / "missing", "missing does not exist")
    write(top, {"file": ""})
    refused(top / "file", "is not a folder")
    refused(top / "file" / "below", "file/below")
    (top / "loop").symlink_to("loop")
    refused(top / "loop", "loop")


@pytest.mark.parametrize(("folder", "match"), [("/", "whole file system"), ("/root/..", "whole file system")])
def test_the_whole_file_system(folder: str, match: str) -> None:
    refused(Path(folder), match)


def test_a_home_folder(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(top))
    (top / "code").mkdir()
    (top / "link").symlink_to(".")
    refused(top, "is a home folder")
    refused(top / "link", "is a home folder")
    assert names(take(top / "code")) == []


@pytest.mark.parametrize("target", ["/etc/hostname", "../outside", "sub/../../x", "d/up/../x"])
@pytest.mark.parametrize("in_git", [False, True], ids=["plain", "git"])
def test_a_link_that_leads_out(top: Path, target: str, in_git: bool) -> None:
    write(top, {"d/x": "1"})
    (top / "d" / "up").symlink_to("..")
    (top / "bad").symlink_to(target)
    if in_git:
        repository(top)
    error = refused(top, f"the link {top}/bad leads out of the code folder, to {target}")
    assert "volumes:" in (error.hint or "")
    (top / ".kitignore").write_text("/bad\n")
    assert names(take(top)) == [".kitignore", "d/up", "d/x"]


@pytest.mark.parametrize("name", ["data", "sub/data", "d[a]*?", "back\\slash", "#1"])
@pytest.mark.parametrize("in_git", [False, True], ids=["plain", "git"])
def test_a_linked_folder_can_be_left_out_with_the_line_of_the_hint(top: Path, name: str, in_git: bool) -> None:
    """The line of .gitignore, with a slash at its end, fits no link."""
    write(top, {"train.py": "1", ".kitignore": f"{name}/\n"})
    (top / name).parent.mkdir(exist_ok=True)
    (top / name).symlink_to("/mnt/imagenet")
    if in_git:
        repository(top)
    hint = refused(top, "leads out of the code folder, to /mnt/imagenet").hint or ""
    line = hint.removeprefix("write ").partition(" into .kitignore, without a slash at its end")[0]
    (top / ".kitignore").write_text(f"{line}\n")
    assert {".kitignore", "train.py"} <= set(names(take(top))) <= {".kitignore", "train.py", "sub"}


@pytest.mark.parametrize("target", ["missing", "../project/d", "d/up/d/x", "bad"])
def test_a_link_within_the_folder_by_its_name(top: Path, target: str) -> None:
    write(top, {"d/x": "1"})
    (top / "d" / "up").symlink_to("..")
    (top / "bad").symlink_to(target)
    if target == "../project/d":
        # It leads back in here, and not on a host.
        refused(top, "leads out")
    else:
        assert names(take(top)) == ["bad", "d/up", "d/x"]


def test_a_folder_that_git_cannot_open(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git reports it before .kitignore counts, and git status says nothing more."""
    write(top, {"train.py": "1", ".kitignore": "pg/\n"})
    repository(top)
    real = history._git

    def refusing(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
        done = real(folder, *words)
        if "--others" in words:
            done.stderr = b"warning: could not open directory 'pg/': Permission denied\n"
        return done

    monkeypatch.setattr(history, "_git", refusing)
    hint = refused(top, "could not open directory 'pg/': Permission denied").hint or ""
    assert ".git/info/exclude" in hint
    assert "git status" not in hint


def test_a_folder_that_goes_away_while_git_lists_is_left_out(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of a program's temporary files. kit refused the code, and asked to make the folder readable."""
    repository(top, {"train.py": "1"})
    real = history._git

    def late(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
        done = real(folder, *words)
        if "--others" in words:
            done.stderr = b"warning: could not open directory 'tmp/': No such file or directory\n"
        return done

    monkeypatch.setattr(history, "_git", late)
    assert names(take(top)) == ["train.py"]


def make_socket(path: Path) -> None:
    here = Path.cwd()
    try:
        # A socket's path is short.
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize(("make", "what"), [(make_socket, "a socket"), (os.mkfifo, "a FIFO")])
def test_what_is_no_file(top: Path, make: Callable[[Path], None], what: str) -> None:
    write(top, {"sub/x": "1"})
    make(top / "sub" / "odd")
    refused(top, f"{top}/sub/odd is {what}")
    repository(top, {".gitignore": ""})
    assert names(take(top)) == [".gitignore", "sub/x"]


def test_a_file_that_cannot_be_read(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(top, {"secret": "1"})
    real = os.open

    def opened(path: str | bytes, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == b"secret":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", opened)
    refused(top, f"{top}/secret cannot be read: Permission denied")


def test_a_folder_that_cannot_be_read(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(top, {"secret/x": "1"})
    real = os.scandir

    def scanned(path: bytes) -> object:
        if path.endswith(b"secret"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scanned)
    refused(top, f"{top}/secret cannot be read: Permission denied")


def test_a_work_tree_needs_git(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(top, {"train.py": "1"})
    monkeypatch.setenv("PATH", str(top))
    assert "install git" in (refused(top, "git is not installed here").hint or "")


def test_what_git_refuses_is_passed_on(top: Path) -> None:
    repository(top, {"train.py": "1"})
    (top / ".git" / "index").write_bytes(b"broken")
    refused(top, "git cannot list the files of .*index")


def test_a_file_that_keeps_changing(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(top, {"a.log": "1"})
    real = snapshot._read

    def grown(descriptor: int, size: int) -> tuple[str, int]:
        with (top / "a.log").open("a") as file:
            file.write("x")
        return real(descriptor, size)

    monkeypatch.setattr(snapshot, "_PAUSE_S", 0)
    monkeypatch.setattr(snapshot, "_read", grown)
    refused(top, f"{top}/a.log changes while kit reads it")


def test_a_file_that_changes_once_is_read_again(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(top, {"a.py": "old"})
    real = snapshot._read
    tries: list[int] = []

    def edited(descriptor: int, size: int) -> tuple[str, int]:
        result = real(descriptor, size)
        if not tries:
            (top / "a.py").write_text("newer")
        tries.append(size)
        return result

    monkeypatch.setattr(snapshot, "_PAUSE_S", 0)
    monkeypatch.setattr(snapshot, "_read", edited)
    entry = entries(take(top))["a.py"]
    assert (entry.digest, entry.size) == (hashlib.sha256(b"newer").hexdigest(), 5)
    assert tries == [3, 5]


def test_a_file_that_goes_away_is_left_out(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(top, {"a.py": "1", "b.py": "1"})
    real = snapshot._file

    def removed(folder: Path, at: int, path: bytes) -> object:
        (top / os.fsdecode(path)).unlink()
        return real(folder, at, path)

    monkeypatch.setattr(snapshot, "_file", removed)
    assert names(take(top)) == []


def test_too_many_bytes(top: Path) -> None:
    for number in range(7):
        with (top / f"data{number}.bin").open("wb") as file:
            file.truncate(100_000_000 + number)
    error = refused(top, r"has 700 MB in 7 files; kit takes up to 500 MB. The largest: data6.bin \(100 MB\), data5")
    assert "data2" in error.message
    assert "data1" not in error.message
    assert ".kitignore" in (error.hint or "")
    assert "data: of kit.yaml" in (error.hint or "")


def test_too_many_files(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_FILES", 20)
    monkeypatch.setattr(snapshot, "MOST_FILES", 20)
    write(top, {f"folder{number}/{file}": "1" for number in range(7) for file in range(number + 1)})
    error = refused(top, r"has 28 files; kit takes up to 20. The folders with the most: folder6 \(7\), folder5 \(6\)")
    assert "folder1 " not in error.message
    monkeypatch.setattr(listing, "_STOP", 25)
    refused(top, "has more than 2[678] files")


# The cache of hashes


def test_an_unchanged_file_is_not_read_again(top: Path, later: None, read: list[str]) -> None:
    write(top, {"a.py": "1", "sub/b\n.py": "2", "c.py": "3"})
    (top / "link").symlink_to("a.py")
    (top / "empty").mkdir()
    first = take(top)
    assert sorted(read) == ["a.py", "c.py", "sub/b\n.py"]
    read.clear()
    assert take(top) == first
    assert read == []
    write(top, {"c.py": "4", "d.py": "5"})
    (top / "a.py").chmod(0o755)
    second = take(top)
    assert sorted(read) == ["a.py", "c.py", "d.py"]
    assert entries(second)["a.py"].mode == 0o755
    assert entries(second)["c.py"].digest == hashlib.sha256(b"4").hexdigest()


def test_a_file_that_was_just_written_is_read_again(top: Path, read: list[str]) -> None:
    write(top, {"a.py": "1"})
    take(top)
    take(top)
    assert read == ["a.py", "a.py"]


def test_a_file_with_a_time_in_the_future_is_read_again(top: Path, later: None, read: list[str]) -> None:
    write(top, {"a.py": "1"})
    os.utime(top / "a.py", (2**32, 2**32))
    take(top)
    take(top)
    assert read == ["a.py", "a.py"]


def test_the_same_size_and_time_with_other_bytes_is_noticed(top: Path, later: None) -> None:
    write(top, {"a.py": "1"})
    os.utime(top / "a.py", (1, 1))
    first = take(top)
    write(top, {"a.py": "2"})
    os.utime(top / "a.py", (1, 1))
    assert take(top).digest != first.digest


@pytest.mark.parametrize("damage", [b"", b"kit-hashes 1 00000000\n", b"kit-hashes 2 0\n", b"\xff" * 100, None])
def test_a_broken_cache_is_written_again(
    top: Path, cache: Path, later: None, read: list[str], damage: bytes | None
) -> None:
    write(top, {"a.py": "1", "b.py": "1"})
    first = take(top)
    (file,) = (cache / "hashes").iterdir()
    whole = file.read_bytes()
    # Another hash for a file would give a snapshot that no pack can be written for.
    file.write_bytes(whole.replace(b"a.py", b"b.py") if damage is None else damage)
    read.clear()
    assert take(top) == first
    assert sorted(read) == ["a.py", "b.py"]
    assert file.read_bytes() == whole


def test_each_folder_has_its_own_cache_and_few_are_kept(
    tmp_path: Path, cache: Path, later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "_FOLDERS", 3)
    for number in range(5):
        write(tmp_path / f"project{number}", {"a.py": str(number)})
        assert names(take(tmp_path / f"project{number}")) == ["a.py"]
    assert len(list((cache / "hashes").iterdir())) == 3


def test_no_cache_is_needed(top: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(top, {"a.py": "1"})
    first = take(top)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert take(top) == first
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    assert take(top) == first


def test_the_cache_is_private_and_leaves_nothing_else(top: Path, cache: Path) -> None:
    write(top, {"a.py": "1"})
    take(top)
    files = [path for path in cache.rglob("*") if path.is_file()]
    assert sorted(path.parent.name for path in files) == ["hashes", "manifests"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


# The manifests


def test_manifests_of_the_last_snapshots_are_kept(top: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "_KEPT", 2)
    taken = []
    for number in range(3):
        write(top, {"a.py": str(number)})
        taken.append(take(top))
        os.utime(cache / "manifests" / taken[-1].digest, (number, number))
    assert [manifests.recall(one.digest) for one in taken] == [None, taken[1].manifest, taken[2].manifest]
    assert len(list((cache / "manifests").iterdir())) == 2


def test_only_a_manifest_with_that_digest_is_returned(top: Path, cache: Path) -> None:
    taken = take(top)
    (cache / "manifests" / taken.digest).write_bytes(b"x" * len(taken.manifest))
    assert manifests.recall(taken.digest) is None
    (cache / "secret").write_text("1")
    assert manifests.recall("../secret") is None
    assert manifests.recall("0" * 64) is None


# What git says


def test_the_facts_of_git(top: Path) -> None:
    repository(top, {"train.py": "one\n", "sub/x.py": "one\n"})
    git(top, "remote", "add", "origin", "https://me:token@example.com/team/code.git")
    known = take(top).git
    assert known
    assert (known.commit, known.branch, known.dirty) == (git(top, "rev-parse", "HEAD"), "main", False)
    assert (known.diff, known.cut, known.url) == (b"", False, "https://example.com/team/code.git")
    write(top, {"train.py": "two\n"})
    known = take(top).git
    assert known
    assert known.dirty
    assert b"-one\n+two\n" in known.diff
    below = take(top / "sub").git
    assert below
    assert (below.dirty, below.diff, below.commit) == (False, b"", known.commit)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the folders that git compares with their commit."""
    folders: list[Path] = []
    real = history.diff

    def recorded(folder: Path, commit: str) -> history.Difference:
        folders.append(folder)
        return real(folder, commit)

    monkeypatch.setattr(history, "diff", recorded)
    return folders


def test_git_compares_an_unchanged_folder_once(top: Path, compared: list[Path], cache: Path) -> None:
    repository(top, {"train.py": "one\n"})
    write(top, {"train.py": "two\n"})
    first = take(top)
    assert take(top) == first
    assert compared == [top]
    for change in (
        lambda: write(top, {"train.py": "three\n"}),
        lambda: git(top, "add", "-A"),
        lambda: git(top, "commit", "-qm", "second"),
        lambda: next((cache / "diffs").iterdir()).write_bytes(b"broken"),
    ):
        compared.clear()
        change()
        taken = take(top)
        assert taken.git
        assert taken.git.diff == history.diff(top, "HEAD").text
        assert compared == [top, top]
    assert not take(top).git.dirty  # type: ignore[union-attr]


def test_a_difference_that_git_cannot_make_is_unknown_and_not_kept(top: Path) -> None:
    """A clean filter that .gitattributes requires is gone, as that of git-lfs on another machine."""
    repository(top, {"train.py": "one\n", "data.bin": "one\n", ".gitattributes": "*.bin filter=lost\n"})
    write(top, {"data.bin": "two\n", "train.py": "two\n"})
    git(top, "config", "filter.lost.required", "true")
    git(top, "config", "filter.lost.clean", "/no/such/program")
    known = take(top).git
    assert known
    assert (known.dirty, known.diff, known.cut) == (True, b"", True)
    git(top, "config", "filter.lost.clean", "cat")
    known = take(top).git
    assert known
    assert (known.diff.count(b"+two"), known.cut) == (2, False)


def test_the_difference_is_that_from_the_commit_in_the_record(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """You commit while kit reads the files."""
    repository(top, {"train.py": "one\n"})
    write(top, {"train.py": "two\n"})
    real = history.diff

    def diff(folder: Path, commit: str) -> history.Difference:
        git(top, "commit", "-qam", "two")
        return real(folder, commit)

    monkeypatch.setattr(history, "diff", diff)
    known = take(top).git
    assert known
    assert known.commit == git(top, "rev-parse", "HEAD~").strip()
    assert b"+two\n" in known.diff


@pytest.mark.parametrize("change", ["edit", "edit later", "remove", "restore", "link"])
def test_the_difference_is_that_of_the_files_in_the_snapshot(
    top: Path, monkeypatch: pytest.MonkeyPatch, later: None, change: str
) -> None:
    """You save a file while git compares."""
    repository(top, {"train.py": "one\n", "net.py": "one\n"})
    (top / "link").symlink_to("train.py")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "link")
    write(top, {"net.py": "two\n"})
    if change == "restore":
        (top / "train.py").unlink()
    if change == "edit later":
        # The short way, for a folder that kit knows.
        take(top)
        git(top, "commit", "-qm", "again", "--allow-empty")
    real, changes = history.diff, 0

    def diff(folder: Path, commit: str) -> history.Difference:
        nonlocal changes
        changes += 1
        if changes == 1:
            if change == "remove":
                (top / "train.py").unlink()
            elif change == "link":
                (top / "link").unlink()
                (top / "link").symlink_to("net.py")
            else:
                write(top, {"train.py": "three\n"})
        return real(folder, commit)

    monkeypatch.setattr(history, "diff", diff)
    taken = take(top)
    assert changes == 2
    assert taken.git
    assert taken == take(top)
    git(top, "reset", "-q", "--hard", "HEAD")
    subprocess.run(["git", "apply"], cwd=top, input=taken.git.diff, check=True)
    assert take(top).manifest == taken.manifest


def test_a_difference_made_while_files_change_is_not_kept(
    top: Path, monkeypatch: pytest.MonkeyPatch, compared: list[Path]
) -> None:
    repository(top, {"train.py": "one\n"})
    real, numbers = history.diff, iter(range(100))

    def diff(folder: Path, commit: str) -> history.Difference:
        write(top, {"train.py": f"{next(numbers)}\n"})
        return real(folder, commit)

    monkeypatch.setattr(history, "diff", diff)
    monkeypatch.setattr(snapshot, "_PAUSE_S", 0)
    assert take(top).git.dirty  # type: ignore[union-attr]
    assert len(compared) == 3
    monkeypatch.setattr(history, "diff", real)
    write(top, {"train.py": "1\n"})
    assert b"+1\n" in take(top).git.diff  # type: ignore[union-attr]


def test_a_change_that_kitignore_leaves_out_is_noticed(top: Path) -> None:
    repository(top, {"train.py": "1", "notes.txt": "one\n", ".kitignore": "notes.txt\n"})
    first = take(top)
    write(top, {"notes.txt": "two\n"})
    second = take(top)
    assert first.digest == second.digest
    assert first.git
    assert second.git
    assert (first.git.dirty, second.git.dirty) == (False, True)


def test_a_new_file_makes_the_folder_dirty(top: Path) -> None:
    repository(top, {"train.py": "one\n"})
    write(top, {"new.py": "1"})
    known = take(top).git
    assert known
    assert (known.dirty, known.diff) == (True, b"")


def test_a_change_in_a_submodule_is_in_the_difference(tmp_path: Path, top: Path) -> None:
    repository(top, {"train.py": "1"})
    git(top, "submodule", "--quiet", "add", str(repository(tmp_path / "lib", {"net.py": "one\n"})), "lib")
    git(top, "commit", "-q", "-m", "lib")
    write(top, {"lib/net.py": "two\n"})
    known = take(top).git
    assert known
    assert b"-one\n+two\n" in known.diff


@pytest.mark.parametrize("mark", ["--skip-worktree", "--assume-unchanged"])
@pytest.mark.parametrize("below", ["", "sub"])
def test_a_change_that_git_was_told_to_ignore_is_in_the_difference(top: Path, mark: str, below: str) -> None:
    """The run has the changed file. Its record called the folder unchanged."""
    folder = top / below
    folder.mkdir(exist_ok=True)
    write(folder, {"cönfig.py": "one\n", "same.py": "1\n"})
    repository(top)
    git(folder, "update-index", mark, "cönfig.py", "same.py")
    write(folder, {"cönfig.py": "two\n"})
    before = (top / ".git" / "index").read_bytes()
    taken = take(folder)
    assert taken.git
    assert (taken.git.dirty, taken.git.diff.count(b"diff --git"), taken.git.cut) == (True, 1, False)
    assert (top / ".git" / "index").read_bytes() == before
    write(folder, {"cönfig.py": "one\n"})
    subprocess.run(["git", "apply"], cwd=folder, input=taken.git.diff, check=True)
    assert take(folder).manifest == taken.manifest


@pytest.mark.parametrize("file", [".gitmodules", ".git/config"])
@pytest.mark.parametrize("ignore", ["dirty", "all"])
def test_a_change_in_a_submodule_that_git_ignores_is_in_the_difference(
    tmp_path: Path, top: Path, ignore: str, file: str
) -> None:
    """The run has the changed files. Its record called the folder unchanged."""
    repository(top, {"train.py": "1"})
    there = repository(tmp_path / "lib", {"net.py": "one\n", "data.bin": "one\0"})
    git(top, "submodule", "--quiet", "add", str(there), "lib")
    git(top, "config", "--file", file, "submodule.lib.ignore", ignore)
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "lib")
    write(top, {"lib/net.py": "two\n"})
    known = take(top).git
    assert known
    assert (known.dirty, b"-one\n+two\n" in known.diff) == (True, True)
    write(top, {"lib/data.bin": "two\0"})
    known = take(top).git
    assert known
    assert b"GIT binary patch" in known.diff


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"diff.noprefix": "true", "diff.context": "0", "color.ui": "always"},
        {"diff.mnemonicPrefix": "true", "diff.relative": "true", "diff.renames": "copies", "core.quotePath": "false"},
    ],
    ids=["plain", "no prefix", "other prefix"],
)
@pytest.mark.parametrize("below", ["", "sub"])
def test_the_difference_restores_the_code(top: Path, settings: dict[str, str], below: str) -> None:
    folder = top / below
    before = {"latin.txt": b"caf\xe9\r\n", "data.bin": bytes(range(256)), "old.py": b"same\n" * 50, "gone.py": b"1\n"}
    repository(top, {})
    folder.mkdir(exist_ok=True)
    for name, content in before.items():
        (folder / name).write_bytes(content)
    git(top, "add", "-A")
    git(top, "commit", "-qm", "all")
    for name, value in settings.items():
        git(top, "config", name, value)
    (folder / "latin.txt").write_bytes(b"th\xe9\r\n")
    (folder / "data.bin").write_bytes(bytes(range(255, -1, -1)))
    (folder / "gone.py").unlink()
    (folder / "old.py").rename(folder / "näw.py")
    git(top, "add", "-A")
    taken = take(folder)
    assert taken.git
    git(top, "reset", "-q", "--hard", "HEAD")
    subprocess.run(["git", "apply"], cwd=folder, input=taken.git.diff, check=True)
    assert take(folder).manifest == taken.manifest


@pytest.mark.parametrize("below", ["", "sub"])
def test_the_difference_restores_files_of_submodules_that_are_no_text(tmp_path: Path, top: Path, below: str) -> None:
    """git apply did nothing at all if one of them had changed."""
    deep = repository(tmp_path / "deep", {"net.py": "one\n", "data.bin": "one\0"})
    lib = repository(tmp_path / "lib", {"net.py": "one\n", "data.bin": "one\0"})
    git(lib, "submodule", "--quiet", "add", str(deep), "d(e)ep*")
    git(lib, "commit", "-qm", "deep")
    folder = top / below
    folder.mkdir(exist_ok=True)
    repository(top, {f"{below}/train.py".strip("/"): "one\n", "data.bin": "one\0"})
    git(folder, "submodule", "--quiet", "add", str(lib), "l ib")
    git(folder, "submodule", "--quiet", "update", "--init", "--recursive")
    git(top, "commit", "-qm", "lib")
    git(folder, "submodule", "--quiet", "add", str(deep), "new")
    changed = [folder / name for name in ("", "l ib", "l ib/d(e)ep*", "new")]
    write(changed[0], {"train.py": "two\n"})
    for inside in changed[1:]:
        write(inside, {"net.py": "two\n", "data.bin": "two\0"})
    git(folder / "l ib", "commit", "-qam", "not what the commit above has")
    taken = take(folder)
    assert taken.git
    assert (taken.git.cut, taken.git.diff.count(b"GIT binary patch")) == (False, 3)
    git(top, "reset", "-q", "--hard", "HEAD")
    git(folder, "submodule", "--quiet", "update", "--init", "--recursive", "--force")
    git(folder / "l ib", "submodule", "--quiet", "foreach", "git reset -q --hard")
    shutil.rmtree(folder / "new")
    subprocess.run(["git", "apply"], cwd=top, input=taken.git.diff, check=True)
    for inside in changed[1:]:
        assert [(inside / name).read_bytes() for name in ("net.py", "data.bin")] == [b"two\n", b"two\0"]
    assert (folder / "train.py").read_bytes() == b"two\n"


def test_the_difference_names_submodules_that_git_cannot_compare(tmp_path: Path, top: Path) -> None:
    """One is not checked out, as after a merge, and one is a shallow clone. kit left both out."""
    repository(top, {"train.py": "one\n"})
    for name in ("lib", "old"):
        there = repository(tmp_path / name, {"net.py": "one\n", "data.bin": "one\0"})
        git(top, "submodule", "--quiet", "add", str(there), name)
    git(top, "commit", "-qm", "both")
    git(top, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},new")
    (top / "new").mkdir()
    shutil.rmtree(top / "old")
    write(tmp_path / "old", {"net.py": "two\n"})
    git(tmp_path / "old", "commit", "-qam", "two")
    git(top, "clone", "-q", "--depth=1", (tmp_path / "old").as_uri(), "old")
    write(top / "lib", {"data.bin": "two\0"})
    known = take(top).git
    assert known
    assert known.diff.count(b"GIT binary patch") == 1
    assert re.findall(rb"^Submodule (\w+) \w+\.\.\.\w+ (\(.*\))$", known.diff, re.MULTILINE) == [
        (b"new", b"(new submodule)"),
        (b"old", b"(commits not present)"),
    ]


@pytest.mark.parametrize("below", ["", "lib"])
def test_a_large_binary_file_does_not_push_text_out_of_the_difference(tmp_path: Path, top: Path, below: str) -> None:
    repository(top, {"a.bin": "", "train.py": "one\n"})
    git(top, "submodule", "--quiet", "add", str(repository(tmp_path / "lib", {"a.bin": ""})), "lib")
    git(top, "commit", "-qm", "lib")
    (top / below / "a.bin").write_bytes(os.urandom(2 * limits.MOST_DIFF))
    write(top, {"train.py": "two\n"})
    known = take(top).git
    assert known
    assert b"Binary files" in known.diff
    assert b"-one\n+two\n" in known.diff
    # It does not have everything.
    assert known.cut


def test_a_long_difference_is_cut(top: Path) -> None:
    repository(top, {"a.txt": ""})
    write(top, {"a.txt": "0123456789\n" * 200_000})
    known = take(top).git
    assert known
    assert (len(known.diff), known.cut) == (limits.MOST_DIFF, True)


def test_a_repository_without_a_commit_or_a_branch(top: Path) -> None:
    git(top, "init", "-q", "-b", "main")
    write(top, {"train.py": "1"})
    known = take(top).git
    assert known
    assert (known.commit, known.branch, known.dirty, known.url) == ("", "main", True, "")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "first")
    git(top, "checkout", "-q", "--detach")
    known = take(top).git
    assert known
    assert (len(known.commit), known.branch, known.dirty) == (40, "", False)


# The short way for a folder in which little has changed


def _edit(top: Path) -> None:
    write(top, {"b.py": "edited", "sub/c.py": "edited, too"})


def _touch(top: Path) -> None:
    os.utime(top / "a.py", (1, 1))


def _link_for_file(top: Path) -> None:
    (top / "b.py").unlink()
    (top / "b.py").symlink_to("a.py")


def _file_for_link(top: Path) -> None:
    (top / "link").unlink()
    write(top, {"link": "a file now"})


def _other_target(top: Path) -> None:
    (top / "link").unlink()
    (top / "link").symlink_to("b.py")


def _file_in_empty(top: Path) -> None:
    write(top, {"empty/new.py": "1"})


def _folder_for_file(top: Path) -> None:
    (top / "b.py").unlink()
    (top / "b.py").mkdir()


def _folder_for_link(top: Path) -> None:
    (top / "link").unlink()
    (top / "link").mkdir()


CHANGES = (
    _edit, _touch, _link_for_file, _file_for_link, _other_target, _file_in_empty, _folder_for_file, _folder_for_link,
    lambda top: (top / "a.py").chmod(0o755), lambda top: (top / "sub/c.py").unlink(), lambda top: write(top, {"n": ""}),
    lambda top: (top / "sub").rename(top / "other"), lambda top: None,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("in_git", [True, False])
def test_the_cache_changes_no_snapshot(
    top: Path, later: None, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], in_git: bool
) -> None:
    write(top, {"a.py": "1", "b.py": "2", "sub/c.py": "3", "sub/d.py": "4"})
    (top / "link").symlink_to("a.py")
    (top / "empty").mkdir()
    if in_git:
        repository(top)
    take(top)
    change(top)
    first = take(top)
    assert take(top) == first
    monkeypatch.setattr(hashes, "load", lambda _: None)
    assert take(top) == first
    assert sorted(manifest.parse(first.manifest), key=lambda entry: entry.path) == manifest.parse(first.manifest)


@pytest.mark.parametrize("in_git", [True, False])
def test_only_what_has_changed_is_looked_at_again(
    top: Path, later: None, monkeypatch: pytest.MonkeyPatch, read: list[str], in_git: bool
) -> None:
    write(top, {"a.py": "1", "b.py": "2", "sub/c.py": "3"})
    (top / "link").symlink_to("a.py")
    if in_git:
        repository(top)
    take(top)
    read.clear()
    monkeypatch.setattr(snapshot, "_entries", lambda *_: pytest.fail("every entry is looked at"))
    assert take(top).size == 3
    write(top, {"b.py": "22"})
    second = take(top)
    assert read == ["b.py"]
    assert (second.size, second.files, entries(second)["b.py"].size) == (4, 3, 2)
    assert take(top) == second
    assert read == ["b.py"]


def test_a_link_that_now_leads_out_is_refused(top: Path, later: None) -> None:
    write(top, {"a.py": "1"})
    (top / "link").symlink_to("a.py")
    take(top)
    (top / "link").unlink()
    (top / "link").symlink_to("../a.py")
    refused(top, "leads out")


@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_FILES"])
def test_a_folder_that_has_become_too_large_is_refused(
    top: Path, later: None, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    write(top, {"a.py": "1", "b.py": "2"})
    take(top)
    for module in (limits, snapshot):
        monkeypatch.setattr(module, limit, 1)
    refused(top, "kit takes up to")


def test_rows_that_differ() -> None:
    before = hashes.flat([(number, 0, 0, 0, 0) for number in range(7)])
    assert hashes.differing(before, before[:]) == []
    for places in ([0], [6], [2, 3], [0, 1, 2, 3, 4, 5, 6]):
        now = before[:]
        for place in places:
            now[place * hashes.WIDTH + 4] = 1
        assert hashes.differing(before, now) == places
    assert hashes.differing(before[:0], before[:0]) == []
