"""This machine's end of a ship, beside an engine that is made up."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest
import requests

from kit.errors import ImageError, KitError, UnreachableError
from kit.remote.ship.packs import locked_folder
from kit.remote.ship.porter import wire
from kit.remote.ship.spool import Spool, _Reading, patience_s
from tests.fakes.head import until
from tests.fakes.sdk import Api
from tests.fakes.socket_engine import sha, tar_of

LONG = 30.0
BASE, TOP = b"base" * 30_000, b"top" * 10_000
CHAIN = [sha(BASE), sha(TOP)]
IMAGE = "kit/horovod:abc"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Api:
    made = Api(IMAGE, [BASE, TOP])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(docker, "from_env", lambda **_: SimpleNamespace(api=made, close=lambda: None))
    return made


@pytest.fixture
def failures() -> list[KitError]:
    return []


@pytest.fixture
def spool(api: Api, failures: list[KitError]) -> Iterator[Spool]:
    made = Spool(IMAGE, failures.append)
    yield made
    api.go.set()
    made.close()


def frames(spool: Spool, need: dict[str, int]) -> dict[str, bytes]:
    """What of each layer an asker gets."""
    sent: list[bytes] = []
    spool.answer(need, sent.append)
    stream, layer = io.BytesIO(b"".join(sent)), ""
    got: dict[str, Any] = {}
    while True:
        kind, payload = wire.read_frame(stream)
        if kind == wire.END:
            assert stream.read() == b""
            return got
        if kind == wire.HEADER:
            layer = next(name for name in need if name.encode() in payload)
            got[layer] = b""
        elif kind == wire.DATA:
            got[layer] += payload


def test_a_request_comes_out_of_the_engine_once(spool: Spool, api: Api, failures: list[KitError]) -> None:
    spool.provide(set(CHAIN))
    assert frames(spool, {CHAIN[0]: 100_000, CHAIN[1]: 0}) == {CHAIN[0]: BASE[100_000:], CHAIN[1]: TOP}
    spool.provide({CHAIN[1]})
    assert frames(spool, {CHAIN[1]: 0}) == {CHAIN[1]: TOP}
    assert api.saves == 1
    assert failures == []
    assert spool.sizes == [len(TOP), len(BASE)]


def test_a_large_image_may_take_long_until_its_first_byte(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine first writes all of it to its own disk."""
    assert patience_s(1_500_000_000) == 600
    assert patience_s(20_000_000_000) == 2000
    inspect = api.inspect_image
    monkeypatch.setattr(api, "inspect_image", lambda image: {**inspect(image), "Size": 20_000_000_000})
    Spool(IMAGE, lambda error: None).close()
    assert api.timeout == 2000


def test_a_layer_on_top_is_pushed_and_leaves_no_name(spool: Spool, api: Api, failures: list[KitError]) -> None:
    spool.provide({CHAIN[1]})
    assert frames(spool, {CHAIN[1]: 0}) == {CHAIN[1]: TOP}
    spool.close()
    spool._lock = os.open(os.devnull, os.O_RDONLY)  # The fixture closes it once more.
    assert api.saves == 0
    assert api.tags == [IMAGE]
    assert failures == []


