"""A run whose GPUs do nothing for long: the decision, and runs on this machine with a script as nvidia-smi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.head import Head, MakeHead, place, until

idle: Any = launcher.load("kitrun.idle")
EVERY = idle.EVERY_S

IDLE, BUSY, UNKNOWN = [0, 4.9], [1, 5.0], [1, None]


@pytest.mark.parametrize(
    ("seen", "numbers", "expected"),
    [
        ([IDLE], None, True),
        ([IDLE, BUSY], None, False),
        # The other GPU is that of another run.
        ([IDLE, BUSY], [0], True),
        ([IDLE, BUSY], [1], False),
        ([IDLE, UNKNOWN], None, False),
        ([IDLE, UNKNOWN], [0], True),
        # On a host with MIG on GPU 0 alone, number 1 is a MIG device, and GPU 1 is that of another run.
        ([[0, None], [1, 0.0]], [1], False),
        # A GPU that fell off the bus, and a host without GPUs or without an answer.
        ([IDLE], [0, 1], False),
        ([], None, False),
        ([], [0], False),
        (None, None, False),
    ],
)
def test_all_of_the_runs_gpus_must_be_known_to_do_nothing(
    seen: list[list[float | None]] | None, numbers: list[int] | None, expected: object
) -> None:
    assert idle.is_idle(seen, numbers) is expected


@pytest.mark.parametrize("answer", [None, 3, "x", [3], [[0]], [[0, "5"]], [["0", None]], {"0": 5}, [[0, 1.0, 2]]])
def test_what_is_no_answer(answer: object) -> None:
    assert idle.seen(answer) is None
    assert idle.seen([[0, 1.0], [1, None]]) == [[0, 1.0], [1, None]]


class FakeNode:
    """A node that answers each question at once with `next`."""

    def __init__(self, name: str) -> None:
        self.name, self.next, self.asked = name, [[0, 0.0]], 0
        self.gpus: Any = None

    def send(self, word: str) -> None:
        assert word == "gpus"
        self.asked += 1
        self.gpus = self.next


def test_the_time_begins_with_the_first_look_that_finds_all_idle() -> None:
    one, other, head = FakeNode("gpu1"), FakeNode("gpu2"), FakeNode("head")
    watch = idle.Watch(3 * EVERY, "gpu2=1", ["gpu1", "gpu2"])
    nodes = [one, other, head]
    other.next = [[0, 99.0], [1, 80.0]]
    moments = iter(range(1, 100))

    def tick() -> Any:
        return watch.tick(next(moments) * EVERY, nodes)

    assert [tick(), tick()] == [None, None]
    # From now on it is idle; its other GPU works for another run.
    other.next = [[0, 99.0], [1, 0.0]]
    assert [tick() for _ in range(3)] == [None] * 3
    # One look that finds work, and one without an answer: the time begins again.
    one.next = [[0, 50.0]]
    tick()
    one.next = [[0, 0.0]]
    assert [tick() for _ in range(3)] == [None] * 3
    other.next = None  # type: ignore[assignment]
    tick()
    other.next = [[1, 0.0]]
    assert [tick() for _ in range(3)] == [None] * 3
    stop = tick()
    assert (stop.why, stop.code, stop.retry) == (f"its GPUs were idle for {3 * EVERY:g} s", 124, False)
    assert (one.asked, head.asked) == (14, 0)
    # Between two looks, nobody is asked.
    assert watch.tick(14 * EVERY + 1, nodes) is None
    assert one.asked == 14


def test_without_the_policy_nobody_is_asked() -> None:
    node = FakeNode("gpu1")
    assert idle.Watch(None, "", ["gpu1"]).tick(1.0, [node]) is None
    assert node.asked == 0


def line(index: int, use: str) -> str:
    return f"2, {index}, GPU-{index}, NVIDIA H200, {use}, 1, 143771, 30, 76.1, 700.00, 345, 1980, 0x0000000000000001"


@pytest.fixture
def gpus(make_head: MakeHead) -> Head:
    """A head whose hosts have two GPUs. The first one works until there is a file `rest`; the second never does."""
    head = make_head(idle_EVERY_S=0.1, metrics_EVERY_S=0.1)
    head.with_mpirun()
    head.ssh(idle_EVERY_S=0.1)
    program = head.folder / "bin" / "nvidia-smi"
    program.write_text(
        f"#!/bin/sh\necho $$ >> {head.folder}/looked\necho '{line(0, '97')}'; echo '{line(1, '0')}'\n"
        f"until [ -e {head.folder}/rest ]; do sleep 0.05; done\n"
        f"echo '{line(0, '3')}'; echo '{line(1, '0')}'\nexec sleep 1000\n"
    )
    program.chmod(0o755)
    return head


def test_a_run_whose_gpus_do_nothing_is_ended(gpus: Head) -> None:
    places = [place("gpu1", 1), place("gpu2", 1)]
    script = "echo up; sleep 600"
    door, answer = gpus.ranks(2, script, places=places, policy={"idle_gpu": 0.5, "retries": 2})
    assert "started" in answer
    door.read_until("up")
    looked = gpus.folder / "looked"
    until(lambda: looked.exists() and len(looked.read_text().split()) == 2)
    (gpus.folder / "rest").touch()
    story = door.story()
    assert story.code == 124
    assert [event["why"] for event in story.events("stopping")] == ["its GPUs were idle for 0.5 s"]
    assert len(story.events("attempt")) == 1
    # Both the supervisor, for the head's GPUs, and the guard of the other host look, and their nvidia-smi is also that
    # of the run's metrics.
    used = story.ending["metrics"]["hosts"]
    assert all(used[host]["gpu_mean"] > 0 for host in ("gpu1", "gpu2"))
    assert len(looked.read_text().split()) == 2
    gpus.nothing_left()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in looked.read_text().split()))


def test_a_run_with_a_gpu_that_works_goes_on(gpus: Head) -> None:
    """The other GPU does nothing, and is that of this run, too."""
    gate = gpus.folder / "gate"
    script = f"until [ -e {gate} ]; do sleep 0.05; done"
    door, _ = gpus.ranks(1, script, policy={"idle_gpu": 0.3})
    until((gpus.folder / "looked").exists)
    # An idle run beside it, on the same GPUs by the same limit, has its end meanwhile.
    env = {"KIT_HELD_SLOTS": "gpu1=1"}
    # The GPU of its slot has another number.
    other, _ = gpus.ranks(1, "sleep 600", places=[place("gpu1", 1, 2)], policy={"idle_gpu": 0.3}, env=env)
    story = other.story()
    assert story.code == 124
    used = story.ending["metrics"]["hosts"]["gpu1"]
    assert (used["gpus"], used["gpu_mean"]) == (1, 0.0)
    gate.touch()
    assert door.story().code == 0
