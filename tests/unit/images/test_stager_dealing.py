"""kitdata.dealing: what the lead takes from members' reports, whatever order of events leads to them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import launcher

dealing, plan, source, wire = (launcher.load(f"kitdata.{name}") for name in ("dealing", "plan", "source", "wire"))

READER, OTHER, PIECE, FILE = 0, 1, 0, 0
# The first connection from the reader to the other host.
CONNECTION = 1
Step = Callable[[], bool]
Calls = dict[str, Callable[[int, list[Any]], None]]


class Members:
    """Two members. The first one alone can read the source, and only the other needs the one file's one piece."""

    def __init__(self, events: Callable[[Step, Calls], None]) -> None:
        self.hosts = ["gpu1", "gpu2"]
        self.living = 0b11
        self.readers = [READER]
        self.scope = SimpleNamespace(_replace=lambda **_: None)
        self.on_lost: Callable[[int], None] = lambda _: None
        self.orders: list[tuple[int, Any]] = []
        self.pump = events

    def everybody(self, order: Any) -> None:
        pass

    def send(self, member: int, order: Any) -> None:
        self.orders.append((member, order["tasks"]))


def run_with(events: Callable[[Step, Calls], None]) -> tuple[Any, Members]:
    members = Members(events)
    piece = plan.Piece(((FILE, 0),), 1, 1 << OTHER, 0)
    step = plan.Plan((piece,), 1, 1, (0, 1), (0, 0), (0, 1))
    journal = SimpleNamespace(add=lambda _: None)
    return dealing.Dealing(members, journal, [source.Entry("a", 1, 5, "")], step, "the source").run(), members


@pytest.mark.parametrize("newest", [None, ("a", 2, 6)])
def test_a_read_that_was_ordered_again_may_find_a_change_after_the_end_of_the_first(newest: Any) -> None:
    """The reader sent the piece, and the connection ended: it must read again, and reports of both reads follow."""

    def events(step: Step, calls: Calls) -> None:
        assert not step()
        calls["sent"](READER, [PIECE, OTHER, CONNECTION])
        calls["broken"](OTHER, [READER, CONNECTION])
        assert not step()
        calls["over"](READER, [PIECE])
        calls["changed"](READER, [PIECE, FILE, newest])
        assert step()

    changed, members = run_with(events)
    assert changed == {FILE: newest}
    assert members.orders == [(READER, [[PIECE, True, (OTHER,)]])] * 2


REPORTS = [["changed", PIECE, FILE, None], ["unread", PIECE, "source-lost", "no answer"]]


@pytest.mark.parametrize("report", REPORTS, ids=["changed", "unread"])
def test_a_member_reports_no_read_that_it_had_no_order_for(report: list[Any]) -> None:
    def events(step: Step, calls: Calls) -> None:
        assert not step()
        with pytest.raises(wire.Broken):
            calls[report[0]](OTHER, report[1:])

    run_with(events)
