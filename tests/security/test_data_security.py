"""Attacks on the staging of data: on the stager's port, on other hosts by one that somebody broke into, and on keys.

The stagers are real processes of this machine, and so is their TLS.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.remote.ship.certificate import certificate
from tests.fakes import launcher
from tests.fakes.stagers import Order, Stager, Stagers

station, tls, wire = (launcher.load(f"kitdata.{name}") for name in ("station", "tls", "wire"))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Stagers]:
    made = Stagers(2, tmp_path)
    (made.source / "a").write_bytes(b"a" * 100_000)
    yield made
    made.close()


def joined(stagers: Stagers, stager: Stager) -> tuple[dict[str, Any], Any]:
    """Let one stager join, and return its member and the TLS of a client that has the staging's certificate."""
    public, key = certificate()
    private = key.reveal().decode()
    stager.start()
    words = {"id": "x", "address": stager.address, "certificate": public, "key": private}
    port = stagers.order(stager, op="join", **words).until("joined")["port"]
    _, client = tls.contexts(public, private, str(stager.folder))
    return {"host": stager.host, "address": stager.address, "port": port}, client


def answer(peer: socket.socket) -> bytes:
    """What the other end sends before it closes the connection: of TLS, what is in it."""
    peer.settimeout(30)
    try:
        return peer.recv(1000)
    except TimeoutError:
        raise AssertionError("the connection stays open") from None
    except OSError:
        return b""


# From the network


def test_a_stranger_gets_nothing_and_the_staging_goes_on(pair: Stagers) -> None:
    members = pair.join()
    other, key = certificate()
    _, stranger = tls.contexts(other, key.reveal().decode(), str(pair.source.parent))
    # It would end the connection itself.
    stranger.verify_mode = ssl.CERT_NONE
    for member in members:
        place = (member["address"], member["port"])
        with socket.create_connection(place) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            # At most an alert of TLS.
            assert answer(plain)[:1] in (b"", b"\x15")
        with socket.create_connection(place) as plain, contextlib.suppress(ssl.SSLError, OSError):
            peer = stranger.wrap_socket(plain)
            peer.sendall(wire.packed({"id": pair.id, "role": "reports"}))
            assert answer(peer) == b""
        # Without any certificate.
        anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anonymous.check_hostname, anonymous.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(place) as plain, contextlib.suppress(ssl.SSLError, OSError):
            peer = anonymous.wrap_socket(plain)
            peer.sendall(wire.packed({"id": pair.id, "role": "reports"}))
            assert answer(peer) == b""
    request = {
        "data": "set", "cluster": "c", "stage": "disk", "split": "none", "size": None, "limit": 0,
        "source": pair.folder(), "members": members,
    }  # fmt: skip
    order = pair.order(pair.all[0], op="stage", id=pair.id, request=request)
    assert "done" in order.end(), order.answers


def test_a_stager_listens_on_the_address_of_its_cluster_only(pair: Stagers) -> None:
    """The second stager's address of this machine is another one than the first's."""
    first, second = pair.join()
    assert first["address"] != second["address"]
    for one, other in ((first, second), (second, first)):
        with pytest.raises(OSError, match="refused"), socket.create_connection((one["address"], other["port"])):
            pass


# From a store


def test_a_list_without_an_end_ends_the_staging(pair: Stagers) -> None:
    for number in range(20):
        (pair.source / f"more{number}").touch()
    pair.all[0].hook = "from kitdata import listing\nlisting.MOST_FILES = 20\n"
    failed = pair.stage().end()["failed"]
    assert (failed["kind"], "more than 20 files" in failed["text"]) == ("source-name", True), failed
    assert [stager.tree() for stager in pair.all] == [{}, {}]


# From another host of the staging


