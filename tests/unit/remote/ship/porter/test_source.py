"""How layers come out of an engine: by a push to a fake registry, or by a save."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.remote.ship.porter import source
from kit.remote.ship.porter.capture import Capture, _Handler
from kit.remote.ship.porter.engine import EngineError, SocketEngine
from kit.remote.ship.porter.layers import PART, Layers, Stopped
from kit.remote.ship.porter.source import SourceError, _few, _unpacked, fill
from kit.remote.ship.porter.wire import CHUNK
from tests.fakes.socket_engine import FakeEngine, sha, tar_of

LONG = 30.0
BASE, MIDDLE, TOP = b"base" * 30_000, b"middle" * 20_000, b"top"
CHAIN = [sha(layer) for layer in (BASE, MIDDLE, TOP)]
IMAGE = "kit/horovod:abc"


class Registry:
    """A capture, the blobs that it got, and how an engine talks to it."""

    def __init__(self, wanted: int = 1000) -> None:
        self.got: list[bytes] = []
        self.problem: Exception | None = None
        self.ended = threading.Event()
        self.capture = Capture(self._take, lambda: len(self.got) >= wanted)
        self.host, _, self.path = self.capture.repository.partition("/")
        self.prefix = f"/v2/{self.path}/"
        self.connection = http.client.HTTPConnection(self.host, timeout=LONG)

    def _take(self, stream: Iterator[bytes]) -> None:
        try:
            data = b"".join(stream)
        finally:
            self.ended.set()
        if self.problem:
            raise self.problem
        self.got.append(data)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        self.connection.request(method, path, body=body, headers=headers)
        answer = self.connection.getresponse()
        answer.body = answer.read()  # type: ignore[attr-defined]
        return answer

    def upload(self, body: Any) -> http.client.HTTPResponse:
        begun = self.ask("POST", self.prefix + "blobs/uploads/")
        assert begun.status == 202
        return self.ask("PATCH", begun.headers["Location"], body)


@pytest.fixture
def make() -> Iterator[Callable[..., Registry]]:
    made: list[Registry] = []

    def registry(**words: Any) -> Registry:
        made.append(Registry(**words))
        return made[-1]

    yield registry
    for server in made:
        server.capture.close()


@pytest.fixture
def registry(make: Callable[..., Registry]) -> Registry:
    return make()


def chunked(data: bytes, size: int = 1000) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def test_a_blob_is_pushed_as_an_engine_does(registry: Registry) -> None:
    packed = gzip.compress(BASE)
    name = "sha256:" + sha(packed)
    assert registry.ask("GET", "/v2/").status == 200
    assert registry.ask("HEAD", f"{registry.prefix}blobs/{name}").status == 404
    begun = registry.ask("POST", registry.prefix + "blobs/uploads/")
    where = begun.headers["Location"]
    sent = registry.ask("PATCH", where, chunked(packed))
    assert sent.status == 202
    assert sent.headers["Range"] == f"0-{len(packed) - 1}"
    done = registry.ask("PUT", f"{sent.headers['Location']}?digest={name.replace(':', '%3A')}")
    assert done.status == 201
    assert done.headers["Docker-Content-Digest"] == name
    assert registry.ask("HEAD", f"{registry.prefix}blobs/{name}").status == 200
    assert registry.got == [packed]
    # Each upload has a separate place.
    assert registry.ask("POST", registry.prefix + "blobs/uploads/").headers["Location"] != where


def test_a_blob_of_known_length_is_taken_too(registry: Registry) -> None:
    assert registry.upload(TOP).status == 202
    assert registry.got == [TOP]


def test_a_name_that_nobody_gave_is_not_found(registry: Registry, make: Callable[..., Registry]) -> None:
    other = make()
    assert registry.ask("POST", other.prefix + "blobs/uploads/").status == 404
    assert registry.ask("GET", "/").status == 404
    assert registry.ask("PUT", f"{registry.prefix}blobs/uploads/1?digest=sha256:{sha(TOP)}").status == 404
    assert registry.ask("PATCH", other.prefix + "blobs/uploads/1").status == 404
    assert registry.got == []


def test_a_name_can_be_distinguished_from_others(registry: Registry) -> None:
    assert Capture.NAME.match(f"{registry.capture.repository}:{Capture.TAG}")
    assert not Capture.NAME.match("127.0.0.1:5000/kit-ship/mine:ship")


def test_when_enough_has_come_the_rest_is_denied(make: Callable[..., Registry]) -> None:
    registry = make(wanted=1)
    assert registry.upload(TOP).status == 202
    denied = registry.ask("POST", registry.prefix + "blobs/uploads/")
    assert denied.status == 403
    assert json.loads(denied.body)["errors"][0]["code"] == "DENIED"  # type: ignore[attr-defined]


def test_that_enough_has_come_is_known_before_the_engine_hears_of_it(
    make: Callable[..., Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it begins with another blob, which nobody wants."""
    registry = make(wanted=1)
    known: list[bool] = []
    answer = _Handler._answer

    def respond(handler: _Handler, code: int, **headers: str) -> None:
        if handler.command == "PATCH":
            known.append(registry.capture._over.is_set())
        answer(handler, code, **headers)

    monkeypatch.setattr(_Handler, "_answer", respond)
    assert registry.upload(TOP).status == 202
    assert known == [True]


