"""Attacks the reading and writing of what runs made: by a rank, in the folders that root reads, and by a host."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kit.errors import AnswerError, StepError
from kit.model.host import Host
from kit.model.results import Entry, Pulled, RunStart, Wanted
from kit.plan.run import pulling
from kit.remote.results import far, fetch, give
from kit.remote.results.store import Store
from kit.remote.scripts import script
from kit.remote.ssh.transport import Completed, Live, LiveTransport, Transport

RUN = "20261121-101500-3fa2"
RUNS = "var/runs"
END = b'{"end": true}\n'
HEADER = b'{"top": "/opt/kit/mine/var", "live": false, "unsettled": false}\n'
TEXT = b"what a rank wrote"
SHA = hashlib.sha256(TEXT).hexdigest()


class HostThat:
    """A host that answers each command with these bytes."""

    def __init__(self, answer: bytes, code: int = 0, errors: bytes = b"") -> None:
        self.host = Host(name="bad", address="bad")
        self._answer, self._code, self._errors = answer, code, errors

    def run(self, argv: Any, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        return Completed(code=self._code, stdout=self._answer, stderr=self._errors)

    def stream(self, argv: Any, live: Live) -> int:
        for at in range(0, len(self._answer), 1000):
            live.out(self._answer[at : at + 1000])
        live.err(self._errors)
        return self._code

    def close(self) -> None:
        pass


def transport(answer: bytes, code: int = 0, errors: bytes = b"") -> Transport:
    return cast(Transport, HostThat(answer, code, errors))


def frame(kind: bytes, value: object) -> bytes:
    payload = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack(">cI", kind, len(payload)) + payload


def fetched(answer: bytes, tmp_path: Path, *, size: int = len(TEXT), code: int = 0) -> list[Path]:
    """Return the files here after a host answered the request for one file with this."""
    pulled_from(answer, tmp_path, size=size, code=code)
    return [path for path in (tmp_path / "here" / "output").rglob("*") if path.is_file()]


def pulled_from(answer: bytes, tmp_path: Path, *, size: int = len(TEXT), code: int = 0) -> Pulled:
    store = Store(tmp_path / "here")
    store.prepare(0, private=False)
    files = [Wanted(entry=Entry(path="output/a", size=size, time=5), target="output/a")]
    return fetch.fetch(
        cast(LiveTransport, HostThat(answer, code)),
        "top",
        "below",
        files,
        store,
        keep=lambda part, file, header: store.keep(part, file.target, time=header.time, mode=header.mode),
        progress=lambda done, whole: None,
    )


GOOD = frame(b"H", {"at": 0, "size": len(TEXT), "time": 5, "mode": 0o644}) + frame(b"D", TEXT)
TAIL = frame(b"E", {"sha256": SHA, "changed": False})


def test_a_file_arrives(tmp_path: Path) -> None:
    (path,) = fetched(GOOD + TAIL, tmp_path)
    assert path.read_bytes() == TEXT


@pytest.mark.parametrize(
    ("answer", "gone"),
    [
        (frame(b"H", {"error": "Input/output error"}), False),
        (GOOD + frame(b"E", {"error": "Input/output error"}), False),
        # A run that lives removed it after kit had listed it.
        (frame(b"H", {"error": "No such file or directory"}), True),
    ],
)
def test_a_file_that_a_host_cannot_read_is_a_failure(tmp_path: Path, answer: bytes, gone: bool) -> None:
    pulled = pulled_from(answer, tmp_path)
    assert (list(pulled.skipped), list(pulled.failed)) == ((["output/a"], []) if gone else ([], ["output/a"]))


@pytest.mark.parametrize(
    "answer",
    [
        frame(b"H", {"at": 1 << 40, "size": 1 << 41, "time": 5, "mode": 0o644}),
        frame(b"H", {"at": 10, "size": 5, "time": 5, "mode": 0o644}),
        frame(b"H", {"at": -1, "size": 5, "time": 5, "mode": 0o644}),
        frame(b"H", {"at": 0, "size": 1 << 50, "time": 5, "mode": 0o644}),
        frame(b"H", {"at": 0, "size": 17, "time": 10**40, "mode": 0o644}) + frame(b"D", TEXT) + TAIL,
        frame(b"H", {"at": 0, "size": 17, "time": 1 << 63, "mode": 0o644}) + frame(b"D", TEXT) + TAIL,
        frame(b"H", {"at": "0", "size": "17", "time": 5, "mode": 0o644}),
        frame(b"H", {"at": 0, "size": 17, "time": 5, "mode": "no"}),
        frame(b"H", {"at": 0, "size": 17, "time": 5, "mode": 0o4755}) + frame(b"D", TEXT) + TAIL,
        frame(b"H", {"at": 0, "size": 17, "time": 5, "mode": -1}) + frame(b"D", TEXT) + TAIL,
        frame(b"H", [1, 2]),
        frame(b"H", b"[" * 3000),
        frame(b"H", b"\xff"),
        frame(b"H", {"error": {"a": 1}}),
        GOOD + frame(b"D", b"more than the file has"),
        GOOD + frame(b"E", {"sha256": 7, "changed": False}),
        GOOD + frame(b"E", []),
        GOOD + GOOD,
        GOOD + TAIL + GOOD,
        frame(b"?", b""),
        frame(b"D", TEXT),
        struct.pack(">cI", b"D", 0xFFFFFFFF),
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=range(23),
)
def test_odd_frames_are_that_hosts_error(tmp_path: Path, answer: bytes) -> None:
    with pytest.raises(AnswerError) as caught:
        fetched(answer, tmp_path)
    assert caught.value.host == "bad"
    assert sum(path.stat().st_size for path in (tmp_path / "here").rglob("*")) < 100_000


def test_wrong_bytes_are_not_stored(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="did not arrive whole"):
        fetched(GOOD + frame(b"E", {"sha256": "0" * 64, "changed": False}), tmp_path)
    assert [path for path in (tmp_path / "here").rglob("*") if path.is_file()] == []


def test_a_host_without_end_fills_no_memory_and_no_disk(tmp_path: Path) -> None:
    host = HostThat(b"")
    sent = 0

    def stream(argv: Any, live: Live) -> int:
        nonlocal sent
        live.out(GOOD)
        while sent < 1 << 26:
            live.out(frame(b"D", bytes(1 << 16)))
            sent += 1 << 16
        return 0

    host.stream = stream  # type: ignore[method-assign]
    store = Store(tmp_path)
    store.prepare(0, private=False)
    files = [Wanted(entry=Entry(path="output/a", size=5, time=5), target="output/a")]
    with pytest.raises(AnswerError):
        fetch.fetch(cast(LiveTransport, host), "", "", files, store, keep=lambda *_: None, progress=lambda *_: None)
    assert sent < 1 << 21


@pytest.mark.parametrize(
    "line",
    [
        b"[1]", b"[]", b"{}", b"null", b'["f"]', b'["f", "a"]', b'["f", 7, 1, 2, true]', b'["f", "a", "1", 2, true]',
        b'["f", "a", -1, 2, true]', b'["f", "a", 1e999, 2, true]', b'["f", "a", ' + b"9" * 5000 + b", 2, true]",
        b'["f", "a", 1, ' + b"9" * 30 + b", true]", b'["l", "a"]', b'["l", "a", 1]', b'["q", "a"]', b'["d", null]',
        b'["d", "a", 4096]',
        '["f", "\u20ac", 1, 2, true]'.encode(), b'["d", "\\ud800", 493]', b"[" * 30_000, b"\xff", b"",
        b'["d", "' + b"x" * 100_000 + b'", 493]', b'{"places": [1]}',
    ],
    ids=range(24),
)  # fmt: skip
def test_an_odd_line_of_a_list_is_that_hosts_error(line: bytes) -> None:
    with pytest.raises(AnswerError) as caught:
        far.run_files(transport(HEADER + line + b"\n" + END), "mine", RUN)
    assert caught.value.host == "bad"
    assert len(caught.value.message) < 300


def test_a_name_with_the_letters_of_an_escape_is_a_name() -> None:
    line = rb'["d", "a\\ud800", 493]'
    listing = far.run_files(transport(HEADER + line + b"\n" + END), "mine", RUN)
    assert [entry.path for entry in listing.entries] == [r"a\ud800"]


SHARED_TOP = b'{"top": "/mnt/ckpt", "there": true, "store": ""}\n'
OTHERS = b'{"others": 0, "size": 0}\n'


@pytest.mark.parametrize(
    "answer",
    [
        b"", OTHERS, SHARED_TOP, SHARED_TOP * 2, SHARED_TOP + b"[1]\n" + OTHERS,
        b'{"top": 7, "there": true, "store": ""}\n' + OTHERS,
        b'{"top": "/x", "there": true, "store": 7}\n' + OTHERS,
        b'{"top": "/x", "there": true, "store": "' + b"x" * 100_000 + b'"}\n' + OTHERS,
        SHARED_TOP + b'{"others": -1, "size": 0}\n', SHARED_TOP + b'{"others": 1, "size": 1e999}\n',
        SHARED_TOP + b'{"others": 99999999999999999999, "size": 0}\n',
        SHARED_TOP + b'["f", "a", 1, 2, true, -1]\n' + OTHERS,
        SHARED_TOP + b'["f", "a", 1, 2, true, "7"]\n' + OTHERS,
        SHARED_TOP + b'["f", "a", 1, 2, true, ' + b"9" * 30 + b"]\n" + OTHERS,
        SHARED_TOP + b'["f", "a", 1, 2, true, 7, 7]\n' + OTHERS,
    ],
    ids=range(15),
)  # fmt: skip
def test_an_odd_list_of_a_shared_folder_is_that_hosts_error(answer: bytes) -> None:
    with pytest.raises(AnswerError) as caught:
        far.shared_files(transport(answer + END), "/mnt/ckpt", (0, 9), far.argv, prefix="checkpoints/")
    assert caught.value.host == "bad"
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "answer", [b"", b"7\n", b'{"now": "7"}\n', b'{"now": 1e999}\n', b'{"now": 1' + b"0" * 30 + b"}\n"]
)
def test_an_odd_clock_is_that_hosts_error(answer: bytes) -> None:
    with pytest.raises(AnswerError):
        far.clock(transport(answer + END))


@pytest.mark.parametrize("name", ["../../x", "/etc/cron.d/x", "a/../../../x", "", ".", "a\\u0000b"])
def test_no_file_of_a_shared_folder_leaves_its_place_at_home(name: str) -> None:
    line = b'["f", "%s", 1, 2, true, 7]\n' % name.encode()
    answer = transport(SHARED_TOP + line + OTHERS + END)
    listed = far.shared_files(answer, "/mnt/ckpt", (0, 9), far.argv, prefix="checkpoints/")
    apart = pulling.sorted_out(listed.listing.entries, (), ("checkpoints",))
    assert (apart.entries, apart.failed) == ((), {})
    assert list(apart.skipped.values()) == ["its name leads out of the folder"]


@pytest.mark.parametrize(
    "line",
    [
        b"[]", b'{"id": 7, "live": true}', b'{"id": "a", "live": "yes"}', b'{"id": "a"}',
        b'{"id": "a", "live": false, "files": -1}', b'{"id": "a", "live": false, "log": ' + b"9" * 400 + b"}",
        b'{"id": "a", "live": false, "files": "1"}', b"@@ runs",
        b'{"id": "a", "live": false, "started": -1}', b'{"id": "a", "live": false, "started": ' + b"9" * 19 + b"}",
    ],
    ids=range(10),
)  # fmt: skip
@pytest.mark.parametrize("read", [far.survey, far.runs])
def test_an_odd_line_about_a_run_is_that_hosts_error(read: Callable[..., Any], line: bytes) -> None:
    with pytest.raises(AnswerError):
        read(transport(line + b"\n" + END), "mine")


def test_a_folder_that_is_no_run_is_skipped() -> None:
    folders = [b"../../etc", b"a\\nb", b"-rf", b"", b"x" * 65, "\u0663".encode(), b"good\\n", b"good"]
    lines = b"".join(b'{"id": "%s", "live": true}\n' % name for name in folders)
    assert far.runs(transport(lines + END), "mine") == {"good": RunStart(live=True)}


@pytest.mark.parametrize(
    "line", [b"[]", b'{"id": "other", "removed": 1}', b'{"id": "r", "removed": "all"}', b'{"id": "r", "removed": -1}']
)
def test_an_odd_line_about_a_removal_is_that_hosts_error(line: bytes) -> None:
    with pytest.raises(AnswerError):
        far.remove(transport(line + b"\n" + END), "mine", ["r"])


@pytest.mark.parametrize("answer", [b"", b"[]\n", b'{"path": 7}\n', b'{"path": "\\u20ac"}', b"x" * (1 << 20)])
def test_an_odd_answer_to_a_copy_is_that_hosts_error(tmp_path: Path, answer: bytes) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StepError) as caught:
        give.give(cast(LiveTransport, HostThat(answer)), give.Source(tmp_path / "file"), "/data", far.argv)
    assert caught.value.host == "bad"


def test_a_name_that_is_too_long_for_this_machine_is_skipped() -> None:
    """It ended the pull of all hosts, as a disk that cannot be written."""
    long = ["/".join(["output"] + ["y" * 200] * 30), "output/" + "x" * 256]
    lines = b"".join(json.dumps(["f", path, 1, 2, False]).encode() + b"\n" for path in long)
    entries = far.run_files(transport(HEADER + lines + END), "mine", RUN).entries
    assert [entry.kind for entry in entries] == ["e", "e"]


# What root does in the folders of ranks.


def reader(*words: str, stdin: bytes = b"", timeout: float = 30) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(far.argv(*words), input=stdin, capture_output=True, check=False, timeout=timeout)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    run = tmp_path / "mine" / RUNS / RUN
    for name in ("output/a", "log", "record.json"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("{}")
    return tmp_path / "mine"


def test_no_fifo_is_opened(cluster: Path) -> None:
    """Who opens a FIFO to read it wakes its writer, and shows that root comes by."""
    run = cluster / RUNS / RUN
    os.mkfifo(run / "lock")
    os.mkfifo(run / "output" / "pipe")
    opened = []

    def write(path: Path) -> None:
        # It waits until somebody reads.
        os.close(os.open(path, os.O_WRONLY))
        opened.append(path)

    for path in (run / "lock", run / "output" / "pipe"):
        threading.Thread(target=write, args=(path,), daemon=True).start()
    request = json.dumps([["output/pipe", 0, 0, 100]]).encode()
    sent = reader("send", str(cluster / "var"), f"runs/{RUN}", stdin=request)
    assert b"it is not a file" in sent.stdout
    for words in (("survey", str(cluster), RUNS), ("ids", str(cluster), RUNS), ("list", str(cluster / "var"), "runs")):
        assert reader(*words).stdout.endswith(END)
    time.sleep(0.2)
    assert opened == []
    # Only so that the threads end.
    for path in (run / "lock", run / "output" / "pipe"):
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


@pytest.mark.parametrize("path", ["output/link", "output/folder/secret", "output/folder"])
def test_a_link_in_place_of_a_result_is_not_read(cluster: Path, tmp_path: Path, path: str) -> None:
    """A rank may put it there after kit has listed its files."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "secret").write_text("root:s3cret")
    output = cluster / RUNS / RUN / "output"
    (output / "link").symlink_to(tmp_path / "etc" / "secret")
    (output / "folder").symlink_to(tmp_path / "etc")
    request = json.dumps([[path, 0, 0, 100]]).encode()
    sent = reader("send", str(cluster / "var"), f"runs/{RUN}", stdin=request)
    assert b"s3cret" not in sent.stdout
    assert b"error" in sent.stdout
    listed = reader("list", str(cluster / "var"), f"runs/{RUN}", "output").stdout
    assert b"secret" not in listed.replace(str(tmp_path / "etc" / "secret").encode(), b"")


