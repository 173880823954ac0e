"""Attacks kit with odd answers of an engine, and of a registry as an engine passes them on."""

from __future__ import annotations

import json

import pytest

from kit.errors import AnswerError, ImageError
from kit.remote.engine import registry
from kit.remote.engine.client import Engine
from tests.security.fuzz_registry import CONTENT, NAME, STEP, _Api, _Building


def engine(answer: object) -> Engine:
    text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return Engine(_Api(text), host="bad")


@pytest.mark.parametrize(
    "answer",
    [
        {}, [], None, "", 7, {"Descriptor": None}, {"Descriptor": {"digest": 7}}, {"Descriptor": {"digest": ""}},
        {"Descriptor": {"digest": "sha256:../../x"}}, {"Descriptor": {"digest": "sha256:ab\x1b]52;c;x\x07"}},
        {"Descriptor": {"digest": "sha256:abab"}, "Platforms": [1]},
        {"Descriptor": {"digest": "sha256:abab"}, "Platforms": {"a": 1}},
        b"[" * 30_000, b'{"Descriptor": ' + b"9" * 5000 + b"}",
    ],
    ids=range(14),
)  # fmt: skip
def test_an_odd_answer_of_a_registry_is_that_engines_error(answer: object) -> None:
    with pytest.raises(AnswerError) as caught:
        registry.look_up(engine(answer), NAME, None)
    assert caught.value.host == "bad"
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize(
    "answer",
    [
        {}, [], None, {"Id": 7, "Size": 1}, {"Id": "x", "Size": "1"}, {"Id": "x", "Size": -1},
        {"Id": "x", "Size": 10**30},
        {"Id": "x", "Size": 1, "RootFS": {"Layers": ["../../x"]}}, {"Id": "x", "Size": 1, "Config": [1]},
        {"Id": "x" * 5000, "Size": 1}, {"Id": "x", "Size": 1, "Architecture": ["amd64"]},
        {"Id": "x\ud800", "Size": 1}, {"Id": "x", "Size": 1, "Architecture": "\x1b]0;x"},
    ],
    ids=range(13),
)  # fmt: skip
def test_odd_facts_about_an_image_are_that_engines_error(answer: object) -> None:
    with pytest.raises(AnswerError) as caught:
        engine(answer).image("kit:1")
    assert caught.value.host == "bad"
    assert len(caught.value.message) < 500


DONE = {"status": f"Status: Downloaded newer image for {NAME}"}


@pytest.mark.parametrize(
    "event",
    [
        {"status": "Downloading", "id": 7, "progressDetail": {"current": "1"}},
        {"status": "Downloading", "id": "a", "progressDetail": [1, 2]},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 10**30, "total": -1}},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 5, "total": {"a": 1}}},
        {"status": ["Downloading"], "id": {"a": 1}, "aux": [1]},
    ],
    ids=range(5),
)
def test_odd_progress_does_not_end_a_pull(event: object) -> None:
    answer = b"".join(json.dumps(line).encode() + b"\n" for line in (event, DONE))
    registry.pull(engine(answer), STEP, None, lambda text, fraction: None)


@pytest.mark.parametrize("event", [[1], "text", 7, None], ids=str)
def test_an_event_that_is_no_object_is_that_engines_error(event: object) -> None:
    answer = json.dumps(event).encode() + b"\n"
    with pytest.raises(AnswerError):
        registry.pull(engine(answer), STEP, None, lambda text, fraction: None)
    with pytest.raises(AnswerError):
        Engine(_Building(answer), host="bad").build(CONTENT, beside={}, arguments={}, on_step=lambda step: None)


def test_layers_without_end_end_a_pull() -> None:
    lines = (json.dumps({"status": "Pulling fs layer", "id": f"{at:012x}"}).encode() for at in range(5000))
    with pytest.raises(AnswerError, match="more layers"):
        registry.pull(engine(b"\n".join(lines)), STEP, None, lambda text, fraction: None)


@pytest.mark.parametrize("text", ["Step " + "9" * 5000 + "/2 : RUN x", "Step ٣/٤ : RUN x", "Step 1/2 : " + "x" * 10**6])
def test_an_odd_step_of_a_build_is_no_end_of_kit(text: str) -> None:
    answer = json.dumps({"stream": text}).encode() + b"\n" + json.dumps({"error": "x" * 10**6}).encode()
    with pytest.raises(ImageError) as caught:
        Engine(_Building(answer), host="bad").build(CONTENT, beside={}, arguments={}, on_step=lambda step: None)
    assert len(caught.value.message) < 20_000