def test_what_is_on_its_way_when_enough_has_come_is_denied_in_the_middle(make: Callable[..., Registry]) -> None:
    registry = make(wanted=1)
    where = registry.ask("POST", registry.prefix + "blobs/uploads/").headers["Location"]
    other = http.client.HTTPConnection(registry.host, timeout=LONG)

    def body() -> Iterator[bytes]:
        yield b"beginning"
        assert registry.upload(TOP).status == 202
        assert registry.capture._over.wait(LONG)
        yield b"more"

    other.request("PATCH", where, body=body())
    assert other.getresponse().status == 403
    assert registry.got == [TOP]


def test_waiting_ends_with_enough_or_with_the_push(make: Callable[..., Registry]) -> None:
    enough = make(wanted=1)
    statuses = []

    def push() -> None:
        statuses.append(enough.upload(TOP).status)
        statuses.append(enough.ask("POST", enough.prefix + "blobs/uploads/").status)

    enough.capture.wait(push)
    assert statuses == [202, 403]
    make().capture.wait(lambda: None)

    def fails() -> None:
        raise ConnectionRefusedError

    # The caller sees what has not come, and has another way.
    make().capture.wait(fails)


def test_what_went_wrong_in_taking_is_raised_to_who_waits(registry: Registry) -> None:
    registry.problem = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        registry.capture.wait(lambda: registry.upload(TOP))


def test_an_engine_that_hangs_up_in_the_middle_is_no_problem_of_this_end(registry: Registry) -> None:
    def push() -> None:
        where = registry.ask("POST", registry.prefix + "blobs/uploads/").headers["Location"]
        sock = registry.connection.sock
        sock.sendall(f"PATCH {where} HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc".encode())
        sock.close()
        assert registry.ended.wait(LONG)
        time.sleep(0.05)

    registry.capture.wait(push)
    assert registry.got == []


# Packed or not.


@given(contents=st.lists(st.binary(max_size=500), min_size=1, max_size=3), size=st.integers(4, 50), data=st.data())
def test_gzip_of_several_members_is_unpacked_wherever_it_is_cut(
    contents: list[bytes], size: int, data: st.DataObject
) -> None:
    packed = b"".join(gzip.compress(content) for content in contents)
    assert b"".join(_unpacked(chunked(packed, size))) == b"".join(contents)
    # Just where one member ends, and a byte around it.
    at = len(gzip.compress(contents[0])) + data.draw(st.integers(-1, 1))
    assert b"".join(_unpacked(iter([packed[:at], b"", packed[at:]]))) == b"".join(contents)


def test_what_unpacks_to_much_comes_in_pieces() -> None:
    pieces = list(_unpacked(iter([gzip.compress(b"\0" * 20_000_000)])))
    assert b"".join(pieces) == b"\0" * 20_000_000
    assert max(map(len, pieces)) <= 16 * CHUNK


def test_what_is_not_packed_is_left_unchanged() -> None:
    assert b"".join(_unpacked(iter([b"", BASE, gzip.compress(TOP)]))) == BASE + gzip.compress(TOP)