def test_a_shared_folder_is_read_without_its_links_and_pipes(tmp_path: Path) -> None:
    """Ranks of any run write there."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "secret").write_text("root:s3cret")
    folder = tmp_path / "ckpt"
    folder.mkdir()
    (folder / "inner").symlink_to(tmp_path / "etc")
    (folder / "file").symlink_to(tmp_path / "etc" / "secret")
    os.mkfifo(folder / "pipe")
    opened = threading.Event()

    def write() -> None:
        # It waits until somebody reads.
        os.close(os.open(folder / "pipe", os.O_WRONLY))
        opened.set()

    threading.Thread(target=write, daemon=True).start()
    rows = [json.loads(line) for line in reader("shared", str(folder), "0", str(2**62)).stdout.splitlines()]
    assert [row[:2] for row in rows[1:-2]] == [["l", "file"], ["l", "inner"], ["s", "pipe"]]
    request = json.dumps([[path, 0, 0, 100] for path in ("inner/secret", "file", "pipe", "../etc/secret")]).encode()
    sent = reader("send", str(folder), "", stdin=request)
    assert sent.stdout.count(b'"error"') == 4
    assert b"s3cret" not in sent.stdout
    assert not opened.is_set()
    # Only so that the thread ends.
    os.close(os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK))


def test_what_this_pull_stored_gives_way_to_nothing(tmp_path: Path) -> None:
    """A shared folder may have a folder where the run's own folder has a file."""
    store = Store(tmp_path / "here", made=pulling.stays)
    store.prepare(0, private=False)
    (tmp_path / "here" / "a").write_text("1")
    assert store.obstacle("a/b", link=False) == ""
    store.claim(["a"])
    assert "a is no folder" in store.obstacle("a/b", link=False)
    part = store.part("gpu1", "x")
    part.write_bytes(TEXT)
    with pytest.raises(StepError, match="File exists"):
        store.keep(part, "a/b", time=5, mode=0o644)
    assert (tmp_path / "here" / "a").read_text() == "1"


