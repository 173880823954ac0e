"""Layers go from one folder to another, over any streams and over TLS, whatever happens in between."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import math
import os
import random
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from kit.remote.ship.certificate import certificate
from kit.remote.ship.porter import fetch, main, operator, serve, wire
from kit.remote.ship.porter import layers as layers_module
from kit.remote.ship.porter.layers import PART, Layers, Writer
from tests.fakes.head import until

LONG = 30.0
CONTENTS = [random.Random(i).randbytes(size) for i, size in enumerate((100_000, 700_000, 5))]  # noqa: S311
NAMES = [hashlib.sha256(content).hexdigest() for content in CONTENTS]
TOTAL = sum(map(len, CONTENTS))
ONE, TWO, _ = CONTENTS


class Link:
    """A folder of layers, as an upstream over socket pairs. Counts what went over, and can break it."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self.connections = 0
        self.bytes = 0
        # Each connection is cut after as many bytes.
        self.cut: int | None = None
        # One bit of each connection's bytes at this place is flipped.
        self.flip: int | None = None

    def connect(self) -> fetch.Streams:
        self.connections += 1
        here, there = socket.socketpair()
        here.settimeout(LONG)
        there.settimeout(LONG)
        writing = cast(BinaryIO, _Counting(self, there))

        def work() -> None:
            serve.serve(there.makefile("rb"), writing, self.layers)
            there.close()

        threading.Thread(target=work, daemon=True).start()

        def close() -> None:
            with contextlib.suppress(OSError):
                here.shutdown(socket.SHUT_RDWR)
            here.close()

        return cast(BinaryIO, here.makefile("rb")), cast(BinaryIO, here.makefile("wb")), close


class _Counting:
    def __init__(self, link: Link, peer: socket.socket) -> None:
        self._link = link
        self._peer = peer
        self._count = 0

    def write(self, data: bytes) -> int:
        link, start = self._link, self._count
        self._count += len(data)
        if link.flip is not None and start <= link.flip < self._count:
            at = link.flip - start
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        if link.cut is not None and self._count > link.cut:
            data = data[: max(link.cut - start, 0)]
            self._peer.sendall(data)
            self._peer.shutdown(socket.SHUT_RDWR)
        else:
            self._peer.sendall(data)
        link.bytes += len(data)
        return len(data)

    def flush(self) -> None:
        pass


def full(folder: Path) -> Layers:
    made = Layers(str(folder))
    for name, content in zip(NAMES, CONTENTS, strict=True):
        write(made, name, content)
    return made


def write(layers: Layers, name: str, content: bytes) -> None:
    writer = Writer(layers, name, len(content))
    writer.write(content[writer.at :])
    writer.finish()


@pytest.fixture
def reports() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def fetcher(layers: Layers, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> fetch.Fetcher:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return fetch.Fetcher(layers, NAMES, reports.append)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as made:
        yield made


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Link]:
    made = Link(full(tmp_path / "upstream"))
    yield made
    made.layers.stop()


def arrived(layers: Layers) -> bool:
    return all(
        layers.whole(name) and Path(layers.path(name)).read_bytes() == content
        for name, content in zip(NAMES, CONTENTS, strict=True)
    )


def test_all_layers_arrive(layers: Layers, fetcher: fetch.Fetcher, upstream: Link) -> None:
    fetcher.follow(1, upstream.connect)
    fetcher.run()
    assert arrived(layers)
    assert TOTAL < upstream.bytes < TOTAL + 2000
    assert upstream.connections == 1


def test_only_the_rest_is_sent(layers: Layers, reports: list[dict[str, Any]], upstream: Link) -> None:
    write(layers, NAMES[0], ONE)
    begun = Writer(layers, NAMES[1], len(TWO))
    begun.write(TWO[:600_000])
    begun.close()
    again = Layers(layers.folder)
    again.adopt(set(NAMES))
    assert again.verify() == []
    fetcher = fetch.Fetcher(again, NAMES, reports.append)
    assert fetcher.missing() == {NAMES[1]: 600_000, NAMES[2]: 0}
    fetcher.follow(1, upstream.connect)
    fetcher.run()
    assert arrived(again)
    assert upstream.bytes < 100_005 + 1000


