"""What the supervisor's events say to people."""

from __future__ import annotations

from typing import Any

import pytest

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
