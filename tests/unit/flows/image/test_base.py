"""A base image is found, pulled, or made after a yes."""

from __future__ import annotations

from typing import Any

import pytest

from kit.errors import ImageError
from kit.events import HostStep
from kit.flows.image import base
from tests.fakes.reporter import Remembering

NAME = "debian:trixie-slim"


class FakeEngine:
    """It has `images`; a pull adds one where a registry answers, and fails otherwise."""

    host: str | None = None

    def __init__(self, *images: str, registry: bool = False) -> None:
        self.images = set(images)
        self.registry = registry

    def image(self, name: str) -> object | None:
        return name if name in self.images else None

    def pull(self, name: str) -> None:
        if not self.registry:
            raise ImageError(f"the base image {name} is not on this machine and cannot be pulled", hint="docker load")
        self.images.add(name)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The programs that ran; nothing is installed."""
    ran: list[tuple[str, ...]] = []

    def run(*words: str, on_line: Any) -> str | None:
        ran.append(words)
        on_line("making it")
        return None

    monkeypatch.setattr("kit.remote.machine.prepare.run", run)
    return ran


def bring(engine: FakeEngine, name: str = NAME, **more: Any) -> Remembering:
    reporter = Remembering()
    options = {"consent": None, **more}
    base.bring_base(engine, name, task="image", reporter=reporter, **options)  # type: ignore[arg-type]
    return reporter


def never(question: str) -> bool:
    raise AssertionError(question)


def test_an_image_that_is_there_is_not_requested(programs: list[tuple[str, ...]]) -> None:
    assert bring(FakeEngine(NAME), consent=never).events == []


def test_a_registry_that_answers_is_enough(programs: list[tuple[str, ...]]) -> None:
    assert bring(FakeEngine(registry=True), consent=never).of(HostStep)[0].text == f"pulling {NAME}"
    assert programs == []


def test_a_yes_makes_it(programs: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    questions = []

    def run(*words: str, on_line: Any) -> None:
        programs.append(words)
        engine.images.add(NAME)

    monkeypatch.setattr("kit.remote.machine.prepare.run", run)
    bring(engine, consent=lambda question: questions.append(question) or True)
    assert programs == [("base", "--no-pull", "trixie")]
    # What is installed, how, and by which command.
    assert NAME in questions[0]
    assert "mmdebstrap as root" in questions[0]
    assert "scripts/base trixie" in questions[0]


def test_ubuntu_is_made_of_its_own_packages(programs: list[tuple[str, ...]]) -> None:
    questions = []
    with pytest.raises(ImageError, match="cannot be"):
        bring(FakeEngine(), "ubuntu:24.04", consent=lambda question: questions.append(question) or True)
    assert "ubuntu:24.04 from Ubuntu's packages" in questions[0]
    assert programs == [("base", "--no-pull", "noble")]


@pytest.mark.parametrize("consent", [None, lambda question: False])
def test_without_a_yes_it_prints_what_to_run(programs: list[tuple[str, ...]], consent: base.Consent | None) -> None:
    with pytest.raises(ImageError) as caught:
        bring(FakeEngine(), consent=consent)
    assert "scripts/base trixie" in str(caught.value.hint)
    # A verb that has no --yes does not name it.
    assert ("--yes" in str(caught.value.hint)) is (consent is not None)
    assert programs == []


def test_an_image_that_is_not_debians_is_not_made(programs: list[tuple[str, ...]]) -> None:
    with pytest.raises(ImageError) as caught:
        bring(FakeEngine(), "nvidia/cuda:12", consent=never)
    assert caught.value.hint == "docker load"


def test_on_a_vm_nothing_is_made(programs: list[tuple[str, ...]]) -> None:
    engine = FakeEngine()
    engine.host = "gpu1"
    with pytest.raises(ImageError):
        bring(engine, consent=never)


def test_a_program_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.remote.machine.prepare.run", lambda *words, on_line: "no mirror answers")
    with pytest.raises(ImageError, match="cannot be made: no mirror answers") as caught:
        bring(FakeEngine(), consent=lambda question: True)
    assert "scripts/base trixie" in str(caught.value.hint)


def test_what_is_made_here_never_has_a_locked_digest(programs: list[tuple[str, ...]]) -> None:
    locked = f"{NAME}@sha256:{'ab' * 32}"
    with pytest.raises(ImageError) as caught:
        bring(FakeEngine(NAME), locked, consent=never)
    assert f"with KIT_UNLOCKED_BASES=1 kit takes any {NAME}, " in str(caught.value.hint)
    assert programs == []
    # With a registry, it is pulled by its digest, whatever the tag means here.
    engine = FakeEngine(NAME, registry=True)
    bring(engine, locked, consent=never)
    assert locked in engine.images