@pytest.mark.parametrize(
    "path",
    ["../victim", "a/../../victim", "/victim", "a//b", "", ".", "a/./b", "zero\0byte", "x" * 256, "y/" * 2000 + "z", 5],
)
def test_a_path_of_another_host_stays_in_the_folder(pair: Stagers, path: object) -> None:
    """Somebody broke into the host that leads. It has the certificate, and orders a file with this path."""
    stager = pair.all[0]
    victim = stager.folder / "victim"
    victim.write_bytes(b"mine")
    before = sorted(stager.folder.rglob("*"))
    member, client = joined(pair, stager)
    reports = tls.connect(member["address"], member["port"], client, {"id": "x", "role": "reports"})
    orders = tls.connect(member["address"], member["port"], client, {"id": "x", "role": "orders"})
    source = pair.folder()
    wire.send(orders, {"begin": {"members": [member], "me": 0, "limit": 0, "source": source}})
    wire.send(orders, {"entries": {"round": 1, "columns": [[0], [path], [3], [10**18], []], "more": False}})
    verdict: list[Any] = []
    while not verdict:
        verdict = [report for report in wire.receive(reports)["reports"] if report[0] in ("failed", "have")]
    # And not because the order itself could not be read.
    assert verdict[0][:2] == ["failed", "source-name" if isinstance(path, str) else "internal"], verdict
    assert victim.read_bytes() == b"mine"
    made = {found for found in stager.folder.rglob("*") if found not in before}
    assert {found.relative_to(stager.folder).parts[0] for found in made} <= {"files", "coming"}
    assert not [found for found in made if found.is_file()]


# Of a member that sends this report in place of the first one of the given kind.
LYING = """
from kitdata import member
report = member.Member._report
def lie(self, round_, words):
    report(self, round_, {report!r} if words[0] == {instead!r} else words)
member.Member._report = lie
"""


@pytest.mark.parametrize(
    ("instead", "report"),
    [
        ("have", ["stop"]),
        ("have", ["have", {"whole": "ffffffff", "free": 1, "inodes": 1, "gone": 0}]),
        ("have", ["have", {"whole": "", "free": "much", "inodes": 1, "gone": 0}]),
        ("has", ["has", 10**6]),
        ("has", ["has", -1]),
        ("has", ["changed", 0, 0, None]),
        ("has", ["unread", 0, "source-refused", "all of you are locked out"]),
        ("has", ["sent", 0, 99, 1]),
        ("staged", {"staged": True}),
    ],
    ids=repr,
)
def test_a_host_that_reports_what_cannot_be_is_out_and_the_others_finish(
    pair: Stagers, instead: str, report: object
) -> None:
    """Only the first host can read the source, so the second one has no order to read."""
    pair.all[1].hook = LYING.format(instead=instead, report=report)
    without_the_second(pair, pair.stage(source=pair.folder(readers=["gpu1"])))


def without_the_second(pair: Stagers, order: Order) -> None:
    """Check that the staging ends without the second host, and why."""
    assert "done" in order.end(), order.answers
    (lost,) = order.all("lost")
    assert lost["host"] == "gpu2"
    assert "reports what cannot be" in lost["text"]
    assert order.answers[-1]["done"]["lost"] == ["gpu2"]
    assert pair.all[0].tree() == {"a": b"a" * 100_000}


# Of a member that reports this again and again, until it is out. If nobody minds, it opens the gate.
SHOUTING = """
import pathlib, threading, time
from kitdata import member
begin = member.Member._begin
def shout(self):
    for _ in range(1500):
        if self.closed:
            return
        self._report(0, {report!r})
        time.sleep(0.02)
    pathlib.Path({gate!r}).touch()
def begun(self, value):
    begin(self, value)
    threading.Thread(target=shout, args=(self,), daemon=True).start()
member.Member._begin = begun
"""
# Of a member that lists the source only once there is a file that opens the gate.
HELD_LIST = """
import os, time
from kitdata import folder
entries = folder.Folder.entries
def held(self):
    while not os.path.exists({gate!r}):
        time.sleep(0.01)
    return entries(self)
folder.Folder.entries = held
"""


@pytest.mark.parametrize(
    "report",
    [
        ["list", [["more", 1, 1]]], ["listed"], ["unlisted", "source-refused", "all are locked out"],
        ["version", "0" * 16, 1, 1], ["counted", 1, 1],
    ],
    ids=repr,
)  # fmt: skip
def test_a_host_that_lists_a_source_unasked_is_out(pair: Stagers, report: list[object]) -> None:
    pair.all[0].hook = HELD_LIST.format(gate=str(pair.gate))
    pair.all[1].hook = SHOUTING.format(report=report, gate=str(pair.gate))
    order = pair.stage()
    order.until("lost")
    pair.release()
    without_the_second(pair, order)


