"""Horovod's settings as options of the benchmarks: their variables, and the notes about options without effect."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher


@pytest.fixture(scope="module")
def knobs() -> Any:
    return launcher.load("_horovod", launcher.BIN)


def parsed(knobs: Any, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    knobs.add(parser)
    return parser.parse_args(words)


def program(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """tf_benchmark, on a Python that has no TensorFlow: what it refuses comes before that."""
    argv = [sys.executable, "-B", str(launcher.BIN / "tf_benchmark"), *words]
    environ = {**os.environ, "PYTHONPATH": str(launcher.LIB), **env}
    return subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)


def test_options_become_what_horovod_reads(knobs: Any) -> None:
    environ: dict[str, str] = {"HOROVOD_CYCLE_TIME": "5"}
    args = parsed(
        knobs, "--fusion-mb", "0.5", "--cycle-ms", "2.5", "--cache-capacity", "0", "--autotune", "--timeline", "/t"
    )
    assert knobs.settle(args, environ) == ["--cycle-ms wins: HOROVOD_CYCLE_TIME is 2.5, and was 5"]
    assert environ == {
        "HOROVOD_FUSION_THRESHOLD": "524288",
        "HOROVOD_CYCLE_TIME": "2.5",
        "HOROVOD_CACHE_CAPACITY": "0",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_TIMELINE": "/t",
    }
    assert knobs.in_force(environ) == {
        "fusion_mb": 0.5, "cycle_ms": 2.5, "cache_capacity": 0, "autotune": True, "timeline": "/t",
    }  # fmt: skip


def test_no_request_changes_nothing(knobs: Any) -> None:
    environ = {"HOROVOD_CYCLE_TIME": "5", "HOROVOD_HIERARCHICAL_ALLREDUCE": "0", "PATH": "/bin"}
    before = dict(environ)
    assert knobs.settle(parsed(knobs), environ) == []
    assert environ == before
    # What the environment says is in force, too, where it differs from Horovod's default.
    assert knobs.in_force(environ) == {"cycle_ms": 5.0}
    assert knobs.in_force({"HOROVOD_FUSION_THRESHOLD": "134217728"}) == {}


def idle(knobs: Any, options: dict[str, Any], **facts: Any) -> list[str]:
    here: dict[str, Any] = {"ranks": 8, "hosts": 4, "nccl": False, "gpus": False, "steps": 100, "environ": {}}
    notes: list[str] = knobs.idle(options, **{**here, **facts})
    return notes


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, "built without NCCL"),
        ({"nccl": True}, "no GPU"),
        ({"nccl": True, "gpus": True, "hosts": 1}, "one host"),
        ({"nccl": True, "gpus": True}, None),
    ],
)
def test_hierarchical_says_where_it_does_nothing(knobs: Any, facts: dict[str, Any], why: str | None) -> None:
    lines = idle(knobs, {"hierarchical_allreduce": True}, **facts)
    assert len(lines) == (0 if why is None else 1)
    assert why is None or why in lines[0]


def test_one_rank_and_a_log_of_nothing(knobs: Any) -> None:
    assert idle(knobs, {"fusion_mb": 4, "cycle_ms": 2}, ranks=1) == [
        "--fusion-mb, --cycle-ms: 1 rank exchanges nothing, so that does nothing"
    ]
    assert idle(knobs, {"autotune_log": "/x"}) == ["--autotune-log does nothing without --autotune"]
    assert idle(knobs, {"fusion_mb": 4}) == []


def test_autotune_says_that_the_run_is_too_short(knobs: Any) -> None:
    # 3 discarded scores, and 21 for each of four combinations of all-gather and cache, 50 steps each.
    assert knobs.autotune_steps({}, nccl=False) == (3 + 21 * 4) * 50
    assert knobs.autotune_steps({"HOROVOD_CACHE_CAPACITY": "0"}, nccl=False) == (3 + 21 * 2) * 50
    assert knobs.autotune_steps({}, nccl=True) == (3 + 21 * 16) * 50
    assert "about 4350 steps to decide, and this run has 100" in idle(knobs, {"autotune": True})[0]
    assert idle(knobs, {"autotune": True}, steps=5000) == []


def test_files_that_cannot_be_written(knobs: Any, tmp_path: Path) -> None:
    def problem(path: object) -> Any:
        return knobs.unwritable(parsed(knobs, "--timeline", str(path)))

    assert problem(tmp_path / "t.json") is None
    assert f"there is no folder {tmp_path}/no" in problem(tmp_path / "no" / "t.json")
    assert "that is a folder" in problem(tmp_path)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--fusion-mb", "x"], "argument --fusion-mb: 'x' is not a number"),
        (["--cycle-ms", "-1"], "argument --cycle-ms: '-1' is less than 0"),
        (["--topk-ratio", "0"], "argument --topk-ratio: '0' is not above 0"),
        (["--topk-ratio", "2"], "--topk-ratio 2: it is a share, at most 1"),
        (["--compression", "gzip"], "choose from 'none', 'fp16', 'topk'"),
        (["--gradient-predivide-factor", "nan"], "'nan' is less than 0, or no bounded number"),
        (["--compression", "topk", "--gradient-predivide-factor", "2"], "leave one of them out"),
        (["--timeline", "/no/such/t.json"], "there is no folder /no/such where rank 0 runs"),
    ],
)
def test_only_the_first_rank_reports_wrong_words(words: list[str], problem: str) -> None:
    first = program(*words, OMPI_COMM_WORLD_RANK="0")
    assert first.returncode == 2
    assert problem.replace("'", "") in first.stderr.replace("'", "")
    assert "Traceback" not in first.stderr
    if "--fusion-mb" in words:
        other = program(*words, OMPI_COMM_WORLD_RANK="3")
        assert (other.returncode, other.stdout, other.stderr) == (2, "", "")


def test_help_is_in_groups_with_examples() -> None:
    done = program("--help")
    assert done.returncode == 0
    for words in ("how gradients are exchanged:", "Horovod's settings", "real images", "examples:", "kit run --np 8"):
        assert words in done.stdout
    assert program("--help", OMPI_COMM_WORLD_RANK="1").stdout == ""
