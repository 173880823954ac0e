"""`kit lab up` starts an engine after a yes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.errors import StepError, UnreachableError
from kit.events import Note
from kit.flows.image.base import Consent
from kit.flows.lab import lab
from kit.model.lab import LabSpec
from tests.fakes.reporter import Remembering


class NoEngine:
    def __init__(self) -> None:
        raise UnreachableError("no Docker Engine answers on this machine: none", hint="start it")


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lab, "LabEngine", NoEngine)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


def test_an_engine_is_started_after_a_yes(no_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter, questions = Remembering(), []

    def run(program: str, *, on_line: Any) -> None:
        assert program == "engine"
        on_line("engine: installing docker.io")

    monkeypatch.setattr("kit.remote.machine.prepare.run", run)
    lab._ensure_engine(reporter, lambda question: questions.append(question) or True)
    assert "docker.io, about 250 MB" in questions[0]
    assert [note.text for note in reporter.of(Note)] == ["engine: installing docker.io"]


@pytest.mark.parametrize("consent", [None, lambda question: False])
def test_no_engine_is_started_without_one(
    no_engine: None, monkeypatch: pytest.MonkeyPatch, consent: Consent | None
) -> None:
    monkeypatch.setattr("kit.remote.machine.prepare.run", None)
    with pytest.raises(UnreachableError) as caught:
        lab._ensure_engine(Remembering(), consent)
    assert caught.value.hint == "start it"


@pytest.mark.parametrize(("name", "value"), [("DOCKER_HOST", "unix:///x"), ("DOCKER_CONTEXT", "colima")])
def test_an_engine_that_docker_is_pointed_at_is_not_kits_to_start(
    no_engine: None, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setattr("kit.remote.machine.prepare.run", None)
    monkeypatch.setenv(name, value)
    with pytest.raises(UnreachableError):
        lab._ensure_engine(Remembering(), lambda question: True)


def test_without_an_ssh_client_nothing_is_installed(no_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("kit.remote.machine.prepare.run", None)
    with pytest.raises(StepError, match="no ssh client") as caught:
        lab.lab_up(LabSpec(hosts=1), folder=Path(), reporter=Remembering(), consent=lambda question: True)
    assert "openssh-client" in str(caught.value.hint)


def test_an_engine_that_cannot_be_started(no_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.remote.machine.prepare.run", lambda *words, on_line: "this is not Debian or Ubuntu")
    with pytest.raises(UnreachableError, match="could be started: this is not Debian") as caught:
        lab._ensure_engine(Remembering(), lambda question: True)
    assert "scripts/engine" in str(caught.value.hint)
