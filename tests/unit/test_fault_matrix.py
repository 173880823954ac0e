"""docs/fault-matrix.md is what the integration tests do, and every pair of a fault and a moment is accounted for."""

from __future__ import annotations

from tests.integration import faults


def test_the_page_is_written_from_the_cells() -> None:
    assert faults.PAGE.read_text() == faults.page(), "write it anew: python -m tests.integration.faults"


def test_every_pair_is_a_cell_or_left_out() -> None:
    pairs = {(fault, moment) for fault in faults.FAULTS for moment in faults.MOMENTS}
    assert faults.CELLS.keys() | faults.LEFT_OUT.keys() == pairs
    assert not faults.CELLS.keys() & faults.LEFT_OUT.keys()
