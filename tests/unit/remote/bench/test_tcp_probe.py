"""The network probe's program, as it runs on VMs: both ends of it on this machine."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kit.model.launch import Node
from kit.plan.bench.network import LIMIT_S, PORTS, STREAM_S, probe
from kit.remote.bench import probe as runner
from kit.remote.bench.probe import tcp

PROGRAM = Path(runner.__file__).parent / "tcp.py"
SECRET = "0123456789abcdef"
NODE = Node(name="gpu1", address="10.0.0.1", slots=2)


def start(*words: str, secret: str = SECRET) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-IS", str(PROGRAM), *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin
    process.stdin.write(f"{secret}\n")
    process.stdin.close()
    process.stdin = None
    return process


@pytest.fixture
def port() -> int:
    """A free one that no kernel hands out meanwhile: not even to who dials it, who would then have reached himself."""
    while True:
        number = runner.new_port(PORTS)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", number))
            return number


@pytest.fixture
def listener(port: int) -> Iterator[subprocess.Popen[str]]:
    process = start("listen", "127.0.0.1", str(port), "60")
    yield process
    process.kill()
    process.communicate()


def reached(port: int) -> socket.socket:
    """A connection, as soon as somebody listens."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=30)
        except ConnectionRefusedError:
            threading.Event().wait(0.05)


def test_both_ends(listener: subprocess.Popen[str], port: int) -> None:
    out, err = start("connect", "127.0.0.1", str(port), "0.5").communicate(timeout=120)
    report = json.loads(out)
    assert err == ""
    assert (report["workload"], report["simulated"], report["ranks"], report["through"]) == ("perf", False, 2, "tcp")
    latency, bandwidth = report["tests"]
    assert [row["bytes"] for row in latency["rows"]] == [8, 1024, 65536]
    for row in (*latency["rows"], *bandwidth["rows"]):
        assert 0 < row["min_s"] <= row["seconds"] <= row["max_s"]
        assert row["algbw"] == pytest.approx(row["bytes"] / row["seconds"])
    # The client ends the session, and the listener exits.
    assert listener.wait(30) == 0


def test_round_trips_of_busy_hosts_are_fewer(
    listener: subprocess.Popen[str], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "LATENCY_S", 0.0)
    reached(port).close()
    assert len(tcp.latency("127.0.0.1", port, SECRET.encode(), 8, 2000)) == tcp.LEAST
    assert len(tcp.latency("127.0.0.1", port, SECRET.encode(), 8, 5)) == 5


def test_what_came_all_at_once_has_a_rate_too() -> None:
    """A busy host comes to its measuring late, and finds everything in its buffers."""
    link, other = socket.socketpair()
    with link, other:
        other.sendall(b"x" * 1000)
        other.shutdown(socket.SHUT_WR)
        (rate,) = tcp.rates(link)
        assert rate > 0
        assert other.recv(10) == tcp.STREAM


