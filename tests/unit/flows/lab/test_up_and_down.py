"""What kit lab up and down say about a lab that exists, is unfinished or is missing. The engine is a fake."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.cli.text.lab import lab_removed
from kit.errors import InputError, Interrupted, KitError, NotReadyError
from kit.events import Event, Warned
from kit.flows.lab import lab as flow
from kit.model.lab import LabContainer, LabNetwork, LabObjects, LabSpec
from kit.remote.lab import access
from tests.fakes.reporter import Remembering


class Notes:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def report(self, event: Event) -> None:
        self.texts.append(str(getattr(event, "text", "")))


class Engine:
    """Has the objects; `remove` takes them away."""

    def __init__(self, existing: LabObjects) -> None:
        self.existing = existing

    def find(self, _name: str) -> LabObjects:
        return self.existing

    def remove(self, _objects: LabObjects, *, again: str) -> None:
        self.existing = LabObjects()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine(LabObjects())

    @contextlib.contextmanager
    def opened() -> Iterator[Engine]:
        yield engine

    monkeypatch.setattr(flow, "open_engine", opened)
    monkeypatch.setattr(flow, "_ensure_engine", lambda *_: None)
    monkeypatch.setattr(access, "require_client", lambda: None)
    return engine


def network(spec: LabSpec, folder: Path) -> LabNetwork:
    subnet = ipaddress.IPv4Network("10.213.9.0/24")
    return LabNetwork(id="1", name="n", subnet=subnet, shape=spec.shape, folder=str(folder.resolve()))


def test_up_without_options_says_how_the_lab_was_made(engine: Engine, tmp_path: Path) -> None:
    engine.existing = LabObjects(network=network(LabSpec(name="mine", hosts=2), tmp_path))
    with pytest.raises(InputError, match="another shape") as caught:
        flow.lab_up(LabSpec(name="mine"), folder=tmp_path, reporter=Notes())
    assert str(caught.value.hint).startswith(
        "Start or complete it: kit lab up --name mine --hosts 2. Take it down first"
    )


def test_up_completes_a_lab_that_has_only_its_network(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed kit lab up may have made no key yet."""
    made: list[object] = []
    monkeypatch.setattr(flow, "make", lambda *_, **__: made.append(None))
    engine.existing = LabObjects(network=network(LabSpec(), tmp_path))
    flow.lab_up(LabSpec(), folder=tmp_path, reporter=Notes())
    assert len(made) == 1
    host = LabContainer(id="1", host="gpu1", address="10.213.9.2", state="exited")
    engine.existing = LabObjects(network=network(LabSpec(), tmp_path), containers=(host,))
    with pytest.raises(InputError, match="the login key of the lab 'lab' is gone"):
        flow.lab_up(LabSpec(), folder=tmp_path, reporter=Notes())


def test_other_verbs_name_the_command_that_starts_this_lab(engine: Engine, tmp_path: Path) -> None:
    """kit lab up alone refuses a lab that --hosts 2 made."""
    stopped = LabContainer(id="1", host="gpu1", address="10.213.9.2", state="exited")
    engine.existing = LabObjects(network=network(LabSpec(hosts=2), tmp_path), containers=(stopped,))
    for verb in (
        lambda: flow.lab_link_rate("200mbit", folder=tmp_path),
        lambda: flow.lab_gpu("gpu1", folder=tmp_path),
    ):
        with pytest.raises(NotReadyError, match="gpu1 does not run") as caught:
            verb()
        assert caught.value.hint == "Start it: kit lab up --hosts 2"
    engine.existing = LabObjects()
    with pytest.raises(NotReadyError, match="there is no such lab") as caught:
        flow.lab_gpu("gpu1", folder=tmp_path)
    assert caught.value.hint == "Start it: kit lab up --gpus 2"


