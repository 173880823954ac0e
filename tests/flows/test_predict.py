"""kit predict from the words of the command line to what is printed; nothing is contacted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kit.cli.main import main
from kit.errors import InputError
from kit.flows.predict import PredictRequest, predict, rate, sweep

ROOT = Path(__file__).resolve().parents[2]
SEED = ["predict", "--model", "ResNet-50", "--gpus", "8", "--per-host", "2", "--step-ms", "290", "--link", "8gbit"]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words, environ={})
    output = capsys.readouterr()
    return code, output.out, output.err


def test_the_answer_has_a_row_for_each_size_and_every_assumption(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = printed(capsys, *SEED, "--batch-size", "64")
    assert code == 0
    answer = predict(
        PredictRequest(model="resnet50", gpus=8, per_host=2, step_ms=290, link="8gbit", batch_size=64), folder=Path()
    )
    assert [one.ranks for one in answer.predictions] == [1, 2, 4, 8]
    for one in answer.predictions:
        assert f"{one.speedup:.2f}" in out
        assert f"{100 * one.efficiency:.1f} %" in out
        assert f"{64 * one.ranks / one.step:.1f}" in out
    for assumption in answer.assumptions:
        assert assumption.what in out
        assert assumption.value in out
        assert assumption.source in out


def test_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = printed(capsys, *SEED, "--output", "json")
    assert code == 0
    report = json.loads(out)
    assert (report["kind"], report["model"], report["gradient_bytes"]) == ("prediction", "resnet50", 4 * 25_583_592)
    last = report["predictions"][-1]
    assert last["efficiency"] == pytest.approx(last["alone"] / last["step"])
    assert last["step"] == pytest.approx(0.29 + last["exposed"])
    assert {"what", "value", "source"} == set(report["assumptions"][0])


def test_the_rate_of_one_gpu_says_as_much_as_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    by_rate = predict(PredictRequest(model="vgg16", img_sec=200, batch_size=58, link="8gbit"), folder=Path())
    by_step = predict(PredictRequest(model="vgg16", step_ms=290, batch_size=58, link="8gbit"), folder=Path())
    assert by_rate.predictions == by_step.predictions


def test_given_values_are_marked_as_given() -> None:
    request = PredictRequest(model="vgg16", step_ms=290, link="8gbit", cycle_ms=5, latency_us=20, memory_rate="80gbit")
    sources = {row.what: row.source for row in predict(request, folder=Path()).assumptions}
    assert sources["cycle"] == sources["latency"] == sources["copy and add"] == "given"
    assert "default" in sources["fusion buffer"]


def test_half_precision_and_a_file_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"layers": [[2, 100], [1, 50]]}')
    answer = predict(
        PredictRequest(gradients="mine.json", compression="fp16", step_ms=1, link="1gbit", gpus=2), folder=tmp_path
    )
    assert (answer.parameters, answer.gradient_bytes, answer.tensors) == (150, 300, 2)


def test_a_file_of_a_flag_starts_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.json").write_text('{"layers": [[2, 100], [1, 50]]}')
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    words = ("--gradients", "mine.json", "--step-ms", "1", "--link", "1gbit")
    assert printed(capsys, "predict", "-C", "project", *words)[0] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--model", "resnet51", "--step-ms", "1", "--link", "8gbit"], "--model: 'resnet51' is not in the table"),
        (["--step-ms", "1", "--link", "8gbit"], "no gradients given"),
        (["--model", "vgg16", "--parameters", "3m", "--step-ms", "1", "--link", "8gbit"], "exclude each other"),
        (["--model", "vgg16", "--link", "8gbit"], "the step time of one rank alone is missing"),
        (["--model", "vgg16", "--img-sec", "100", "--link", "8gbit"], "--img-sec requires --batch-size"),
        (["--model", "vgg16", "--step-ms", "1", "--img-sec", "100", "--link", "8gbit"], "exclude each other"),
        (["--model", "vgg16", "--step-ms", "1"], "--link is missing"),
        (["--model", "vgg16", "--step-ms", "1", "--link", "fast"], "--link 'fast' is not a rate"),
        (["--model", "vgg16", "--step-ms", "1", "--link", "0gbit"], "--link '0gbit' is not a rate"),
        (["--model", "vgg16", "--step-ms", "1", "--link", "8gbit", "--intra", "isa"], "pcie, nvlink, shm, or a rate"),
        (["--model", "vgg16", "--step-ms", "0", "--link", "8gbit"], "'0' is not a number above 0"),
        (["--model", "vgg16", "--step-ms", "1", "--link", "8gbit", "--payload-share", "1.1"], "not a part of 1"),
        (["--model", "vgg16", "--step-ms", "1", "--link", "8gbit", "--payload-share", "94%"], "not a part of 1"),
        (
            ["--model", "vgg16", "--step-ms", "1", "--link", "8gbit", "--cycle-ms", "-1"],
            "'-1' is not a number of 0 or more",
        ),
        (["--parameters", "many", "--step-ms", "1", "--link", "8gbit"], "'many' is not a number of parameters"),
        (
            ["--gradients", "/nowhere/g.json", "--step-ms", "1", "--link", "8gbit"],
            "/nowhere/g.json: cannot be read: No such file or directory",
        ),
    ],
)
def test_what_is_wrong_is_reported(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = printed(capsys, "predict", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert "→" in err or "--help" in err


def test_all_missing_values_are_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = printed(capsys, "predict")
    assert (code, out) == (2, "")
    assert [line.split(":")[2].strip() for line in err.splitlines() if line.startswith("kit:")] == [
        "no gradients given",
        "the step time of one rank alone is missing",
        "--link is missing",
    ]
    assert err.count("→") == 3
    _, out, _ = printed(capsys, "predict", "--img-sec", "100", "--link", "8gbit", "--output", "json")
    assert [problem["message"] for problem in json.loads(out)["problems"]] == [
        "no gradients given",
        "--img-sec requires --batch-size to compute the step time",
    ]


def test_one_rank_on_one_host_exchanges_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "--model", "vgg16", "--step-ms", "290", "--link", "8gbit", "--gpus")
    _, out, _ = printed(capsys, *words, "1", "--per-host", "4")
    assert "Predicted on 1 rank, 1 host: efficiency 100.0 %" in out
    assert "A step takes 290.0 ms. One rank exchanges nothing." in out
    assert "8gbit, full duplex, for the one rank of a host" in out
    _, out, _ = printed(capsys, *words, "2", "--per-host", "4")
    assert "Predicted on 2 ranks, 1 host:" in out
    assert "shared by the 2 ranks of a host" in out


def test_a_small_model_and_a_file_that_is_nested_too_deeply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.json"
    words = ("predict", "--gradients", str(file), "--step-ms", "1", "--link", "8gbit")
    file.write_text('{"layers": [[2, 30000], [1, 50]]}')
    assert "mine.json: 30,050 parameters, 120 kB of gradients in 2 tensors" in printed(capsys, *words)[1]
    file.write_text("[" * 100_000)
    code, _, err = printed(capsys, *words)
    assert (code, "mine.json: this is not a file of gradients" in err) == (2, True)


@pytest.mark.parametrize(("text", "wanted"), [("200mbit", 25e6), ("8gbit", 1e9), ("12.5Gbit", 1.5625e9)])
def test_rates(text: str, wanted: float) -> None:
    assert rate(text, "--link") == wanted


@pytest.mark.parametrize("text", ["8", "8gb", "-1gbit", "gbit", "1 gbit"])
def test_no_rates(text: str) -> None:
    with pytest.raises(InputError):
        rate(text, "--link")


@pytest.mark.parametrize(("ranks", "sizes"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))])
def test_the_sweep_ends_with_the_requested_size(ranks: int, sizes: tuple[int, ...]) -> None:
    assert sweep(ranks) == sizes


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "predict.md").read_text()
    code, out, _ = printed(capsys, *SEED[:2], "resnet50", *SEED[3:])
    assert code == 0
    assert out in page
    check = [sys.executable, str(ROOT / "scripts" / "predict-check")]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout in page, "docs/predict.md is stale: put in what scripts/predict-check prints"


def test_published_figures_are_compared_with_the_unchanged_model() -> None:
    """Where the wire is the limit, within 5 points."""
    check = [sys.executable, str(ROOT / "scripts" / "predict-check"), "--json"]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60, check=True)
    rows = {row["what"]: row for row in map(json.loads, done.stdout.splitlines())}
    for what in ("ResNet-50, 8 P100, 4 x 2, 8 Gbit/s", "vgg16, 512 Pascal GPUs, 128 x 4, 25 Gbit/s RoCE"):
        assert rows[what]["predicted"] == pytest.approx(rows[what]["published"], abs=5)
