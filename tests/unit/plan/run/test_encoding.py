"""Tests how long the words of a run may be."""

from __future__ import annotations

import subprocess

import pytest

from kit.errors import InputError
from kit.model.launch import RunRequest
from kit.plan.run import encoding, mpi

ELASTIC = RunRequest(launcher="elastic")
# Joined, they have less than 124 KiB. mpirun gets them quoted, in one word, because of the colon.
SPACED = ("cat", ":", *["name of a jpg photo.jpg"] * 5_250)


def test_a_word_for_a_shell_is_measured_with_its_quotes() -> None:
    without = SPACED[:1] + SPACED[2:]
    encoding.check(RunRequest(), without)
    (*_, word) = mpi.words_of(SPACED)
    assert len(" ".join(SPACED)) < 124 << 10 < 128 << 10 < len(word)
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["true", word], check=True)
    with pytest.raises(InputError, match="the command is too long: it has 136516 bytes"):
        encoding.check(RunRequest(), SPACED)
    with pytest.raises(InputError, match="the command is too long: it has 136516 bytes"):
        encoding.check_local(RunRequest(), SPACED, {}, code=False)


@pytest.mark.parametrize(
    "command",
    [
        SPACED,
        ("cat", *["0123456789"] * 11_550),
        # No word may be longer, and all words together may not be longer.
        ("cat", *["x" * 131_071] * 7),
        ("cat", *["x"] * 104_000),
    ],
    ids=["quoted", "many", "long", "short"],
)
def test_an_elastic_run_has_its_words_one_by_one(command: tuple[str, ...]) -> None:
    encoding.check(ELASTIC, command)
    subprocess.run(["true", *command], check=True)
    with pytest.raises(InputError, match="the command is too long"):
        encoding.check(RunRequest(), command)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("cat", "x" * 131_072), "a word of the command is too long: it has 131072 bytes"),
        (("cat", *["x" * 131_071] * 8), "the command is too long: with 9 bytes for the end of each word"),
        (("cat", *["x"] * 105_000), "an elastic run can have at most 1 MiB"),
    ],
)
def test_an_elastic_run_cannot_have_more(command: tuple[str, ...], text: str) -> None:
    with pytest.raises(InputError, match=text):
        encoding.check(ELASTIC, command)
