"""The screen of kit top in a real terminal, without hosts."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios

import pytest

from kit.cli.screen import top
from kit.cli.screen.terminal import Terminal
from kit.cli.text.top import Page
from kit.plan.watch.state import Choice


@pytest.mark.parametrize(("has", "drawn"), [((0, 0), (80, 24)), ((40, 0), (40, 24)), ((40, 10), (40, 10))])
def test_a_terminal_without_a_size_has_the_usual_one(has: tuple[int, int], drawn: tuple[int, int]) -> None:
    controller, screen_end = pty.openpty()
    fcntl.ioctl(screen_end, termios.TIOCSWINSZ, struct.pack("HHHH", has[1], has[0], 0, 0))
    sizes: list[tuple[int, int]] = []

    def draw(_choice: Choice, size: tuple[int, int]) -> Page:
        sizes.append(size)
        os.write(controller, b"q")
        return Page([(("kit top", None),)])

    with open(screen_end, "w") as out, open(os.dup(screen_end)) as inp:  # noqa: PTH123  (descriptors)
        top.show(Terminal(out=out, err=io.StringIO(), inp=inp, environ={"TERM": "xterm"}), draw)
    os.close(controller)
    assert set(sizes) == {drawn}
