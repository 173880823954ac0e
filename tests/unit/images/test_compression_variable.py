"""KIT_COMPRESSION, which `kit tune --fp16` writes: how benchmarks read it before they import a framework."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.fakes import launcher

CHOICES = ("none", "fp16")


@pytest.fixture(scope="module")
def benchmark() -> Any:
    return launcher.load("_benchmark", launcher.BIN)


def program(name: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """On a Python that has no framework: what a program refuses comes before that."""
    argv = [sys.executable, "-B", str(launcher.BIN / name), *words]
    environ = {**os.environ, "PYTHONPATH": str(launcher.IMAGES / "lib"), **env}
    return subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)


@pytest.mark.parametrize(
    ("flag", "variable", "value", "words"),
    [
        (None, None, "none", ""),
        (None, "", "none", ""),
        (None, "fp16", "fp16", "KIT_COMPRESSION=fp16"),
        (None, "none", "none", "KIT_COMPRESSION=none"),
        ("none", "fp16", "none", "--compression none"),
        ("fp16", None, "fp16", "--compression fp16"),
        # The flag wins over any value of the variable.
        ("fp16", "gzip", "fp16", "--compression fp16"),
    ],
)
def test_the_flag_wins_over_the_variable(
    benchmark: Any, flag: str | None, variable: str | None, value: str, words: str
) -> None:
    args = argparse.Namespace(compression=flag)
    environ = {} if variable is None else {"KIT_COMPRESSION": variable}
    assert benchmark.settle_compression("p", args, CHOICES, environ) == words
    assert args.compression == value


UNKNOWN = [
    ("tf_benchmark", "gzip", "none, fp16, topk"),
    ("tf_benchmark", "FP16", "none, fp16, topk"),
    ("paced_benchmark", "gzip", "none, fp16"),
    ("paced_benchmark", "topk", "none, fp16"),
]


@pytest.mark.parametrize(("name", "value", "choices"), UNKNOWN)
def test_an_unknown_value_is_reported_once_with_the_choices(name: str, value: str, choices: str) -> None:
    first = program(name, KIT_COMPRESSION=value, OMPI_COMM_WORLD_RANK="0")
    assert (first.returncode, first.stdout) == (2, "")
    words = f"{name}: KIT_COMPRESSION: '{value}' is not one of: {choices}; --compression wins over it"
    assert first.stderr.splitlines() == [words]


def test_the_other_ranks_end_without_a_word() -> None:
    """Each some seconds later than the first may have spoken: all cases at once."""

    def other(case: tuple[str, str, str]) -> tuple[int, str, str]:
        done = program(case[0], KIT_COMPRESSION=case[1], OMPI_COMM_WORLD_RANK="1")
        return done.returncode, done.stdout, done.stderr

    with ThreadPoolExecutor(len(UNKNOWN)) as pool:
        assert list(pool.map(other, UNKNOWN)) == [(2, "", "")] * len(UNKNOWN)


def test_what_contradicts_the_variable_names_it() -> None:
    done = program("tf_benchmark", "--gradient-predivide-factor", "2", KIT_COMPRESSION="topk")
    assert done.returncode == 2
    assert "KIT_COMPRESSION=topk takes none: leave one of them out" in done.stderr
    # The next thing that it misses is TensorFlow, or a folder that is not there.
    won = program(
        "tf_benchmark", "--compression", "none", "--gradient-predivide-factor", "2", "--timeline", "/no/such/t.json",
        KIT_COMPRESSION="topk",
    )  # fmt: skip
    assert "there is no folder /no/such" in won.stderr


@pytest.mark.parametrize("name", ["tf_benchmark", "paced_benchmark"])
def test_the_help_names_the_variable(name: str) -> None:
    done = program(name, "--help", COLUMNS="200")
    assert done.returncode == 0
    assert "variable KIT_COMPRESSION says, else none" in done.stdout
