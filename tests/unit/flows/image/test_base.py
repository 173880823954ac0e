"""A base image is found, pulled, or made after a yes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.errors import ImageError
from kit.events import HostStep, Note, Warned
from kit.flows.image import base
from kit.model.spec import ClusterSpec, Flavour, ImageSpec
from kit.remote.engine.client import EngineImage
from kit.remote.engine.moved import OnProgress
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

    def pull(self, name: str, *, on_progress: OnProgress) -> None:
        if not self.registry:
            raise ImageError(f"the base image {name} is not on this machine and cannot be pulled", hint="docker load")
        on_progress("pulled 1 MB of 4 MB", 0.25)
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
    base.bring_bases(engine, [name], task="image", reporter=reporter, **options)  # type: ignore[arg-type]
    return reporter


def never(question: str) -> bool:
    raise AssertionError(question)


def test_an_image_that_is_there_is_not_requested(programs: list[tuple[str, ...]]) -> None:
    assert bring(FakeEngine(NAME), consent=never).events == []


def test_a_registry_that_answers_is_enough(programs: list[tuple[str, ...]]) -> None:
    steps = bring(FakeEngine(registry=True), consent=never).of(HostStep)
    assert [(step.text, step.fraction) for step in steps] == [
        (f"pulling {NAME}", None),
        (f"{NAME}: pulled 1 MB of 4 MB", 0.25),
    ]
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
    # A verb that has no --yes names one that has.
    assert ("kit image build --yes" in str(caught.value.hint)) is (consent is None)
    assert "--yes" in str(caught.value.hint)
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


LOCKED = f"{NAME}@sha256:{'ab' * 32}"


@pytest.fixture
def bases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The list of bases that kit may take without the lock."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "kit/bases"


def test_with_a_registry_a_locked_base_is_pulled_by_its_digest(programs: list[tuple[str, ...]], bases: Path) -> None:
    # Whatever the tag means here.
    engine = FakeEngine(NAME, registry=True)
    bring(engine, LOCKED, consent=never)
    assert LOCKED in engine.images
    assert not bases.exists()


@pytest.mark.parametrize("consent", [None, lambda question: False])
def test_a_base_without_the_locked_digest_is_not_taken_unasked(
    programs: list[tuple[str, ...]], bases: Path, consent: base.Consent | None
) -> None:
    with pytest.raises(ImageError) as caught:
        bring(FakeEngine(NAME), LOCKED, consent=consent)
    assert f"take {NAME} as this machine has it, without the digest of kit's lock" in str(caught.value.hint)
    assert ("kit image build --yes" in str(caught.value.hint)) is (consent is None)
    assert "--yes" in str(caught.value.hint)
    assert programs == []
    assert not bases.exists()


def test_a_base_that_is_here_is_taken_after_a_yes(programs: list[tuple[str, ...]], bases: Path) -> None:
    questions = []
    engine = FakeEngine(NAME)
    reporter = Remembering()
    assert base.bring_bases(
        engine,  # type: ignore[arg-type]
        [LOCKED],
        task="image",
        reporter=reporter,
        consent=lambda question: questions.append(question) or True,
    )
    assert "cannot be pulled" in questions[0]
    assert "without the digest" in questions[0]
    assert programs == []
    assert bases.read_text().splitlines()[1:] == [NAME]
    assert str(bases) in reporter.of(Note)[-1].text


def test_a_locked_base_is_made_after_a_yes(
    programs: list[tuple[str, ...]], bases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()

    def run(*words: str, on_line: Any) -> None:
        programs.append(words)
        engine.images.add(NAME)

    monkeypatch.setattr("kit.remote.machine.prepare.run", run)
    bring(engine, LOCKED, consent=lambda question: True)
    assert programs == [("base", "--no-pull", "trixie")]
    assert bases.read_text().splitlines()[1:] == [NAME]


def test_a_locked_base_of_somebody_else_needs_a_registry_or_a_docker_load(
    programs: list[tuple[str, ...]], bases: Path
) -> None:
    name = "nvcr.io/nvidia/tensorflow:24.01"
    with pytest.raises(ImageError) as caught:
        bring(FakeEngine(), f"{name}@sha256:{'ab' * 32}", consent=never)
    assert f"with KIT_UNLOCKED_BASES=1 kit takes any {name}, " in str(caught.value.hint)
    bring(FakeEngine(name), f"{name}@sha256:{'ab' * 32}", consent=lambda question: True)
    assert bases.read_text().splitlines()[1:] == [name]


@pytest.mark.parametrize("own", ["team/hvd", NAME])
def test_no_other_image_takes_the_place_of_a_digest_in_kit_yaml(
    programs: list[tuple[str, ...]], bases: Path, own: str
) -> None:
    name = f"{own}@sha256:{'cd' * 32}"
    with pytest.raises(ImageError) as caught:
        bring(FakeEngine(own), name, consent=never, own=name)
    # kit's lock has nothing to do with it.
    assert caught.value.hint == "docker load"
    assert programs == []
    assert not bases.exists()


def test_on_a_vm_only_the_locked_base_counts(programs: list[tuple[str, ...]], bases: Path) -> None:
    engine = FakeEngine(NAME)
    engine.host = "gpu1"
    with pytest.raises(ImageError) as caught:
        bring(engine, LOCKED, consent=never)
    assert "KIT_UNLOCKED_BASES=1" in str(caught.value.hint)
    assert not bases.exists()


class LayeredEngine:
    """Its images have these layers, the lowest first."""

    host: str | None = None

    def __init__(self, **images: str) -> None:
        self.images = {name.replace("_", ":"): tuple(layers) for name, layers in images.items()}

    def image(self, name: str) -> EngineImage | None:
        layers = self.images.get(name)
        return None if layers is None else EngineImage(image_id=f"sha256:{name}", size_bytes=1, layers=layers)


def warnings(engine: LayeredEngine, name: str | None = "team:1", flavour: Flavour = "ssh-layer") -> list[str]:
    reporter, spec = Remembering(), ClusterSpec(image=ImageSpec(flavour=flavour, base=name))
    base.warn_of_new_base(engine, spec, "kit:a", reporter=reporter)  # type: ignore[arg-type]
    return [f"{event.text} -> {event.hint}" for event in reporter.events if isinstance(event, Warned)]


def test_a_newer_image_under_the_name_of_a_base_is_named() -> None:
    (warning,) = warnings(LayeredEngine(kit_a="abcxy", team_1="abd"))
    assert warning.startswith("kit:a was built on another team:1 than this machine has now -> to build it on the new")
    assert "kit image build --force, kit down --images, kit deploy" in warning
    assert len(warnings(LayeredEngine(kit_a="abcxy", team_1="abcxyz"))) == 1


def test_on_the_head_the_old_image_goes_before_the_build() -> None:
    head = LayeredEngine(kit_a="abcxy", team_1="abd")
    head.host = "gpu1"
    (warning,) = warnings(head)
    assert "than gpu1 has now -> to build it on the new one: kit down --images, kit deploy; with another" in warning


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (LayeredEngine(kit_a="abcxy", team_1="abc"), "team:1"),
        # It was built elsewhere, or the base was removed.
        (LayeredEngine(kit_a="abcxy"), "team:1"),
        (LayeredEngine(team_1="abd"), "team:1"),
        (LayeredEngine(kit_a="abcxy", team_1="abd"), None),
    ],
)
def test_a_base_that_is_the_same_is_not(engine: LayeredEngine, name: str | None) -> None:
    assert warnings(engine, name) == []


def test_a_base_with_a_digest_is_the_same() -> None:
    engine = LayeredEngine(kit_a="abcxy")
    name = f"team@sha256:{'0' * 64}"
    engine.images[name] = ("d",)
    assert warnings(engine, name) == []
    engine.images["debian:bookworm-slim"] = ("d",)
    assert warnings(engine, "debian:bookworm-slim", "cpu") == []
