"""Attacks on the probe of kit tune: anyone who reaches its port, and a local user of the VM who looks at processes."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kit.errors import StepError
from kit.model.host import Host
from kit.remote.ssh.transport import Completed
from kit.remote.tune import wire, wire_probe
from tests.fakes.facts import node
from tests.sockets import listening, own_addresses

SECRET = "00112233445566778899aabbccddeeff"
(HERE,) = own_addresses(1)


def free_port() -> int:
    with socket.create_server((HERE, 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def probe(port: int, after: int, *, seconds: str = "0.5", patient: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program as a host does; `patient`: it gives everybody ten minutes."""
    program = wire.probe_program(SECRET)
    for usual, other in ((b"PATIENCE_S = 20.0", b"PATIENCE_S = 600.0"), (b"HELLO_S = 5.0", b"HELLO_S = 600.0")):
        assert program.count(usual) == 1
        program = program.replace(usual, other) if patient else program
    process = subprocess.Popen(
        [sys.executable, "-I", "-", HERE, str(port), HERE, str(after), seconds],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(program)
    process.stdin.close()
    process.stdin = None
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def dial(port: int, address: str = HERE) -> socket.socket:
    end = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((address, port), timeout=60)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def test_strangers_are_not_measured_and_block_nobody() -> None:
    one, two = free_port(), free_port()
    with probe(one, two) as first:
        strangers = [dial(one) for _ in range(10)]
        loud = dial(one)
        loud.settimeout(60)
        assert len(loud.recv(64)) == wire_probe.CHALLENGE
        with contextlib.suppress(OSError):
            for _ in range(200):
                loud.sendall(b"x" * 65536)
        with probe(two, one) as second:
            totals = [json.loads(process.communicate(timeout=30)[0]) for process in (first, second)]
        for stranger in (*strangers, loud):
            stranger.close()
    assert all(total["received"] > 0 and total["seconds"] > 0 for total in totals)


def test_a_stranger_who_answers_wrongly_is_cut() -> None:
    port = free_port()
    # With its usual patience, a stranger would be cut soon whatever it answers.
    with probe(port, free_port(), patient=True):
        for answer in (b"\0" * wire_probe.ANSWER, bytes.fromhex(SECRET) * 2, SECRET.encode()):
            stranger = dial(port)
            stranger.recv(wire_probe.CHALLENGE)
            stranger.sendall(answer)
            assert stranger.recv(1) == b""


def test_only_one_who_knows_the_secret_gets_in() -> None:
    secret = bytes.fromhex(SECRET)
    with socket.create_server((HERE, 0)) as listener:
        door = wire_probe.Door(listener, secret)
        for known in (b"another secret", secret):
            here, there = socket.socketpair()
            with here, there:
                assert door.strangers.acquire(blocking=False)
                checking = threaded(door.check, here)
                there.sendall(wire_probe.answer_to(wire_probe.exactly(there, wire_probe.CHALLENGE), known))
                checking.join()
                assert (door.guest is here) is (known == secret)


def test_an_answer_that_somebody_overheard_opens_nothing() -> None:
    port = free_port()
    with probe(port, free_port(), patient=True), dial(port) as first, dial(port) as replay:
        challenge, other = (wire_probe.exactly(peer, wire_probe.CHALLENGE) for peer in (first, replay))
        assert challenge != other
        replay.sendall(wire_probe.answer_to(challenge, bytes.fromhex(SECRET)))
        assert replay.recv(1) == b""


def test_it_listens_on_the_address_of_the_cluster_only() -> None:
    port = free_port()
    with probe(port, free_port()) as process:
        dial(port).close()
        assert listening(process.pid) == {(HERE, port)}


def test_one_who_took_the_port_learns_nothing() -> None:
    """Another user of the neighbor's VM listens there, and gets an answer to its own challenge only."""
    with socket.create_server((HERE, 0)) as taken, probe(free_port(), taken.getsockname()[1]):
        taken.settimeout(60)
        peer, _ = taken.accept()
        challenge = b"c" * wire_probe.CHALLENGE
        peer.sendall(challenge)
        peer.settimeout(60)
        seen = wire_probe.exactly(peer, wire_probe.ANSWER + 10_000)
        peer.close()
    secret = bytes.fromhex(SECRET)
    assert seen.startswith(wire_probe.answer_to(challenge, secret))
    assert secret not in seen
    assert SECRET.encode() not in seen
    assert wire_probe.answer_to(b"d" * wire_probe.CHALLENGE, secret) not in seen


def test_the_secret_is_new_each_time_and_on_no_command_line() -> None:
    seen: list[tuple[Sequence[str], bytes]] = []

    class Watching:
        def __init__(self, host: Host) -> None:
            self.host = host

        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            seen.append((argv, stdin))
            return Completed(code=0, stdout=b'{"received": 5, "seconds": 1}', stderr=b"")

        def close(self) -> None: ...

    nodes = [node(1), node(2)]
    hosts = {one.name: Host(name=one.name, address=one.address) for one in nodes}
    for _ in range(2):
        wire.wire_rates(nodes, hosts, Watching, seconds=0.1)
    first_lines = [stdin.split(b"\n")[0] for _, stdin in seen]
    secrets = [line.split(b"'")[1].decode() for line in first_lines]
    assert [len(secret) for secret in secrets] == [32] * 4
    # The hosts of one measurement share it.
    assert len(set(secrets[:2])) == len(set(secrets[2:])) == 1
    assert secrets[0] != secrets[2]
    assert not any(secret in " ".join(argv) for argv, _ in seen for secret in secrets)


def threaded(work: Any, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def test_a_sender_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_probe, "PATIENCE_S", 0.5)
    secret = bytes.fromhex(SECRET)
    with socket.create_server((HERE, 0)) as listener:
        totals = {"received": 0.0, "seconds": 0.0}
        receiver = threaded(wire_probe.receive, listener, totals, 0.1, secret)
        peer = dial(listener.getsockname()[1])
        peer.sendall(wire_probe.answer_to(wire_probe.exactly(peer, wire_probe.CHALLENGE), secret))
        end = time.monotonic() + 60
        with contextlib.suppress(OSError):
            while receiver.is_alive() and time.monotonic() < end:
                peer.sendall(bytes(65536))
        receiver.join(5)
        assert not receiver.is_alive()
        peer.close()
    assert totals["seconds"] < 5


def test_nobody_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_probe, "PATIENCE_S", 0.3)
    with socket.create_server((HERE, 0)) as listener, pytest.raises(OSError, match="timed out"):
        wire_probe.Door(listener, b"x").wait()


def test_no_more_strangers_than_it_can_hold() -> None:
    with socket.create_server((HERE, 0)) as listener:
        door = wire_probe.Door(listener, b"x")

        def wait() -> None:
            with contextlib.suppress(OSError):
                door.wait()

        threaded(wait)
        peers = [dial(listener.getsockname()[1]) for _ in range(wire_probe.MOST_STRANGERS)]
        for peer in peers:
            assert len(peer.recv(64)) == wire_probe.CHALLENGE
        late = dial(listener.getsockname()[1])
        assert late.recv(64) == b""
        for peer in (*peers, late):
            peer.close()


def test_an_answer_without_a_rate_is_an_error_of_its_host() -> None:
    class Odd:
        def __init__(self, host: Host) -> None:
            self.host = host

        def run(self, *_: object, **__: object) -> Completed:
            return Completed(code=0, stdout=b'{"received": 5, "seconds": 0}', stderr=b"")

        def close(self) -> None: ...

    one = node(1)
    with pytest.raises(StepError) as caught:
        wire.wire_rates([one], {one.name: Host(name=one.name, address="x")}, Odd, seconds=0.1)
    assert caught.value.host == one.name
