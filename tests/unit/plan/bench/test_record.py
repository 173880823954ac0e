"""Sessions and samples as text and back."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from kit.errors import InputError
from kit.model.bench import Case, Sample, Session
from kit.plan.bench.record import last_object, sample_line, samples_of, session_of, session_text

CASE = Case(id="a", rung="training", title="A", proves="that", command=("x", "--json"), env=(("A", "b"),), np=4,
            settings={"mpi.args": "--mca a b"}, network="bridge", simulated=True)  # fmt: skip
SESSION = Session(
    id="1", preset="egs", cluster="lab", started="2026-01-01T00:00:00Z", cases=(CASE,), skipped={"b": "c"}
)


def sample(repeat: int = 1, **more: Any) -> Sample:
    return Sample(case="a", repeat=repeat, at="2026-01-01T00:00:00Z", seconds=1.5, **more)


def test_a_session_comes_back_as_it_was() -> None:
    assert session_of(session_text(SESSION), "f") == SESSION


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "cases": 7}'])
def test_what_is_no_session(text: str) -> None:
    with pytest.raises(InputError, match="is not a session") as caught:
        session_of(text, "here/session.json")
    assert str(caught.value).startswith("here/session.json: ")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"id": None}, "id is null, not a text"),
        ({"preset": 3}, "preset is 3, not a text"),
        ({"cases": {}}, "cases is {}, not a list"),
        ({"cases": [3]}, "3 is not an object"),
        ({"facts": []}, "facts is [], not an object"),
    ],
)
def test_a_session_whose_fields_are_wrong(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"is not a session of kit bench: {says}")):
        session_of(json.dumps({**json.loads(session_text(SESSION)), **change}), "f")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"title": 2}, "title is 2, not a text"),
        ({"command": "abc"}, 'command is "abc", not a list'),
        ({"command": []}, "command is not a list of words"),
        ({"command": [1]}, "command is not a list of words"),
        ({"env": [1]}, "env is not a list of name and value pairs"),
        ({"np": True}, "np is true, not a whole number"),
        ({"np": 0}, "np is less than 1"),
        ({"timeout_s": "long"}, 'timeout_s is "long", not a number'),
    ],
)
def test_a_case_whose_fields_are_wrong(change: dict[str, Any], says: str) -> None:
    data = json.loads(session_text(SESSION))
    data["cases"][0] |= change
    with pytest.raises(InputError, match=re.escape(says)):
        session_of(json.dumps(data), "f")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("[]", "[] is not an object"),
        ('{"case": "a"}', "repeat is missing"),
        ('{"case": "a", "repeat": "x", "at": "", "seconds": 1}', 'repeat is "x", not a whole number'),
        ('{"case": "a", "repeat": 1, "at": "", "seconds": 1, "result": [1]}', "result is [1], not an object"),
    ],
)
def test_a_sample_whose_fields_are_wrong(line: str, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"is not a sample of kit bench: {says}")):
        samples_of(line + "\n", "s")


def test_a_session_of_another_format() -> None:
    with pytest.raises(InputError, match="its format is 2"):
        session_of(session_text(SESSION).replace('"format": 1', '"format": 2'), "f")


@pytest.mark.parametrize("part", ["session", "case"])
def test_fields_of_a_newer_kit_prevent_only_that_it_goes_on(part: str) -> None:
    data = json.loads(session_text(SESSION))
    (data if part == "session" else data["cases"][0])["color"] = "red"
    text = json.dumps(data)
    assert session_of(text, "f") == SESSION
    with pytest.raises(InputError, match="this kit does not know its field 'color'") as caught:
        session_of(text, "f", whole=True)
    assert str(caught.value.hint).startswith("update kit on this machine")


def test_samples_come_back_and_the_last_of_a_repeat_counts() -> None:
    lines = [sample(1, failure="x"), sample(2, result={"é": 1}), sample(1), sample(1, warmup=True)]
    text = "".join(map(sample_line, lines))
    assert samples_of(text) == (lines[1], lines[2], lines[3])
    # The line that was being written when kit was killed.
    assert samples_of(text + '{"case": "a", "rep') == samples_of(text)
    assert samples_of("") == ()


def test_numbers_that_json_does_not_have_are_null_in_samples() -> None:
    """Other readers of samples.jsonl refuse NaN."""
    line = sample_line(sample(result={"loss": math.nan, "iters": [1.5, math.inf]}))
    assert '"result": {"loss": null, "iters": [1.5, null]}' in line
    assert samples_of(line) == (sample(result={"loss": None, "iters": [1.5, None]}),)
    # As an earlier kit wrote it.
    assert len(samples_of(line.replace("null", "NaN", 1))) == 1


def test_a_line_that_is_no_sample_is_named() -> None:
    with pytest.raises(InputError, match="is not a sample") as caught:
        samples_of(sample_line(sample()) + "{}\n", "s")
    assert str(caught.value).startswith("s:2: ")


def test_the_last_object_is_the_result() -> None:
    assert last_object(["{'no'}", '{"a": 1}', "words", '{"b": {"c": 2}}', "bye", "[1]"]) == {"b": {"c": 2}}
    assert last_object(["nothing", "{broken}"]) == {}
