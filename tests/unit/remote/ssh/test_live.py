"""Live commands over OpenSSH's client: a stand-in for ssh runs them on this machine."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kit.errors import Interrupted, StepError, UnreachableError
from kit.model.host import Login
from kit.model.values import replace
from kit.remote.ssh import multiplexed, open_files, talk
from kit.remote.ssh.multiplexed import OpenSshTransport
from kit.remote.ssh.transport import Live
from tests.fakes.facts import host

LOGIN = Login(host="gpu1", address="gpu1", user=None, port=None, key=None, known_hosts=None, socket="/nonexistent/s")


class Taken:
    """What a live command wrote, and an event for each text that a test waits for."""

    def __init__(self) -> None:
        self.out, self.err = b"", b""
        self._changed = threading.Condition()

    def take_out(self, data: bytes) -> None:
        with self._changed:
            self.out += data
            self._changed.notify_all()

    def take_err(self, data: bytes) -> None:
        self.err += data

    def wait_for(self, text: bytes) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.out, 30)

    def live(self) -> Live:
        return Live(out=self.take_out, err=self.take_err)


class Chunks:
    """Input in chunks; a test may add some while the command reads."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = iter(chunks)
        self.closed = False

    def read(self, _most: int) -> bytes:
        return next(self._chunks, b"")

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ssh that runs its last word here, as root, after a login's own files have printed something."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {
        "ssh": 'if [ "$1" = -O ]; then exit 0; fi\nfor last; do :; done\n'
        'echo welcome; echo motd >&2\nexec sh -c "$last"',
        "id": "echo 0",
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "ssh"


@pytest.fixture
def transport() -> Iterator[OpenSshTransport]:
    with closing(OpenSshTransport(host(1), LOGIN)) as transport:
        yield transport


def test_a_process_that_does_not_start_is_no_bug(transport: OpenSshTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_words: object, **_more: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(StepError) as caught:
        transport.run(["true"])
    assert (caught.value.host, caught.value.hint) == ("gpu1", open_files.FILES_HINT)


def test_a_shared_connection_that_does_not_answer_in_time_is_no_bug(ssh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kit and ssh may have been suspended meanwhile, as on a laptop that was closed."""
    monkeypatch.setattr(multiplexed, "_CONTROL_S", 0.2)
    ssh.write_text(ssh.read_text().replace("exit 0", "exec sleep 60"))
    transport = OpenSshTransport(host(1), replace(LOGIN, socket=None))
    with closing(transport):
        assert transport.run(["echo", "there"]).stdout == b"there\n"
        folder = Path(transport._own_folder or "")
        assert folder.is_dir()
        with pytest.raises(UnreachableError, match="the connection broke"):
            transport.run(["sh", "-c", "exit 255"])
    assert not folder.exists()


def test_output_comes_while_the_command_runs(transport: OpenSshTransport) -> None:
    taken = Taken()
    go = threading.Event()

    class Waits(Chunks):
        def read(self, _most: int) -> bytes:
            go.wait(30)
            return super().read(_most)

    def watch() -> None:
        taken.wait_for(b"first\n")
        go.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    live = replace(taken.live(), stdin=lambda: Waits(b"second\n"))
    assert transport.stream(["sh", "-c", "echo first; cat; echo oops >&2; exit 3"], live) == 3
    watcher.join()
    assert (taken.out, taken.err) == (b"first\nsecond\n", b"oops\n")


def test_a_large_input_arrives_whole_and_ends(transport: OpenSshTransport) -> None:
    taken = Taken()
    chunk = bytes(range(256)) * 512
    reader = Chunks(*[chunk] * 20)
    assert transport.stream(["sha256sum"], replace(taken.live(), stdin=lambda: reader)) == 0
    assert taken.out.split()[0].decode() == hashlib.sha256(chunk * 20).hexdigest()
    assert reader.closed


def test_input_that_nobody_reads(transport: OpenSshTransport) -> None:
    taken = Taken()
    endless = Chunks(*[b"x" * 65536] * 1000)
    assert transport.stream(["echo", "done"], replace(taken.live(), stdin=lambda: endless)) == 0
    assert taken.out == b"done\n"


def test_without_input_the_command_reads_its_end(transport: OpenSshTransport) -> None:
    taken = Taken()
    assert transport.stream(["cat"], taken.live()) == 0
    assert taken.out == b""


def test_a_command_that_may_not_begin_never_runs(transport: OpenSshTransport, tmp_path: Path) -> None:
    taken = Taken()
    with pytest.raises(Interrupted):
        transport.stream(["touch", str(tmp_path / "ran")], replace(taken.live(), begin=lambda: False))
    assert not (tmp_path / "ran").exists()


def test_a_stop_before_the_beginning(transport: OpenSshTransport, tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        transport.stream(["touch", str(tmp_path / "ran")], replace(Taken().live(), stop=stop))
    assert not (tmp_path / "ran").exists()


def test_a_stopped_command_still_shows_its_last_output(transport: OpenSshTransport) -> None:
    """Its last output is passed on. It is ended on the host, not here."""
    taken, stop = Taken(), threading.Event()

    def press() -> None:
        taken.wait_for(b"pid ")
        taken.wait_for(b"\n")
        stop.set()
        os.kill(int(taken.out.split()[1]), 15)

    thread = threading.Thread(target=press)
    thread.start()
    command = "trap 'echo last; exit 9' TERM; echo pid $$; while :; do sleep 0.05; done"
    assert transport.stream(["sh", "-c", command], replace(taken.live(), stop=stop)) == 9
    thread.join()
    assert taken.out.endswith(b"last\n")


def test_a_stopped_command_that_does_not_end_is_left(
    transport: OpenSshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk, "STOP_S", 0.3)
    stop = threading.Event()
    taken = Taken()
    begun = replace(taken.live(), stop=stop, begin=lambda: stop.set() or True)
    with pytest.raises(Exception, match="did not end after Ctrl-C"):
        transport.stream(["sleep", "5"], begun)


def test_a_connection_that_breaks(transport: OpenSshTransport, ssh: Path) -> None:
    ssh.write_text(ssh.read_text().replace("then exit 0", "then exit 1"))
    with pytest.raises(UnreachableError, match="gone away"):
        transport.stream(["sh", "-c", "echo some text >&2; echo gone away >&2; exit 255"], Taken().live())
