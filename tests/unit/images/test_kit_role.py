"""images/bin/kit-role, with real sockets and a stand-in for MXNet's servers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.head import until
from tests.sockets import own_addresses

KIT_ROLE = launcher.IMAGES / "bin" / "kit-role"
# Runs kit-role with a clock that is ahead by what a file says, and that counts in another how often it was looked at.
WITH = f"""
import importlib.machinery, importlib.util, sys
sys.dont_write_bytecode = True
sys.path.insert(0, {str(Path(launcher.__file__).parent)!r})
import launch
loader = importlib.machinery.SourceFileLoader("kit_role", sys.argv[1])
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("kit_role", loader))
loader.exec_module(module)
class Clock(launch.Clock):
    def monotonic(self):
        with open(sys.argv[2] + ".looks", "a") as file:
            file.write("x")
        return super().monotonic()
module.time = Clock(sys.argv[2])
module.main(sys.argv[3:])
"""
(HERE,) = own_addresses(1)
# A scheduler, as far as connections go: it listens, and is connected to itself. A server is connected to it.
STAND_IN = """
import os, socket, sys, time
port = int(os.environ["DMLC_PS_ROOT_PORT"])
if os.environ["DMLC_ROLE"] == "scheduler":
    listening = socket.create_server((os.environ["DMLC_NODE_HOST"], port))
link = socket.create_connection((os.environ["DMLC_PS_ROOT_URI"], port))
print("up", os.getpid(), flush=True)
if os.environ["DMLC_ROLE"] == "scheduler":
    links = []
    while True:
        links.append(listening.accept())
time.sleep(600)
"""

Start = Callable[..., subprocess.Popen[str]]
Ahead = Callable[[int, float], None]
Looked = Callable[[int], None]


@pytest.fixture
def port() -> Iterator[int]:
    """Held for the test: no other takes it meanwhile, and no outgoing connection has it."""
    port, holder = launcher.load("kitrun.ports").hold(HERE)
    yield port
    holder.close()


@pytest.fixture
def ahead(tmp_path: Path) -> Ahead:
    """Moves the clock of the rank that runs kit-role."""

    def move(rank: int, seconds: float) -> None:
        new = tmp_path / "clock.new"
        new.write_text(str(seconds))
        new.rename(tmp_path / f"clock{rank}")

    return move


@pytest.fixture
def looked(tmp_path: Path) -> Looked:
    """Returns when the rank that runs kit-role has looked, from the beginning to the end, at who is there."""

    def wait(rank: int) -> None:
        file = tmp_path / f"clock{rank}.looks"
        # One look may have begun before, and another ends when the next begins.
        before = file.stat().st_size if file.exists() else 0
        until(lambda: file.exists() and file.stat().st_size > before + 2)

    return wait


@pytest.fixture
def start(tmp_path: Path, port: int) -> Iterator[Start]:
    """kit-role as a rank of one worker, one server and the scheduler; `serve` is what `python3 -c …` is here."""
    started: list[subprocess.Popen[str]] = []

    def one(rank: int, *argv: str, serve: str = STAND_IN, **environ: str) -> subprocess.Popen[str]:
        (tmp_path / "stand_in.py").write_text(serve)
        python = tmp_path / "python3"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/stand_in.py "$@"\n')
        python.chmod(0o755)
        given = {"OMPI_COMM_WORLD_RANK": str(rank), "DMLC_NUM_WORKER": "1", "DMLC_NUM_SERVER": "1"}
        given |= {"DMLC_PS_ROOT_URI": HERE, "DMLC_PS_ROOT_PORT": str(port), "PORT": "1"}
        process = subprocess.Popen(
            [sys.executable, "-IS", "-c", WITH, str(KIT_ROLE), str(tmp_path / f"clock{rank}"), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **given, "PATH": f"{tmp_path}:{os.environ['PATH']}", **environ},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield one
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def up(process: subprocess.Popen[str]) -> int:
    """The stand-in's process."""
    assert process.stdout
    word, pid = process.stdout.readline().split()
    assert word == "up"
    return int(pid)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_a_worker_becomes_the_command(start: Start, port: int) -> None:
    names = ("DMLC_ROLE", "DMLC_NODE_HOST", "DMLC_PS_ROOT_PORT", "PORT")
    code = f"import os; print([os.environ.get(name) for name in {names}])"
    out, _ = start(0, sys.executable, "-c", code).communicate(timeout=60)
    # The address from which this host reaches the scheduler's.
    assert out.strip() == str(["worker", "127.0.0.1", str(port), None])