def test_an_engine_that_gives_no_name_is_not_waited_for(
    spool: Spool, api: Api, failures: list[KitError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: str) -> None:
        raise docker.errors.APIError("500", explanation="it does not want to")

    monkeypatch.setattr(api, "tag", refuse)
    spool.provide({CHAIN[1]})
    until(lambda: failures != [])
    assert "it does not want to" in failures[0].message
    assert spool._engine.still.is_set()


def test_an_asker_that_is_gone_ends_its_answer_alone(spool: Spool) -> None:
    def gone(data: bytes) -> None:
        raise BrokenPipeError

    spool.provide(set(CHAIN))
    spool.answer(dict.fromkeys(CHAIN, 0), gone)
    assert frames(spool, {CHAIN[1]: 0}) == {CHAIN[1]: TOP}


@pytest.mark.parametrize(
    ("break_it", "text"),
    [
        (
            lambda api: setattr(api, "broken", requests.ConnectionError("gone")),
            "no Docker Engine answers on this machine",
        ),
        (lambda api: setattr(api, "saved", tar_of({"blobs/sha256/" + CHAIN[0]: BASE})), "without its layer"),
        (lambda api: setattr(api, "saved", tar_of({"blobs/sha256/" + CHAIN[0]: TOP * 4})), "other bytes"),
        (lambda api: setattr(api, "broken", OSError(28, "No space left on device")), "no space left in"),
    ],
    ids=["gone", "a layer less", "a wrong layer", "full"],
)
def test_what_the_engine_does_not_give_is_reported_in_a_sentence(
    spool: Spool, api: Api, failures: list[KitError], break_it: Callable[[Api], None], text: str
) -> None:
    break_it(api)
    # Nobody sees a traceback of who was being answered meanwhile.
    seen: list[Any] = []
    answering = threading.Thread(target=lambda: seen.append(answered(spool)), daemon=True)
    answering.start()
    spool.provide(set(CHAIN))
    until(lambda: failures != [])
    assert text in failures[0].message
    assert isinstance(failures[0], UnreachableError if "answers" in text else ImageError)
    spool.layers.stop()
    answering.join(LONG)
    assert seen == [True]


def answered(spool: Spool) -> bool:
    spool.answer(dict.fromkeys(CHAIN, 0), lambda data: None)
    return True


def test_closing_leaves_nothing_behind(spool: Spool, api: Api, failures: list[KitError], tmp_path: Path) -> None:
    assert len(list(tmp_path.glob("kit-ship-*"))) == 1
    spool.provide(set(CHAIN))
    frames(spool, dict.fromkeys(CHAIN, 0))
    spool.close()
    spool._lock = os.open(os.devnull, os.O_RDONLY)  # The fixture closes it once more.
    assert list(tmp_path.glob("kit-ship-*")) == []
    assert failures == []


def test_a_layer_that_gets_its_name_late_finds_no_folder_and_says_nothing(
    spool: Spool, failures: list[KitError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, over = threading.Event(), threading.Event()
    ended = spool.layers.ended

    def slowly(layer: str, path: str) -> None:
        assert late.wait(LONG)
        try:
            ended(layer, path)
        finally:
            over.set()

    monkeypatch.setattr(spool.layers, "ended", slowly)
    spool.provide(set(CHAIN))
    until(lambda: spool.layers.have(CHAIN[0]) == len(BASE))
    spool.close()
    spool._lock = os.open(os.devnull, os.O_RDONLY)  # The fixture closes it once more.
    late.set()
    assert over.wait(LONG)
    assert list(tmp_path.glob("kit-ship-*")) == []
    assert failures == []


def test_what_a_killed_kit_left_goes_and_what_another_uses_stays(spool: Spool, tmp_path: Path) -> None:
    left = tmp_path / "kit-ship-left"
    left.mkdir()
    (left / "lock").touch()
    folder, lock = locked_folder("the pack")
    os.close(lock)
    assert not left.exists()
    assert sorted(path.name for path in tmp_path.glob("kit-ship-*")) == sorted(
        [Path(folder).name, Path(spool.layers.folder).name]
    )


@pytest.mark.parametrize("over", [True, False], ids=["removed", "being removed"])
def test_a_folder_that_another_kit_takes_for_left_is_left_to_it(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: bool
) -> None:
    """Between its making and its lock."""
    taken: list[int] = []
    flock = fcntl.flock

    def late(lock: int, how: int) -> None:
        there = Path(f"/proc/self/fd/{lock}").readlink()
        if there.parent != Path(spool.layers.folder) and not taken:
            taken.append(os.open(there, os.O_RDWR))
            flock(taken[0], how)
            if over:
                shutil.rmtree(there.parent)
                os.close(taken[0])
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", late)
    folder, lock = locked_folder("the pack")
    assert os.path.samestat(os.fstat(lock), (Path(folder) / "lock").stat())
    os.close(lock)
    assert taken
    if not over:
        os.close(taken[0])


def test_an_image_that_is_not_here_is_reported(api: Api, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="No such image"):
        Spool("nothing:1", lambda error: None)
    assert list(tmp_path.iterdir()) == []


def test_pieces_are_read_as_a_stream() -> None:
    reading = _Reading(iter([b"abc", b"d", b"efghij"]))
    assert [reading.read(2), reading.read(3), reading.read(100), reading.read(1)] == [b"ab", b"cde", b"fghij", b""]


def test_a_tmpdir_that_is_not_there_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    folder, lock = locked_folder("the pack")
    os.close(lock)
    shutil.rmtree(folder)
    assert str(tmp_path) not in folder


@pytest.mark.parametrize("call", ["mkdtemp", "open", "flock"])
def test_a_disk_that_takes_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    module: Any = {"mkdtemp": tempfile, "open": os, "flock": fcntl}[call]
    real = getattr(module, call)

    def full(*words: Any, **more: Any) -> Any:
        if call == "open" and Path(words[0]).name != "lock":
            return real(*words, **more)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(module, call, full)
    with pytest.raises(KitError, match=rf"^the pack cannot be written to {tmp_path}: No space left") as error:
        locked_folder("the pack")
    monkeypatch.undo()
    assert "TMPDIR" in str(error.value.hint)
    assert list(tmp_path.iterdir()) == []
