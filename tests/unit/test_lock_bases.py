"""scripts/lock-bases writes the lock if every registry answers, and leaves it alone if one does not."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kit.errors import ImageError
from kit.plan.bases import lock_text, read_lock
from kit.plan.image import recipe_bases

ROOT = Path(__file__).resolve().parents[2]
OLD, NEW = ("sha256:" + digit * 64 for digit in "01")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, with a lock in a separate folder and registries that answer `NEW`."""
    loader = importlib.machinery.SourceFileLoader("lock_bases", str(ROOT / "scripts" / "lock-bases"))
    spec = importlib.util.spec_from_loader("lock_bases", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    lock = tmp_path / "bases.lock"
    lock.write_text(lock_text({"mine.example.com/base:1": OLD}))
    monkeypatch.setattr(module, "FILE", lock)
    monkeypatch.setattr(module, "ask_registries", lambda names: dict.fromkeys(names, NEW))
    return module


def test_it_locks_every_base_of_kit_and_of_the_lock(program: Any) -> None:
    assert program.main([]) == 0
    expected = {*recipe_bases(), "debian:trixie-slim", "ubuntu:24.04", "mine.example.com/base:1"}
    assert read_lock(program.FILE.read_text()) == dict.fromkeys(expected, NEW)


def test_one_name_leaves_the_others(program: Any) -> None:
    assert program.main(["debian:bookworm-slim"]) == 0
    assert read_lock(program.FILE.read_text()) == {"debian:bookworm-slim": NEW, "mine.example.com/base:1": OLD}


def test_without_a_registry_the_lock_is_unchanged(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = program.FILE.read_text()

    def silent(names: Sequence[str]) -> dict[str, str]:
        raise ImageError("the name of docker.io does not resolve on this machine")

    monkeypatch.setattr(program, "ask_registries", silent)
    assert program.main([]) == 6
    assert program.FILE.read_text() == before
    assert "is unchanged" in capsys.readouterr().err


def test_an_odd_answer_is_not_written(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = program.FILE.read_text()
    monkeypatch.setattr(program, "ask_registries", lambda names: dict.fromkeys(names, "latest"))
    assert program.main([]) == 2
    assert program.FILE.read_text() == before


def test_a_check_writes_nothing(program: Any) -> None:
    before = program.FILE.read_text()
    assert program.main(["--check"]) == 1
    assert program.FILE.read_text() == before
    program.main([])
    assert program.main(["--check"]) == 0
