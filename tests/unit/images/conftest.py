from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.fakes.head import MakeHead
from tests.fakes.line import Line


@pytest.fixture
def port() -> Iterator[int]:
    """Return a port on which every address of this machine takes connections, as the hosts' sshd does."""
    with socket.create_server(("", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def line(make_head: MakeHead, port: int) -> Line:
    return Line(make_head(keeper_TICK_S=0.05), port)
