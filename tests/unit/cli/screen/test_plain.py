"""What plain progress leaves out: a step that only grows is not news."""

from __future__ import annotations

import io

from kit.cli.screen.plain import Plain
from kit.cli.screen.terminal import Terminal
from kit.events import HostStep


def lines(*events: HostStep, verbose: bool = False) -> list[str]:
    err = io.StringIO()
    reporter = Plain(Terminal(out=io.StringIO(), err=err, environ={}), verbose=verbose)
    for event in events:
        reporter.report(event)
    return err.getvalue().splitlines()


def test_a_growing_step_is_printed_at_each_quarter() -> None:
    steps = [HostStep(host="gpu1", text=f"image 0.{i:02} GB", fraction=i / 100) for i in range(100)]
    assert lines(*steps) == [f"gpu1: image 0.{i:02} GB {i}%" for i in (0, 25, 50, 75)]


def test_other_words_are_news() -> None:
    printed = lines(
        HostStep(host="image", text="step 1/26 FROM debian", fraction=0.01),
        HostStep(host="image", text="step 2/26 RUN pip", fraction=0.02),
    )
    assert printed == ["image: step 1/26 FROM debian 0%", "image: step 2/26 RUN pip 0%"]


def test_short_steps_are_for_who_asks() -> None:
    step = HostStep(host="gpu1", text="writing hosts")
    assert lines(step) == []
    assert [line.split("] ")[1] for line in lines(step, step, verbose=True)] == ["gpu1: writing hosts"]
