"""kit exec -it at a real terminal: a stand-in for ssh runs the command on this machine, in that terminal."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminals import COLUMNS, ROWS, Terminal

# Runs a command in this terminal. When this program ends, a process of that command may stay.
CLIENT = """
import os, pathlib, signal, subprocess, sys

def hang_up(pid):
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        hang_up(child)
        os.kill(int(child), signal.SIGHUP)

def lost(*_):
    if sys.argv[1] == "ssh":
        hang_up(os.getpid())
    os._exit(255)

for number in (signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, lambda *_: None)
for number in (signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, lost)
sys.exit(subprocess.call(sys.argv[2:]))
"""
STUBS = {
    # The words of each call, and then the last one as a command. If ssh ends first, the terminal there hangs up.
    # The cluster's folder on the VM is in the folder vm.
    "ssh": 'echo "$*" >>"$0.calls"\nif [ "$1" = -O ]; then exit 0; fi\nfor last; do :; done\n'
    'last=$(printf %s "$last" | sed "s#/opt/kit/#${0%/bin/*}/vm/#g")\n'
    f'exec {sys.executable} -IS -c {shlex.quote(CLIENT)} ssh sh -c "$last"',
    "id": "echo 0",
    # docker exec [OPTION]... NODE COMMAND..., and docker ps, which prints the task of Swarm. If docker.node has the
    # name of a container, only that one runs.
    "docker": '[ $1 != ps ] || exec cat "$0.task"\necho "$*" >>"$0.calls"\nshift\nwhile :; do case $1 in\n'
    '  --env) case $2 in *=*) export "$2" ;; esac; shift 2 ;;\n'
    "  --env-file) shift 2 ;;\n  --*) shift ;;\n  *) break ;;\nesac; done\n"
    'if [ -e "$0.node" ] && [ "$1" != "$(cat "$0.node")" ]; then\n'
    '  echo "Error response from daemon: No such container: $1" >&2\n  exit 1\nfi\nshift\n'
    f'exec {sys.executable} -IS -c {shlex.quote(CLIENT)} docker "$@"',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name, text in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "hosts").write_text("gpu1\ngpu2\n")
    return tmp_path


@pytest.fixture
def terminal(folder: Path) -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def start(*words: str) -> Terminal:
        environ = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        argv = [sys.executable, "-m", "kit.cli.main", "-C", str(folder), *words]
        started.append(Terminal(argv, environ))
        return started[-1]

    yield start
    for one in started:
        one.close()


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


@pytest.mark.parametrize(
    ("task", "node", "code"),
    [(None, "kit-kit-mpihead", 1), (None, "", 5), ("ay3\n", "ay3", 1), ("", "ay3", 5)],
    ids=["Compose", "Compose without a node", "Swarm", "Swarm without a task"],
)
def test_a_host_without_a_node_is_told_from_a_command_that_fails(
    folder: Path, terminal: Callable[..., Terminal], task: str | None, node: str, code: int
) -> None:
    (folder / "bin" / "docker.node").write_text(node)
    if task is not None:
        (folder / "vm" / "kit").mkdir(parents=True)
        (folder / "vm" / "kit" / "node.env").touch()
        (folder / "bin" / "docker.task").write_text(task)
    screen = terminal("exec", "-it", "gpu1", "--", "sh", "-c", "exit 1")
    if code == 5:
        screen.read_until(lambda text: "gpu1: no node of the cluster runs here" in text)
    assert screen.code() == code


def test_a_host_that_goes_away_leaves_the_exit_code(folder: Path, terminal: Callable[..., Terminal]) -> None:
    """The command may end because the host does: nobody can look then whether there is a node."""
    gone = f"printf '#!/bin/sh\\necho refused >>{folder}/refused; exit 255\\n' >{folder}/bin/ssh; exit 1"
    screen = terminal("exec", "-it", "gpu1", "--", "sh", "-c", gone)
    assert screen.code() == 1
    assert (folder / "refused").exists()
    assert "no SSH connection" not in screen.text


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


def test_a_terminal_that_goes_with_a_killed_kit_ends_the_command(
    folder: Path, terminal: Callable[..., Terminal]
) -> None:
    """Nobody is left on this side, so the script on the VM ends it."""
    screen = terminal("exec", "-it", "gpu1", "--", "sh", "-c", "trap '' HUP; echo up $$.; while :; do sleep 0.05; done")
    screen.read_until(lambda text: "." in text)
    pid = int(screen.text.split("up ")[1].partition(".")[0])
    os.kill(screen.pid, signal.SIGKILL)
    screen.code()
    end = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end, "the command is still there"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["exec", "-it", "--", "bash"], "-t needs one host"),
        (["exec", "-it", "gpu[1-2]", "--", "bash"], "names 2 hosts"),
        (["--json", "exec", "-it", "gpu1", "--", "bash"], "-t prints no JSON"),
        (["--json", "run", "-it", "--np", "1", "--", "bash"], "-it prints no JSON"),
        (["run", "-it", "--", "bash"], "kit run -it --np 1 -- bash"),
    ],
)
def test_what_a_terminal_needs(terminal: Callable[..., Terminal], words: list[str], message: str) -> None:
    screen = terminal(*words)
    screen.read_until(lambda text: message in text)
    assert screen.code() == 2


def test_a_run_without_a_terminal_says_what_to_write(folder: Path) -> None:
    words = [sys.executable, "-m", "kit.cli.main", "-C", str(folder), "run", "-it", "--np", "1", "--", "bash"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "-it needs a terminal" in done.stderr
    assert "write: kit run --np 1 -- COMMAND" in done.stderr