def test_a_silence_before_the_end_is_no_rate_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    link, other = socket.socketpair()
    clock = iter([0.0, 1.0, 9.0])
    monkeypatch.setattr(tcp, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with link, other:
        other.sendall(b"x" * 1000)
        other.shutdown(socket.SHUT_WR)
        assert tcp.rates(link) == [1000.0]


def test_a_stranger_gets_no_answer_and_stops_nobody(listener: subprocess.Popen[str], port: int) -> None:
    with reached(port) as silent, reached(port) as stranger:
        assert len(stranger.recv(tcp.CHALLENGE)) == tcp.CHALLENGE
        stranger.sendall(b"x" * tcp.ANSWER + b"B")
        # What it sent after a wrong secret was not even read: the kernel may call that a reset.
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
        out, _ = start("connect", "127.0.0.1", str(port), "0.2").communicate(timeout=120)
        assert json.loads(out)["tests"]
        silent.close()


def test_an_answer_that_somebody_overheard_opens_nothing(listener: subprocess.Popen[str], port: int) -> None:
    with reached(port) as first, reached(port) as replay:
        challenge, other = (tcp.exactly(link, tcp.CHALLENGE) for link in (first, replay))
        assert challenge != other
        replay.sendall(tcp.answer_to(challenge, SECRET.encode()) + tcp.BYE)
        with contextlib.suppress(ConnectionResetError):
            assert replay.recv(1) == b""
        assert listener.poll() is None


def test_the_secret_never_crosses_the_network(port: int) -> None:
    """Who overhears a connection learns nothing that opens another one."""
    heard = []
    with socket.create_server(("127.0.0.1", port)) as server:
        caller = start("connect", "127.0.0.1", str(port), "0.2")
        link, _ = server.accept()
        with link:
            link.sendall(b"c" * tcp.CHALLENGE)
            heard.append(tcp.exactly(link, tcp.ANSWER + 1))
        caller.kill()
        caller.communicate()
    assert SECRET.encode() not in heard[0]
    with start("listen", "127.0.0.1", str(port), "60") as listener, reached(port) as replay:
        assert replay.recv(tcp.CHALLENGE) != b"c" * tcp.CHALLENGE
        replay.sendall(heard[0][: tcp.ANSWER] + tcp.BYE)
        with contextlib.suppress(ConnectionResetError):
            assert replay.recv(1) == b""
        assert listener.poll() is None
        tcp.dial("127.0.0.1", port, SECRET.encode(), tcp.BYE).close()
        assert listener.wait(30) == 0


def test_a_listener_whom_nobody_calls_ends_by_itself(port: int) -> None:
    process = start("listen", "127.0.0.1", str(port), "0.5")
    process.communicate(timeout=60)
    assert process.returncode == 3


def test_an_address_that_is_not_here(port: int) -> None:
    process = start("listen", "192.0.2.1", str(port), "5")
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.startswith("tcp probe: ")) == (1, True)


# The words for it


def words(kind: str) -> tuple[str, str, str]:
    made = probe(kind, mark="bench-1", cluster="lab", image="kit:cpu-1", listener=NODE, port=20001, program="P")  # type: ignore[arg-type]
    return " ".join(made.prepare), " ".join(made.listen), " ".join(made.connect)


def test_the_bare_host_has_its_own_python() -> None:
    _, listen, connect = words("bare")
    assert listen == f"env KIT_RUN=bench-1 python3 -c P listen 10.0.0.1 20001 {LIMIT_S:g}"
    assert connect == f"env KIT_RUN=bench-1 python3 -c P connect 10.0.0.1 20001 {STREAM_S:g}"


def test_containers_listen_on_the_address_of_the_cluster_alone() -> None:
    marks = "--label kit.cluster=lab --label kit.bench=bench-1 --env KIT_RUN=bench-1"
    end = "--entrypoint python3 kit:cpu-1 -c P listen"
    assert words("host")[1] == (
        f"docker run --rm --interactive --network host --userns host {marks} --name kit-bench-bench-1-listen "
        f"{end} 10.0.0.1 20001 {LIMIT_S:g}"
    )
    assert words("bridge")[1] == (
        f"docker run --rm --interactive --network bridge {marks} --publish 10.0.0.1:20001:20001 "
        f"--name kit-bench-bench-1-listen {end} 0.0.0.0 20001 {LIMIT_S:g}"
    )


def test_an_overlay_network_is_made_for_the_probe() -> None:
    prepare, listen, connect = words("overlay")
    assert prepare == (
        "docker network create --driver overlay --attachable --label kit.cluster=lab --label kit.bench=bench-1 "
        "kit-bench-bench-1"
    )
    assert "--publish" not in listen
    assert "connect kit-bench-bench-1-listen 20001" in connect


def test_ports_are_none_that_a_kernel_hands_out() -> None:
    assert PORTS[0] > 1024
    assert PORTS[-1] < 32768