def test_files_are_stored_while_other_threads_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The umask is that of the whole process: what reads it for a moment opens the files of other threads."""
    before = os.umask(0o027)
    try:
        store = Store(tmp_path / "here")
        assert os.umask(0o027) == 0o027
        store.prepare(0, private=False)
        monkeypatch.setattr(os, "umask", lambda _mask: pytest.fail("it changes the umask"))
        for name, mode in (("a", 0o666), ("b", 0o755), ("c", 0o066)):
            part = store.part("gpu1", name)
            part.write_bytes(TEXT)
            store.keep(part, name, time=5, mode=mode)
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "here").iterdir() if path.is_file()}
        assert modes == {"a": 0o640, "b": 0o750, "c": 0o440}
    finally:
        monkeypatch.undo()
        os.umask(before)


def test_nothing_is_written_through_a_link_that_came_home(tmp_path: Path) -> None:
    """The first pull brought a link of a rank, and the second one has a file below it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    store = Store(tmp_path / "here")
    store.prepare(0, private=False)
    store.make("output")
    store.link("output/deep", str(elsewhere))
    part = store.part("gpu1", "x")
    part.write_bytes(TEXT)
    with pytest.raises(StepError, match="is a link"):
        store.keep(part, "output/deep/a", time=5, mode=0o644)
    with pytest.raises(StepError, match="is a link"):
        store.link("output/deep/b", "a")
    # In place of the link itself, the file replaces it.
    store.keep(part, "output/deep", time=5, mode=0o644)
    assert list(elsewhere.iterdir()) == []
    assert (tmp_path / "here" / "output" / "deep").read_bytes() == TEXT


