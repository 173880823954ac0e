"""Tests the values of variables that this machine remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.remote.run.values import recall, remember

RUN = "20261121-101500-3fa2"


def test_only_you_can_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember(RUN, {"TOKEN": "s3cret"})
    assert recall(RUN) == {"TOKEN": "s3cret"}
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_an_array_has_one_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember(RUN, {"TOKEN": "s3cret"})
    members = [f"20261121-101502-{number:04x}" for number in range(1000)]
    array = "20261121-101502-ffff"
    remember(array, {"LR": "0.1"}, members=members)
    assert recall(members[0], array) == recall(members[-1], array) == {"LR": "0.1"}
    assert recall(RUN) == {"TOKEN": "s3cret"}
    # A rank can write any array into the record of its run.
    stranger = "20261121-101503-0000"
    assert recall(stranger, array) == recall(stranger, RUN) == {}


def test_what_is_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remember(RUN, {})
    assert list(tmp_path.iterdir()) == []
    remember("../../x", {"A": "1"})
    assert list(tmp_path.iterdir()) == []
    assert recall("../../x") == {}
    assert recall(RUN) == {}
    remember(RUN, {"A": "1"})
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    file.write_text("{")
    assert recall(RUN) == {}
    file.write_text("[1]")
    assert recall(RUN) == {}
