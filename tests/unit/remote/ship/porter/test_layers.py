"""Files that grow while others read them."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.remote.ship.porter.layers import PART, Corrupt, Layers, Stopped, Withdrawn, Writer

DATA = bytes(range(256)) * 40
NAME = hashlib.sha256(DATA).hexdigest()
OTHER = "0" * 64
LONG = 30.0


@pytest.fixture
def layers(tmp_path: Path) -> Layers:
    return Layers(str(tmp_path / "layers"))


def test_a_reader_gets_bytes_as_they_come(layers: Layers) -> None:
    writer = Writer(layers, NAME, len(DATA))
    reader = layers.reader(NAME)
    assert reader.read(0, 0.01) == b""
    writer.write(DATA[:100])
    assert reader.read(0, LONG) == DATA[:100]
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(reader.read, 100, LONG)
        writer.write(DATA[100:300])
        assert waiting.result(LONG) == DATA[100:300]
    writer.write(DATA[300:])
    writer.finish()
    # It still reads the file that it opened, under the name that the file has now.
    assert reader.read(300, LONG) == DATA[300:]
    reader.close()
    assert Path(layers.path(NAME)).read_bytes() == DATA
    assert not Path(layers.path(NAME) + PART).exists()


def test_a_writer_goes_on_where_it_was_left(layers: Layers) -> None:
    first = Writer(layers, NAME, len(DATA))
    first.write(DATA[:1234])
    first.close()
    again = Layers(layers.folder)
    again.adopt({NAME})
    assert again.have(NAME) == 1234
    assert not again.whole(NAME)
    second = Writer(again, NAME, len(DATA))
    assert second.at == 1234
    second.write(DATA[1234:])
    second.finish()
    assert again.whole(NAME)
    assert Path(again.path(NAME)).read_bytes() == DATA


def test_adopting_removes_what_is_of_no_use(layers: Layers) -> None:
    folder = Path(layers.folder)
    for name in (NAME, OTHER, "1" * 64 + PART, "2" * 64 + PART, "lock"):
        (folder / name).write_bytes(b"abc")
    layers.adopt({NAME, "2" * 64})
    assert {path.name for path in folder.iterdir()} == {NAME, "2" * 64 + PART, "lock"}
    assert layers.have(NAME) == layers.have("2" * 64) == 3
    assert layers.total() == 6
    # What is only a beginning is handed on from where its size is known.
    assert layers.next_of({"2" * 64: 0}, 0.01) is None


def test_what_was_left_whole_is_verified_before_anybody_gets_it(layers: Layers) -> None:
    folder = Path(layers.folder)
    (folder / NAME).write_bytes(DATA)
    (folder / OTHER).write_bytes(b"these are not its bytes")
    layers.adopt({NAME, OTHER})
    assert not layers.whole(NAME)
    assert layers.next_of({NAME: 0, OTHER: 0}, 0.01) is None
    assert layers.verify() == [OTHER]
    assert layers.whole(NAME)
    assert not layers.whole(OTHER)
    assert layers.next_of({NAME: 0, OTHER: 0}, 0.01) == NAME
    assert [path.name for path in folder.iterdir()] == [NAME]
    assert layers.verify() == []


def test_verifying_ends_with_the_ship(layers: Layers) -> None:
    """The bytes are not wrong then, and stay for the next one."""
    (Path(layers.folder) / NAME).write_bytes(DATA)
    layers.adopt({NAME})
    layers.stop()
    with pytest.raises(Stopped):
        layers.verify()
    assert Path(layers.path(NAME)).read_bytes() == DATA


def test_the_last_byte_waits_until_the_layer_is_verified(layers: Layers) -> None:
    """Otherwise the host behind gets a whole layer of wrong bytes, and takes its own disk for faulty."""
    writer = Writer(layers, NAME, len(DATA))
    reader = layers.reader(NAME)
    writer.write(DATA)
    assert reader.read(0, LONG) == DATA[:-1]
    assert reader.read(len(DATA) - 1, 0.01) == b""
    writer.finish()
    assert reader.read(len(DATA) - 1, LONG) == DATA[-1:]


def finished(writer: Writer, data: bytes) -> None:
    writer.write(data)
    writer.finish()


@pytest.mark.parametrize("wrong", [DATA[:-1] + b"!", DATA + b"!"])
def test_wrong_bytes_are_gone_and_their_readers_hear_of_it(layers: Layers, wrong: bytes) -> None:
    writer = Writer(layers, NAME, len(DATA))
    reader = layers.reader(NAME)
    with pytest.raises(Corrupt):
        finished(writer, wrong)
    with pytest.raises(Withdrawn):
        reader.read(0, LONG)
    assert list(Path(layers.folder).iterdir()) == []
    assert layers.have(NAME) == 0
    assert layers.next_of({NAME: 0}, 0.01) is None
    again = Writer(layers, NAME, len(DATA))
    again.write(DATA)
    again.finish()
    with pytest.raises(Withdrawn):
        reader.read(0, LONG)
    assert layers.reader(NAME).read(0, LONG) == DATA


def test_a_layer_found_wrong_later_wakes_who_waits_for_more_of_it(layers: Layers) -> None:
    writer = Writer(layers, NAME, len(DATA))
    writer.write(DATA[:10])
    reader = layers.reader(NAME)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(reader.read, 10, LONG)
        layers.forget(NAME)
        with pytest.raises(Withdrawn):
            waiting.result(LONG)
    assert not layers.whole(NAME)


def waiters(layers: Layers) -> list[Callable[[], object]]:
    Writer(layers, NAME, len(DATA))
    reader = layers.reader(NAME)
    return [
        lambda: reader.read(0, LONG),
        lambda: layers.next_of({OTHER: 0}, LONG),
        lambda: layers.wait_whole(NAME, LONG),
    ]


def test_stopping_wakes_all_who_wait(layers: Layers) -> None:
    works = waiters(layers)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(work) for work in works]
        time.sleep(0.05)
        assert not any(one.done() for one in waiting)
        layers.stop()
        for one in waiting:
            with pytest.raises(Stopped):
                one.result(LONG)
    for work in works:
        with pytest.raises(Stopped):
            work()


def test_nothing_new_appears_after_a_stop(layers: Layers) -> None:
    writer = Writer(layers, NAME, len(DATA))
    handle, path = layers.nameless()
    os.close(handle)
    writer.write(DATA)
    before = sorted(Path(layers.folder).iterdir())
    layers.stop()
    for late in (
        writer.finish,
        lambda: Writer(layers, OTHER, 1),
        layers.nameless,
        lambda: layers.admit(path, OTHER),
    ):
        with pytest.raises(Stopped):
            late()
    assert sorted(Path(layers.folder).iterdir()) == before


def test_layers_go_on_in_the_order_in_which_they_began(layers: Layers) -> None:
    for name in ("b" * 64, "a" * 64):
        Writer(layers, name, 10).write(b"12345")
    assert layers.next_of({"a" * 64: 0, "b" * 64: 0}, 0.01) == "b" * 64
    # Who has more than is here waits for the rest of it, and takes another meanwhile.
    assert layers.next_of({"a" * 64: 5, "b" * 64: 6}, 0.01) == "a" * 64
    assert layers.next_of({"b" * 64: 6}, 0.01) is None


def test_waiting_for_a_whole_layer(layers: Layers) -> None:
    writer = Writer(layers, NAME, len(DATA))
    writer.write(DATA)
    assert not layers.wait_whole(NAME, 0.01)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(layers.wait_whole, NAME, LONG)
        writer.finish()
        assert waiting.result(LONG)


@pytest.mark.parametrize("admitted", [False, True])
def test_a_layer_can_be_opened_at_every_moment_of_its_end(
    layers: Layers, monkeypatch: pytest.MonkeyPatch, admitted: bool
) -> None:
    """Who looks while the file gets its name waits for that, and does not miss the file."""
    renaming, rename = threading.Event(), os.rename

    def slowly(old: str, new: str) -> None:
        rename(old, new)
        renaming.set()
        time.sleep(0.1)

    def read() -> bytes:
        assert renaming.wait(LONG)
        assert layers.next_of({NAME: 0}, LONG) == NAME
        return layers.reader(NAME).read(0, LONG)

    monkeypatch.setattr(os, "rename", slowly)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(read)
        if admitted:
            incoming = Path(layers.folder) / "incoming"
            incoming.write_bytes(DATA)
            layers.admit(str(incoming), NAME)
        else:
            writer = Writer(layers, NAME, len(DATA))
            writer.write(DATA)
            writer.finish()
        assert reading.result(LONG) == DATA