@pytest.mark.parametrize("begun", [True, False])
def test_up_that_fails_speaks_of_removing_only_what_it_made(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    def make(*_: object, **options: threading.Event) -> None:
        if begun:
            engine.existing = LabObjects(network=network(LabSpec(), tmp_path))
            options["begun"].set()
        raise KitError("no base image")

    monkeypatch.setattr(flow, "make", make)
    notes = Notes()
    with pytest.raises(KitError, match="no base image"):
        flow.lab_up(LabSpec(), folder=tmp_path, reporter=notes)
    assert notes.texts == (["Removing the unfinished lab."] if begun else [])
    assert engine.existing.empty


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("docker network disconnect n web, then: kit lab down", "docker network disconnect n web, then: kit lab down"),
        ("run the command again", "Remove it: kit lab down"),
        (None, "Remove it: kit lab down"),
    ],
)
def test_a_removal_that_fails_does_not_hide_why_up_failed(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hint: str | None, shown: str
) -> None:
    def make(*_: object, begun: threading.Event, **__: object) -> None:
        begun.set()
        raise KitError("no base image")

    def refuse(_objects: LabObjects, *, again: str) -> None:
        assert again == "kit lab down"
        raise KitError("the network is used", hint=hint)

    monkeypatch.setattr(flow, "make", make)
    monkeypatch.setattr(engine, "remove", refuse)
    reporter = Remembering()
    with pytest.raises(KitError, match="no base image"):
        flow.lab_up(LabSpec(), folder=tmp_path, reporter=reporter)
    assert [(event.text, event.hint) for event in reporter.events if isinstance(event, Warned)] == [
        ("Removing the unfinished lab.", None),
        ("The unfinished lab is still there: the network is used", shown),
    ]


@pytest.mark.parametrize("error", [KitError("no base image"), KeyboardInterrupt()])
def test_up_that_fails_spares_a_lab_that_another_up_has_made_since(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Both waited for the image of the hosts, which takes minutes."""

    def make(*_: object, **__: object) -> None:
        engine.existing = LabObjects(network=network(LabSpec(), tmp_path / "of-another-person"))
        access.make_key(tmp_path, "lab")
        raise error

    monkeypatch.setattr(flow, "make", make)
    with pytest.raises(KitError):
        flow.lab_up(LabSpec(), folder=tmp_path, reporter=Notes())
    assert not engine.existing.empty
    assert access.key_path(tmp_path).exists()


def test_the_removal_goes_on_after_a_second_ctrl_c(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal that is gone interrupts kit like this, too, when kit next writes to it."""

    class Gone(Notes):
        def report(self, event: Event) -> None:
            super().report(event)
            signal.raise_signal(signal.SIGINT)

    def make(*_: object, begun: threading.Event, **__: object) -> None:
        engine.existing = LabObjects(network=network(LabSpec(), tmp_path))
        begun.set()
        raise KeyboardInterrupt

    # A shell's background job ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(flow, "make", make)
    notes = Gone()
    try:
        with pytest.raises(Interrupted):
            flow.lab_up(LabSpec(), folder=tmp_path, reporter=notes)
    finally:
        signal.signal(signal.SIGINT, before)
    assert notes.texts == ["Removing the unfinished lab."]
    assert engine.existing.empty


def test_ctrl_c_names_the_whole_command(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(flow, "make", make)
    with pytest.raises(Interrupted) as caught:
        flow.lab_up(LabSpec(name="mine", hosts=2), folder=tmp_path, reporter=Notes())
    assert caught.value.hint == "Run it again: kit lab up --name mine --hosts 2"
    assert engine.existing.empty


@contextlib.contextmanager
def as_another_user() -> Iterator[None]:
    """Look like a user who is not root. Any other user of the tests stays who they are."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_lab_in_the_home_of_another_person_stays_theirs(engine: Engine, tmp_path: Path) -> None:
    """Homes of Ubuntu are closed to others, and all labs of a machine are on one engine."""
    home = tmp_path / "alice"
    (home / "lab").mkdir(parents=True)
    engine.existing = LabObjects(network=network(LabSpec(), home / "lab"))
    home.chmod(0)
    mine = Path("/")
    try:
        for verb in (
            lambda: flow.lab_up(LabSpec(), folder=mine, reporter=Notes()),
            lambda: flow.lab_down(folder=mine),
            lambda: flow.lab_link_rate("none", folder=mine),
        ):
            with as_another_user(), pytest.raises(InputError, match="belongs to the folder") as caught:
                verb()
            assert "--name lab2" in str(caught.value.hint)
    finally:
        home.chmod(0o700)


def test_a_lab_whose_folder_is_gone_can_be_removed_from_any(engine: Engine, tmp_path: Path) -> None:
    engine.existing = LabObjects(network=network(LabSpec(), tmp_path / "gone"))
    flow.lab_down(folder=tmp_path)
    assert engine.existing.empty


@pytest.mark.usefixtures("engine")
def test_down_without_a_lab_says_so_once(tmp_path: Path) -> None:
    removed = flow.lab_down("mine", folder=tmp_path)
    assert lab_removed(removed) == "Nothing to do: there is no lab 'mine'."
