"""Attacks the porter: a host of the cluster that somebody broke into sends to others, or takes from them.

Also attacked is the listener, to which anybody on the cluster's network can connect.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import resource
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kit.errors import AnswerError
from kit.model.answer import OddAnswer
from kit.model.host import Login
from kit.remote.code.limits import MOST_PACK
from kit.remote.ship import porters
from kit.remote.ship.cargo import CodeThere
from kit.remote.ship.certificate import certificate
from kit.remote.ship.porter import capture, code, fetch, image, names, serve, wire
from kit.remote.ship.porter.engine import SocketEngine
from kit.remote.ship.porter.layers import PART, Layers, Writer
from kit.remote.ship.reports import read
from tests.fakes.head import until
from tests.unit.remote.ship.test_broadcast import CHAIN, World, at_work, on, world  # noqa: F401  (a fixture)

DATA = bytes(range(256)) * 40
NAME = hashlib.sha256(DATA).hexdigest()
MB = 1 << 20
# As in the attack that wrote to /etc/cron.d: from the folder of layers up to the root.
CLIMB = "../" * 12
PAIR = certificate()

BAD_NAMES = [
    f"{CLIMB}etc/cron.d/x",
    "/etc/cron.d/x",
    "..",
    "",
    NAME + "\n",
    NAME[:-1] + "٣",  # A digit of another script.
    NAME.upper(),
    "\uff41" * 64,
    "a" * 63 + "/",
    NAME + PART,
]


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[Layers]:
    made = Layers(str(tmp_path / "kit-ship" / "mine"))
    yield made
    made.stop()


@pytest.fixture
def reports() -> list[dict[str, Any]]:
    return []


def tls(folder: str, *, server: bool, pair: Any = PAIR) -> Any:
    return serve.context(folder, pair[0], pair[1].reveal().decode(), server)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[serve.Listener]:
    here = Layers(str(tmp_path / "upstream"))
    writer = Writer(here, NAME, len(DATA))
    writer.write(DATA)
    writer.finish()
    made = serve.Listener("127.0.0.1", tls(here.folder, server=True), here)
    yield made
    made.close()
    here.stop()


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# What sends.


def header(layer: object, size: object = len(DATA), at: object = 0) -> bytes:
    return frame(wire.HEADER, json.dumps({"layer": layer, "size": size, "at": at}).encode())


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return struct.pack(">cI", kind, len(payload)) + payload


class Sender:
    """A host of the chain that answers each request with these bytes, over TLS and with the ship's certificate."""

    def __init__(self, folder: str, answer: Callable[[Any], None]) -> None:
        self._tls = tls(folder, server=True)
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with contextlib.suppress(OSError, ValueError), self._tls.wrap_socket(plain, server_side=True) as peer:
                peer.makefile("rb").readline()
                self._answer(peer)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def attacked(
    layers: Layers, tmp_path: Path, reports: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Sender]]:
    """Lets a fetcher take the layer from a sender until it gives that sender up."""
    monkeypatch.setattr(fetch, "time", SimpleNamespace(sleep=lambda _: None))
    senders: list[Sender] = []

    def attack(answer: Callable[[Any], None], **words: Any) -> Sender:
        sender = Sender(str(tmp_path), answer)
        senders.append(sender)
        fetcher = fetch.Fetcher(layers, [NAME], reports.append, **words)
        fetcher.follow(1, fetch.over_tls("127.0.0.1", sender.port, tls(str(tmp_path), server=False)))
        thread = threading.Thread(target=lambda: failures.append(outcome(fetcher)), daemon=True)
        failures: list[str] = []
        thread.start()
        until(lambda: bool(failures) or any("lost" in report for report in reports))
        reports.extend({"failed": failure} for failure in failures)
        return sender

    yield attack
    for sender in senders:
        sender.close()


def outcome(fetcher: fetch.Fetcher) -> str:
    try:
        fetcher.run()
    except fetch.Failed as error:
        return f"{error.kind}: {error}"
    except BaseException as error:
        return f"not expected: {error!r}"
    return "all is here"


