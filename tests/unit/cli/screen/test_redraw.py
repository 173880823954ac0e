"""A result that replaces the one before it on a terminal, and follows it elsewhere."""

from __future__ import annotations

import io

import pytest

from kit.cli.screen.terminal import Terminal


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(printed: str) -> list[str]:
    """Return the lines that a terminal shows after these characters."""
    lines, at, column = [""], 0, 0
    while printed:
        if printed.startswith("\x1b["):
            end = next(i for i, letter in enumerate(printed) if letter.isalpha())
            code, printed = printed[2 : end + 1], printed[end + 1 :]
            if code.endswith("A"):
                at -= int(code[:-1])
            else:
                lines[at] = lines[at][:column]
                del lines[at + 1 if code == "J" else len(lines) :]
            continue
        letter, printed = printed[0], printed[1:]
        if letter == "\n":
            at, column = at + 1, 0
            lines += [""] if at == len(lines) else []
        else:
            lines[at] = lines[at][:column] + letter + lines[at][column + 1 :]
            column += 1
    return lines


def test_a_terminal_shows_the_last_one_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "5")
    out = Tty()
    terminal = Terminal(out=out, err=io.StringIO(), environ={})
    terminal.say("before")
    over = terminal.redraw("one\ntwo\nthree", 0)
    over = terminal.redraw("a line of more than 10\nb", over)
    assert over == 2
    assert screen(out.getvalue()) == ["before", "a line of…", "b", ""]
    assert terminal.redraw("\n".join("abcdefg"), over) == 4
    assert screen(out.getvalue()) == ["before", "a", "b", "c", "… and 4 more lines", ""]


def test_a_file_gets_all_of_them() -> None:
    out = io.StringIO()
    terminal = Terminal(out=out, err=io.StringIO(), environ={})
    assert terminal.redraw("x" * 300, terminal.redraw("one", 0)) == 0
    assert out.getvalue() == "one\n" + "x" * 300 + "\n"
