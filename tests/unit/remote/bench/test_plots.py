"""The PNG of a session's charts: there, the same each time, and nothing left behind at home."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kit.model.benchchart import Chart
from kit.plan.bench.report.charts import charts
from kit.plan.bench.report.stats import summarise
from kit.remote.bench.plots import png
from tests import benchdata

ROOT = Path(__file__).resolve().parents[4]


def of(name: str) -> tuple[Chart, ...]:
    return charts(summarise(*getattr(benchdata, name)()))


def size(picture: bytes) -> tuple[int, int]:
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


@pytest.mark.parametrize("name", ["ladder", "compression", "many"])
def test_a_picture_of_panels(name: str) -> None:
    panels = of(name)
    width, height = size(png(panels, title=name))
    assert width >= (1500 if len(panels) > 1 else 800)
    assert height >= (1100 if len(panels) > 2 else 500)


def test_the_same_charts_give_the_same_bytes() -> None:
    first = png(of("ladder"), title="x")
    assert png(of("ladder"), title="x") == first
    assert png(of("egs"), title="x") != first


def test_names_are_no_formulas_and_need_no_font() -> None:
    cases = [benchdata.case(str(x), x=f"{x} $\\frac{{1}}{{$ 日本", series="$x", np=8) for x in range(3)]
    samples = [sample for case in cases for sample in benchdata.repeated(case, lambda f: benchdata.training(f, 8))]
    size(png(charts(summarise(benchdata.session("x", cases), samples)), title="$"))


def test_home_is_not_written_to(tmp_path: Path) -> None:
    """matplotlib would keep its fonts there; with a home that cannot be written to it would complain."""
    home = tmp_path / "home"
    home.mkdir()
    folder = benchdata.write(tmp_path / "session", benchdata.egs())
    home.chmod(0o500)
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "kit.cli.main", "bench", "report", folder],
        env=environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [str(folder / name) for name in ("results.csv", "report.html", "results.png")]
    assert list(home.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"home", "session"}
    assert not any(path.name.startswith(".") for path in folder.iterdir())
