"""Every table with long cells on a narrow terminal: its lines fit, and a pipe gets them whole."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.cli.main import main
from kit.cli.screen.cells import cells
from kit.cli.screen.plain import Quiet
from kit.cli.screen.terminal import Terminal
from kit.cli.session import Session
from kit.cli.text import bench, bench_summary, lab, lock, plan, predict, tune
from kit.cli.text.table import table
from kit.flows.bench.listing import SessionRow
from kit.flows.bench.measure import BenchPlan
from kit.flows.predict import PredictRequest
from kit.flows.predict import predict as prediction
from kit.model.lab import LabHost, LabStatus
from kit.model.lock import AuditEntry, AuditResult
from kit.model.plan import HostPlan, Plan, Round, Ship
from kit.model.tune import Machine, TuneResult
from kit.plan.bench.report.compare import compare
from kit.plan.bench.report.stats import summarise
from tests import benchdata

LONG = "a-word-that-takes-more-room-than-a-terminal-has-" * 3
WIDTH = 80


def shipment() -> Plan:
    ship = Ship(image=f"kit:{LONG}", why=LONG, size=1_000_000, image_id="sha256:0", address="10.0.0.1")
    rounds = (Round(name="ship", hosts=(HostPlan(host="gpu1", steps=(ship,)),)),)
    return Plan(cluster="kit", hosts=("gpu1",), rounds=rounds)


MACHINE = Machine(name=LONG, slots=8, threads=64, gpus=("V100",) * 8, gpu_links=("NV2", "PHB", LONG), nic="eth0")
BEFORE = summarise(*benchdata.compression())
TEXTS: dict[str, Callable[..., str]] = {
    "bench plan": lambda **kw: bench.plan(
        BenchPlan(
            preset="egs", cases=(benchdata.case(f"egs/{LONG}", command=("tf_benchmark", LONG)),), launches=3, seconds=9
        ),
        **kw,
    ),
    "bench list": lambda **kw: bench.sessions(
        [
            SessionRow(
                id="20260101-egs",
                folder="20260101-egs",
                preset="egs",
                cluster=LONG,
                started="",
                cases=3,
                samples=9,
                left=0,
            )
        ],
        **kw,
    ),
    "bench report": lambda **kw: bench_summary.bench_table(BEFORE, **kw),
    "lab": lambda **kw: lab.lab(
        LabStatus(name="lab", folder=Path("/l"), hosts=(LabHost(name="gpu1", address="10.0.0.1", state=LONG),)), **kw
    ).partition("\n")[2],
    "audit": lambda **kw: lock.audit(
        AuditResult(
            cluster="kit",
            entries=(AuditEntry(time="12:00", who=LONG, verb="deploy", what=LONG, outcome="done", seconds=1.0),),
        ),
        **kw,
    ),
    "plan": lambda **kw: plan.plan(shipment(), **kw),
    "predict": lambda **kw: predict.text(
        prediction(PredictRequest(model="resnet50", gpus=8, per_host=2, step_ms=290, link="8gbit"), folder=Path()), **kw
    ).rpartition("\n\n")[2],
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_table_fits_the_terminal(name: str) -> None:
    whole, fitted = TEXTS[name](), TEXTS[name](width=WIDTH)
    assert max(map(len, whole.splitlines())) > WIDTH
    assert max(map(len, fitted.splitlines())) <= WIDTH
    assert "…" in fitted
    assert "…" not in whole
    assert len(fitted.splitlines()) == len(whole.splitlines())


def test_the_machines_of_kit_tune_fit_as_far_as_figures_allow() -> None:
    result = TuneResult(
        machines=(MACHINE,), wire=None, before=None, after=None, tried=(), small_s=None, changed=(), kept=(),
        advice=(), diff="", written=False, file="kit.yaml", seconds=1.0,
    )  # fmt: skip
    whole, fitted = (tune.text(result, **kw).partition("\n\n")[0] for kw in ({}, {"width": 100}))
    assert max(map(len, whole.splitlines())) > 300
    assert max(map(len, fitted.splitlines())) <= 100


def test_a_comparison_keeps_the_verdict_readable() -> None:
    comparison = compare(BEFORE, summarise(*benchdata.compression()))
    fitted = bench_summary.comparison(comparison, width=60)
    assert "within the noise" in fitted
    assert LONG not in fitted


def test_a_full_plan_is_never_cut() -> None:
    assert LONG in plan.plan(shipment(), verbose=True, width=40)


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "verbose", "cut"), [(Tty, False, True), (Tty, True, False), (io.StringIO, False, False)]
)
def test_only_a_terminal_cuts(
    stream: type[io.StringIO], verbose: bool, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert shutil.get_terminal_size().columns == 80
    terminal = Terminal(out=stream(), err=stream(), inp=stream(), environ={})
    args: dict[str, Any] = {"output": None, "folder": None, "verbose": verbose}
    session = Session(args=SimpleNamespace(**args), terminal=terminal, reporter=Quiet(terminal), environ={})
    status = LabStatus(name="lab", folder=Path("/l"), hosts=(LabHost(name="gpu1", address="10.0.0.1", state=LONG),))
    session.show("lab", status, session.fitted(lab.lab))
    assert isinstance(terminal.out, io.StringIO)
    assert (LONG not in terminal.out.getvalue()) is cut


def test_what_is_told_fits_the_terminal_of_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    terminal = Terminal(out=io.StringIO(), err=Tty(), inp=io.StringIO(), environ={})
    args: dict[str, Any] = {"output": None, "folder": None, "verbose": False}
    session = Session(args=SimpleNamespace(**args), terminal=terminal, reporter=Quiet(terminal), environ={})
    assert (session.width, session.told_width) == (None, 60)
    args["verbose"] = True
    assert (
        Session(args=SimpleNamespace(**args), terminal=terminal, reporter=Quiet(terminal), environ={}).told_width
        is None
    )


def test_a_pipe_gets_whole_cells(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert (
        main(["predict", "--model", "resnet50", "--gpus", "8", "--step-ms", "290", "--link", "8gbit"], environ={}) == 0
    )
    assert "…" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (
            "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48",
            6,
        ),  # Thai: six letters, and marks above them
        ("\u0928\u092e\u0938\u094d\u0924\u0941", 4),  # Hindi: three letters, one of them with a virama
        ("\u1112\u1161\u11ab", 2),  # Korean, decomposed
        ("\ud55c", 2),
        ("e\u0301", 1),
        ("1\u20e3", 1),
    ],
)
def test_marks_take_no_cell(text: str, count: int) -> None:
    assert cells(text) == count


def test_wide_characters_take_two_cells() -> None:
    rows = [("python 训练.py", 3), ("python train.py", 12)]
    assert table(rows, ("COMMAND", "NP")).splitlines() == [
        "COMMAND          NP",
        "python 训练.py    3",
        "python train.py  12",
    ]
    narrow = table([("python 训练脚本与验证脚本.py", 3)], ("COMMAND", "NP"), width=22, flexible=("COMMAND",))
    assert narrow.splitlines()[1] == "python 训练脚本与…   3"
    assert max(cells(line) for line in narrow.splitlines()) <= 22
