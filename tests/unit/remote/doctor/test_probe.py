"""The probe of kit doctor: real processes with real sockets, each on an address of the loopback device."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from kit.remote.doctor import probes
from kit.remote.doctor.probe import door as doors
from kit.remote.doctor.probe import packets, streams, wire
from kit.remote.ssh.program import BOOTSTRAP
from tests.fakes.head import until
from tests.sockets import connected, listening, own_addresses, packet_sockets

SECRET = "00112233445566778899aabbccddeeff"
HERE, THERE = own_addresses(2)


def altered(sent: bytes, limits: Mapping[str, str]) -> bytes:
    text = zlib.decompress(sent.partition(b"\n")[2])
    for usual, other in limits.items():
        assert text.count(usual.encode()) == 1
        text = text.replace(usual.encode(), other.encode())
    packed = zlib.compress(text)
    return b"%d\n" % len(packed) + packed


class Running:
    """A probe as a host runs it. `limits` are constants of the program in lines, with other values than usual."""

    def __init__(self, address: str, limits: Mapping[str, str], python: str) -> None:
        self.process = subprocess.Popen(
            [python, "-Ic", BOOTSTRAP],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        assert self.process.stdin
        self.process.stdin.write(altered(probes.program(), limits))
        self.address = address
        self.serial = 0
        self.ask("hello", secret=SECRET)

    def ask(self, what: str, **words: Any) -> dict[str, Any]:
        self.serial += 1
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"do": what, "serial": self.serial, **words}).encode() + b"\n")
        answer = json.loads(self.process.stdout.readline())
        assert answer["serial"] == self.serial
        return dict(answer)

    def listen(self, *spans: tuple[int, int, bool]) -> dict[str, Any]:
        return self.ask("listen", address=self.address, ports=spans)

    def end(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.stdin = None
        return self.process.wait(60)


@contextlib.contextmanager
def running(
    *addresses: str, limits: Mapping[str, str] = MappingProxyType({}), python: str = sys.executable
) -> Iterator[list[Running]]:
    made: list[Running] = []
    try:
        for address in addresses:
            made.append(Running(address, limits, python))
        yield made
    finally:
        for one in made:
            one.process.kill()
            one.process.communicate()


def free(address: str) -> int:
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])


def refused(address: str, port: int) -> bool:
    with socket.socket() as peer:
        peer.settimeout(60)
        return peer.connect_ex((address, port)) == errno.ECONNREFUSED


def test_it_says_what_the_host_has() -> None:
    with running(HERE) as (one,):
        hello = one.ask("hello", secret=SECRET)
        assert hello["name"] == socket.gethostname()
        assert ["lo", "127.0.0.1/8"] in [row[:2] for row in hello["interfaces"]]
        assert {row[2] for row in hello["interfaces"] if row[0] == "lo"} == {65536}


def test_two_hosts_measure_each_other() -> None:
    with running(HERE, THERE) as (one, other):
        mine, theirs = one.listen(), other.listen()
        seen = one.ask("measure", target=[THERE, theirs["control"]], seconds=0.1)
        assert seen["rtt"] > 0
        assert abs(seen["clock"]) < seen["rtt"] / 2 + 1e-3
        for total, seconds, waited in (seen["there"], seen["back"]):
            assert total > 0
            assert seconds > 0
            assert waited >= 0
        back = other.ask("measure", target=[HERE, mine["control"]], seconds=0.1)
        assert back["there"][0] > 0
        largest = one.ask("packets", targets=[[THERE, theirs["packets"]], [HERE, mine["packets"]]], mtu=1500)
        assert largest["largest"] == [1500, 1500]
        # The address is not on the list of interfaces, so the route says what it carries.
        assert one.ask("packets", targets=[[THERE, theirs["packets"]]], mtu=0)["largest"] == [65535]
        # A socket of the test has the port, so that it cannot be the other probe's. It never answers.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
            silent.bind((THERE, 0))
            assert one.ask("packets", targets=[list(silent.getsockname())], mtu=1500)["largest"] == [None]


@pytest.mark.parametrize("limit", [577, 1400, 1499, 8000])
def test_the_largest_packet_is_exact(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that drops what is larger, in place of one."""
    monkeypatch.setattr(packets, "PACKET_S", 0.1)
    here, there = (doors.Door(address, bytes.fromhex(SECRET)) for address in (HERE, THERE))
    real = here.packets

    class Lossy:
        def sendto(self, data: bytes, target: tuple[str, int]) -> None:
            if len(data) + wire.HEADERS <= limit:
                real.sendto(data, target)

        def recvfrom(self, most: int) -> tuple[bytes, tuple[str, int]]:
            return real.recvfrom(most)

    here.packets = Lossy()  # type: ignore[assignment]  # what a Door uses of it
    assert packets.largest_packets(here, [there.packets.getsockname()], 9000) == [limit]
    # The way back carries more.
    assert packets.largest_packets(there, [real.getsockname()], 9000) == [9000]


