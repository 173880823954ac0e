"""docs/fault-matrix.md matches the integration tests. Every pair of a fault and a moment is tested or left out."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration import data_faults, elastic_faults, faults

TESTS = Path(__file__).resolve().parents[1]


def test_the_page_is_written_from_the_cells() -> None:
    assert faults.PAGE.read_text() == faults.page(), "the page is stale; run: python -m tests.integration.faults"


def test_every_pair_is_a_cell_or_left_out() -> None:
    pairs = {(fault, moment) for fault in faults.FAULTS for moment in faults.MOMENTS}
    assert faults.CELLS.keys() | faults.LEFT_OUT.keys() == pairs
    assert not faults.CELLS.keys() & faults.LEFT_OUT.keys()


def test_every_fault_of_data_has_a_test() -> None:
    """A row names its test, or the lab's tests name it and compare kit's exit code with it."""
    constants = {value: name for name, value in vars(data_faults).items() if isinstance(value, str)}
    lab = (TESTS / "integration/test_data_faults.py").read_text()
    for fault, row in data_faults.ROWS.items():
        if row.test:
            file, _, name = row.test.partition("::")
            assert re.search(rf"^def {name}\(", (TESTS / file).read_text(), re.MULTILINE), fault
            assert (row.code, row.sees) == (None, ()), fault
        else:
            assert re.search(rf"\bfaults\.{constants[fault]}\b", lab), fault
            assert row.code is not None, fault


def test_every_fault_of_an_elastic_run_has_a_test() -> None:
    constants = {value: name for name, value in vars(elastic_faults).items() if isinstance(value, str)}
    lab = (TESTS / "integration/test_elastic.py").read_text()
    for fault in elastic_faults.ROWS:
        assert re.search(rf"\.saw\(faults\.{constants[fault]}\)", lab), fault