def test_a_cut_connection_goes_on_from_where_it_was(
    layers: Layers, fetcher: fetch.Fetcher, upstream: Link, reports: list[dict[str, Any]]
) -> None:
    """Each connection brings something, so none of them counts as lost."""
    upstream.cut = 300_000
    fetcher.follow(1, upstream.connect)
    fetcher.run()
    assert arrived(layers)
    assert upstream.connections >= 3
    # What of a frame had come when it was cut comes once more.
    assert upstream.bytes < TOTAL + upstream.connections * (wire.CHUNK + 1000)
    assert reports == []


def test_the_beginning_goes_on_before_the_end_is_here(
    layers: Layers, fetcher: fetch.Fetcher, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    between = Layers(str(tmp_path / "between"))
    fetcher.follow(1, Link(between).connect)
    running = pool.submit(fetcher.run)
    writer = Writer(between, NAMES[1], len(TWO))
    writer.write(TWO[:1000])
    until(lambda: layers.have(NAMES[1]) == 1000)
    writer.write(TWO[1000:500_000])
    until(lambda: layers.have(NAMES[1]) == 500_000)
    assert not layers.whole(NAMES[1])
    writer.write(TWO[500_000:])
    writer.finish()
    write(between, NAMES[2], CONTENTS[2])
    write(between, NAMES[0], ONE)
    running.result(LONG)
    assert arrived(layers)


def test_wrong_bytes_of_a_host_in_the_middle_count_once_on_the_next(
    layers: Layers, fetcher: fetch.Fetcher, tmp_path: Path, pool: ThreadPoolExecutor, reports: list[dict[str, Any]]
) -> None:
    """The next host's own disk is not to blame, however often the host in the middle starts a layer again."""
    between = Layers(str(tmp_path / "between"))
    fetcher.follow(1, Link(between).connect)
    running = pool.submit(fetcher.run)
    wrong = TWO[:1000] + bytes([TWO[1000] ^ 1]) + TWO[1001:]
    # A third connection in a row that brings nothing would count as lost.
    for _ in range(fetch.TRIES - 1):
        writer = Writer(between, NAMES[1], len(TWO))
        writer.write(wrong)
        until(lambda: layers.have(NAMES[1]) == len(TWO) - 1)
        with pytest.raises(layers_module.Corrupt):
            writer.finish()
    for name, content in zip(NAMES, CONTENTS, strict=True):
        write(between, name, content)
    running.result(LONG)
    assert arrived(layers)
    assert [message for message in reports if "corrupt" in message] == [{"corrupt": NAMES[1], "count": 1}]


def test_nothing_to_send_yet_is_said_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "KEEP_S", 0.01)
    link = Link(Layers(str(tmp_path / "empty")))
    reading, writing, close = link.connect()
    wire.write_line(writing, {"need": {NAMES[0]: 0}})
    assert wire.read_frame(reading) == (wire.KEEP, b"")
    writer = Writer(link.layers, NAMES[0], len(ONE))
    kind = wire.KEEP
    while kind == wire.KEEP:
        kind, _ = wire.read_frame(reading)
    assert kind == wire.HEADER
    assert [wire.read_frame(reading)[0] for _ in range(20)] == [wire.KEEP] * 20
    writer.write(ONE)
    writer.finish()
    data = b""
    while kind != wire.END:
        kind, payload = wire.read_frame(reading)
        data += payload
    assert data == ONE
    close()


@pytest.mark.parametrize("begun", [False, True])
def test_an_upstream_that_only_lives_is_lost(
    fetcher: fetch.Fetcher,
    reports: list[dict[str, Any]],
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    begun: bool,
) -> None:
    """Before a layer and within one. It sends KEEP without an end, so SILENCE_S never comes."""
    monkeypatch.setattr(fetch, "MOST_KEEP_S", -1.0)
    tries = 0

    def keeping() -> fetch.Streams:
        nonlocal tries
        tries += 1
        stream = io.BytesIO()
        if begun:
            wire.write_header(stream, NAMES[0], len(ONE), 0)
        for _ in range(1000):
            wire.write_frame(stream, wire.KEEP)
        stream.seek(0)
        return stream, io.BytesIO(), lambda: None

    fetcher.follow(1, keeping)
    pool.submit(fetcher.run)
    until(lambda: reports != [])
    assert reports == [{"lost": "it sent no byte of a layer for -1 s", "turn": 1}]
    assert tries == fetch.TRIES
    # Another one lets the thread end.
    complete = Layers(f"{fetcher._layers.folder}-other")
    for name, content in zip(NAMES, CONTENTS, strict=True):
        write(complete, name, content)
    fetcher.follow(2, Link(complete).connect)
    until(lambda: not fetcher.missing())


