"""kit doctor --explain: it reads no file and contacts no host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit.cli.main import main


@pytest.fixture(autouse=True)
def _empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_check_is_explained_without_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--explain", "own-name"]) == 0
    out = capsys.readouterr().out
    assert "127.0.1.1" in out
    assert "\x1b" not in out


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--explain", "OWN-NAME", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["kit"], value["kind"], value["id"], value["severity"]) == (1, "doctor-check", "own-name", "watch")


@pytest.mark.parametrize(
    ("word", "hint"), [("gpu-xit", "did you mean gpu-xid"), ("zzz", "checks: unreachable, engine")]
)
def test_an_unknown_check_has_a_suggestion(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--explain", word]) == 2
    assert hint in capsys.readouterr().err
