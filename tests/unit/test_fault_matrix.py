"""docs/fault-matrix.md matches the integration tests. Every pair of a fault and a moment is tested or left out."""

from __future__ import annotations

from tests.integration import faults


def test_the_page_is_written_from_the_cells() -> None:
    assert faults.PAGE.read_text() == faults.page(), "the page is stale; run: python -m tests.integration.faults"


def test_every_pair_is_a_cell_or_left_out() -> None:
    pairs = {(fault, moment) for fault in faults.FAULTS for moment in faults.MOMENTS}
    assert faults.CELLS.keys() | faults.LEFT_OUT.keys() == pairs
    assert not faults.CELLS.keys() & faults.LEFT_OUT.keys()