def test_a_lost_upstream_is_reported_and_another_goes_on(
    layers: Layers, fetcher: fetch.Fetcher, upstream: Link, reports: list[dict[str, Any]], pool: ThreadPoolExecutor
) -> None:
    tries = 0

    def refused() -> fetch.Streams:
        nonlocal tries
        tries += 1
        if tries == 1:
            first = Link(upstream.layers)
            first.cut = 400_000
            return first.connect()
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    fetcher.follow(1, refused)
    running = pool.submit(fetcher.run)
    until(lambda: reports != [])
    assert reports == [{"lost": "Connection refused", "turn": 1}]
    assert tries == fetch.TRIES
    here = layers.total()
    assert here > 0
    fetcher.follow(2, upstream.connect)
    running.result(LONG)
    assert arrived(layers)
    assert upstream.bytes < TOTAL - here + 2000
    assert len(reports) == 1


def test_a_lost_upstream_may_be_the_next_again(
    layers: Layers, fetcher: fetch.Fetcher, upstream: Link, reports: list[dict[str, Any]], pool: ThreadPoolExecutor
) -> None:
    up = threading.Event()

    def connect() -> fetch.Streams:
        if not up.is_set():
            raise TimeoutError("timed out")
        return upstream.connect()

    fetcher.follow(1, connect)
    running = pool.submit(fetcher.run)
    until(lambda: reports == [{"lost": "timed out", "turn": 1}])
    fetcher.follow(2, connect)
    until(lambda: len(reports) == 2)
    assert reports[1] == {"lost": "timed out", "turn": 2}
    up.set()
    fetcher.follow(3, connect)
    running.result(LONG)
    assert arrived(layers)