def test_what_zstd_packed_has_another_way_to_hosts() -> None:
    with pytest.raises(SourceError, match=r"let hosts pull the image \(registry:"):
        list(_unpacked(iter([source.ZSTD + b"rest"])))


def test_what_cannot_be_unpacked_is_reported() -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        list(_unpacked(iter([gzip.compress(BASE)[:20] + b"garbage" * 10])))


# Which way.


@pytest.mark.parametrize(
    ("sizes", "wanted", "few"),
    [
        ([3, 100, 100], "c", True),
        ([3, 100, 100], "bc", False),
        # What is above a wanted layer is pushed as well.
        ([3, 10, 1000], "b", True),
        ([500, 10, 1000], "b", False),
        ([3, 100, 100], "abc", False),
        ([3, 100, 100], "abcd", False),
        ([], "c", False),
    ],
)
def test_a_few_layers_are_worth_a_push(sizes: list[int], wanted: str, few: bool) -> None:
    assert _few(sizes, list("abc"), set(wanted)) is few


def test_one_layer_on_top_comes_by_a_push(engine: FakeEngine, layers: Layers) -> None:
    engine.add([BASE, MIDDLE, TOP], IMAGE)
    # What a kit that was killed left.
    old = f"127.0.0.1:1/kit-ship/{'0' * 32}:ship"
    engine.add([BASE, MIDDLE, TOP], old)
    assert fill(SocketEngine(engine.path), IMAGE, CHAIN, {CHAIN[2]}, layers) == "push"
    assert Path(layers.path(CHAIN[2])).read_bytes() == TOP
    assert engine.pushed == [CHAIN[2]]
    assert only(layers, CHAIN[2])
    image = engine.find(IMAGE)
    assert image
    assert image["RepoTags"] == [IMAGE]


def only(layers: Layers, *names: str) -> bool:
    """These layers are whole, and nothing else is left in the folder."""
    return sorted(path.name for path in Path(layers.folder).iterdir()) == sorted(names) and all(
        layers.whole(name) for name in names
    )


def test_where_a_push_brings_nothing_a_save_does(engine: FakeEngine, layers: Layers) -> None:
    engine.add([BASE, MIDDLE, TOP], IMAGE)
    engine.reachable = False
    assert fill(SocketEngine(engine.path), IMAGE, CHAIN, {CHAIN[2]}, layers) == "save"
    assert only(layers, CHAIN[2])
    image = engine.find(IMAGE)
    assert image
    assert image["RepoTags"] == [IMAGE]


def test_whether_a_tag_of_ours_is_there_is_known(engine: FakeEngine) -> None:
    """The porter waits for that before it goes."""
    engine.add([BASE], IMAGE)
    socket_engine = SocketEngine(engine.path)
    assert socket_engine.still.is_set()
    socket_engine.tag(IMAGE, "127.0.0.1:1/kit-ship/x", "ship")
    assert not socket_engine.still.is_set()
    socket_engine.remove("127.0.0.1:1/kit-ship/x:ship")
    assert socket_engine.still.is_set()
    with pytest.raises(EngineError):
        socket_engine.tag("no/such:image", "127.0.0.1:1/kit-ship/x", "ship")
    assert socket_engine.still.is_set()


