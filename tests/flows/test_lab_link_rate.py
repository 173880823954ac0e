"""kit lab link-rate, where there is nothing to shape: what it says, and what to write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.cli.main import main
from kit.flows.lab import lab
from kit.model.lab import LabObjects, LabSpec
from kit.plan.lab import IPv4Network, kit_yaml_text


class NoLab:
    def find(self, _name: str) -> LabObjects:
        return LabObjects(network=None, containers=(), volumes=())


def test_what_is_no_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-C", str(tmp_path), "lab", "link-rate", "200"], environ={}) == 2
    err = capsys.readouterr().err
    assert "'200' is not the rate of a link" in err
    assert "200mbit, or none for no limit" in err


@pytest.mark.parametrize(
    ("made_for", "words", "hint"),
    [
        (None, [], "kit lab up\n"),
        (None, ["--name", "b"], "kit lab up --name b\n"),
        # The lab of the folder, where nobody names another.
        ("here", [], "kit lab up --name here\n"),
        ("here", ["--name", "b"], "kit lab up --name b\n"),
    ],
)
def test_a_lab_that_is_not_there(
    made_for: str | None,
    words: list[str],
    hint: str,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextlib.contextmanager
    def engine() -> Iterator[NoLab]:
        yield NoLab()

    monkeypatch.setattr(lab, "open_engine", engine)
    if made_for:
        text = kit_yaml_text(LabSpec(name=made_for), IPv4Network("10.213.7.0/24"))
        (tmp_path / "kit.yaml").write_text(text)
    assert main(["-C", str(tmp_path), "lab", "link-rate", "200mbit", *words], environ={}) == 5
    err = capsys.readouterr().err
    assert "there is no such lab" in err
    assert err.endswith(hint)
