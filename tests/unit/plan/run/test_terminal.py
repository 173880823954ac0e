"""What goes together with `kit run -it`, and the words for both sides of its terminal."""

from __future__ import annotations

import pytest

from kit.errors import InputError
from kit.model.launch import RunPolicy, RunRequest
from kit.model.values import replace
from kit.plan.run.terminal import HOLD, check, join

GOOD = RunRequest(np=1, terminal=True, command=("bash",))


def test_one_rank_may_have_a_terminal() -> None:
    check(GOOD)
    check(replace(GOOD, policy=RunPolicy(timeout=60.0), wait=True, code="none"))
    # Without a terminal, everything goes.
    check(replace(GOOD, terminal=False, np=8, detach=True))


@pytest.mark.parametrize("np", [None, 2])
def test_more_ranks_are_refused_with_what_to_write(np: int | None) -> None:
    with pytest.raises(InputError, match="one rank") as caught:
        check(replace(GOOD, np=np))
    assert caught.value.hint == "write: kit run -it --np 1 -- bash"


@pytest.mark.parametrize(
    ("request_", "flag"),
    [
        (replace(GOOD, detach=True), "--detach"),
        (replace(GOOD, policy=RunPolicy(operator="keep")), "--keep"),
        (replace(GOOD, policy=RunPolicy(retries=2)), "--retries"),
        (replace(GOOD, policy=RunPolicy(stall_timeout=9.0)), "--stall-timeout"),
        (replace(GOOD, launcher="ps", servers=1), "--launcher"),
    ],
)
def test_options_that_have_no_meaning_are_named(request_: RunRequest, flag: str) -> None:
    with pytest.raises(InputError, match=f"^{flag} has no meaning with -it"):
        check(request_)


def test_both_sides_are_one_program() -> None:
    assert join("r1", ["bash", "-l"]) == (*HOLD[:-1], "join", "r1", "bash", "-l")
