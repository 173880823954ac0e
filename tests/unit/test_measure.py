"""scripts/measure: what it compares, and when it is beyond a limit."""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/measure"


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    loader = SourceFileLoader("scripts_measure", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks for its own module there.
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def test_kit_and_the_yardstick_are_measured_in_turn(measure: ModuleType) -> None:
    """The machine becomes slower with each pair, and each pair is of one moment, so the ratio stays."""
    calls: list[str] = []

    def timed(name: str, seconds: float) -> float:
        calls.append(name)
        return seconds * ((1 + len(calls)) // 2)

    row = measure.compared(
        "kit", lambda: timed("kit", 4.0), "ssh", lambda: timed("ssh", 2.0), repeats=3, limit=2.5
    )  # fmt: skip
    assert calls == ["kit", "ssh"] * 4
    assert (row.ratio, row.limit, row.beyond) == (2.0, 2.5, False)


@pytest.mark.parametrize(("ratio", "limit", "beyond"), [(1.5, 1.5, False), (1.51, 1.5, True), (9.0, None, False)])
def test_a_row_is_beyond_its_limit(measure: ModuleType, ratio: float, limit: float | None, beyond: bool) -> None:
    row = measure.Row(
        what="kit ps", seconds=0.3, yardstick="one cold ssh", base=0.2, ratio=ratio, spread=0.1, limit=limit
    )
    assert row.beyond is beyond
    assert ("BEYOND IT" in str(row)) is beyond
    shown = json.loads(row.json())
    assert (shown["what"], shown["yardstick"], shown["ratio"], shown["limit"]) == (
        "kit ps",
        "one cold ssh",
        ratio,
        limit,
    )


def test_what_is_beyond_is_named_at_the_end(
    measure: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def row(what: str, ratio: float) -> object:
        return measure.Row(
            what=what, seconds=1.0, yardstick="an empty Python", base=1.0, ratio=ratio, spread=0.0, limit=2.0
        )

    for name, what, ratio in (("help_time", "help", 3.0), ("dry_run", "dry run", 1.0), ("planning", "plan", 2.1)):
        monkeypatch.setattr(measure, name, lambda repeats, what=what, ratio=ratio: row(what, ratio))
    monkeypatch.setattr(measure, "compose_file", lambda repeats: row("files", 0.1))
    monkeypatch.setattr(sys, "argv", ["measure", "--json"])
    assert measure.main() == 1
    out, err = capsys.readouterr()
    assert [json.loads(line)["what"] for line in out.splitlines()] == ["help", "dry run", "plan", "files"]
    assert err == "measure: beyond the limit: help; plan\n"


def test_the_cold_ssh_logs_in_as_kit_does_and_keeps_no_connection(measure: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("10.0.0.7 name=a\n10.0.0.8 name=b\n")
    (tmp_path / "kit.yaml").write_text("ssh:\n  user: ubuntu\n  key: k\n  known_hosts: known\n")
    argv = measure.cold_ssh(tmp_path)
    assert argv[-4:] == ["-l", "ubuntu", "10.0.0.7", "true"]
    assert {"ControlPath=none", f"IdentityFile={tmp_path}/k", f"UserKnownHostsFile={tmp_path}/known"} <= set(argv)