def test_following_another_ends_a_connection_that_waits(
    fetcher: fetch.Fetcher, upstream: Link, reports: list[dict[str, Any]], tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    silent = Link(Layers(str(tmp_path / "silent")))
    fetcher.follow(1, silent.connect)
    running = pool.submit(fetcher.run)
    until(lambda: silent.connections == 1)
    fetcher.follow(2, upstream.connect)
    running.result(LONG)
    assert fetcher.missing() == {}
    assert silent.connections == 1
    assert reports == []
    silent.layers.stop()


def test_a_connection_that_is_made_too_late_is_not_used(
    layers: Layers, fetcher: fetch.Fetcher, upstream: Link, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    """The operator chose another upstream while the first one was being connected to."""
    old, connecting, go = Link(Layers(str(tmp_path / "old"))), threading.Event(), threading.Event()

    def slowly() -> fetch.Streams:
        connecting.set()
        assert go.wait(LONG)
        return old.connect()

    fetcher.follow(1, slowly)
    running = pool.submit(fetcher.run)
    assert connecting.wait(LONG)
    fetcher.follow(2, upstream.connect)
    go.set()
    running.result(LONG)
    assert arrived(layers)
    assert upstream.connections == 1
    old.layers.stop()


def test_wrong_bytes_are_requested_again(
    layers: Layers, fetcher: fetch.Fetcher, upstream: Link, reports: list[dict[str, Any]]
) -> None:
    upstream.flip = 50_000

    def connect() -> fetch.Streams:
        if upstream.connections:
            upstream.flip = None
        return upstream.connect()

    fetcher.follow(1, connect)
    fetcher.run()
    assert arrived(layers)
    assert reports == [{"corrupt": NAMES[0], "count": 1}]


def test_a_layer_that_is_always_wrong_is_given_up(
    layers: Layers, fetcher: fetch.Fetcher, upstream: Link, reports: list[dict[str, Any]]
) -> None:
    upstream.flip = 50_000
    fetcher.follow(1, upstream.connect)
    with pytest.raises(fetch.Failed) as caught:
        fetcher.run()
    assert caught.value.kind == "corrupt"
    assert NAMES[0][:12] in str(caught.value)
    assert [message.get("count") for message in reports if "corrupt" in message] == [1, 2, 3]
    assert not Path(layers.path(NAMES[0])).exists()
    assert not Path(layers.path(NAMES[0]) + PART).exists()


def test_what_was_left_and_is_too_long_is_wrong(
    layers: Layers, reports: list[dict[str, Any]], upstream: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(layers.path(NAMES[0]) + PART).write_bytes(ONE + b"more")
    layers.adopt(set(NAMES))
    fetcher = fetch.Fetcher(layers, NAMES, reports.append)
    fetcher.follow(1, upstream.connect)
    fetcher.run()
    assert arrived(layers)
    assert reports == [{"corrupt": NAMES[0], "count": 1}]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_ends_it(
    fetcher: fetch.Fetcher, upstream: Link, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(self: Writer, data: bytes) -> None:
        raise OSError(number, "full")

    monkeypatch.setattr(layers_module.Writer, "write", refuse)
    fetcher.follow(1, upstream.connect)
    # It may be code that comes.
    with pytest.raises(fetch.Failed, match=r"^full$") as caught:
        fetcher.run()
    assert caught.value.kind == "disk"


def test_what_nobody_requested_is_not_written_down(
    layers: Layers, reports: list[dict[str, Any]], upstream: Link
) -> None:
    fetcher = fetch.Fetcher(layers, NAMES[:1], reports.append)
    here, there = socket.socketpair()
    wire.write_header(cast(BinaryIO, there.makefile("wb")), NAMES[1], len(TWO), 0)
    streams: list[fetch.Streams] = [
        (cast(BinaryIO, here.makefile("rb")), cast(BinaryIO, here.makefile("wb")), here.close)
    ]
    fetcher.follow(1, lambda: streams.pop() if streams else upstream.connect())
    fetcher.run()
    there.close()
    assert [path.name for path in Path(layers.folder).iterdir()] == NAMES[:1]


def test_a_layer_that_turns_out_to_be_wrong_comes_again(
    layers: Layers, fetcher: fetch.Fetcher, upstream: Link, reports: list[dict[str, Any]], pool: ThreadPoolExecutor
) -> None:
    fetcher.follow(1, upstream.connect)
    fetcher.run()
    waiting: Future[None] = pool.submit(fetcher.wait_missing)
    fetcher.again(NAMES[0])
    waiting.result(LONG)
    assert fetcher.missing() == {NAMES[0]: 0}
    fetcher.run()
    assert arrived(layers)
    fetcher.again(NAMES[0])
    with pytest.raises(fetch.Failed):
        fetcher.again(NAMES[0])


# Over TLS.

PAIR = certificate()


def tls(folder: str, pair: Any, *, server: bool) -> Any:
    return serve.context(folder, pair[0], pair[1].reveal().decode(), server)


@pytest.fixture
def listener(upstream: Link) -> Iterator[serve.Listener]:
    made = serve.Listener("127.0.0.1", tls(upstream.layers.folder, PAIR, server=True), upstream.layers)
    yield made
    made.close()


def test_all_layers_arrive_over_tls(
    layers: Layers, fetcher: fetch.Fetcher, listener: serve.Listener, upstream: Link
) -> None:
    fetcher.follow(1, fetch.over_tls("127.0.0.1", listener.port, tls(layers.folder, PAIR, server=False)))
    fetcher.run()
    assert arrived(layers)
    # The key was on no disk for longer than it took to read it.
    for folder in (layers.folder, upstream.layers.folder):
        assert sorted(path.name for path in Path(folder).iterdir()) == sorted(NAMES)


def test_over_tls_a_change_of_upstream_ends_a_connection_that_waits(
    layers: Layers, upstream: Link, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    reports: list[dict[str, Any]] = []
    fetcher = fetch.Fetcher(layers, NAMES, reports.append)
    silent = Layers(str(tmp_path / "silent"))
    waiting = serve.Listener("127.0.0.1", tls(silent.folder, PAIR, server=True), silent)
    writer = Writer(silent, NAMES[0], len(ONE))
    writer.write(ONE[:1000])
    fetcher.follow(1, fetch.over_tls("127.0.0.1", waiting.port, tls(layers.folder, PAIR, server=False)))
    running = pool.submit(fetcher.run)
    until(lambda: layers.have(NAMES[0]) == 1000)
    fetcher.follow(2, upstream.connect)
    running.result(LONG)
    assert arrived(layers)
    assert reports == []
    silent.stop()
    waiting.close()


def test_a_connection_over_tls_that_is_closed_under_its_reader_is_an_oserror(
    layers: Layers, tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two reads as well: a ValueError would be taken for a bug."""
    silent = Layers(str(tmp_path / "silent"))
    listener = serve.Listener("127.0.0.1", tls(silent.folder, PAIR, server=True), silent)
    reading, _, close = fetch.over_tls("127.0.0.1", listener.port, tls(layers.folder, PAIR, server=False))()
    peer = reading.raw._sock  # type: ignore[attr-defined]
    close()
    assert peer._sslobj is not None
    with pytest.raises((OSError, wire.Broken)):
        wire.read_frame(reading)
    silent.stop()
    listener.close()


def without(folder: str) -> Any:
    """A client that shows no certificate, and takes any."""
    import ssl  # noqa: PLC0415

    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def anothers(folder: str) -> Any:
    import ssl  # noqa: PLC0415

    made = tls(folder, certificate(), server=False)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


@pytest.mark.parametrize("make", [without, anothers])
def test_who_does_not_show_the_certificate_gets_nothing(
    layers: Layers, listener: serve.Listener, make: Callable[[str], Any]
) -> None:
    with pytest.raises((OSError, wire.Broken)):
        ask_once(listener.port, make(layers.folder))
    # The same question by who shows it is answered.
    assert ask_once(listener.port, tls(layers.folder, PAIR, server=False))[0] == wire.HEADER


def ask_once(port: int, context: Any) -> tuple[bytes, bytes]:
    reading, writing, close = fetch.over_tls("127.0.0.1", port, context)()
    try:
        wire.write_line(writing, {"need": dict.fromkeys(NAMES, 0)})
        return wire.read_frame(reading)
    finally:
        close()


def test_nobody_is_asked_who_does_not_show_the_certificate(layers: Layers, upstream: Link, reports: list[Any]) -> None:
    """Another program that took the port of a host that went."""
    other = serve.Listener("127.0.0.1", tls(upstream.layers.folder, certificate(), server=True), upstream.layers)
    with pytest.raises(OSError, match=r"(?i)certificate"):
        fetch.over_tls("127.0.0.1", other.port, tls(layers.folder, PAIR, server=False))()
    other.close()


def test_who_speaks_no_tls_gets_nothing(listener: serve.Listener) -> None:
    with socket.create_connection(("127.0.0.1", listener.port), timeout=LONG) as plain:
        plain.sendall(b'{"need": {}}\n')
        got = b""
        try:
            while data := plain.recv(1000):
                got += data
        except ConnectionError:
            pass
    # At most an alert of TLS.
    assert len(got) < 20


# From the operator.


class Streams:
    """Standard input and output of a porter that is not started."""

    def __init__(self) -> None:
        self.reports: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.reports.append(data)

    def flush(self) -> None:
        pass


def test_bytes_of_an_earlier_answer_do_not_get_into_a_new_one() -> None:
    """At no moment: each line of the making of a new pipe is stopped at, and old bytes arrive there."""
    porter = main.Porter(cast(Any, None), cast(BinaryIO, Streams()))
    old, _, close_old = porter._from_operator()
    porter._bytes(1, b"for the first")
    assert old.read(13) == b"for the first"
    close_old()
    stops = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal stops
        if frame.f_code is not main.Porter._from_operator.__code__:
            return None
        if event == "line":
            stops += 1
            sys.settrace(None)
            porter._bytes(1, b"too late")
            sys.settrace(trace)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        reading, _, close = porter._from_operator()
    finally:
        sys.settrace(before)
    assert stops >= 3
    porter._bytes(2, b"for the second")
    close()
    assert reading.read() == b"for the second"


def test_a_request_goes_out_as_a_line_with_its_serial() -> None:
    streams = Streams()
    porter = main.Porter(cast(Any, None), cast(BinaryIO, streams))
    _, writing, _ = porter._from_operator()
    wire.write_line(writing, {"need": {NAMES[0]: 7}})
    assert streams.reports == [b'{"ask": {"%s": 7}, "serial": 1}\n' % NAMES[0].encode()]


def test_the_end_of_a_pipe_wakes_who_reads_and_who_writes(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody takes the operator for silent before this test is over.
    monkeypatch.setattr(fetch, "SILENCE_S", 10 * LONG)
    pipe = operator.Pipe()
    reading = pool.submit(pipe.read, 1)
    threading.Event().wait(0.05)
    assert not reading.done()
    pipe.end()
    assert reading.result(LONG) == b""
    full = operator.Pipe()
    for _ in range(operator.PIPE):
        full.put(b"x")
    writing = pool.submit(full.put, b"y")
    full.end()
    writing.result(LONG)


def test_bytes_are_handed_on_before_all_of_their_order_are_here(
    monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor
) -> None:
    """On a slow link, one order may take longer than an operator may be silent."""
    # Nobody takes the operator for silent before this test is over.
    monkeypatch.setattr(fetch, "SILENCE_S", 10 * LONG)
    out, into = os.pipe()
    porter = main.Porter(os.fdopen(out, "rb"), cast(BinaryIO, Streams()))
    monkeypatch.setattr(porter, "_open", lambda: None)
    # It ends its process when nobody was heard for a minute, and here that would be pytest, with exit code 0.
    monkeypatch.setattr(porter, "_watch", lambda: None)
    reading, _, _ = porter._from_operator()
    running = pool.submit(porter.run)
    os.write(into, b'{"op": "bytes", "count": 10, "serial": 1}\nhalf ')
    assert pool.submit(reading.read, 5).result(LONG) == b"half "
    os.write(into, b'again{"op": "bytes", "count": 10, "serial": 1}\nend')
    assert pool.submit(reading.read, 8).result(LONG) == b"againend"
    os.close(into)
    with pytest.raises(wire.Broken):
        running.result(LONG)


def test_an_operator_that_was_not_listened_to_for_long_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start may take long, because another porter may have to end first. Orders that come meanwhile wait."""
    heard: list[float] = []
    porter = main.Porter(cast(Any, io.BytesIO(b'{"op": "end", "keep": true}\n')), cast(BinaryIO, Streams()))
    monkeypatch.setattr(porter, "_watch", lambda: None)
    monkeypatch.setattr(porter, "_open", lambda: heard.append(porter._heard))
    porter.run()
    # Nobody watches it meanwhile, and from then on it counts as heard.
    assert heard == [math.inf]
    assert 0 < porter._heard < math.inf


def test_a_silent_operator_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "SILENCE_S", 0.01)
    with pytest.raises(wire.Broken, match="silent"):
        operator.Pipe().read(1)


# Packed on the way.


def test_packed_chunks_are_the_same_bytes_and_packing_is_kept_to_where_it_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0

    class Slow:
        """A link of a megabyte a second, where packing itself takes no time."""

        def __init__(self) -> None:
            self.frames: list[bytes] = []

        def write(self, data: bytes) -> None:
            nonlocal now
            now += len(data) / 1e6
            self.frames.append(data)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(time, "monotonic", lambda: now)
    link, packing = Slow(), serve.Packing()
    chunk = b"easy to pack " * 1000
    for _ in range(packing.ROUND):
        packing.write(cast(BinaryIO, link), chunk)
    kinds = [frame[:1] for frame in link.frames]
    assert kinds == [wire.DATA] * packing.TRIAL + [wire.PACKED] * (packing.ROUND - packing.TRIAL)
    assert zlib.decompress(link.frames[-1][5:]) == chunk
    # Bytes that do not get smaller travel uncompressed.
    noise = random.Random(1).randbytes(5000)  # noqa: S311
    packed = serve.Packing()
    link.frames.clear()
    for _ in range(packed.ROUND):
        packed.write(cast(BinaryIO, link), noise)
    assert {frame[:1] for frame in link.frames} == {wire.DATA}
