"""What the supervisor's events say to people."""

from __future__ import annotations

from typing import Any

import pytest

from kit.model.answer import OddAnswer
from kit.plan.run.logevents import next_attempt


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, ""),
        ({"dropped": ["gpu3"]}, ", without gpu3"),
        ({"checkpoint": 12.4}, "; the newest file in the head's KIT_CHECKPOINT_DIR is 12 s old"),
        ({"checkpoint": 754.0}, "; the newest file in the head's KIT_CHECKPOINT_DIR is 13 min old"),
        ({"checkpoint": 90000.0}, "; the newest file in the head's KIT_CHECKPOINT_DIR is 25 h old"),
    ],
)
def test_the_next_attempt(more: dict[str, Any], text: str) -> None:
    assert next_attempt({"number": 2, "wait": 4.0, **more}) == f"attempt 2 starts in 4 s{text}"


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        ({"kind": "host", "host": "gpu3", "mpirun": []}, "gpu3 went away"),
        (
            {"kind": "rank", "rank": 2, "host": "gpu1", "exit_code": None, "signal": "SIGKILL", "oom": True},
            "rank 2 on gpu1 was killed by SIGKILL: out of memory",
        ),
    ],
)
def test_the_next_attempt_says_why_the_last_one_failed(failure: dict[str, Any], text: str) -> None:
    event = {"number": 2, "wait": 4.0, "failure": failure}
    assert next_attempt(event) == f"{text}; attempt 2 starts in 4 s"


def test_an_odd_failure_is_an_odd_answer() -> None:
    with pytest.raises(OddAnswer):
        next_attempt({"number": 2, "failure": {"kind": "rank", "rank": 2**40}})
