"""A run in line, seen through doors that break. What the doors answer is scripted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kit.errors import Interrupted, KitError, LoginRefusedError, NotReadyError, UnreachableError
from kit.events import Note
from kit.flows.queue.wait import until_attached
from kit.flows.run import follow
from kit.model.host import Login
from kit.remote.run.door import Door
from tests.fakes.reporter import Remembering

RUN = "20261121-101500-77ab"
REQUEST = {"op": "attach", "id": "", "offset": 0, "follow": True}
QUEUED = {"queued": {"id": RUN, "place": 1, "need": {"counts": [1], "hosts": ["gpu1"]}}, "reason": None}
ATTACHED = {"attached": {"id": RUN}}
CUT = UnreachableError("the connection to the head broke")
ENDED = NotReadyError("the launcher ended without a message (exit 137)")
Step = Mapping[str, Any] | BaseException


class Scripted(Door):
    """The first of several doors. Each has its steps, and another one the next steps; `log` is what they all did."""

    def __init__(self, *doors: Sequence[Step], log: list[str] | None = None) -> None:
        super().__init__(Login(host="gpu1", address="10.0.0.1", user="root", port=None, key=None, known_hosts=None), "")
        (self.steps, *self.others) = ([*steps] for steps in doors or [()])
        self.log = [] if log is None else log

    def another(self) -> Door:
        return Scripted(*self.others, log=self.log)

    def open(self, *, patient: bool = True) -> None:
        assert not patient
        self.log.append("open")
        if not self.steps:
            raise CUT

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.log.append(f"ask {request['id']}")
        return self.answer()

    def answer(self) -> Mapping[str, Any]:
        step = self.steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step

    def close(self, *, ended: bool = False) -> None:
        self.log.append("close")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "AGAIN_EVERY_S", 0.001)
    monkeypatch.setattr(follow, "REFUSED_EVERY_S", 0.0)


@pytest.fixture
def reporter() -> Remembering:
    return Remembering()


@pytest.mark.parametrize("broken", [CUT, ENDED])
def test_a_broken_connection_does_not_end_the_wait(broken: KitError, reporter: Remembering) -> None:
    # The second door breaks before its answer, and the third after it.
    first = Scripted([QUEUED, broken], [LoginRefusedError("no")], [QUEUED, CUT], [ATTACHED])
    door, answer = until_attached(first, REQUEST, QUEUED, reporter, follow=True)
    assert (answer, door is first) == (ATTACHED, False)
    # By the whole id, which the first answer says, and every door but the last is closed.
    again = ["close", "open", f"ask {RUN}"]
    assert first.log == again * 3
    assert [note.text for note in reporter.of(Note)] == [f"run {RUN} waits in line: the head has not looked at it yet"]
    assert [warned.text for warned in reporter.warnings] == [
        f"{error}; run {RUN} stays in line, connecting again" for error in (broken, CUT)
    ]


def test_a_head_that_stays_away_ends_the_wait(reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "AGAIN_S", 0.005)
    first = Scripted([CUT])
    with pytest.raises(UnreachableError, match="broke"):
        until_attached(first, REQUEST, QUEUED, reporter, follow=True)
    assert first.log.count("close") >= first.log.count("open") + 1


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ({"kind": "never", "ids": ["a"]}, "never starts: a did not end that way"),
        ({"kind": "broken", "why": "KeyError: 'env'"}, "never starts, because KeyError: 'env'"),
    ],
)
@pytest.mark.parametrize("following", [True, False])
def test_a_run_that_can_never_start_ends_the_wait(
    reason: Mapping[str, Any], text: str, following: bool, reporter: Remembering
) -> None:
    first = Scripted([{**QUEUED, "reason": reason}])
    with pytest.raises(NotReadyError, match=f"^run {RUN} waits in line and {text}$") as caught:
        until_attached(first, REQUEST, first.answer(), reporter, follow=following)
    assert caught.value.hint == f"remove it: kit queue rm {RUN}"


def test_a_run_that_left_the_line_ends_the_wait(reporter: Remembering) -> None:
    # It was removed while kit connected again.
    first = Scripted([CUT], [{"missing": RUN}])
    with pytest.raises(NotReadyError, match=f"run {RUN} was taken out of the line"):
        until_attached(first, REQUEST, QUEUED, reporter, follow=True)
    # Ctrl-C leaves it there.
    with pytest.raises(Interrupted, match=f"run {RUN} still waits in line"):
        until_attached(Scripted([KeyboardInterrupt()]), REQUEST, QUEUED, reporter, follow=True)