def why(reports: list[dict[str, Any]]) -> str:
    return next(str(report.get("lost") or report.get("failed")) for report in reports if "count" not in report)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_layer_with_another_name_than_a_digest_is_not_written(
    attacked: Callable[..., Sender], tmp_path: Path, reports: list[dict[str, Any]], name: str
) -> None:
    attacked(lambda peer: peer.sendall(header(name) + frame(wire.DATA, DATA)))
    assert "no layer" in why(reports)
    assert everything_below(tmp_path) == []


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_folder_of_layers_reads_writes_or_removes_outside_itself(layers: Layers, tmp_path: Path, name: str) -> None:
    """Even if the operator repeats such a name, which it does not: both sides check it."""
    outside = tmp_path / "etc" / "cron.d" / "x"
    outside.parent.mkdir(parents=True)
    outside.write_text("mine")
    climb = name.replace(CLIMB, "../../")
    for act in (layers.path, layers.opened, layers.forget, lambda layer: Writer(layers, layer, 10)):
        with pytest.raises(names.BadName):
            act(climb)
    assert outside.read_text() == "mine"
    assert everything_below(tmp_path) == ["etc/cron.d/x"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_order_with_another_name_than_a_digest_is_refused(tmp_path: Path, name: str) -> None:
    engine = cast(SocketEngine, type("Engine", (), {"root": lambda self: str(tmp_path)})())
    words = {"image": "i:1", "config": "{}", "owner": "mine", "layers": [name]}
    with pytest.raises(names.BadName):
        image.Cargo(words, engine)
    with pytest.raises(names.BadName):
        code.Cargo({"digest": NAME, "base": None, "store": str(tmp_path)}, [name])
    with pytest.raises(code.Refused):
        code.needed({"digests": [name], "age_s": 0.0}, 1.0)
    for wrong in ({"digest": name, "base": None}, {"digest": NAME, "base": name}):
        if name or wrong["base"] == name:
            with contextlib.suppress(code.Refused):
                made = code.Cargo({**wrong, "store": str(tmp_path)}, [NAME])
                # Without a base, the pack has everything.
                assert (name, made.held()) == ("", 0)


@pytest.mark.parametrize("owner", ["..", "../mine", "a/b", "", "-rf\n", ".hidden"])
def test_the_folder_of_an_owner_cannot_leave_that_of_all(tmp_path: Path, owner: str) -> None:
    engine = cast(SocketEngine, type("Engine", (), {"root": lambda self: str(tmp_path)})())
    with pytest.raises(names.BadName):
        image.Cargo({"image": "i:1", "config": "{}", "owner": owner, "layers": []}, engine)


def test_a_folder_of_layers_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "kit-ship").symlink_to(tmp_path / "etc")
    with pytest.raises(OSError, match="exists"):
        Layers(str(tmp_path / "kit-ship"))
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    Layers(str(tmp_path / "open"))
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o700


def test_a_frame_that_unpacks_to_a_gigabyte_is_refused(
    attacked: Callable[..., Sender], tmp_path: Path, reports: list[dict[str, Any]]
) -> None:
    pack = zlib.compressobj(9)
    bomb = b"".join(pack.compress(bytes(16 * MB)) for _ in range(30)) + pack.flush()
    assert len(bomb) <= 2 * wire.CHUNK
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    attacked(lambda peer: peer.sendall(header(NAME, 1 << 30) + frame(wire.PACKED, bomb)))
    assert "impossible length" in why(reports)
    # In kB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < MB


@pytest.mark.parametrize(
    "payload",
    [
        zlib.compress(bytes(2 * wire.CHUNK + 1)),
        zlib.compress(b"a") + b"and more",
        zlib.compress(DATA)[:-1],
        b"not packed",
        b"",
    ],
)
def test_a_packed_frame_has_one_stream_of_the_length_of_a_frame(payload: bytes) -> None:
    with pytest.raises(wire.Broken):
        wire.read_frame(io.BytesIO(frame(wire.PACKED, payload)))


def test_a_sender_does_not_say_how_much_is_written(
    attacked: Callable[..., Sender], tmp_path: Path, reports: list[dict[str, Any]]
) -> None:
    """The operator has announced a megabyte. The sender announces more, and sends without an end."""

    def endless(peer: Any) -> None:
        peer.sendall(header(NAME, 8 * MB))
        while True:
            peer.sendall(frame(wire.DATA, bytes(wire.CHUNK)))

    attacked(endless, most=MB)
    assert "more bytes than the operator" in why(reports)
    assert everything_below(tmp_path) == []