def test_a_port_that_a_program_has_taken_counts_as_it_answers() -> None:
    with socket.create_server((THERE, 0)) as taken, running(HERE, THERE) as (one, other):
        number = taken.getsockname()[1]
        closed = free(THERE)
        theirs = other.listen((number, number, True), (number, number, False), (number, number + 9, False))
        assert theirs["ports"][0] == [number, ""]
        assert theirs["ports"][1] == [number, "EADDRINUSE"]
        assert number < theirs["ports"][2][0] <= number + 9
        targets = [[THERE, number], [THERE, theirs["ports"][2][0]], [THERE, theirs["control"]], [THERE, closed]]
        answer = one.ask("reach", targets=targets, names=["localhost", "no.such.name.invalid"], seconds=2.0)
        assert answer["faults"] == ["", "", "", "ECONNREFUSED"]
        assert answer["names"][0] == ["127.0.0.1"]
        assert not answer["names"][1]


def test_many_connections_at_once() -> None:
    with running(HERE, THERE) as (one, other):
        control = other.listen()["control"]
        began = time.monotonic()
        answer = one.ask("reach", targets=[[THERE, control]] * 900, names=[], seconds=2.0)
        assert answer["faults"] == [""] * 900
        assert time.monotonic() - began < 20


def test_it_listens_on_the_address_of_the_cluster_only() -> None:
    with running(HERE) as (one,):
        port = free(HERE)
        answer = one.listen((port, port, False))
        socket.create_connection((HERE, port), timeout=60).close()
        assert listening(one.process.pid) == {(HERE, port), (HERE, answer["control"])}
        assert packet_sockets(one.process.pid) == {(HERE, answer["packets"])}
        one.ask("close")
        assert listening(one.process.pid) == {(HERE, answer["control"])}
        assert refused(HERE, port)
        assert one.ask("stay") == {"serial": one.serial}
        # Measurements go on.
        socket.create_connection((HERE, answer["control"]), timeout=60).close()


def test_it_ends_with_its_input() -> None:
    with running(HERE) as (one,):
        port = free(HERE)
        control = one.listen((port, port, False))["control"]
        assert one.end() == 0
        assert refused(HERE, port)
        assert refused(HERE, control)


def test_it_ends_with_its_input_while_it_measures() -> None:
    with running(HERE, THERE, limits={"LONGEST_S = 10.0": "LONGEST_S = 900.0"}) as (one, other):
        control = other.listen()["control"]
        one.listen()
        assert one.process.stdin
        order = {"do": "measure", "serial": 9, "target": [THERE, control], "seconds": 600.0}
        one.process.stdin.write(json.dumps(order).encode() + b"\n")
        until(lambda: (THERE, control) in connected(one.process.pid))
        # It measures for ten minutes, unless it notices.
        assert one.end() == 0


