"""What the tests hold against kit predict: which runs count, and which were disturbed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from scripts import paced

# Links that cost nothing, and a step that takes longer all the same: whatever is predicted, it is off.
OFF, UNEVEN, LATE = (1.5, 1.5, 1.0), (1.5, 1.8, 1.0), (1.5, 1.5, 1.1)


def pacer(stories: Mapping[str, list[tuple[float, float, float]]]) -> Callable[[Mapping[str, int]], dict[str, Any]]:
    """Return runs as paced_benchmark reports them: a model's steps and its step alone, relative to the request."""

    def pace(models: Mapping[str, int]) -> dict[str, Any]:
        runs = []
        for model, step in models.items():
            story = stories[model]
            one, other, alone = story.pop(0) if len(story) > 1 else story[0]
            times = {"steps": [one * step / 1e3, other * step / 1e3], "alone_s": alone * step / 1e3}
            runs.append({"model": model, "step_ms": float(step), **times})
        head = {"simulated": True, "ranks": 4, "memory_rate": 5e9, "tiny_allreduce_s": 0.01}
        return {**head, **(runs[0] if len(runs) == 1 else {"runs": runs})}

    return pace


@pytest.mark.parametrize(
    ("story", "runs", "disturbed"),
    [
        # Off, and nothing disturbed it: that is what counts.
        ([OFF], 3, 0),
        ([UNEVEN, LATE, OFF], 5, 2),
        # A machine that is never quiet proves nothing, and has to end.
        ([UNEVEN], 3 + 2, 5),
    ],
)
def test_a_disturbed_run_is_not_among_the_attempts(
    story: list[tuple[float, float, float]], runs: int, disturbed: int
) -> None:
    stories = {model: list(story) for model in paced.MODELS}
    attempts = list(paced.attempts(pacer(stories), most=3, spare=2, rate="10gbit", per_host=1))
    assert not any(attempt.near for attempt in attempts)
    for model in paced.MODELS:
        mine = [attempt for attempt in attempts if attempt.model == model]
        assert (len(mine), sum(attempt.disturbed for attempt in mine)) == (runs, disturbed)


def test_what_is_near_is_not_tried_again() -> None:
    stories = {model: [(1.0, 1.0, 1.0)] for model in paced.MODELS}
    stories["mobilenet"] = [OFF, (1.0, 1.0, 1.0)]
    attempts = list(paced.attempts(pacer(stories), most=3, rate="10gbit", per_host=1))
    assert [attempt.model for attempt in attempts] == [*paced.MODELS, "mobilenet"]
    assert [attempt.near for attempt in attempts] == [True, True, False, True]
