"""kit lab gpu: what it asks of a host, and what it refuses. kit lab up beside a real driver."""

from __future__ import annotations

import contextlib
import ipaddress
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.cli.main import main
from kit.flows.lab import lab
from kit.model.lab import LabContainer, LabGpu, LabGpus, LabNetwork, LabObjects, LabSpec

GPUS = LabGpus(
    host="gpu1",
    name="NVIDIA H200 (PRETENDED)",
    driver="550.54.15",
    gpus=(LabGpu(number=0, uuid="GPU-1"), LabGpu(number=1, uuid="GPU-2", faults=("ecc", "mig"))),
    lost=1,
)


class Lab:
    """The engine of a lab with one host, and that host."""

    def __init__(self, folder: Path, spec: LabSpec | None, state: str = "running") -> None:
        self.objects, self.asked = LabObjects(), list[list[str]]()
        if spec:
            subnet = ipaddress.IPv4Network("10.213.7.0/24")
            network = LabNetwork(id="n", name="n", subnet=subnet, shape=spec.shape, folder=str(folder))
            host = LabContainer(id="c", host="gpu1", address="10.213.7.11", state=state)
            self.objects = LabObjects(network=network, containers=(host,))

    def find(self, _name: str) -> LabObjects:
        return self.objects

    def host(self, container: str, host: str) -> Lab:
        assert (container, host) == ("c", "gpu1")
        return self

    def pretended_gpus(self, argv: list[str]) -> LabGpus:
        self.asked.append(argv)
        return GPUS


def use(engine: Lab, patch: pytest.MonkeyPatch) -> Lab:
    @contextlib.contextmanager
    def opened() -> Iterator[Lab]:
        yield engine

    patch.setattr(lab, "open_engine", opened)
    return engine


@pytest.mark.parametrize(
    ("words", "argv"),
    [
        ([], ["show"]),
        (["--gpu", "1", "--fault", "xid:79"], ["fault", "1", "xid:79"]),
        (["--fault", "busy"], ["fault", "0", "busy"]),
        (["--mend"], ["mend", "all"]),
    ],
)
def test_what_it_asks_of_the_host(
    words: list[str],
    argv: list[str],
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = use(Lab(tmp_path.resolve(), LabSpec(gpus=2)), monkeypatch)
    assert main(["-C", str(tmp_path), "lab", "gpu", "gpu1", *words], environ={}) == 0
    assert engine.asked == [argv]
    head, _, first, second = capsys.readouterr().out.splitlines()
    assert head == "gpu1: NVIDIA H200 (PRETENDED), driver 550.54.15, lost in 1 running container"
    assert first.split() == ["0", "GPU-1", "none"]
    assert second.split() == ["1", "GPU-2", "ecc,", "mig"]


def test_its_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    use(Lab(tmp_path.resolve(), LabSpec(gpus=2)), monkeypatch)
    assert main(["-C", str(tmp_path), "lab", "gpu", "gpu1", "--json"], environ={}) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["kind"] == "lab-gpus"
    assert answer["gpus"][1] == {"number": 1, "uuid": "GPU-2", "faults": ["ecc", "mig"]}


@pytest.mark.parametrize(
    ("spec", "state", "words", "code", "says"),
    [
        (None, "running", ["gpu1"], 5, "there is no such lab"),
        (LabSpec(), "running", ["gpu1"], 5, "has no GPUs"),
        (LabSpec(gpus=2), "exited", ["gpu1"], 5, "gpu1 does not run"),
        (LabSpec(gpus=2), "running", ["gpu9"], 2, "no host 'gpu9'"),
        (LabSpec(gpus=2), "running", ["gpu1", "--fault", "flood"], 2, "no fault 'flood'"),
        (LabSpec(gpus=2), "running", ["gpu1", "--fault", "ecc", "--mend"], 2, "contradict"),
    ],
)
def test_what_it_refuses(
    spec: LabSpec | None,
    state: str,
    words: list[str],
    code: int,
    says: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = use(Lab(tmp_path.resolve(), spec, state), monkeypatch)
    assert main(["-C", str(tmp_path), "lab", "gpu", *words], environ={}) == code
    err = capsys.readouterr().err
    assert says in err
    assert "→" in err
    assert engine.asked == []


def test_no_gpus_are_pretended_beside_a_real_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    version = tmp_path / "version"
    version.touch()
    monkeypatch.setattr(lab, "_DRIVER", version)
    assert main(["-C", str(tmp_path), "lab", "up", "--gpus", "2"], environ={}) == 2
    assert "a real NVIDIA driver" in capsys.readouterr().err
