"""What kit takes for a yes before it installs something."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from kit.cli.screen.plain import Quiet
from kit.cli.screen.terminal import Terminal
from kit.cli.session import Session


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("yes", "output", "terminal", "answer", "agreed"),
    [
        (True, "text", False, "", True),
        (False, "text", True, "y\n", True),
        (False, "text", True, "\n", False),
        # Without a terminal nobody can answer, and nothing is installed.
        (False, "text", False, "y\n", False),
        (False, "json", True, "y\n", False),
    ],
)
def test_consent(*, yes: bool, output: str, terminal: bool, answer: str, agreed: bool) -> None:
    stream = Tty if terminal else io.StringIO
    where = Terminal(out=io.StringIO(), err=stream(), inp=stream(answer), environ={})
    args = SimpleNamespace(yes=yes, output=output)
    session = Session(args=args, terminal=where, reporter=Quiet(where), environ={})
    assert session.consent("Do that now?") is agreed
