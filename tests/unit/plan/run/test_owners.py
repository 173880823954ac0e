"""Whose runs they are."""

from __future__ import annotations

from functools import partial

import pytest

from kit.errors import NotReadyError
from kit.model.run import RunRecord
from kit.model.values import replace
from kit.plan.run.owners import active, latest_of, named, of_others, removing

ANNA, BEN = "anna@laptop", "ben@desk"


def run(number: int, by: str) -> RunRecord:
    return RunRecord(id=f"20261121-10150{number}-3fa2", cluster="lab", image="", command=("true",), places=(), by=by)


STOP = partial(latest_of, command="kit stop", verb="stop", done="stopped")
DROP = partial(latest_of, command="kit hosts drop gpu5 --run", verb="change", done="changed")


def test_the_latest_run_is_yours_or_nobodys() -> None:
    yours, nobodys = run(1, BEN), run(1, "")
    assert STOP([run(0, ANNA), yours], BEN) is yours
    assert STOP([run(0, ANNA), nobodys], BEN) is nobodys


def test_a_run_that_is_lost_or_was_started_by_hand_is_not_the_latest() -> None:
    yours, by_hand = run(1, BEN), replace(run(2, ANNA), id="by-hand-4711")
    assert STOP([yours, by_hand, replace(run(3, ANNA), state="lost")], BEN) is yours
    assert STOP([by_hand], BEN) is None


@pytest.mark.parametrize(
    ("runs", "more"),
    [
        ([run(0, BEN), run(1, BEN), run(2, ANNA)], "; your latest run: kit stop 20261121-101501-3fa2"),
        ([run(2, ANNA)], ""),
    ],
)
def test_the_latest_run_of_somebody_else_is_not_meant(runs: list[RunRecord], more: str) -> None:
    with pytest.raises(NotReadyError) as caught:
        STOP(runs, BEN)
    latest = "20261121-101502-3fa2"
    assert caught.value.message == f"{ANNA} started the latest run, {latest}, and you are {BEN}; nothing was stopped"
    assert caught.value.hint == f"to stop it, name it: kit stop {latest}{more}"


def test_the_hint_has_the_command_that_changes_a_run() -> None:
    with pytest.raises(NotReadyError, match=r"; nothing was changed$") as caught:
        DROP([run(0, BEN), run(1, ANNA)], BEN)
    command = "kit hosts drop gpu5 --run 20261121-10150"
    assert caught.value.hint == f"to change it, name it: {command}1-3fa2; your latest run: {command}0-3fa2"


def test_active_runs_have_their_owners() -> None:
    assert active([named("20261121-101500-3fa2", ANNA)]) == f"the run 20261121-101500-3fa2 of {ANNA} is active"
    assert active(["a", named("b", BEN), named("c", "")]) == f"the runs a, b of {BEN}, c are active"


def test_the_owners_of_others_runs_are_named_before_these_are_deleted() -> None:
    owners = {"c": ANNA, "a": "ci@7f3a", "b": BEN, "d": ""}
    assert of_others(owners, BEN) == {"a": "ci@7f3a", "c": ANNA}
    assert removing(owners, BEN) == f"you are {BEN}, and other people started a of ci@7f3a, c of {ANNA}"
    assert removing({"b": BEN, "d": ""}, BEN) == ""
    many = {f"r{number}": ANNA for number in range(7)}
    assert removing(many, BEN).endswith(f"r4 of {ANNA} and 2 more")
