"""Where a program listens, by the kernel's tables; and OpenSSH's words for a connection that failed."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kit.flows.forward import refusal
from kit.plan.forward import listeners, target

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
END = "00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0"


def row(address: str, port: int, state: str = "0A") -> str:
    return f"   0: {address}:{port:04X} {'0' * len(address)}:0000 {state} {END}"


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([row("0100007F", 8888)], "127.0.0.1"),
        ([row("00000000", 8888)], "127.0.0.1"),
        ([row("0500000A", 8888)], "10.0.0.5"),
        ([row("0500000A", 8888), row("0100007F", 8888)], "127.0.0.1"),
        # Docker and many servers listen on ::, also on a VM with IPv6 off, which has no ::1.
        ([row("0" * 32, 8888)], "localhost"),
        ([row("0" * 32, 8888), row("0100007F", 8888)], "127.0.0.1"),
        ([row("00000000000000000000000001000000", 8888)], "::1"),
        ([row("0000000000000000FFFF00000500000A", 8888)], "10.0.0.5"),
        ([row("0500000A", 8888, "01")], ""),
        ([row("0100007F", 8889)], ""),
        (["", "nonsense", "  0: zz"], ""),
    ],
)
def test_the_address_to_connect_to(rows: list[str], found: str) -> None:
    assert target([HEAD, *rows], 8888) == found


def test_the_tables_of_this_kernel() -> None:
    lines = [line for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    with socket.create_server(("127.0.0.9", 0)) as one:
        port = one.getsockname()[1]
        assert listeners(lines, port) == []
        lines = Path("/proc/net/tcp").read_text().splitlines()
        assert listeners(lines, port) == ["127.0.0.9"]


@pytest.mark.parametrize(
    ("why", "text", "hint"),
    [
        ("connect failed: Connection refused", "nothing listens on port 80 of gpu1", "sudo ss -ltnp"),
        ("administratively prohibited: open failed", "gpu1 forwards no connections", "AllowTcpForwarding"),
        ("connect failed: Connection timed out", "gpu1 cannot connect to port 80", "kit ssh gpu1"),
    ],
)
def test_why_a_connection_failed(why: str, text: str, hint: str) -> None:
    warning = refusal("gpu1", [80], why)
    assert warning.text == f"{text}: {why}"
    assert hint in (warning.hint or "")
    assert "one of the ports 80, 81" in refusal("gpu1", [80, 81], "connect failed: Connection refused").text