def test_a_layer_that_the_disk_has_no_room_for_is_not_begun(
    attacked: Callable[..., Sender], tmp_path: Path, reports: list[dict[str, Any]]
) -> None:
    disk = os.statvfs(tmp_path)
    attacked(lambda peer: peer.sendall(header(NAME, disk.f_bavail * disk.f_frsize + MB * MB)))
    assert re.fullmatch(r"disk: at least [0-9,]+ bytes are to come, and [0-9,]+ are free", why(reports))
    assert everything_below(tmp_path) == []


def test_not_one_byte_more_than_announced_is_written(
    attacked: Callable[..., Sender], layers: Layers, tmp_path: Path, reports: list[dict[str, Any]]
) -> None:
    most = 0

    def grown(layer: str, have: int) -> None:
        nonlocal most
        most = max(most, have)

    layers.grown = grown  # type: ignore[method-assign]
    attacked(lambda peer: peer.sendall(header(NAME, 10) + frame(wire.DATA, DATA)))
    assert why(reports).startswith("corrupt")
    assert most <= 10
    assert everything_below(tmp_path) == []


def test_a_layer_of_other_bytes_than_its_digest_is_not_kept(
    attacked: Callable[..., Sender], layers: Layers, tmp_path: Path, reports: list[dict[str, Any]]
) -> None:
    attacked(lambda peer: peer.sendall(header(NAME) + frame(wire.DATA, DATA[::-1])))
    assert why(reports).startswith("corrupt")
    assert not layers.whole(NAME)
    assert everything_below(tmp_path) == []


@pytest.mark.parametrize(
    "answer",
    [
        header(NAME, -1),
        header(NAME, 1 << 60),
        header(NAME, "10"),
        header(NAME, True),
        header(NAME, 10, -5),
        header(NAME, 10.5),
        header([NAME]),
        frame(wire.HEADER, b"[]"),
        frame(wire.HEADER, b"[" * 100_000),
        frame(wire.HEADER, b'{"size": ' + b"9" * 5000 + b"}"),
        frame(wire.HEADER, b"\xff"),
        frame(wire.HEADER, b'{"layer": "' + NAME.encode() + b'"}'),
        frame(wire.DATA, DATA),
        frame(b"?", DATA),
        struct.pack(">cI", wire.DATA, 0xFFFFFFFF),
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"",
    ],
    ids=range(17),
)
def test_an_odd_answer_counts_as_a_lost_sender(
    attacked: Callable[..., Sender], tmp_path: Path, reports: list[dict[str, Any]], answer: bytes
) -> None:
    """The operator then names another sender. It is no fault of this host."""
    sender = attacked(lambda peer: peer.sendall(answer))
    assert [set(report) for report in reports] == [{"lost", "turn"}], reports
    assert sender.connections == fetch.TRIES
    assert everything_below(tmp_path) == []


def test_a_sender_without_the_certificate_is_not_read(
    layers: Layers, tmp_path: Path, reports: list[dict[str, Any]]
) -> None:
    sender = Sender(str(tmp_path), lambda peer: peer.sendall(header(NAME) + frame(wire.DATA, DATA)))
    other = tls(str(tmp_path), server=False, pair=certificate())
    with pytest.raises(OSError, match=r"(?i)certificate|decrypt|signature"):
        fetch.over_tls("127.0.0.1", sender.port, other)()
    sender.close()


# What takes.


# A listener that waits for a layer says every two seconds that it lives.
WAITS = frame(wire.KEEP)


def asks(listener: serve.Listener, folder: Path, request: bytes) -> bytes:
    """Return what a host of the ship gets for this request, until the listener hangs up or waits for a layer."""
    plain = socket.create_connection(("127.0.0.1", listener.port), timeout=20)
    peer = tls(str(folder), server=False).wrap_socket(plain)
    answer = b""
    with contextlib.suppress(OSError), peer:
        peer.sendall(request)
        while not answer.endswith(WAITS) and (data := peer.recv(1 << 16)):
            answer += data
    return answer


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_request_for_another_name_than_a_digest_gets_nothing(
    listener: serve.Listener, tmp_path: Path, name: str
) -> None:
    secret = tmp_path / "etc"
    secret.mkdir()
    (secret / "shadow").write_text("root:secret")
    need = {NAME: 0, name: 0}
    assert asks(listener, tmp_path, json.dumps({"need": need}).encode() + b"\n") == b""


