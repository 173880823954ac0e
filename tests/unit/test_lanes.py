"""The lanes of the integration tests: each file has one, and scripts/test starts a worker for each lane."""

from __future__ import annotations

from pathlib import Path

from tests.lanes import LANES, lane

ROOT = Path(__file__).parents[2]


def test_every_file_of_integration_tests_has_one_lane() -> None:
    files = sorted(path.stem.removeprefix("test_") for path in (ROOT / "tests/integration").glob("test_*.py"))
    assert sorted(name for names in LANES.values() for name in names) == files


def test_a_lane_is_found_by_the_file() -> None:
    assert lane("tests/integration/test_ship.py::test_a[b/test_run.py::c]") == "bare"
    assert lane("tests/integration/test_predict.py::test_a") == lane("tests/integration/test_cluster.py::test_b")


def test_each_lane_has_a_worker() -> None:
    assert f"-m integration -n {len(LANES)} --dist loadscope" in (ROOT / "scripts/test").read_text()
