"""scripts/measure-data: what is measured, in which order, and when a figure is beyond its limit."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from scripts import peers
from scripts.beside import beside


@pytest.fixture(scope="module")
def measure() -> ModuleType:
    return beside("measure-data")


class FakeHosts:
    """Takes this many seconds for each staging, in turn, and remembers what it was asked."""

    def __init__(self, *seconds: float, rate: str = "100mbit") -> None:
        self.rate, self.used, self.image, self.logins = rate, 0, "kit:x", ["gpu1", "gpu2"]
        self.said: list[str] = []
        self._seconds = list(seconds)

    @contextlib.contextmanager
    def unlimited(self) -> Iterator[None]:
        self.said.append("no limit")
        yield
        self.said.append(self.rate)

    def use(self, count: int, data: Mapping[str, object]) -> None:
        self.used = count
        self.said.append(f"use {count}")

    def kit(self, *words: str, **environ: str) -> float:
        self.said.append(" ".join(words))
        return self._seconds.pop(0) if words[1] == "stage" else 0.0


@pytest.fixture
def theirs(measure: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """rclone takes 64 s and rsync 80 s."""
    sender = SimpleNamespace(name="rsync -a", copy=lambda folder: 80.0)
    monkeypatch.setattr(peers, "rclone", lambda *_: 64.0)
    monkeypatch.setattr(peers.FromHere, "best", lambda logins: sender)
    for name in ("arrived", "forget"):
        monkeypatch.setattr(peers, name, lambda *_: None)


@pytest.fixture
def source(tmp_path: Path) -> Any:
    (tmp_path / "ca").write_text("PEM")
    return SimpleNamespace(environment={"AWS_REGION": "x"}, url="https://10.0.0.1:9", ca=tmp_path / "ca")


def data_of(measure: ModuleType, size: int) -> object:
    return measure.Data(name="big", folder=Path("/none"), files=1000, size=size)


@pytest.mark.usefixtures("theirs")
def test_staging_is_compared_with_one_link_and_with_the_other_methods(measure: ModuleType, source: Any) -> None:
    """100 MB over 100 Mbit/s take 8 s."""
    hosts = FakeHosts(8.8, *[1.0, 3.0, 1.2, 1.1, 1.3], 8.0)
    rows = list(measure.big(hosts, [8, 2], data_of(measure, 100_000_000), source, quick=False))
    assert [(row["what"], row["seconds"], row["limit"]) for row in rows] == [
        ("kit data stage to 8 hosts", 8.8, 10.4),
        ("1,000 files again, nothing changed, 8 hosts", 1.2, 2.0),
        ("rclone copy on each of 8 hosts at once", 64.0, None),
        ("rsync -a from here to one host after the other", 80.0, None),
        ("kit data stage to 2 hosts", 8.0, 10.4),
        ("8 hosts and 2", 8.8, 9.2),
    ]
    assert rows[0]["note"] == "one link needs 8.0 s; ratio 1.10"
    assert "kit is 7.3 times as fast" in str(rows[2]["note"])
    staged = hosts.said.index("data stage big")
    assert hosts.said[staged + 1] == "data verify big"
    assert hosts.said[staged - 1] == "use 8"


@pytest.mark.usefixtures("theirs")
def test_only_kit_is_measured_on_request(measure: ModuleType, source: Any) -> None:
    hosts = FakeHosts(9.0, *[1.0] * 5)
    rows = list(measure.big(hosts, [4], data_of(measure, 100_000_000), source, quick=True))
    assert [row["what"] for row in rows] == [
        "kit data stage to 4 hosts",
        "1,000 files again, nothing changed, 4 hosts",
    ]


@pytest.mark.usefixtures("theirs")
def test_small_files_are_compared_with_rsync_at_each_rate(measure: ModuleType) -> None:
    hosts = FakeHosts(15.0, *[1.0] * 5, 20.0, *[2.5] * 5)
    rows = list(measure.small(hosts, 8, data_of(measure, 100_000_000), ["20mbit", "100mbit"], quick=False))
    kits = [row for row in rows if str(row["what"]).startswith("kit")]
    assert [(row["seconds"], row["limit"], row["of_limit"]) for row in kits] == [(15.0, 16.0, 0.94), (20.0, 16.0, 1.25)]
    assert [row["of_limit"] for row in rows if "nothing changed" in str(row["what"])] == [0.5, 1.25]
    assert next(word for word in hosts.said if word.endswith("mbit")) == "20mbit"


def test_the_first_hosts_of_the_lab_are_used_alone(measure: ModuleType) -> None:
    text = "# Made by kit\n10.0.0.11 name=gpu1\n10.0.0.12 name=gpu2\n10.0.0.13 name=gpu3\n"
    assert measure.first(text, 2) == "# Made by kit\n10.0.0.11 name=gpu1\n10.0.0.12 name=gpu2\n"


def test_files_are_what_was_asked_for(measure: ModuleType, tmp_path: Path) -> None:
    data = measure.write("big", tmp_path, 201, 1000)
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.bin"))
    assert (len(found), found[0], found[-1]) == (201, "part0000/000000.bin", "part0002/000200.bin")
    assert (data.files, data.size, data.over(1e6)) == (201, 201_000, 1.608)


def test_a_copy_that_is_not_whole_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "everywhere", lambda logins, line: ["3 3000\n", "2 2000\n"])
    logins = [SimpleNamespace(host="gpu1"), SimpleNamespace(host="gpu2")]
    with pytest.raises(SystemExit, match="gpu2: 2 2000 came of 3 files and 3000 bytes"):
        peers.arrived(logins, 3, 3000)  # type: ignore[arg-type]


@pytest.mark.parametrize(("code", "name"), [(0, "rsync -a"), (1, "tar over ssh")])
def test_tar_replaces_rsync_and_the_row_says_so(monkeypatch: pytest.MonkeyPatch, code: int, name: str) -> None:
    monkeypatch.setattr(peers, "_installed", lambda login: code)
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    assert peers.FromHere.best(["gpu1"]).name == name  # type: ignore[list-item]