@pytest.mark.parametrize(
    "frame",
    [
        b"J\xff\xff\xff\xff",
        b"Z\x04\x00\x00\x00" + b"0" * 100,
        b"Q\x00\x00\x00\x02{}",
        b"J\x00\x00\x00\x02[]",
        b"J\x00\x00\x00\x03nul",
        b"J\x00\x00\x10\x00" + b"[" * 4096,
    ],
)
def test_a_frame_that_cannot_be_ends_its_connection_only(pair: Stagers, frame: bytes) -> None:
    stager = pair.all[0]
    member, client = joined(pair, stager)
    peer = tls.connect(member["address"], member["port"], client, {"id": "x", "role": "pieces", "from": 0, "serial": 1})
    peer.sendall(frame)
    assert answer(peer) == b""
    hello = pair.order(stager, op="hello").until("hello")
    assert hello["staging"] == "x"


# Keys


def test_the_key_of_a_staging_is_in_memory_only(pair: Stagers) -> None:
    """It comes by standard input. Python reads a key from files alone, so there is one for a moment, in memory."""
    members = pair.join()
    assert len(members) == 2
    words = [order.process.args for order in pair.orders]
    assert "PRIVATE KEY" not in json.dumps(words)
    for stager in pair.all:
        assert stager.process
        for name in ("cmdline", "environ"):
            assert b"PRIVATE KEY" not in Path(f"/proc/{stager.process.pid}/{name}").read_bytes()
        folders = (stager.folder, Path(stager.env["KIT_DATA_SOCKET"]).parent)
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        assert not [path for path in files if b"PRIVATE KEY" in path.read_bytes()]


def test_a_key_that_python_reads_is_in_a_folder_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[str] = []

    def contexts(_certificate: str, _key: str, folder: str) -> None:
        folders.append(folder)
        raise ValueError

    monkeypatch.setattr(station.tls, "contexts", contexts)
    (tmp_path / "data").mkdir()
    one = station.Station(str(tmp_path / "data"), str(tmp_path / "memory"))
    order = {"op": "join", "id": "x", "address": "127.0.0.1", "certificate": "", "key": ""}
    one.carry_out(order, lambda _: None, None)
    assert folders == [str(tmp_path / "memory")]


def test_one_who_took_the_port_of_a_stager_gets_no_order(tmp_path: Path) -> None:
    """The first order to a reader has what opens the store."""
    public, key = certificate()
    _, client = tls.contexts(public, key.reveal().decode(), str(tmp_path))
    other, others_key = certificate()
    impostor, _ = tls.contexts(other, others_key.reveal().decode(), str(tmp_path))
    # It takes any certificate.
    impostor.verify_mode = ssl.CERT_NONE
    heard: list[object] = []
    listener = tls.Listener("127.0.0.1", impostor, lambda _, hello: heard.append(hello))
    try:
        with pytest.raises(ssl.SSLCertVerificationError):
            tls.connect("127.0.0.1", listener.port, client, {"id": "x", "role": "orders"})
    finally:
        listener.close()
    assert heard == []


def test_orders_come_from_root_of_the_vm_only(pair: Stagers) -> None:
    """The socket is in a folder that nobody else can enter."""
    pair.join()
    for stager in pair.all:
        where = Path(stager.env["KIT_DATA_SOCKET"])
        assert where.is_socket()
        assert where.parent.stat().st_mode & 0o077 == 0
        assert where.stat().st_mode & 0o077 == 0


def test_a_line_that_is_no_order_ends_nothing(pair: Stagers) -> None:
    stager = pair.all[0]
    stager.start()
    bad = {"op": "join", "id": "x", "address": "127.0.0.1", "certificate": "no", "key": "no"}
    for words in ({"op": "remove"}, {"op": ["stage"]}, {"op": "join"}, {"op": "stage", "id": {}}, bad):
        order = Order(stager, **words)
        try:
            answers = list(order)
        finally:
            order.close()
        assert all("failed" in answer for answer in answers), (words, answers)
    assert pair.order(stager, op="hello").until("hello")["staging"] is None
