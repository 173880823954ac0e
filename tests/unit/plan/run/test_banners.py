"""mpirun's banners: what is removed, and what stays."""

from __future__ import annotations

import itertools

import pytest

from kit.plan.run.banners import Banners, without

RULE_OFF = "-" * 74
PRIMARY = (
    RULE_OFF, "Primary job  terminated normally, but 1 process returned",
    "a non-zero exit code. Per user-direction, the job has been aborted.", RULE_OFF,
)  # fmt: skip
NOTICED = (
    RULE_OFF, "mpirun noticed that process rank 2 with PID 0 on node gpu2 exited on signal 9 (Killed).", RULE_OFF,
)  # fmt: skip
LOST = (
    RULE_OFF, "ORTE has lost communication with a remote daemon.", "", "  HNP daemon   : [[1,0],0] on node gpu1",
    "  Remote daemon: [[1,0],2] on node gpu3", "", "This is usually due to either a failure of the TCP network",
    "connection to the node, or possibly an internal failure of", "the daemon itself.", RULE_OFF,
)  # fmt: skip
OPEN_MPI_5 = (
    RULE_OFF, "prterun detected that one or more processes exited with non-zero status,",
    "thus causing the job to be terminated. The first process to do so was:", "",
    "   Process name: [prterun-gpu1-4242@1,2]", "   Exit code:    7", RULE_OFF,
)  # fmt: skip
SLOTS = (
    RULE_OFF, "There are not enough slots available in the system to satisfy the 9", "slots that were requested by the "
    "application:", "", "  hostname", RULE_OFF,
)  # fmt: skip


@pytest.mark.parametrize("banner", [PRIMARY, NOTICED, LOST, OPEN_MPI_5])
def test_a_banner_about_an_end_is_removed(banner: tuple[str, ...]) -> None:
    assert without(["before", *PRIMARY, *banner, "after"]) == ["before", "after"]


def test_a_message_about_a_mistake_stays_without_its_frame() -> None:
    assert without([*SLOTS, *PRIMARY]) == [line for line in SLOTS[1:-1] if line]


@pytest.mark.parametrize("places", [(), (1,), (2, 5), tuple(range(30))])
def test_lines_may_come_one_after_the_other(places: tuple[int, ...]) -> None:
    lines = ["before", *PRIMARY, *SLOTS, *LOST, "after"]
    banners = Banners()
    bounds = sorted({0, len(lines), *(place for place in places if place < len(lines))})
    shown = [line for a, b in itertools.pairwise(bounds) for line in banners.feed(lines[a:b])]
    assert [*shown, *banners.end()] == ["before", *SLOTS, "after"]


def test_a_frame_that_never_closes_is_shown_in_the_end() -> None:
    banners = Banners()
    assert banners.feed(["before", *LOST[:-1]]) == ["before"]
    assert banners.end() == list(LOST[:-1])
    assert banners.feed(["after"]) == ["after"]


def test_a_rule_of_the_program_holds_little_back() -> None:
    lines = [RULE_OFF, *(f"line {n}" for n in range(100))]
    banners = Banners()
    assert [*banners.feed(lines[:80]), *banners.feed(lines[80:])] == lines
