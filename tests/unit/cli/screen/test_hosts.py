"""The output of a command on many hosts: as it comes, unchanged, or once."""

from __future__ import annotations

import io

import pytest

from kit.cli.screen import hosts
from kit.cli.screen.hosts import LONGEST_LINE, MOST_HELD, PATIENCE_S, HostsOutput
from kit.cli.screen.terminal import Terminal


class Screen:
    """Both streams of a terminal or a file, and a clock that a test sets."""

    def __init__(self, *, tty: bool = False, fold: bool = False) -> None:
        self.raw = {"stdout": io.BytesIO(), "stderr": io.BytesIO()}
        out, err = (io.TextIOWrapper(raw, encoding="utf-8") for raw in self.raw.values())
        out.isatty = lambda: tty  # type: ignore[method-assign]
        self.now = 100.0
        self.terminal = Terminal(out=out, err=err, environ={})
        self.hosts = HostsOutput(self.terminal, fold=fold, clock=lambda: self.now)

    @property
    def out(self) -> bytes:
        return self.raw["stdout"].getvalue()

    @property
    def err(self) -> bytes:
        return self.raw["stderr"].getvalue()


@pytest.mark.parametrize(("tty", "raw"), [(True, True), (False, False)])
def test_one_host_is_passed_on_byte_for_byte(tty: bool, raw: bool) -> None:
    screen = Screen(tty=tty)
    screen.terminal.raw = raw
    screen.hosts.begin(["gpu1"])
    for data in (b"\xff\0no newline", b"\r50%\r", b""):
        screen.hosts.write("gpu1", "stdout", data)
    screen.hosts.write("gpu1", "stderr", b"warning")
    assert (screen.out, screen.err) == (b"\xff\0no newline\r50%\r", b"warning")
    screen.hosts.end("gpu1")
    assert (screen.out, screen.err) == (b"\xff\0no newline\r50%\r", b"warning")
    assert screen.hosts.verbatim
    assert not screen.hosts.folds


def test_a_terminal_gets_one_hosts_output_as_it_comes_without_control_sequences() -> None:
    screen = Screen(tty=True)
    screen.hosts.begin(["gpu1"])
    for data in (b"\xff\0no newline", b"\r50%\r\x1b", b"]0;title\x07", b"\x1b[31mred"):
        screen.hosts.write("gpu1", "stdout", data)
    assert screen.out == b"\xffno newline\r50%\r\x1b[31mred"


def test_several_hosts_are_lines_as_they_come() -> None:
    screen = Screen()
    screen.hosts.begin(["gpu1", "gpu2"])
    screen.hosts.write("gpu1", "stdout", b"a\nhal")
    screen.hosts.write("gpu2", "stdout", b"b\n\n")
    screen.hosts.write("gpu2", "stderr", b"oh \xff\n")
    assert screen.out == b"gpu1: a\ngpu2: b\ngpu2: \n"
    assert screen.err == b"gpu2: oh \xff\n"
    screen.hosts.write("gpu1", "stdout", b"f\nlast")
    screen.hosts.end("gpu1")
    screen.hosts.end("gpu2")
    assert screen.out == b"gpu1: a\ngpu2: b\ngpu2: \ngpu1: half\ngpu1: last\n"


def test_a_line_without_end_is_not_kept_for_good() -> None:
    screen = Screen()
    screen.hosts.begin(["gpu1", "gpu2"])
    screen.hosts.write("gpu1", "stdout", b"x" * (LONGEST_LINE + 1))
    assert screen.out == b"gpu1: " + b"x" * LONGEST_LINE + b"\n"


def test_a_short_command_at_a_terminal_is_kept_for_folding() -> None:
    screen = Screen(tty=True)
    screen.hosts.begin(["gpu1", "gpu2"])
    screen.hosts.write("gpu1", "stdout", b"same\n")
    screen.hosts.end("gpu1")
    # A host that answers late does not make the command of the other one long.
    screen.now += PATIENCE_S * 5
    screen.hosts.write("gpu2", "stdout", b"sa")
    screen.now += PATIENCE_S / 2
    screen.hosts.write("gpu2", "stdout", b"me\n")
    screen.hosts.write("gpu2", "stderr", b"e")
    screen.hosts.end("gpu2")
    assert screen.hosts.folds
    assert screen.out == b""
    assert (screen.hosts.held("gpu2", "stdout"), screen.hosts.held("gpu2", "stderr")) == (b"same\n", b"e")


def test_a_command_that_prints_for_longer_is_printed_as_it_comes() -> None:
    screen = Screen(tty=True)
    screen.hosts.begin(["gpu1", "gpu2"])
    screen.hosts.write("gpu1", "stdout", b"1\nrest")
    screen.hosts.end("gpu1")
    screen.hosts.write("gpu2", "stdout", b"1\n")
    screen.now += PATIENCE_S + 0.1
    screen.hosts.look()
    assert screen.out == b"gpu1: 1\ngpu1: rest\ngpu2: 1\n"
    screen.hosts.write("gpu2", "stdout", b"2\n")
    assert screen.out.endswith(b"gpu2: 2\n")
    assert not screen.hosts.folds


def test_much_output_is_not_kept_at_a_terminal() -> None:
    screen = Screen(tty=True)
    screen.hosts.begin(["gpu1", "gpu2"])
    for _ in range(3):
        screen.hosts.write("gpu1", "stdout", b"x" * (MOST_HELD // 2 - 1) + b"\n")
    assert len(screen.out) > MOST_HELD


def test_fold_waits_as_long_as_it_takes_and_folds_one_host_too() -> None:
    screen = Screen(fold=True)
    screen.hosts.begin(["gpu1"])
    screen.hosts.write("gpu1", "stdout", b"x")
    screen.now += 3600
    screen.hosts.look()
    screen.hosts.end("gpu1")
    assert (screen.hosts.folds, screen.out, screen.hosts.held("gpu1", "stdout")) == (True, b"", b"x")


def test_fold_keeps_no_more_than_fits_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "MOST_FOLDED", 4)
    screen = Screen(fold=True)
    screen.hosts.begin(["gpu1", "gpu2"])
    screen.hosts.write("gpu1", "stdout", b"xxx\n")
    assert (screen.hosts.folds, screen.out) == (True, b"")
    screen.hosts.write("gpu2", "stdout", b"y\n")
    assert (screen.hosts.folds, screen.out) == (False, b"gpu1: xxx\ngpu2: y\n")


def test_after_ctrl_c_what_was_kept_is_printed() -> None:
    screen = Screen(fold=True)
    screen.hosts.begin(["gpu1", "gpu2"])
    screen.hosts.write("gpu1", "stdout", b"a\nb")
    screen.hosts.release()
    assert screen.out == b"gpu1: a\ngpu1: b\n"
