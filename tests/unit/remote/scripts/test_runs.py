"""What the script that reads a head's runs sees of a run that starts meanwhile. test_scripts.py has its other cases."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.remote import scripts

RUN = "20261121-101500-0001"
PROGRAM = "".join((Path(scripts.__file__).parent / f"{part}.py").read_text() for part in ("folder", "runs"))


def started(runs: Path) -> None:
    """As the head starts a run: its record, then it leaves the line."""
    (runs / RUN).mkdir()
    (runs / RUN / "record.json").write_text(json.dumps({"id": RUN}))
    (runs / ".queue" / f"{RUN}.json").unlink()


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()][:-1]


def loaded() -> dict[str, Any]:
    """Return the names of the program, which has no module: a VM gets its text."""
    program: dict[str, Any] = {"__name__": "program"}
    exec(compile(PROGRAM, "runs.py", "exec"), program)  # noqa: S102
    return program


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    queue = tmp_path / "runs" / ".queue"
    queue.mkdir(parents=True)
    (queue / f"{RUN}.json").write_text(json.dumps({"id": RUN, "env": {"KEY": "secret"}, "np": 2}))
    return queue.parent


@pytest.mark.parametrize("late", [False, True], ids=["before the runs are read", "after the runs are read"])
def test_a_run_that_starts_meanwhile_is_listed_once(runs: Path, capsys: pytest.CaptureFixture[str], late: bool) -> None:
    program = loaded()
    folders = program["run_folders"]

    def while_it_starts(descriptor: int) -> Iterator[tuple[str, int]]:
        if not late:
            started(runs)
        yield from folders(descriptor)
        if late:
            started(runs)

    program["run_folders"] = while_it_starts
    descriptor = os.open(runs, os.O_RDONLY)
    try:
        program["list_runs"](descriptor)
        (row,) = rows(capsys)
        assert row.get("queued", {}).get("id") == (RUN if late else None)
        assert row.get("id") == (None if late else RUN)
        program["run_folders"] = folders
        program["list_runs"](descriptor)
        assert [row["id"] for row in rows(capsys)] == [RUN]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("record", [b"", b"\0" * 400, b'{"id": "2026'], ids=["empty", "zeros", "cut"])
def test_a_run_that_a_power_cut_stopped_at_its_start_still_waits(
    runs: Path, capsys: pytest.CaptureFixture[str], record: bytes
) -> None:
    """It starts again, so its cluster and its data must stay."""
    (runs / RUN).mkdir()
    (runs / RUN / "record.json").write_bytes(record)
    program = loaded()
    descriptor = os.open(runs, os.O_RDONLY)
    try:
        program["list_runs"](descriptor)
        (row,) = rows(capsys)
        assert row["queued"]["id"] == RUN
        # Out of the line, kit reports the record.
        (runs / ".queue" / f"{RUN}.json").unlink()
        program["list_runs"](descriptor)
        (row,) = rows(capsys)
        assert (row["id"], row["record"]) == (RUN, record.decode())
    finally:
        os.close(descriptor)