def test_who_was_stopped_makes_no_tag_that_nobody_would_take_away(
    engine: FakeEngine, layers: Layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the last moment before it: who stopped it has found no tag, and is gone."""
    engine.add([BASE, MIDDLE, TOP], IMAGE)
    socket_engine = SocketEngine(engine.path)

    def stopped_meanwhile() -> list[str]:
        layers.stop()
        return []

    monkeypatch.setattr(socket_engine, "tags", stopped_meanwhile)
    with pytest.raises(Stopped):
        fill(socket_engine, IMAGE, CHAIN, {CHAIN[2]}, layers)
    assert not any("/tag" in path for path in engine.requests)
    assert socket_engine.still.is_set()


def test_all_of_an_image_comes_by_a_save(engine: FakeEngine, layers: Layers) -> None:
    engine.add([BASE, MIDDLE, TOP], IMAGE)
    assert fill(SocketEngine(engine.path), IMAGE, CHAIN, set(CHAIN), layers) == "save"
    assert only(layers, *CHAIN)
    assert engine.pushed == []
    # What is here is not taken twice.
    requests_before = len(engine.requests)
    assert fill(SocketEngine(engine.path), IMAGE, CHAIN, set(CHAIN), layers) == ""
    assert len(engine.requests) == requests_before


def test_a_layer_under_its_own_name_goes_on_from_where_it_was_left(engine: FakeEngine, layers: Layers) -> None:
    engine.add([BASE, MIDDLE], IMAGE)
    Path(layers.path(CHAIN[0]) + PART).write_bytes(BASE[:70_001])
    layers.adopt(set(CHAIN))
    assert fill(SocketEngine(engine.path), IMAGE, CHAIN[:2], set(CHAIN[:2]), layers) == "save"
    assert Path(layers.path(CHAIN[0])).read_bytes() == BASE


def test_the_tar_of_an_old_engine_names_layers_in_its_own_way(engine: FakeEngine, layers: Layers) -> None:
    engine.add([BASE, MIDDLE, TOP], IMAGE)
    engine.saved = tar_of(
        {
            "manifest.json": b"[]",
            f"{'1' * 64}/VERSION": b"1.0",
            f"{'1' * 64}/layer.tar": BASE,
            f"{'2' * 64}/layer.tar": MIDDLE,
            f"{'3' * 64}/layer.tar": TOP,
        }
    )
    assert fill(SocketEngine(engine.path), IMAGE, CHAIN, {CHAIN[0], CHAIN[1]}, layers) == "save"
    assert only(layers, CHAIN[0], CHAIN[1])


def test_the_tar_of_containerds_store_holds_packed_layers(engine: FakeEngine, layers: Layers) -> None:
    engine.add([BASE, MIDDLE, TOP], IMAGE)
    packed = [gzip.compress(layer) for layer in (BASE, MIDDLE, TOP)]
    engine.saved = tar_of({f"blobs/sha256/{sha(data)}": data for data in [b"{}", *packed]})
    assert fill(SocketEngine(engine.path), IMAGE, CHAIN, set(CHAIN), layers) == "save"
    assert only(layers, *CHAIN)


@pytest.mark.parametrize(
    ("tar", "text"),
    [
        (tar_of({f"blobs/sha256/{CHAIN[0]}": BASE}), f"without its layer {CHAIN[1][:12]}"),
        (tar_of({f"blobs/sha256/{CHAIN[0]}": BASE[:-1] + b"!"}), f"other bytes for the layer {CHAIN[0][:12]}"),
        (tar_of({f"blobs/sha256/{CHAIN[0]}": BASE})[:5000], "cannot be read"),
        (b"no tar at all" * 100, "cannot be read"),
    ],
    ids=["a layer less", "a wrong layer", "cut", "no tar"],
)
def test_a_save_that_is_not_what_it_should_be_is_reported(
    engine: FakeEngine, layers: Layers, tar: bytes, text: str
) -> None:
    engine.add([BASE, MIDDLE], IMAGE)
    engine.saved = tar
    with pytest.raises(SourceError, match=text):
        fill(SocketEngine(engine.path), IMAGE, CHAIN[:2], set(CHAIN[:2]), layers)


def test_layers_that_came_wrong_are_gone(engine: FakeEngine, layers: Layers) -> None:
    engine.add([BASE], IMAGE)
    engine.saved = tar_of({f"blobs/sha256/{CHAIN[0]}": BASE[:-1] + b"!"})
    with pytest.raises(SourceError):
        fill(SocketEngine(engine.path), IMAGE, CHAIN[:1], {CHAIN[0]}, layers)
    assert only(layers)
    engine.saved = None
    assert fill(SocketEngine(engine.path), IMAGE, CHAIN[:1], {CHAIN[0]}, layers) == "save"
    assert only(layers, CHAIN[0])


def test_a_full_disk_under_a_push_is_reported_as_one(
    engine: FakeEngine, layers: Layers, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.add([BASE, MIDDLE, TOP], IMAGE)

    def refuse(*_: Any, **__: Any) -> tuple[int, str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(layers, "nameless", refuse)
    with pytest.raises(OSError, match="No space left"):
        fill(SocketEngine(engine.path), IMAGE, CHAIN, {CHAIN[2]}, layers)
    image = engine.find(IMAGE)
    assert image
    assert image["RepoTags"] == [IMAGE]
