"""The operator's end of a feed: the lead gets the files of the folder, and nothing else of this machine."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from kit.errors import AnswerError, InputError
from kit.remote.data import feed
from kit.remote.data.feed import Feed, Folder, checked
from tests.fakes import launcher


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "deep").mkdir(parents=True)
    (folder / "a").write_bytes(b"0123456789")
    (folder / "deep/b").write_bytes(b"b")
    (tmp_path / "secret").write_bytes(b"secret")
    return folder


class Lead:
    """Asks a feed as a lead does."""

    def __init__(self, path: Path) -> None:
        self._out = bytearray()
        self.feed = Feed("gpu1", Folder(str(path)), self._out.extend)

    def ask(self, **header: Any) -> list[tuple[dict[str, Any], bytes]]:
        """Return the frames that answer."""
        text = json.dumps(header).encode()
        self.feed.hear(len(text).to_bytes(4, "big") + text)
        frames = []
        while self._out:
            end = 4 + int.from_bytes(self._out[:4], "big")
            answer = json.loads(self._out[4:end])
            frames.append((answer, bytes(self._out[end : end + answer["bytes"]])))
            del self._out[: end + answer.pop("bytes")]
        return frames

    def entries(self) -> dict[str, tuple[int, int]]:
        return {entry[0]: entry[1:] for header, _ in self.ask(list=1) for entry in header["entries"]}

    def read(self, path: str, **more: Any) -> tuple[dict[str, Any], bytes]:
        size, mtime = self.entries().get(path, (10, 0))
        words = {"offset": 0, "length": size, "size": size, "mtime": mtime, "n": 7, **more}
        ((header, data),) = self.ask(read=path, **words)
        return header, data


def test_a_folder_is_listed_and_read(source: Path) -> None:
    lead = Lead(source)
    assert {path: size for path, (size, _) in lead.entries().items()} == {"a": 10, "deep/b": 1}
    assert lead.read("a", offset=2, length=3) == ({"n": 7}, b"234")
    ((header, _),) = lead.ask(entry="deep/b", n=8)
    assert header == {"n": 8, "entry": ["deep/b", 1, (source / "deep/b").stat().st_mtime_ns]}
    ((header, _),) = lead.ask(entry="gone", n=9)
    assert header == {"n": 9, "entry": None}


def test_small_files_come_together(source: Path) -> None:
    lead = Lead(source)
    files = [(path, *about) for path, about in sorted(lead.entries().items())]
    assert lead.ask(files=files, n=7) == [({"n": 7}, b"0123456789b")]
    (source / "deep/b").write_bytes(b"other")
    ((header, data),) = lead.ask(files=files, n=8)
    assert (header["n"], header["kind"], data) == (8, "source-changed", b"")
    ((header, _),) = lead.ask(files=[("../secret", 6, 0)], n=9)
    assert header["kind"] == "source-name"
    with pytest.raises(AnswerError):
        Lead(source).ask(files=[("a", feed.MOST_READ, 0), ("deep/b", 1, 0)], n=10)
    with pytest.raises(AnswerError):
        Lead(source).ask(files=[("a", -5, 0), ("deep/b", 10, 0)], n=11)


def test_a_single_file_is_a_source(source: Path) -> None:
    lead = Lead(source / "a")
    assert [*lead.entries()] == ["a"]
    assert lead.read("a") == ({"n": 7}, b"0123456789")
    assert lead.read("b")[0]["kind"] == "source-name"


def test_a_long_list_comes_in_parts(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "BATCH", 2)
    for number in range(4):
        (source / f"f{number}").touch()
    frames = [header for header, _ in Lead(source).ask(list=1)]
    assert [(len(header["entries"]), header["more"]) for header in frames] == [(2, True)] * 3 + [(0, False)]


def rows(frames: list[tuple[dict[str, Any], bytes]]) -> list[Any]:
    return [row for _, data in frames for row in json.loads(zlib.decompress(data))]


def test_the_version_of_a_folder_is_that_of_its_list(source: Path) -> None:
    manifest = launcher.load("kitdata.manifest")
    (source / os.fsdecode(b"caf\xe9")).write_text("x")
    (source / "n\u00e4m\te\n").write_text("yy")
    lead = Lead(source)
    ((header, _),) = lead.ask(list=3)
    # A lead that then asks for the list gets the one of this version.
    (source / "later").touch()
    listed = rows(lead.ask(list=2))
    entries = launcher.load("kitdata.source").arranged(map(manifest.entry_of, listed))
    assert header == {"version": list(manifest.version(entries))}
    assert header["version"][1:] == [4, 14]
    assert {row[0] for row in rows(lead.ask(list=2))} == {row[0] for row in listed} | {"later"}
    ((again, _),) = lead.ask(list=3)
    assert again["version"][0] != header["version"][0]


@pytest.mark.parametrize("order", [2, 3], ids=["a list", "a version, of very many files"])
def test_a_newer_lead_gets_the_list_packed(source: Path, monkeypatch: pytest.MonkeyPatch, order: int) -> None:
    monkeypatch.setattr(feed, "MOST_KNOWN", 3)
    monkeypatch.setattr(feed, "BATCH", 2)
    for number in range(4):
        (source / f"f{number}").touch()
    lead = Lead(source)
    frames = lead.ask(list=order)
    assert [header for header, _ in frames] == [{"packed": 1, "more": more} for more in (True, True, True, False)]
    listed = {row[0]: tuple(row[1:]) for row in rows(frames)}
    assert listed == {path: tuple(about) for path, about in lead.entries().items()}


def test_the_lead_hears_how_far_the_list_is(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_BEAT_S", -1.0)
    frames = [header for header, _ in Lead(source).ask(list=3)]
    assert [header.get("counted") for header in frames] == [[1, 10], [2, 11], None]


def test_a_folder_without_a_version_says_why(source: Path) -> None:
    (source / "out").symlink_to(source.parent / "secret")
    ((header, _),) = Lead(source).ask(list=3)
    assert header["kind"] == "source-name"


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "", "deep/../../secret", "a\0", "out", "out/secret"])
def test_nothing_outside_of_the_folder_is_read(source: Path, path: str) -> None:
    (source / "out").symlink_to(source.parent)
    # The lead knows all of the file that it wants to have.
    mtime = (source.parent / "secret").stat().st_mtime_ns
    ((header, data),) = Lead(source).ask(read=path, offset=0, length=6, size=6, mtime=mtime, n=1)
    assert (header.get("kind"), data) == ("source-name", b"")
    ((header, _),) = Lead(source).ask(entry=path, n=1)
    assert header["kind"] == "source-name"


def test_links_inside_are_followed_and_others_are_an_error(source: Path) -> None:
    (source / "inside").symlink_to("deep/b")
    (source / "folder").symlink_to("deep")
    lead = Lead(source)
    assert {*lead.entries()} == {"a", "deep/b", "inside", "folder/b"}
    assert lead.read("folder/b") == ({"n": 7}, b"b")
    (source / "out").symlink_to("../secret")
    assert _fault(lead) == ("source-name", f"out is a link out of {source}")
    (source / "out").unlink()
    (source / "out").symlink_to("..")
    assert _fault(lead) == ("source-name", f"out is a link out of {source}")
    (source / "out").unlink()
    (source / "deep/up").symlink_to("..")
    assert _fault(lead) == ("source-name", "deep/up is a link to a folder above it")
    (source / "deep/up").unlink()
    (source / "none").symlink_to("missing")
    assert _fault(lead) == ("source-missing", f"{source}/none does not exist on the operator's machine")


def _fault(lead: Lead) -> tuple[str, str]:
    header, _ = lead.ask(list=1)[-1]
    assert header["entries"] == []
    return header["kind"], header["error"]


def test_a_pipe_is_an_error_and_holds_nobody(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing opens it: that would wake a program that waits at its other end."""
    os.mkfifo(source / "pipe")
    lead = Lead(source)
    monkeypatch.setattr(os, "open", lambda *words: pytest.fail(f"this was opened: {words}"))
    assert _fault(lead) == ("source-name", "pipe is a pipe or a device, and no file")
    ((header, _),) = lead.ask(read="pipe", offset=0, length=1, size=1, mtime=0, n=1)
    assert header["kind"] == "source-name"
    ((header, _),) = lead.ask(files=[("pipe", 1, 0)], n=2)
    assert header["kind"] == "source-name"


