"""kit lab fault: what it asks of a host and of this machine, and what it refuses."""

from __future__ import annotations

import contextlib
import ipaddress
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.cli.main import main
from kit.flows.lab import fault
from kit.model.lab import FOLDER_LABEL, LABEL, LabContainer, LabNetwork, LabObjects


class Lab:
    """The engine of a lab with one host, and that host, which has `faults`."""

    def __init__(self, folder: Path, faults: tuple[str, ...] = (), *, state: str = "running", lists: str = "") -> None:
        subnet = ipaddress.IPv4Network("10.213.7.0/24")
        network = LabNetwork(id="n", name="kit-lab-lab", subnet=subnet, shape="s", folder=str(folder))
        host = LabContainer(id="c", host="gpu1", address="10.213.7.11", state=state)
        self.objects = LabObjects(network=network, containers=(host,))
        # `lists`: what the host lists beside its faults, until kit says that it has limited what arrives.
        self.faults, self.lists = {*faults}, lists
        self.acts: list[tuple[str, ...]] = []
        self.shaped: list[tuple[str, str, list[str], dict[str, str]]] = []

    def find(self, _name: str) -> LabObjects:
        return self.objects

    def host(self, container: str, host: str) -> Lab:
        assert (container, host) == ("c", "gpu1")
        return self

    def fault(self, argv: list[str]) -> str:
        action, name, argument = argv[4:]
        if action == "list":
            return "".join(f"{known}\n" for known in sorted(self.faults)) + self.lists
        if action == "shaped":
            assert self.shaped
            self.lists = ""
            return ""
        self.acts.append((action, name, argument))
        self.faults = self.faults | {name} if action == "inject" else self.faults - {name}
        return ""

    def image(self) -> str:
        return "sha256:1"

    def link(self) -> int:
        return 17

    def shape_links(self, image: str, rate: str, devices: list[str], labels: dict[str, str]) -> None:
        self.shaped.append((image, rate, devices, labels))


def use(engine: Lab, patch: pytest.MonkeyPatch) -> Lab:
    @contextlib.contextmanager
    def opened() -> Iterator[Lab]:
        yield engine

    patch.setattr(fault, "open_engine", opened)
    return engine


@pytest.mark.parametrize(
    ("words", "acts", "says"),
    [
        ([], [], "gpu1 has swap, thp."),
        (["path-mtu"], [("inject", "path-mtu", "")], "gpu1 has path-mtu, swap, thp."),
        (["mtu-differs", "1400"], [("inject", "mtu-differs", "1400")], "gpu1 has mtu-differs, swap, thp."),
        (["swap", "--mend"], [("mend", "swap", "")], "gpu1 has thp."),
        (["all", "--mend"], [("mend", "swap", ""), ("mend", "thp", "")], "gpu1 has no faults."),
    ],
)
def test_what_it_asks_of_the_host(
    words: list[str],
    acts: list[tuple[str, ...]],
    says: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = use(Lab(tmp_path.resolve(), ("swap", "thp")), monkeypatch)
    assert main(["-C", str(tmp_path), "lab", "fault", "gpu1", *words], environ={}) == 0
    assert engine.acts == acts
    assert engine.shaped == []
    assert capsys.readouterr().out == f"{says}\n"


def test_a_slow_link_is_limited_at_its_other_end_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = use(Lab(tmp_path.resolve(), lists="far-end 100mbit\n"), monkeypatch)
    assert main(["-C", str(tmp_path), "lab", "fault", "gpu1", "slow-link"], environ={}) == 0
    ((image, rate, devices, labels),) = engine.shaped
    assert (image, rate, devices) == ("sha256:1", "100mbit", ["@17"])
    assert (labels[LABEL], labels[FOLDER_LABEL]) == ("lab", str(tmp_path.resolve()))
    assert capsys.readouterr().out == "gpu1 has slow-link.\n"
    # The host knows that it is done.
    assert main(["-C", str(tmp_path), "lab", "fault", "gpu1", "swap"], environ={}) == 0
    assert len(engine.shaped) == 1


def test_a_look_changes_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = use(Lab(tmp_path.resolve(), lists="far-end 100mbit\n"), monkeypatch)
    assert main(["-C", str(tmp_path), "lab", "fault", "gpu1"], environ={}) == 0
    assert engine.shaped == []


def test_what_a_host_prints_reaches_this_machine_only_as_a_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = use(Lab(tmp_path.resolve(), lists="far-end none; reboot\nfar-end @3\n"), monkeypatch)
    assert main(["-C", str(tmp_path), "lab", "fault", "gpu1", "slow-link"], environ={}) == 0
    assert engine.shaped == []


def test_its_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use(Lab(tmp_path.resolve(), ("swap",)), monkeypatch)
    assert main(["-C", str(tmp_path), "lab", "fault", "gpu1", "--json"], environ={}) == 0
    assert json.loads(capsys.readouterr().out) == {"kit": 1, "kind": "lab-faults", "host": "gpu1", "faults": ["swap"]}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["gpu9", "swap"], 2, "has no host 'gpu9'"),
        (["gpu1", "sawp"], 2, "Write one of: swap"),
        (["gpu1", "all"], 2, "all faults at once"),
        (["gpu1", "--mend"], 2, "--mend needs a fault"),
        (["gpu1", "mtu-differs", "14 00"], 2, "no value of a fault"),
        (["gpu1", "mtu-differs", "1400", "--mend"], 2, "--mend takes no value"),
        (["gpu1", "all", "--mend"], 2, "this kit cannot mend 'of-tomorrow'"),
    ],
)
def test_what_it_refuses_changes_nothing(
    words: list[str],
    code: int,
    says: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = use(Lab(tmp_path.resolve(), ("swap", "of-tomorrow")), monkeypatch)
    assert main(["-C", str(tmp_path), "lab", "fault", *words], environ={}) == code
    assert engine.acts == []
    assert says in capsys.readouterr().err


def test_a_host_that_does_not_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(Lab(tmp_path.resolve(), state="exited"), monkeypatch)
    assert main(["-C", str(tmp_path), "lab", "fault", "gpu1", "swap"], environ={}) == 5
    assert "gpu1 does not run" in capsys.readouterr().err
