"""The command line of kit bench as the request that it makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.cli.main import main
from kit.cli.verbs.values import names, numbers, positive
from kit.flows.bench import measure as flow
from kit.flows.bench.measure import BenchPlan, BenchRequest, BenchResult
from kit.model.bench import META, SAMPLES, Case, Sample, Session
from kit.plan.bench.cases import BenchOptions
from kit.plan.bench.record import sample_line, session_text

HOSTS = "10.0.0.1 name=gpu1 slots=2\n"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [(names, "host, bridge,", ("host", "bridge")), (numbers, "1,2,16", (1, 2, 16)), (positive, "290.5", 290.5)],
)
def test_values(kind: Any, text: str, value: object) -> None:
    assert kind(text) == value


@pytest.mark.parametrize(
    ("kind", "text"), [(names, " , "), (numbers, "1,x"), (numbers, "0"), (positive, "0"), (positive, "-1")]
)
def test_values_that_are_wrong(kind: Any, text: str) -> None:
    with pytest.raises(ValueError, match="'"):
        kind(text)


CASE = Case(id="egs/mxnet-resnet18_v1/1", rung="training", title="resnet18", proves="that", command=("x",), x=1)
SESSION = Session(id="20260101-000000-egs", preset="egs", cluster="kit", started="2026-01-01", cases=(CASE,))


class Flow:
    """What the flow was called with; a session is on the disk as if it had been measured."""

    def __init__(self, folder: Path, *samples: Sample) -> None:
        self.options: list[Any] = []
        self.folder, self.samples = folder / "bench" / SESSION.id, samples
        (folder / "hosts").write_text(HOSTS)
        (folder / "kit.yaml").write_text("name: kit\n")

    def bench(self, _context: object, request: BenchRequest, *, on_sample: Callable[[Sample], None]) -> BenchResult:
        self.options.append(request)
        self.folder.mkdir(parents=True)
        (self.folder / META).write_text(session_text(SESSION))
        (self.folder / SAMPLES).write_text("".join(map(sample_line, self.samples)))
        for sample in self.samples:
            on_sample(sample)
        failed = tuple(sample for sample in self.samples if sample.failure)
        return BenchResult(folder=self.folder, session=SESSION, samples=self.samples, failed=failed, seconds=1.0)

    def plan(self, _context: object, options: BenchOptions) -> BenchPlan:
        self.options.append(options)
        return BenchPlan(preset="egs", cases=(CASE,), launches=3, seconds=45.0, skipped={"overlay": "no swarm"})


def sample(**more: Any) -> Sample:
    return Sample(case=CASE.id, repeat=1, at="2026-01-01T00:00:00Z", seconds=1.0, **more)


TRAINED = sample(result={"workload": "training", "ranks": 1, "img_sec_total": 172.0, "iters": [172.0]})


def ask(monkeypatch: pytest.MonkeyPatch, fake: Flow, folder: Path, *words: str) -> int:
    monkeypatch.setattr(flow, "bench", fake.bench)
    monkeypatch.setattr(flow, "bench_plan", fake.plan)
    return main(["-C", str(folder), "bench", *words], environ={})


def test_what_is_requested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake = Flow(tmp_path, TRAINED)
    words = ["--preset", "egs", "--ranks", "1,2", "--repeats", "5", "--case-timeout", "2m", "--dir", "there"]
    words += ["--paced", "resnet50", "--step-ms", "290"]
    assert ask(monkeypatch, fake, tmp_path, *words) == 0
    options = BenchOptions(preset="egs", ranks=(1, 2), repeats=5, timeout_s=120.0, paced="resnet50", step_ms=290.0)
    # As a path in any flag, it starts in the current folder, also with -C.
    assert fake.options == [BenchRequest(options=options, folder=Path("there"))]
    out, err = capsys.readouterr()
    assert "resnet18" in out
    assert "report.html" in err


@pytest.mark.parametrize(("words", "resume"), [(["--resume"], ""), (["--resume", "--session", "2026"], "2026")])
def test_resume(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], resume: str) -> None:
    fake = Flow(tmp_path, TRAINED)
    assert ask(monkeypatch, fake, tmp_path, *words, "--force") == 0
    assert fake.options == [BenchRequest(options=BenchOptions(), resume=resume, force=True)]


@pytest.mark.parametrize("words", [["--preset", "egs"], ["--repeats", "5"], ["--dir", "x"], ["--dry-run"]])
def test_resume_takes_no_other_plan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    fake = Flow(tmp_path, TRAINED)
    assert ask(monkeypatch, fake, tmp_path, "--resume", *words) == 2
    assert fake.options == []
    assert "→" in capsys.readouterr().err


def test_a_case_that_failed_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(monkeypatch, Flow(tmp_path, sample(failure="rank 0 on gpu1 ended")), tmp_path) == 1
    assert "rank 0 on gpu1 ended" in capsys.readouterr().err


def test_as_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(monkeypatch, Flow(tmp_path, TRAINED), tmp_path, "--output", "json") == 0
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["kind"], first["case"], first["result"]["img_sec_total"]) == ("sample", CASE.id, 172.0)
    assert (last["kind"], last["session"], last["failed"]) == ("bench", SESSION.id, [])
    assert "results.csv" in [Path(path).name for path in last["files"]]
    assert last["summary"]["cases"][0]["id"] == CASE.id


def test_a_dry_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(monkeypatch, Flow(tmp_path), tmp_path, "--preset", "networks", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "egs/mxnet-resnet18_v1/1" in out
    assert "Skipped: overlay: no swarm." in out
    assert "1 cases, 3 launches, about 45 s" in out


def test_the_list_of_sessions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-C", str(tmp_path), "bench", "list"], environ={}) == 0
    assert "no session yet" in capsys.readouterr().out
    folder = tmp_path / "bench" / SESSION.id
    folder.mkdir(parents=True)
    (folder / META).write_text(session_text(SESSION))
    (folder / SAMPLES).write_text(sample_line(TRAINED))
    assert main(["-C", str(tmp_path), "bench", "list"], environ={}) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [SESSION.id, "kit", "1", "1", "2", "launches", "left"]
    (folder / META).write_text("{}")
    assert main(["-C", str(tmp_path), "bench", "list"], environ={}) == 2
    assert f"{folder}/session.json: is not a session" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preset", "eggs"], "--preset: unknown value 'eggs' | egs, networks, kvstore, compression, tuning"),
        (["--workload", "caffe"], "--workload: unknown value 'caffe' | mxnet, tf, torch"),
        (["--preset", "networks", "--networks", "wifi"], "--networks: unknown value 'wifi' | bare, host, bridge"),
        (["--preset", "kvstore", "--stores", "disk"], "--stores: unknown value 'disk' | local, device"),
        (["--paced", "resnet5"], "--paced: unknown value 'resnet5' | resnet50"),
        (["--networks", "bare"], "--networks does not apply | --preset networks"),
        (["--step-ms", "10"], "--step-ms requires --paced | --paced"),
        (["--dir", "hosts"], "hosts is not a folder | name a folder"),
        (["--dir", "bench/old"], "bench/old already has a session | kit bench --resume --session bench/old"),
    ],
)
def test_a_wrong_word_is_reported_before_any_host_is_contacted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    def contacted(*_: object) -> None:
        pytest.fail("a host was contacted")

    Flow(tmp_path)
    (tmp_path / "bench" / "old").mkdir(parents=True)
    (tmp_path / "bench" / "old" / META).write_text(session_text(SESSION))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kit.flows.bench.measure.facts.look", contacted)
    # A dry run makes no folder.
    for more in [[]] if "--dir" in words else [[], ["--dry-run"]]:
        assert main(["bench", *words, *more], environ={}) == 2
        err = capsys.readouterr().err
        for piece in message.split(" | "):
            assert piece in err


def test_resume_with_a_value_says_where_that_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, wrong, write in (
        (["--resume", "20260101"], "'20260101' is one word too many: --resume takes no value", "20260101"),
        (["--resume=20260101"], "--resume takes no value", "20260101"),
        (["--resume", "my table"], "--resume takes no value", "'my table'"),
    ):
        assert main(["-C", str(tmp_path), "bench", *words], environ={}) == 2
        err = capsys.readouterr().err
        assert wrong in err
        assert f"→ kit bench --resume --session {write}\n" in err
    # Nothing to pass on: the usage, as for any other switch.
    assert main(["bench", "--resume="], environ={}) == 2
    assert "→ kit bench [options]" in capsys.readouterr().err
    assert main(["bench", "--help"], environ={}) == 0
    assert "kit bench --resume --session 2026" in capsys.readouterr().out


def test_broken_samples_are_reported_before_any_host_is_contacted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = Flow(tmp_path)
    fake.folder.mkdir(parents=True)
    (fake.folder / META).write_text(session_text(SESSION))
    (fake.folder / SAMPLES).write_text("no\n")
    assert main(["-C", str(tmp_path), "bench", "--resume"], environ={}) == 2
    err = capsys.readouterr().err
    assert "samples.jsonl:1: is not a sample" in err
    assert "look" not in err
