"""What plain progress leaves out: a step that only grows is not news."""

from __future__ import annotations

import io

from kit.cli.screen.plain import Plain
from kit.cli.screen.terminal import Terminal
from kit.events import Event, HostDone, HostFailed, HostStep, Phase


def lines(*events: Event, verbose: bool = False) -> list[str]:
    err = io.StringIO()
    reporter = Plain(Terminal(out=io.StringIO(), err=err, environ={}), verbose=verbose)
    for event in events:
        reporter.report(event)
    reporter.close()
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


HOSTS = tuple(f"gpu{n}" for n in range(1, 33))


def test_a_phase_of_many_hosts_prints_quarters_and_equal_hosts_once() -> None:
    done = [HostDone(host=host, text="engine 29, 8 cores") for host in HOSTS[:31]]
    events: list[Event] = [
        Phase(name="look", hosts=HOSTS),
        *done,
        HostDone(host="gpu32", text="no engine"),
        Phase(name="ship"),
    ]
    assert lines(*events) == [
        "look: gpu[1-32]",
        "look: 25%, 8 of 32 hosts done",
        "look: 50%, 16 of 32 hosts done",
        "look: 75%, 24 of 32 hosts done",
        "look: 100%, 32 of 32 hosts done",
        "gpu[1-31]: engine 29, 8 cores",
        "gpu32: no engine",
        "ship",
    ]


def test_fractions_of_many_hosts_are_one_fraction() -> None:
    steps = [HostStep(host=host, text="image", fraction=part) for part in (0.3, 0.1, 0.8) for host in HOSTS]
    printed = lines(Phase(name="ship", hosts=HOSTS), *steps, HostStep(host="image", text="step 1", fraction=0.5))
    assert printed == [
        "ship: gpu[1-32]",
        "ship: 25%, 0 of 32 hosts done",
        "ship: 50%, 0 of 32 hosts done",
        "ship: 75%, 0 of 32 hosts done",
        "image: step 1 50%",
    ]


def test_verbose_prints_each_of_many_hosts() -> None:
    printed = lines(Phase(name="look", hosts=HOSTS), *(HostDone(host=host) for host in HOSTS), verbose=True)
    assert [line.split("] ")[1] for line in printed] == ["look: gpu[1-32]", *(f"{host}: done" for host in HOSTS)]


def test_failures_are_printed_live_until_they_are_too_many() -> None:
    printed = lines(*(HostFailed(host=host, text="no route", hint="is it on?") for host in HOSTS))
    assert printed[:4] == ["gpu1: no route", "  → is it on?", "gpu2: no route", "  → is it on?"]
    assert printed[16:] == ["more hosts fail; kit names all of them at the end"]
