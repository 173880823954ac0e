"""Altered answers end in a value or a KitError, quickly and in little memory; and the runner that says so finds faults.

The number of answers is fixed, not the time: the same commit always reads the same answers. scripts/fuzz reads more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import launcher
from tests.security import fuzz_elastic
from tests.security.altered import answers
from tests.security.runner import MEMORY, Report, faults_by_place, fuzz, protocols, table

ALL = 10_200
EACH = -(-ALL // max(1, len(protocols())))


@pytest.mark.parametrize("protocol", protocols())
def test_an_altered_answer_is_a_value_or_an_error_of_kit(protocol: str) -> None:
    report = fuzz(protocols()[protocol], EACH)
    assert not report.faults, "\n".join(faults_by_place(report))
    assert report.answers == EACH
    # A log that a disk has lost parts of is read, without them.
    assert report.errors or protocol == "run_log"
    assert report.peak < MEMORY


def test_each_event_of_an_elastic_run_is_a_sample() -> None:
    names = {event["event"] for event in fuzz_elastic.EVENTS}
    assert set(launcher.load("kitrun.elastic").EVENTS) < names


def test_altered_answers_are_many_and_always_the_same() -> None:
    samples = (b'{"a": [1, {"b": "c"}]}\n', b"word 12\n@@ x\n")
    first, again = (list(answers("x", samples, 2000)) for _ in range(2))
    assert first == again
    assert len(first) == 2000
    assert len(set(first)) > 1500
    assert tuple(first[:2]) == samples
    assert list(answers("x", samples, 300)) != list(answers("y", samples, 300))


def read_by(tmp_path: Path, body: str, count: int = 12) -> Report:
    """Return the report about a reader with this body."""
    path = tmp_path / "fuzz_planted.py"
    path.write_text(
        "import ctypes, os, time\n"
        "from kit.errors import KitError\n"
        "SAMPLES = (b'valid\\n',)\n"
        "def read(answer):\n"
        "    if answer == b'valid\\n':\n"
        "        return\n" + "".join(f"    {line}\n" for line in body.splitlines())
    )
    return fuzz(path, count)


def test_errors_of_kit_are_no_faults(tmp_path: Path) -> None:
    report = read_by(tmp_path, "raise KitError('odd')")
    assert not report.faults
    assert report.answers == 12
    assert report.errors > 8


def test_an_exception_is_a_fault_with_its_place(tmp_path: Path) -> None:
    report = read_by(tmp_path, "if not answer:\n    {}['key']")
    assert {fault.kind for fault in report.faults} == {"exit 70"}
    assert "fuzz_planted.py:8: KeyError: 'key'" in report.faults[0].place
    assert report.faults[0].answer == "b''"
    assert any("exit 70" in line for line in faults_by_place(report))


def test_a_crash_is_a_fault_and_the_other_answers_are_read(tmp_path: Path) -> None:
    report = read_by(tmp_path, "if not answer:\n    os.kill(os.getpid(), 11)")
    assert [fault.kind for fault in report.faults] == ["exit 70"]
    assert "SIGSEGV" in report.faults[0].place
    assert report.answers == 12


@pytest.mark.parametrize(
    ("hang", "place"),
    [("while True: pass", "fuzz_planted.py:8"), ("time.sleep(1000)", "waits for more than")],
    ids=["computes", "waits"],
)
def test_a_hang_is_a_fault(tmp_path: Path, hang: str, place: str) -> None:
    report = read_by(tmp_path, f"if not answer:\n    {hang}")
    assert [fault.kind for fault in report.faults] == ["hang"]
    assert place in report.faults[0].place
    assert report.answers == 12


def test_too_much_memory_is_a_fault(tmp_path: Path) -> None:
    report = read_by(tmp_path, "if not answer:\n    bytearray(600 * 10**6)")
    assert [fault.kind for fault in report.faults] == ["memory"]


def test_the_table_has_a_row_for_each_protocol_and_one_for_all(tmp_path: Path) -> None:
    report = read_by(tmp_path, "raise KitError('odd')")
    header, row, total = table([report])
    assert header.split()[:2] == ["protocol", "answers"]
    assert row.split()[:2] == ["planted", "12"]
    assert total.split()[:2] == ["all", "12"]
