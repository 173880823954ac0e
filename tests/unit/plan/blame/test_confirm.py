"""What two looks at a run say together."""

from __future__ import annotations

import pytest

from kit.model.blame import BlameResult, Culprit
from kit.plan.blame.confirm import confirmed, doubtful


def look(host: str | None, *, share: float = 0.1, seconds: float = 10.0) -> BlameResult:
    """Return a look that names this host. Without one, it names nobody."""
    culprit = Culprit(host=host, ranks=(0,), reason="busy-core", share=share, evidence=(), fix="") if host else None
    return BlameResult(
        run="r",
        verdict="blamed" if host else "nobody",
        why="",
        seconds=seconds,
        steps=4.0,
        step=0.25,
        culprit=culprit,
        ranks=(),
    )


@pytest.mark.parametrize(
    ("host", "share", "again"), [("gpu1", 0.149, True), ("gpu1", 0.15, False), ("gpu1", 0.16, False), (None, 0, False)]
)
def test_kit_looks_again_only_at_who_costs_less_than_15_percent(host: str | None, share: float, again: bool) -> None:
    assert doubtful(look(host, share=share)) is again


@pytest.mark.parametrize(("second", "both"), [("gpu2", "gpu2"), ("gpu2", "gpu1"), (None, "gpu1")])
def test_two_looks_that_disagree_name_nobody(second: str | None, both: str) -> None:
    """Neither host of the two looks has a fault that stays, and their whole time may show either of them."""
    result = confirmed(look("gpu1"), look(second, seconds=12.0), look(both, seconds=22.0))
    assert (result.verdict, result.culprit, result.seconds) == ("nobody", None, 22.0)
    assert result.why == "gpu1 cost the others 10% of their time for 10 s, and not in the 12 s after that"


@pytest.mark.parametrize(("both", "seconds"), [("gpu1", 22.0), ("gpu2", 12.0), (None, 12.0)])
def test_who_both_looks_name_is_blamed_also_if_their_whole_time_does_not_show_it(
    both: str | None, seconds: float
) -> None:
    result = confirmed(look("gpu1"), look("gpu1", seconds=12.0), look(both, seconds=22.0))
    assert result.culprit is not None
    assert (result.verdict, result.culprit.host, result.seconds) == ("blamed", "gpu1", seconds)
