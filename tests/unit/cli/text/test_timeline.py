"""kit timeline's table, and how it names ranks without a whole timeline."""

from __future__ import annotations

import pytest

from kit.cli.main import main
from kit.cli.text.timeline import MOST_RANKS, missed, timeline
from kit.model.timeline import RankTime, TimelineResult
from kit.model.values import replace

RESULT = TimelineResult(
    run="20261121-101500-3fa2",
    file="step.json",
    size=6_306_585,
    seconds=20.04,
    ranks=(
        RankTime(rank=0, host="gpu1", operations=855, waited=0.774, operated=0.07),
        RankTime(rank=1, host="gpu2", operations=855, waited=0.19, operated=0.05),
    ),
    clock_error_us=161.0,
    missed={},
)


def test_each_rank_has_a_row_and_the_file_says_how_to_open_it() -> None:
    assert timeline(RESULT).splitlines() == [
        "RANK  HOST  OPERATIONS  WAITED FOR RANKS  IN OPERATIONS",
        "0     gpu1  855         77%               7%",
        "1     gpu2  855         19%               5%",
        "step.json (6.31 MB): 20.0 s of 2 ranks, the clocks of 2 hosts within 0.2 ms of each other.",
        "Open it in https://ui.perfetto.dev (it stays on your machine) or chrome://tracing.",
    ]


def test_ranks_of_one_host_have_one_clock() -> None:
    assert "6.31 MB): 20.0 s of 1 rank.\n" in timeline(replace(RESULT, ranks=RESULT.ranks[:1]))


def test_a_large_run_has_its_first_ranks() -> None:
    ranks = tuple(replace(RESULT.ranks[0], rank=rank) for rank in range(MOST_RANKS + 7))
    lines = timeline(replace(RESULT, ranks=ranks)).splitlines()
    assert lines[MOST_RANKS].startswith(f"{MOST_RANKS - 1} ")
    assert lines[MOST_RANKS + 1] == "… and 7 more ranks"


def test_ranks_with_one_reason_share_a_line() -> None:
    assert missed(RESULT) == ""
    reasons = {"0": "the script writes one", **dict.fromkeys(["2", "3", "4"], "ended")}
    assert missed(replace(RESULT, missed=reasons)).splitlines() == [
        "warning: rank 0: the script writes one",
        "warning: ranks [2-4]: ended",
    ]


@pytest.mark.parametrize("span", ["0.5s", "11m"])
def test_a_time_that_no_rank_can_record_is_refused(span: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", "--for", span]) == 2
    assert "--for is not between 1s and 10m" in capsys.readouterr().err
