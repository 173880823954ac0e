"""kit exec -it at a real terminal: a stand-in for ssh runs the command on this machine, in that terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROWS, COLUMNS = 33, 101

STUBS = {
    # The words of each call, and then the last one as a command.
    "ssh": 'echo "$*" >>"$0.calls"\nif [ "$1" = -O ]; then exit 0; fi\nfor last; do :; done\nexec sh -c "exec $last"',
    "id": "echo 0",
    # docker exec [OPTION]... NODE COMMAND...
    "docker": 'echo "$*" >>"$0.calls"\nshift\nwhile :; do case $1 in\n'
    '  --env) case $2 in *=*) export "$2" ;; esac; shift 2 ;;\n'
    '  --*) shift ;;\n  *) break ;;\nesac; done\nshift\nexec "$@"',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name, text in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "hosts").write_text("gpu1\ngpu2\n")
    return tmp_path


class Terminal:
    """A terminal in which kit runs."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environ = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "TERM": "xterm-256color"}
            argv = [sys.executable, "-m", "kit.cli.main", "-C", str(folder), *words]
            os.execve(sys.executable, argv, environ)  # noqa: S606  (an argv, no shell)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.text = ""

    def read_until(self, done: Callable[[str], bool]) -> None:
        end = time.monotonic() + 30
        while not done(self.text):
            assert time.monotonic() < end, self.text
            try:
                data = os.read(self.fd, 4096)
            except OSError:
                data = b""
            if not data:
                assert done(self.text), self.text
                return
            self.text += data.decode()

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(folder: Path) -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def start(*words: str) -> Terminal:
        started.append(Terminal(folder, *words))
        return started[-1]

    yield start
    for one in started:
        os.close(one.fd)


def test_a_terminal_has_size_input_and_exit_code(folder: Path, terminal: Callable[..., Terminal]) -> None:
    command = "echo ready; read word; stty size; test -t 1 && echo tty $word $TERM; exit 7"
    screen = terminal("exec", "-it", "gpu2", "--", "sh", "-c", command)
    screen.read_until(lambda text: "ready" in text)
    screen.type("hello\n")
    screen.read_until(lambda text: "xterm-256color" in text)
    assert f"{ROWS} {COLUMNS}" in screen.text
    assert "tty hello" in screen.text
    assert screen.code() == 7
    (call,) = (folder / "bin" / "docker.calls").read_text().splitlines()
    words = call.split()
    assert words[:4] == ["exec", "--interactive", "--tty", "--env"]
    assert "TERM" in words
    assert words[words.index("sh") - 1] == "kit-kit-mpinode"
    assert "ssh -tt" not in call
    assert (folder / "bin" / "ssh.calls").read_text().startswith("-tt ")


def test_ctrl_c_is_the_commands(terminal: Callable[..., Terminal]) -> None:
    command = "trap 'echo caught; exit 3' INT; echo up; while :; do sleep 0.05; done"
    screen = terminal("exec", "-it", "head", "--", "sh", "-c", command)
    screen.read_until(lambda text: "up" in text)
    screen.type("\x03")
    screen.read_until(lambda text: "caught" in text)
    assert screen.code() == 3


def test_a_closed_terminal_ends_the_command(folder: Path, terminal: Callable[..., Terminal]) -> None:
    mark = folder / "alive"
    command = f"trap '' HUP; echo up; while :; do date +%s%N >{mark}; sleep 0.05; done"
    screen = terminal("exec", "-it", "gpu1", "--", "sh", "-c", command)
    screen.read_until(lambda text: "up" in text)
    os.kill(screen.pid, signal.SIGHUP)
    assert screen.code() == 130
    before = mark.read_text()
    time.sleep(0.3)
    assert mark.read_text() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["exec", "-it", "--", "bash"], "-t needs one host"),
        (["exec", "-it", "gpu[1-2]", "--", "bash"], "names 2 hosts"),
        (["--json", "exec", "-it", "gpu1", "--", "bash"], "-t prints no JSON"),
    ],
)
def test_what_a_terminal_needs(terminal: Callable[..., Terminal], words: list[str], message: str) -> None:
    screen = terminal(*words)
    screen.read_until(lambda text: message in text)
    assert screen.code() == 2
