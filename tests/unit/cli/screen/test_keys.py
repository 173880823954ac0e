"""Keys as terminals send them."""

from __future__ import annotations

import os
import pty
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.cli.screen.keys import Keys, split


@pytest.mark.parametrize(
    ("data", "keys", "rest"),
    [
        (b"q", ["q"], b""),
        (b"qP\t", ["q", "P", "tab"], b""),
        (b"\x1b[A\x1bOB\x1b[5~", ["up", "down", "pageup"], b""),
        (b"\x1b[21~\x1bOP", ["f10", "f1"], b""),
        (b"\x1b", ["esc"], b""),
        (b"\x1bq", ["esc", "q"], b""),
        # Half of a key.
        (b"\x1b[", [], b"\x1b["),
        (b"x\x1b[2", ["x"], b"\x1b[2"),
        # A key that kit does not know: Shift with an arrow.
        (b"\x1b[1;2Aq", ["q"], b""),
        ("é验".encode(), ["é", "验"], b""),
        ("é".encode()[:1], [], "é".encode()[:1]),
        (b"\x00\x01\xff", [], b"\xff"),
    ],
)
def test_keys(data: bytes, keys: list[str], rest: bytes) -> None:
    assert split(data) == (keys, rest)


@given(st.binary(max_size=40))
def test_no_bytes_break_it(data: bytes) -> None:
    keys, rest = split(data)
    assert all(keys)
    assert data.endswith(rest)


def test_a_terminal_is_as_it_was_afterwards() -> None:
    master, slave = pty.openpty()
    try:
        before = termios.tcgetattr(slave)
        with Keys(slave) as keys:
            os.write(master, b"\x1b[")
            assert keys.read(30) == ["esc"]
            os.write(master, b"P")
            assert keys.read(30) == ["P"]
            assert not termios.tcgetattr(slave)[3] & termios.ECHO
            # Ctrl-C stays a signal.
            assert termios.tcgetattr(slave)[3] & termios.ISIG
        assert termios.tcgetattr(slave) == before
    finally:
        os.close(slave)
        os.close(master)