@pytest.mark.parametrize("run", ["..", ".", "../..", "a/b", "", "-rf", f"{RUN}\n", "x" * 70])
def test_only_the_id_of_a_run_is_removed(cluster: Path, run: str) -> None:
    done = reader("remove", str(cluster), RUNS, stdin=json.dumps([run]).encode())
    assert done.returncode != 0
    assert b"not the id of a run" in done.stderr
    assert (cluster / RUNS / RUN / "log").exists()


def copied(path: Path, files: dict[str, bytes], *, kind: str = "d") -> subprocess.CompletedProcess[bytes]:
    """Copy files to a path of the VM, as kit cp --vm does."""
    frames = frame(b"H", {"path": "", "kind": "d"}) if kind == "d" else b""
    for name, data in files.items():
        frames += frame(b"H", {"path": name, "kind": "f", "time": 5, "mode": 0o644})
        frames += frame(b"D", data) + frame(b"E", {"sha256": hashlib.sha256(data).hexdigest()})
    return reader("write", str(path), "new", kind, stdin=frames + frame(b"E", {}))


def test_a_copy_into_a_folder_of_ranks_follows_no_link_that_a_rank_put_there(cluster: Path, tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    goal = cluster / "var" / "data"
    (goal / "new").mkdir(parents=True)
    (goal / "new" / "deep").symlink_to(etc)
    done = copied(goal, {"deep/x": b"attack"})
    assert done.returncode != 0
    assert list(etc.iterdir()) == []
    assert copied(goal, {"y": b"mine"}).returncode == 0
    assert (goal / "new" / "y").read_bytes() == b"mine"
    assert [path.name for path in (goal / "new").iterdir() if ".kit-cp" in path.name] == []


def test_nobody_can_guess_the_name_of_a_copy_that_comes(cluster: Path, tmp_path: Path) -> None:
    """A rank put links with the names of all processes there, and root wrote to where they led."""
    victim = tmp_path / "victim"
    victim.write_text("root's")
    goal = cluster / "var" / "data"
    goal.mkdir()
    # The copy is a child of this process, and gets one of the next numbers.
    for pid in range(os.getpid(), os.getpid() + 20_000):
        (goal / f".kit-cp-{pid}").symlink_to(victim)
    done = copied(goal / "file", {"": b"attack"}, kind="f")
    assert done.returncode == 0, done.stderr
    assert victim.read_text() == "root's"
    assert (goal / "file").read_bytes() == b"attack"


def unshared(*commands: str) -> subprocess.CompletedProcess[str]:
    """Run commands where mounts are only their own."""
    lines = ["set -e", *commands]
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", "\n".join(lines)], capture_output=True, text=True, check=False, timeout=60
    )


