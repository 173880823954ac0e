"""Which options are refused in a run without --retries."""

from __future__ import annotations

import pytest

from kit.errors import InputError
from kit.model.launch import RunPolicy, RunRequest
from kit.model.values import replace
from kit.plan.run.retries import check

LOST_HOST = RunRequest(policy=RunPolicy(retry_on="lost-host"), given=frozenset({"retry_on"}))
LEAST = RunRequest(policy=RunPolicy(min_np=6), given=frozenset({"min_np"}))


@pytest.mark.parametrize(
    ("request_", "option"),
    [
        (LOST_HOST, "--retry-on lost-host"),
        (RunRequest(given=frozenset({"retry_on"})), "--retry-on any"),
        (LEAST, "--min-np 6"),
        (replace(LOST_HOST, again="latest"), "--retry-on lost-host"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(request_: RunRequest, option: str) -> None:
    with pytest.raises(InputError) as caught:
        check(request_)
    assert str(caught.value) == f"{option} has no effect without --retries"
    assert caught.value.hint == f"add --retries: --retries 3 {option}"


@pytest.mark.parametrize(
    "good",
    [
        RunRequest(),
        replace(LOST_HOST, policy=RunPolicy(retry_on="lost-host", retries=1)),
        # A script that has --retries "$N" need not change with N=0.
        replace(LOST_HOST, given=frozenset({"retry_on", "retries"})),
        # An elastic run has its own --min-np.
        replace(LEAST, launcher="elastic"),
        # The options of an earlier run, which nobody typed now.
        RunRequest(again="latest", policy=RunPolicy(retry_on="lost-host", min_np=6)),
    ],
)
def test_what_goes_together(good: RunRequest) -> None:
    check(good)
