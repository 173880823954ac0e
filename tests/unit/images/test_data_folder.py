"""A data set from a folder: what is listed and read, which links are followed, and a mount whose server is gone."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher

source, folder, hands = (launcher.load(f"kitdata.{name}") for name in ("source", "folder", "hands"))


def failure(call: Any) -> tuple[str, str]:
    with pytest.raises(source.SourceError) as caught:
        call()
    text = str(caught.value.text)
    assert "\n" not in text
    return caught.value.kind, text


def paths(path: Path) -> list[str]:
    return [entry.path for entry in folder.Folder(str(path)).entries()]


ODD = [
    b"a space",
    b"per%20cent",
    b"plus+",
    b"caf\xc3\xa9",
    b"#hash?",
    b"quo'te\"",
    b"new\nline",
    b"latin\xe9",
    b"-x",
    b"x" * 255,
]


def test_lists_and_reads_every_name(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    (tmp_path / "deep/er/still").mkdir(parents=True)
    for at, name in enumerate(ODD):
        for place in (b"/", b"/deep/er/still/"):
            Path(os.fsdecode(root + place + name)).write_bytes(b"%d of %s" % (at, place))
    (tmp_path / "empty").touch()
    (tmp_path / "no files here").mkdir()
    data = folder.Folder(str(tmp_path), "the data")
    entries = source.arranged(data.entries())
    assert [os.fsencode(entry.path) for entry in entries] == sorted(
        [*ODD, *(b"deep/er/still/" + name for name in ODD), b"empty"], key=os.fsdecode
    )
    for entry in entries:
        there = tmp_path / entry.path
        about = there.stat()
        assert (entry.size, entry.mtime, entry.md5) == (about.st_size, about.st_mtime_ns, "")
        assert data.read(entry, 0, entry.size) == there.read_bytes()
        assert data.entry(entry.path) == entry


def test_reads_a_range(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)))
    data = folder.Folder(str(tmp_path))
    entry = data.entry("a")
    assert data.read(entry, 10, 5) == bytes(range(10, 15))
    assert data.read(entry, 256, 0) == b""


def test_the_order_is_that_of_names_in_each_folder(tmp_path: Path) -> None:
    for name in ("b/2", "b/1", "a/z/9", "c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert paths(tmp_path) == ["c", "a/z/9", "b/1", "b/2"]


def test_a_large_folder_is_listed_in_several_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "BATCH", 3)
    for at in range(10):
        (tmp_path / f"{at}").touch()
    assert paths(tmp_path) == [str(at) for at in range(10)]


def test_links_that_stay_inside_are_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "real/file").write_text("here")
    (root / "link").symlink_to("real/file")
    (root / "also").symlink_to(root / "real")
    data = folder.Folder(str(root))
    assert sorted(entry.path for entry in data.entries()) == ["also/file", "link", "real/file"]
    assert {data.read(entry, 0, 4) for entry in data.entries()} == {b"here"}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("../outside/secret", "link is a link that leads out of the data"),
        ("../outside", "link is a link that leads out of the data"),
        ("../root-not/x", "link is a link that leads out of the data"),
        ("missing", "link is a link to nothing"),
        ("link", "link is a link that leads to itself"),
        ("../root", "link is a link to a folder above it"),
    ],
)
def test_other_links_are_refused_by_name(tmp_path: Path, target: str, words: str) -> None:
    for name in ("outside", "root", "root-not"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside/secret").touch()
    (tmp_path / "root-not/x").touch()
    (tmp_path / "root/link").symlink_to(target)
    assert failure(lambda: list(folder.Folder(str(tmp_path / "root"), "the data").entries())) == ("source-name", words)


def test_what_was_a_file_when_listed_and_is_a_link_out_now_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub/secret").write_text("key")
    data = folder.Folder(str(root))
    (entry,) = data.entries()
    (root / "sub/secret").unlink()
    (root / "sub").rmdir()
    (root / "sub").symlink_to(tmp_path)
    os.utime(tmp_path / "secret", ns=(entry.mtime, entry.mtime))
    kind, text = failure(lambda: data.read(entry, 0, 3))
    assert (kind, text) == ("source-name", f"sub/secret is a link that leads out of {root}")


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    data = folder.Folder(str(tmp_path))
    assert failure(lambda: list(data.entries())) == ("source-name", "pipe is neither a file nor a folder")
    assert failure(lambda: data.entry("pipe")) == ("source-name", "pipe is neither a file nor a folder")


@pytest.mark.parametrize("change", ["longer", "shorter", "same size", "gone"])
def test_a_file_that_changed_since_it_was_listed_is_not_read(tmp_path: Path, change: str) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"0123456789")
    data = folder.Folder(str(tmp_path), "the data")
    entry = data.entry("a")
    if change == "gone":
        file.unlink()
    elif change == "same size":
        file.write_bytes(b"9876543210")
        os.utime(file, ns=(entry.mtime + 1, entry.mtime + 1))
    else:
        os.truncate(file, 20 if change == "longer" else 9)
        os.utime(file, ns=(entry.mtime, entry.mtime))
    kind, text = failure(lambda: data.read(entry, 0, 10))
    assert kind == "source-changed"
    gone = "a is no longer in the data"
    assert text == (gone if change == "gone" else "a has changed in the data since it was listed")
    if change == "gone":
        assert failure(lambda: data.entry("a")) == ("source-changed", gone)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    for name in ("missing", "file"):
        (tmp_path / "file").touch()
        kind, text = failure(lambda name=name: list(folder.Folder(str(tmp_path / name), "gpu1:/data").entries()))
        assert (kind, text) == ("source-missing", "gpu1:/data is not there, or no folder")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EIO, "source-lost"),
        (errno.ESTALE, "source-lost"),
        (errno.ENOTCONN, "source-lost"),
        (errno.EACCES, "source-refused"),
    ],
)
def test_what_a_mount_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: str) -> None:
    (tmp_path / "a").write_text("x")
    data = folder.Folder(str(tmp_path), "the data")
    entry = data.entry("a")

    def pread(*_: object) -> bytes:
        raise OSError(number, "x")

    monkeypatch.setattr(folder.os, "pread", pread)
    said, text = failure(lambda: data.read(entry, 0, 1))
    assert said == kind
    assert os.strerror(number) in text


def test_a_mount_that_hangs_is_lost_until_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("x")
    data = folder.Folder(str(tmp_path), "nfs://server/data", patience=0.05)
    entry = data.entry("a")
    answer, real = threading.Event(), os.pread
    tries = []

    def pread(*arguments: Any) -> bytes:
        tries.append(arguments)
        answer.wait()
        return real(*arguments)

    monkeypatch.setattr(folder.os, "pread", pread)
    lost = ("source-lost", "nfs://server/data does not answer: nothing within 0 s")
    assert failure(lambda: data.read(entry, 0, 1)) == lost
    # The second call does not get held too.
    assert failure(lambda: data.read(entry, 0, 1)) == lost
    assert len(tries) == 1
    answer.set()
    data = folder.Folder(str(tmp_path))
    assert data.read(entry, 0, 1) == b"x"


def test_a_hand_that_comes_back_makes_calls_possible_again() -> None:
    pool = hands.Hands(patience=0.05)
    answer, back = threading.Event(), threading.Event()

    def hangs() -> None:
        answer.wait()
        back.set()

    with pytest.raises(hands.Held):
        pool.call(hangs)
    with pytest.raises(hands.Held):
        pool.call(lambda: 1)
    answer.set()
    back.wait()
    # `back` is set a moment before the pool knows it.
    while True:
        try:
            assert pool.call(lambda: 2) == 2
            break
        except hands.Held:
            continue
    pool.close()


def test_hands_are_used_again_and_pass_errors_on() -> None:
    pool = hands.Hands(patience=5)
    names = {pool.call(threading.current_thread) for _ in range(20)}
    assert len(names) == 1
    with pytest.raises(KeyError):
        pool.call(lambda: os.environ["KIT_NO_SUCH"])
    pool.close()
    names.pop().join()


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        (["a", "a"], "a is in the source twice"),
        (["a", "a-b", "a/b"], "a is a file and a folder in the source, because it also has a/b"),
        (["a/b", "a/b.c", "a/b/c/d"], "a/b is a file and a folder in the source, because it also has a/b/c/d"),
        (["/etc/passwd"], "no host can have the path /etc/passwd: it has an empty part"),
        (["a//b"], "no host can have the path a//b: it has an empty part"),
        (["a/"], "no host can have the path a/: it has an empty part"),
        ([""], "no host can have the path : it has an empty part"),
        (["a/../../b"], "no host can have the path a/../../b: it has a part . or .."),
        (["./a"], "no host can have the path ./a: it has a part . or .."),
        (["a\0b"], "no host can have the path a\\x00b: it has a zero byte"),
        (["\ud800"], "no host can have the path \\xd800: it has characters that UTF-8 cannot hold"),
        (["a\x1b[31m/.."], "no host can have the path a\\x1b[31m/..: it has a part . or .."),
    ],
)
def test_paths_that_no_host_can_have(listed: list[str], words: str) -> None:
    entries = [source.Entry(path, 0, 0) for path in listed]
    assert failure(lambda: source.arranged(entries)) == ("source-name", words)


@pytest.mark.parametrize(("path", "words"), [("é" * 128, "more than 255 bytes"), ("a/" * 2000 + "b", "more than 3840")])
def test_paths_that_are_too_long(path: str, words: str) -> None:
    kind, text = failure(lambda: source.check_path(path))
    assert kind == "source-name"
    assert words in text
    assert len(text) < 300


def test_arranged_sorts() -> None:
    entries = [source.Entry(path, 1, 2) for path in ("b", "a/b", "a-b", "...", "..a/b..")]
    assert [entry.path for entry in source.arranged(entries)] == ["...", "..a/b..", "a-b", "a/b", "b"]