def test_a_file_that_changed_since_it_was_listed(source: Path) -> None:
    lead = Lead(source)
    size, mtime = lead.entries()["a"]
    (source / "a").write_bytes(b"9876543210")
    os.utime(source / "a", ns=(1, mtime + 1))
    ((header, data),) = lead.ask(read="a", offset=0, length=size, size=size, mtime=mtime, n=1)
    assert (header["kind"], data) == ("source-changed", b"")
    (source / "a").unlink()
    ((header, _),) = lead.ask(read="a", offset=0, length=size, size=size, mtime=mtime, n=1)
    assert header["kind"] == "source-missing"


def test_a_name_that_is_no_utf_8_comes_back_as_it_was(source: Path) -> None:
    name = os.fsdecode(b"\xff\n")
    (source / name).write_bytes(b"odd")
    lead = Lead(source)
    assert name in lead.entries()
    assert lead.read(name) == ({"n": 7}, b"odd")


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\1{", b"\0\0\0\x0a{\"list\":-}", b"\0\0\0\x0d{\"bytes\": 1} ",
    ],
)  # fmt: skip
def test_an_odd_frame_is_an_error_of_the_host(source: Path, data: bytes) -> None:
    lead = Lead(source)
    with pytest.raises(AnswerError) as caught:
        lead.feed.hear(data)
    assert caught.value.host == "gpu1"
    assert lead.feed.error is caught.value


@pytest.mark.parametrize(
    "words",
    [
        {"read": "a", "offset": 0, "length": feed.MOST_READ + 1, "size": 10},
        {"read": "a", "offset": 0, "length": -1, "size": 10},
        {"read": "a", "offset": -1, "length": 1, "size": 10},
        {"files": [("a", feed.MOST_READ + 1, 0)]},
        {"files": [("a", -1, 0)]},
    ],
)
def test_a_question_for_too_many_bytes_is_an_error_of_the_host(source: Path, words: dict[str, Any]) -> None:
    lead = Lead(source)
    with pytest.raises(AnswerError, match="asks for too many bytes"):
        lead.ask(**words, n=1)
    assert lead.feed.error is not None


def test_frames_come_in_any_parts(source: Path) -> None:
    lead = Lead(source)
    text = json.dumps({"entry": "gone", "n": 1}).encode()
    for byte in len(text).to_bytes(4, "big") + text:
        lead.feed.hear(bytes([byte]))
    assert lead.ask(entry="gone", n=2)[0][0]["n"] == 1


def test_a_refusal_of_the_lead_is_no_frame(source: Path) -> None:
    Lead(source).feed.hear(b'{"failed": {"kind": "busy", "text": "no"}}\n')


def test_a_folder_is_checked_before_anything_begins(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none does not exist") as caught:
        checked(str(tmp_path / "none"))
    assert caught.value.hint == "write a folder or a file that exists"
    assert checked(str(tmp_path))
