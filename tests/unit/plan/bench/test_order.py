"""In which order the repeats of cases go, which are left to do, and how long that takes."""

from __future__ import annotations

from typing import Any

from kit.model.bench import Case, Sample
from kit.plan.bench.order import GUESS, GUESSES, seconds_left, turns


def case(name: str, **more: Any) -> Case:
    given = {"rung": "training", "title": name, "proves": "", "command": ("mxnet_benchmark",), **more}
    return Case(id=name, **given)


def order(*cases: Case, done: tuple[Sample, ...] = ()) -> list[str]:
    return [f"{turn.case.id}{'w' if turn.warmup else ''}{turn.repeat}" for turn in turns(cases, done)]


def sample(name: str, repeat: int, **more: Any) -> Sample:
    return Sample(case=name, repeat=repeat, at="2026-01-01T00:00:00Z", **{"seconds": 10.0, **more})


def test_repeats_take_turns_within_a_rung() -> None:
    assert order(case("a", warmup=1), case("b", repeats=2), case("c", rung="ring", repeats=1)) == [
        "c1", "aw1", "a1", "b1", "a2", "b2", "a3",
    ]  # fmt: skip


def test_what_is_done_is_not_done_again() -> None:
    a, b = case("a", warmup=1, repeats=2), case("b", repeats=2)
    done = (sample("a", 1, warmup=True), sample("a", 1), sample("b", 1, failure="rank 0 ended"))
    assert order(a, b, done=done) == ["b1", "a2", "b2"]
    # Nothing is warmed for nothing.
    assert order(a, b, done=(sample("a", 1), sample("a", 2), sample("b", 1))) == ["b2"]


def test_the_time_left_is_learned() -> None:
    a, b, other = case("a"), case("b"), case("c", command=("strange",), repeats=1)
    assert seconds_left(turns((a, other))) == 3 * GUESSES["mxnet_benchmark"] + GUESS
    left = turns((a, b), done := (sample("a", 1, seconds=4.0),))
    # b has the same program as a, of which one launch was timed.
    assert seconds_left(left, done) == 2 * 4.0 + 3 * 4.0
    assert seconds_left((), done) == 0.0