@pytest.mark.parametrize(
    "request_line",
    [
        b"{}\n",
        b'{"need": []}\n',
        b'{"need": {"%s": -1}}\n' % NAME.encode(),
        b'{"need": {"%s": 1e999}}\n' % NAME.encode(),
        b"[" * 100_000 + b"\n",
        b'{"need": {' + b",".join(b'"%064x": 0' % at for at in range(5000)) + b"}}\n",
        b"\n",
    ],
    ids=range(7),
)
def test_an_odd_request_gets_nothing_and_the_next_one_is_served(
    listener: serve.Listener, tmp_path: Path, request_line: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    assert asks(listener, tmp_path, request_line) == b""
    good = json.dumps({"need": {NAME: 0}}).encode() + b"\n"
    assert DATA in asks(listener, tmp_path, good)
    assert capfd.readouterr().err == ""


def test_a_stranger_without_the_certificate_gets_nothing(listener: serve.Listener, tmp_path: Path) -> None:
    other = tls(str(tmp_path), server=False, pair=certificate())
    other.verify_mode = 0
    plain = socket.create_connection(("127.0.0.1", listener.port), timeout=5)
    answer = b""
    with contextlib.suppress(OSError), other.wrap_socket(plain) as peer:
        peer.sendall(json.dumps({"need": {NAME: 0}}).encode() + b"\n")
        answer = peer.recv(100)
    assert answer == b""


@pytest.mark.parametrize("connections", [4])
def test_strangers_that_say_nothing_take_no_place_from_a_host(
    listener: serve.Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    monkeypatch.setattr(serve, "CONNECTIONS", connections)
    # Their time is not over in this test: only a newer connection takes their place.
    monkeypatch.setattr(serve, "HELLO_S", 600.0)
    before = threading.active_count()
    strangers = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(20)]
    assert DATA in asks(listener, tmp_path, json.dumps({"need": {NAME: 0}}).encode() + b"\n")
    # A thread and a timer for each place that is taken.
    until(lambda: threading.active_count() - before <= 2 * connections, limit_s=10)
    closed = 0
    for stranger in strangers:
        stranger.settimeout(0.05)
        with contextlib.suppress(TimeoutError):
            closed += stranger.recv(1) == b""
        stranger.close()
    assert closed >= len(strangers) - connections


def test_a_host_that_sends_its_request_byte_by_byte_loses_its_place(
    listener: serve.Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "HELLO_S", 0.2)
    plain = socket.create_connection(("127.0.0.1", listener.port), timeout=20)
    # For up to a minute: until the listener hangs up.
    with pytest.raises(OSError), tls(str(tmp_path), server=False).wrap_socket(plain) as peer:  # noqa: PT011, PT012
        for _ in range(3000):
            peer.sendall(b" ")
            time.sleep(0.02)
    assert DATA in asks(listener, tmp_path, json.dumps({"need": {NAME: 0}}).encode() + b"\n")


def test_the_listener_is_on_the_clusters_address_alone(tmp_path: Path, layers: Layers) -> None:
    context = tls(str(tmp_path), server=True)
    for everywhere in ("0.0.0.0", ""):  # noqa: S104
        with pytest.raises(OSError, match="not an address"):
            serve.Listener(everywhere, context, layers)


# The registry on the loopback, to which any user of the machine can connect.


@pytest.fixture
def registry() -> Iterator[tuple[capture.Capture, list[bytes]]]:
    taken: list[bytes] = []
    made = capture.Capture(taken.extend, lambda: False)
    yield made, taken
    made.close()


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD"])
def test_who_does_not_know_the_registrys_name_sends_nothing_to_it(
    registry: tuple[capture.Capture, list[bytes]], method: str
) -> None:
    made, taken = registry
    port = int(made.repository.split(":")[1].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
        head = f"{method} /v2/other/blobs/uploads/1?digest=sha256:{NAME} HTTP/1.1\r\nHost: x\r\n"
        # A chunk of a negative length was read to the end of the stream, into memory.
        peer.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n-1\r\n".encode())
        assert b" 404 " in peer.makefile("rb").readline()
    assert taken == []


# What a host reports to the operator.


@pytest.mark.parametrize(
    "message",
    [
        {"ready": {"need": {f"{CLIMB}etc/cron.d/x": 0}, "held": 0, "port": 1}},
        {"ready": {"need": {"d" * 64: 0}, "held": 0, "port": 1}},
        {"ready": {"need": {CHAIN[0]: -1}, "held": 0, "port": 1}},
        {"ready": {"need": {CHAIN[0]: 0}, "held": 0, "port": 70_000}},
        {"ready": {"need": {CHAIN[0]: 0}, "held": 10**400, "port": 1}},
        {"ready": [1, 2]},
        {"ready": {}},
        {"ask": {f"{CLIMB}etc/shadow": 0}, "serial": 1},
        {"ask": {"d" * 64: 0}, "serial": 1},
        {"ask": {CHAIN[0]: "0"}, "serial": 1},
        {"at": "many"},
        {"at": 10**30},
        {"lost": ["x"], "turn": 1},
        {"corrupt": 7},
        {"done": True, "load_s": 1e300},
        {"done": True, "load_s": "long"},
        {"failed": {"a": 1}},
        {"failed": "x" * 100_000, "kind": "system"},
    ],
    ids=range(18),
)
@pytest.mark.parametrize("op", ["begin", "follow"])
def test_an_odd_report_is_that_hosts_error_and_the_others_go_on(
    world: World,  # noqa: F811
    message: dict[str, Any],
    op: str,
) -> None:
    world.behave["two"] = on(op, lambda porter, _: porter.hear(**message))
    shipped = world.ship("one", "two", "three")
    assert list(shipped.failures) == ["two"]
    error = shipped.failures["two"]
    assert isinstance(error, AnswerError)
    assert error.host == "two"
    assert len(error.message) < 500
    assert set(shipped.load_s) == {"one", "three"}
    assert world.porters["two"].killed


@pytest.mark.parametrize(
    "image_facts",
    [
        {"config": "{}", "layers": [f"{CLIMB}etc/cron.d/x"], "sizes": [1]},
        {"config": "{}", "layers": CHAIN, "sizes": [1]},
        {"config": "[" * 100_000, "layers": CHAIN, "sizes": [1]},
        {"config": json.dumps({"rootfs": {"diff_ids": []}}), "layers": CHAIN, "sizes": [1]},
        {"config": "{}", "layers": [], "sizes": [-1]},
        {"config": 7, "layers": CHAIN, "sizes": [1]},
        # Only that the layer is no digest is wrong here.
        {
            "config": json.dumps({"rootfs": {"diff_ids": [f"sha256:{CLIMB}etc/cron.d/x"]}}),
            "layers": [f"{CLIMB}etc/cron.d/x"],
            "sizes": [1],
        },
    ],
    ids=range(7),
)
def test_what_a_source_reports_of_its_image_is_checked_before_another_host_hears_of_it(
    world: World,  # noqa: F811
    image_facts: dict[str, Any],
) -> None:
    world.behave["head"] = on("inspect", lambda porter, _: porter.hear(inspected=image_facts))
    with pytest.raises(Exception, match="kit cannot read") as caught:
        world.ship("one", "two", source="head")
    assert getattr(caught.value, "host", None) == "head"
    assert list(world.porters) == ["head"]


@pytest.mark.parametrize(
    "packed",
    [
        {"sha256": f"{CLIMB}etc/shadow", "size": 1},
        {"sha256": "d" * 64, "size": -1},
        {"sha256": "d" * 64, "size": MOST_PACK + 1},
        {"sha256": 7, "size": 1},
        {"sha256": "d" * 64},
    ],
    ids=range(5),
)
def test_what_a_source_reports_of_its_code_is_checked(packed: dict[str, Any]) -> None:
    there = CodeThere(digest="d" * 64, store="/code")
    with pytest.raises(OddAnswer):
        there.cargo(read(json.dumps({"packed": packed}).encode() + b"\n"))


def test_a_source_bounds_what_others_take(world: World) -> None:  # noqa: F811
    world.behave["head"] = at_work
    world.ship("one", source="head")
    begin = world.porters["one"].orders[0]
    assert 0 < begin["most"] < 1 << 40


def test_questions_without_end_get_no_threads_without_end(world: World) -> None:  # noqa: F811
    let_go = threading.Event()
    world.answer = lambda need, put: cast(None, let_go.wait(30))

    def flood(porter: Any, _: Any) -> None:
        for serial in range(1, 200):
            porter.hear(ask={CHAIN[0]: 0}, serial=serial)

    world.behave["one"] = on("follow", flood)
    before = threading.active_count()
    shipped = world.ship("one", "two")
    assert threading.active_count() - before < 50
    let_go.set()
    assert isinstance(shipped.failures["one"], AnswerError)
    assert set(shipped.load_s) == {"two"}


def reported(script: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return all that a porter heard of a host on which this runs in its place."""
    monkeypatch.setattr(porters, "openssh_argv", lambda login, **_: ("sh", "-c"))
    monkeypatch.setattr(porters, "marked", lambda argv: script)
    heard: list[Any] = []
    over = threading.Event()

    def hear(porter: porters.Porter, report: Any) -> None:
        heard.append(report)
        if isinstance(report, Exception):
            porter.kill()
        if report is None:
            over.set()

    login = Login(host="one", address="one", user=None, port=None, key=None, known_hosts=None)
    porter = porters.Porter(login, hear)
    assert over.wait(30)
    porter.kill()
    assert len(porter.complaint()) < 100_000
    return heard


@pytest.mark.parametrize(
    "script",
    [
        "head -c 100000000 /dev/zero | tr '\\0' x",
        "while :; do echo '{\"at\": 1}'; done",
        "echo '{\"at\": 1}'; echo '[1]'; exec sleep 30",
        "echo '{\"at\": 1}'; echo 'not JSON'; exec sleep 30",
        "echo '{\"at\": 1}'; head -c 100000 /dev/zero | tr '\\0' '['; echo; exec sleep 30",
    ],
    ids=["long", "often", "list", "text", "deep"],
)
def test_a_host_that_floods_the_operator_is_ended(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    heard = reported(script, monkeypatch)
    assert isinstance(heard[-2], ValueError)
    assert heard[-1] is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000


def test_lines_of_a_shell_before_the_porter_begins_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = reported("echo 'Welcome to one'; echo; echo '{\"at\": 1}'", monkeypatch)
    assert [report and report.at for report in heard] == [1, None]


def test_standard_error_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert reported("head -c 100000000 /dev/zero >&2", monkeypatch) == [None]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000


# Code.


def pack_of(head: dict[str, Any], *lines: bytes) -> bytes:
    return b"\n".join([json.dumps(head).encode(), *lines]) + b"\n"


GOOD = {"kit-pack": 1, "digest": NAME, "base": None, "remove": 0, "add": 0, "objects": 0}


@pytest.mark.parametrize(
    "pack",
    [
        b"",
        b"[]\n",
        b"[" * 4000 + b"\n",
        b"\xff\n",
        pack_of({**GOOD, "remove": -1}),
        pack_of({**GOOD, "add": 1 << 60}),
        pack_of({**GOOD, "objects": "x"}),
        pack_of({**GOOD, "base": f"{CLIMB}etc/shadow"}),
        pack_of({key: value for key, value in GOOD.items() if key != "base"}),
        pack_of({**GOOD, "objects": 1}, f"{CLIMB}etc/cron.d/x 4".encode(), b"text"),
        pack_of({**GOOD, "objects": 1}, f"{NAME} {'9' * 5000}".encode()),
        pack_of({**GOOD, "objects": 1}, f"{NAME} 40960²".encode()),
    ],
    ids=range(12),
)
def test_a_pack_that_is_wrong_is_refused_and_leaves_nothing(tmp_path: Path, pack: bytes) -> None:
    name = hashlib.sha256(pack).hexdigest()
    cargo = code.Cargo({"digest": NAME, "base": None, "store": str(tmp_path / "code")}, [name])
    here = Layers(cargo.folder)
    writer = Writer(here, name, len(pack))
    writer.write(pack)
    writer.finish()
    with pytest.raises(code.Refused):
        cargo.load(here)
    assert everything_below(tmp_path) == [f"code/incoming/{name}"]
    here.stop()