def test_it_ends_if_no_order_comes() -> None:
    """A connection that breaks without notice leaves nothing behind for long."""
    with subprocess.Popen([sys.executable, "-Ic", BOOTSTRAP], stdin=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin
        process.stdin.write(altered(probes.program(), {"LIFE_S = 120": "LIFE_S = 1"}))
        assert process.wait(60) == -signal.SIGALRM


def test_an_order_that_fails_is_answered() -> None:
    with running(HERE) as (one,):
        assert "Cannot assign" in one.ask("listen", address="192.0.2.1", ports=[])["failed"]
        assert one.ask("measure", target=[THERE, 1], seconds=0.1)["failed"]
        assert one.listen()["control"]


def test_another_program_on_the_port_learns_nothing() -> None:
    with socket.create_server((THERE, 0)) as taken, running(HERE) as (one,):
        one.listen()
        seen: list[bytes] = []

        def pretend() -> None:
            peer, _ = taken.accept()
            peer.settimeout(60)
            peer.sendall(b"c" * wire.CHALLENGE)
            seen.append(wire.exactly(peer, wire.PROOF + wire.CHALLENGE))
            peer.sendall(b"x" * wire.PROOF)

        threading.Thread(target=pretend, daemon=True).start()
        assert one.ask("measure", target=list(taken.getsockname()), seconds=0.1)["fault"] == "EPROTO"
        assert bytes.fromhex(SECRET) not in seen[0]
        assert SECRET.encode() not in seen[0]


def test_strangers_are_cut_and_block_nobody() -> None:
    # With its usual patience, a stranger would be cut soon whatever it answers.
    with running(HERE, THERE, limits={"HELLO_S = 5.0": "HELLO_S = 600.0"}) as (one, other):
        control = other.listen()["control"]
        one.listen()
        silent = [socket.create_connection((THERE, control), timeout=60) for _ in range(20)]
        wrong = socket.create_connection((THERE, control), timeout=60)
        wrong.recv(wire.CHALLENGE)
        wrong.sendall(b"\0" * (wire.PROOF + wire.CHALLENGE))
        assert wrong.recv(1) == b""
        assert one.ask("measure", target=[THERE, control], seconds=0.05)["there"][0] > 0
        for peer in (*silent, wrong):
            peer.close()


def test_an_answer_that_somebody_overheard_opens_nothing() -> None:
    with running(HERE, limits={"HELLO_S = 5.0": "HELLO_S = 600.0"}) as (one,):
        place = (HERE, one.listen()["control"])
        with (
            socket.create_connection(place, timeout=60) as first,
            socket.create_connection(place, timeout=60) as replay,
        ):
            challenge, other = (wire.exactly(peer, wire.CHALLENGE) for peer in (first, replay))
            answer = wire.proof(bytes.fromhex(SECRET), b"caller", challenge) + bytes(wire.CHALLENGE)
            replay.sendall(answer)
            assert replay.recv(1) == b""
            first.sendall(answer)
            assert len(wire.exactly(first, wire.PROOF)) == wire.PROOF
            assert challenge != other


def sealed(number: int) -> tuple[bytes, bytes]:
    """Return the head and the seal of the smallest question that there is."""
    size = wire.MARK.size + wire.SEAL + wire.HEADERS
    head = wire.MARK.pack(wire.MAGIC, wire.QUESTION, number, b"salt", size)
    return head, wire.proof(bytes.fromhex(SECRET), b"packet", head)[: wire.SEAL]


def test_packets_of_strangers_get_no_answer() -> None:
    with running(HERE) as (one,):
        port = one.listen()["packets"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.settimeout(60)
            head, seal = sealed(1)
            for data in (b"", b"x", os.urandom(1000), head, head + bytes(wire.SEAL), head + seal[::-1]):
                peer.sendto(data, (HERE, port))
            question = b"".join(sealed(2))
            peer.sendto(question, (HERE, port))
            # The probe takes packets one after the other, so the first answer would be one to a stranger.
            answer = peer.recv(1 << 16)
        assert wire.MARK.unpack_from(answer)[1:3] == (wire.REPLY, 2)
        assert len(answer) == len(question)


def test_a_path_that_loses_all_data_has_no_rate() -> None:
    """Only the streams stop there: small packets arrive."""
    door = doors.Door(THERE, bytes.fromhex(SECRET))
    quiet = doors.Door(HERE, bytes.fromhex(SECRET))
    peer = quiet.dial((THERE, door.control.getsockname()[1]), wire.UP, 0.2)
    total, seconds, _ = wire.TOTALS.unpack(wire.exactly(peer, wire.TOTALS.size))
    assert (total, seconds > 0) == (0, True)
    streams.hang_up(peer)


def old_python() -> str | None:
    """Return a Python as on the oldest VMs, where the timeout of a socket is no TimeoutError."""
    check = "import sys; sys.exit(not (3, 6) <= sys.version_info < (3, 10))"
    names = [shutil.which(f"python3.{minor}") for minor in range(6, 10)]
    places = [*filter(None, names), *map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3")))]
    # A script of pyenv is there for each version, and fails for those that nobody chose.
    runs = (
        one for one in places if not subprocess.run([one, "-c", check], capture_output=True, check=False).returncode
    )
    return next(runs, None)


@pytest.mark.parametrize("python", ["this", "old"])
def test_a_stream_that_stops_is_no_failure_on_any_python(python: str) -> None:
    program = sys.executable if python == "this" else old_python()
    if program is None:
        pytest.skip("no Python before 3.10 is here")
    with running(HERE, THERE, python=program) as (one, other):
        one.listen()
        control = other.listen()["control"]
        door = doors.Door(HERE, bytes.fromhex(SECRET))
        # It sends nothing, so the other side waits until its time is over.
        peer = door.dial((THERE, control), wire.UP, 0.2)
        assert wire.TOTALS.unpack(wire.exactly(peer, wire.TOTALS.size))[0] == 0
        streams.hang_up(peer)
        assert one.ask("measure", target=[THERE, control], seconds=0.1)["back"][0] > 0


def test_bytes_that_waited_here_arrived_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader without a core finds a full queue. That it then empties it in no time is not the network's rate."""
    sender, peer = socket.socketpair()
    ticks = itertools.count()

    def later() -> float:
        sender.send(b"0123456789")
        return next(ticks) * 0.15

    monkeypatch.setattr(streams, "CHUNK", 1000)
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=later))
    with sender, peer:
        sender.send(bytes(10_000))
        total, seconds, _ = streams.receive(peer, 0.3)
    # It counts bytes from the third tick to the fifth, and the time to the sixth.
    assert (total, seconds) == (20, pytest.approx(0.45))


def test_a_reader_that_waits_for_a_core_still_gets_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[float] = []
    monkeypatch.setattr(doors, "pour", lambda _peer, seconds: lengths.append(seconds))
    door = doors.Door(THERE, bytes.fromhex(SECRET))
    quiet = doors.Door(HERE, bytes.fromhex(SECRET))
    peer = quiet.dial((THERE, door.control.getsockname()[1]), wire.DOWN, 0.2)
    assert peer.recv(1) == b""
    peer.close()
    assert lengths == [0.2 + wire.HELLO_S]


def test_hanging_up_sends_no_more() -> None:
    one, other = socket.socketpair()
    with other, socket.create_server((HERE, 0)) as server:
        one.close()
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
        streams.hang_up(client)
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
        linger = struct.unpack("ii", peer.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
        assert linger[0] == 0
        peer.close()
