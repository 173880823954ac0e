"""kit-data order hello without a stager that takes the order. tests/contract/test_stager.py has it with real ones."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher

relay: Any = launcher.load("kitdata.relay")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(relay, "START_S", 0.0)
    monkeypatch.setenv("KIT_DATA_SOCKET", str(tmp_path / "socket"))
    return tmp_path / "socket"


@pytest.fixture
def serve(path: Path) -> Iterator[Callable[..., None]]:
    """A stager that answers its first connection so, and then no longer listens."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def begin(answer: bytes) -> None:
        listener.bind(str(path))
        listener.listen()

        def once() -> None:
            peer, _ = listener.accept()
            with peer, peer.makefile("rb") as lines:
                lines.readline()
                listener.close()
                peer.sendall(answer)

        threading.Thread(target=once, daemon=True).start()

    yield begin
    listener.close()


def test_no_stager_takes_no_order(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert relay.main(["order", "hello"]) == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("answer", [b"", b'{"hello": {"ver', b'{"hello": {"version": 1}}\n'])
def test_a_stager_that_ends_takes_no_order(
    serve: Callable[[bytes], None], capfd: pytest.CaptureFixture[str], answer: bytes
) -> None:
    """It may end before its answer, in the middle of it, and between that and the order."""
    serve(answer)
    assert relay.main(["order", "hello"]) == 1
    assert capfd.readouterr() == ("", "")


def test_an_order_follows_no_link(path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Outside of the container, a link that a hostile stager makes could lead to a socket of the host."""
    came: list[None] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "engine"))
        listener.listen()

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                came.append(listener.accept()[0].close())

        threading.Thread(target=hang_up, daemon=True).start()
        path.symlink_to(tmp_path / "engine")
        assert relay.main(["order", "hello"]) == 1
    assert capfd.readouterr() == ("", "")
    assert came == []


def test_other_arguments_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert relay.main(["order", "now"]) == 2
    assert "usage: kit-data order" in capfd.readouterr().err