needs_unshare = pytest.mark.skipif(
    subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode != 0,
    reason="this machine does not let users mount",
)


@needs_unshare
def test_removing_a_run_spares_what_is_mounted_below_it(cluster: Path) -> None:
    run = cluster / RUNS / RUN
    place = run / "output" / "a disk"
    place.mkdir()
    remove = shlex.join(far.argv("remove", str(cluster), RUNS))
    done = unshared(
        f"mount -t tmpfs none {shlex.quote(str(place))}",
        f"echo precious > {shlex.quote(str(place))}/file",
        f"echo '[\"{RUN}\"]' | {remove}",
        f"cat {shlex.quote(str(place))}/file",
    )
    assert "precious" in done.stdout, done.stderr
    assert f"{place} is mounted there" in done.stdout
    assert (run / "log").exists()


@needs_unshare
@pytest.mark.parametrize("what", ["all", "keep"])
def test_down_spares_what_is_mounted_below_the_folder(tmp_path: Path, what: str) -> None:
    """Root removed the files of a share that somebody mounted for the outputs."""
    opt, share = tmp_path / "opt", "/opt/kit/mine/var/share"
    opt.mkdir()
    argv = shlex.join(script("remove", "mine", "/opt/kit/mine", what))
    done = unshared(
        # With another /opt, nothing of this machine is in reach.
        f"mkdir -p /opt && mount --bind {opt} /opt",
        f"mkdir -p {share} && mount -t tmpfs none {share} && echo precious > {share}/file",
        f"PATH=/usr/bin:/bin; DOCKER_HOST=unix:///nowhere; export DOCKER_HOST; {argv} && exit 9",
        f"cat {share}/file && umount {share}",
        f"ls {share}",
    )
    assert done.returncode == 0, done.stderr
    assert "precious" in done.stdout
    assert f"{share} is mounted below /opt/kit/mine" in done.stderr
