"""Tests which program has a port of this machine."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from kit.remote.machine.ports import free_port, holder, is_free, refusal

ALL = "0.0.0.0"  # noqa: S104
ME = f"(pid {os.getpid()})"


@pytest.mark.parametrize(
    ("listens", "asked", "meets"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        # Another program may have the same port of another address.
        ("127.0.0.2", "127.0.0.1", False),
        (ALL, "127.0.0.1", True),
        ("127.0.0.2", ALL, True),
        ("127.0.0.1", "localhost", True),
        ("::1", "127.0.0.1", False),
        ("::1", "::1", True),
        ("::", "127.0.0.1", True),
    ],
)
def test_who_listens_on_an_address(listens: str, asked: str, *, meets: bool) -> None:
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    if family == socket.AF_INET6 and not is_free("::1", 0):
        pytest.skip("this machine has no IPv6")
    with socket.create_server((listens, 0), family=family) as server:
        program = holder(asked, server.getsockname()[1])
    assert program.endswith(ME) is meets, program


def test_a_port_that_is_free(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    assert is_free("127.0.0.1", port)
    assert holder("127.0.0.1", port) == ""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free("127.0.0.1", port)
        # Where /proc says nothing.
        assert holder("127.0.0.1", port, tmp_path) == ""


def test_why_no_program_can_listen() -> None:
    assert refusal("127.0.0.1", 0) is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = refusal("127.0.0.1", server.getsockname()[1])
    # RFC 5737: an address that no machine has.
    absent = refusal("192.0.2.1", 0)
    assert taken is not None
    assert absent is not None
    assert (taken.errno, absent.errno) == (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