def test_a_command_that_is_not_there(start: Start) -> None:
    code, err = ended(start(0, "no-such-command"))
    assert (code, err) == (127, "kit-role: no-such-command: No such file or directory\n")


@pytest.mark.parametrize(("rank", "role"), [(1, "server"), (2, "scheduler")])
def test_the_others_serve(start: Start, rank: int, role: str) -> None:
    serve = 'import os, sys; print(os.environ["DMLC_ROLE"], sys.argv[1:], "PORT" in os.environ)'
    out, _ = start(rank, "false", serve=serve).communicate(timeout=60)
    assert out.strip() == f"{role} ['-c', 'import mxnet'] False"


@pytest.mark.parametrize(("serve", "code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_it_ends_as_its_server_does(start: Start, serve: str, code: int) -> None:
    assert ended(start(1, serve=serve))[0] == code


def test_a_scheduler_to_whom_not_all_come(start: Start, ahead: Ahead, looked: Looked) -> None:
    scheduler = start(2, KIT_JOIN_S="600")
    up(scheduler)
    looked(2)
    assert scheduler.poll() is None
    ahead(2, 601)
    code, err = ended(scheduler)
    assert code == 124
    assert "kit-role: the scheduler: 2 of 3 have not joined after 600 s" in err


def test_a_scheduler_whom_somebody_leaves(start: Start, port: int, ahead: Ahead, looked: Looked) -> None:
    scheduler = start(2, KIT_JOIN_S="600", KIT_LEAVE_S="600")
    up(scheduler)
    server = start(1)
    up(server)
    with socket.create_connection((HERE, port)):
        # All three are there: nothing is wrong, for longer than it would wait.
        looked(2)
        ahead(2, 1500)
        looked(2)
        assert scheduler.poll() is None
    looked(2)
    assert scheduler.poll() is None
    ahead(2, 2101)
    code, err = ended(scheduler)
    assert code == 124
    assert "1 of 3 left, and the others were still there 600 s later" in err


def test_a_server_whose_scheduler_is_gone(start: Start, port: int, ahead: Ahead, looked: Looked) -> None:
    with socket.create_server((HERE, port)) as listening:
        server = start(1, KIT_LEAVE_S="600")
        child = up(server)
        link, _ = listening.accept()
        looked(1)
        ahead(1, 1500)
        looked(1)
        assert server.poll() is None
        link.close()
        listening.close()
        looked(1)
        assert server.poll() is None
        ahead(1, 2101)
        code, err = ended(server)
    assert code == 124
    assert "server 0: the scheduler was gone" in err
    until(lambda: not Path(f"/proc/{child}").exists())


def test_it_is_for_ranks_alone() -> None:
    done = subprocess.run([sys.executable, "-IS", str(KIT_ROLE), "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--launcher ps" in done.stderr


def test_ports_are_held_and_outside_the_kernels_range(monkeypatch: pytest.MonkeyPatch) -> None:
    ports: Any = launcher.load("kitrun.ports")
    low, high = ports.taken_by_kernel()
    ports_held = [ports.hold(HERE) for _ in range(20)]
    try:
        assert len({port for port, _ in ports_held}) == 20
        assert not [port for port, _ in ports_held if low <= port <= high]
        # Nobody else gets one that is held, or one on which somebody listens.
        taken = ports_held[0][0]
        with socket.create_server((HERE, 0)) as listening:
            free = listening.getsockname()[1]
            monkeypatch.setattr(ports.random, "sample", lambda *_: [taken, free])
            with pytest.raises(OSError, match="no free port"):
                ports.hold(HERE)
        port, holder = ports.hold(HERE)
        assert port == free
        holder.close()
    finally:
        for _, holder in ports_held:
            holder.close()
    with pytest.raises(OSError, match=r"[Cc]annot assign"):
        ports.hold("192.0.2.1")


def test_a_port_of_another_node_is_one_at_which_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    ports: Any = launcher.load("kitrun.ports")
    with socket.create_server((HERE, 0)) as listening, socket.create_server((HERE, 0)) as other:
        taken, free = listening.getsockname()[1], other.getsockname()[1]
        other.close()
        monkeypatch.setattr(ports.random, "sample", lambda *_: [taken, free])
        port, holder = ports.hold("", far=HERE)
        assert port == free
        with pytest.raises(OSError, match="no free port at 127"):
            ports.hold("", far=HERE)
        holder.close()
        # A retry gets another port than the attempt before.
        with pytest.raises(OSError, match="no free port"):
            ports.hold("", far=HERE, used={free})
