"""The output of `kit local`: whole lines, and unfinished ones as they come."""

from __future__ import annotations

from typing import Any

import pytest

from kit.events import OutputLine, UnfinishedLine
from kit.model.local import LocalGpus
from kit.remote.engine.container import _events, device_requests

# Frames of the engine: standard output, standard error.
FRAMES = [(b"one\ntw", None), (None, b"\r10%"), (None, b"\r20%"), (b"o\n", b"\r30%\n"), (b"? ", None)]


def test_lines_and_how_far_unfinished_ones_are() -> None:
    events = [(type(event), event.text, event.stream) for event in _events(iter(FRAMES), tagged=False)]
    assert events == [
        (OutputLine, "one", "stdout"),
        (UnfinishedLine, "tw", "stdout"),
        (UnfinishedLine, "10%", "stderr"),
        (UnfinishedLine, "20%", "stderr"),
        (OutputLine, "two", "stdout"),
        (OutputLine, "30%", "stderr"),
        (UnfinishedLine, "? ", "stdout"),
        (OutputLine, "? ", "stdout"),
    ]


def test_the_rank_of_a_tagged_line_is_its_source() -> None:
    frames = [(b"[1,3]<stdout>:a", None), (b"b\nplain\n", None)]
    events = [(type(event), event.text, event.source) for event in _events(iter(frames), tagged=True)]
    assert events == [(UnfinishedLine, "a", "3"), (OutputLine, "ab", "3"), (OutputLine, "plain", "")]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (LocalGpus(driver="nvidia"), {"Count": -1}),
        (LocalGpus(driver="nvidia", count=2), {"Count": 2}),
        (LocalGpus(driver="nvidia", names=("1", "GPU-a")), {"DeviceIDs": ["1", "GPU-a"]}),
        (LocalGpus(driver="cdi"), {"DeviceIDs": ["nvidia.com/gpu=all"]}),
        (LocalGpus(driver="cdi", count=1, names=("0",)), {"DeviceIDs": ["nvidia.com/gpu=0"]}),
    ],
)
def test_gpus_are_requested_in_the_words_of_their_driver(gpus: LocalGpus, expected: dict[str, Any]) -> None:
    blank = {"Count": 0, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}
    assert device_requests(gpus) == [{**blank, "Driver": gpus.driver, **expected}]


def test_a_container_without_gpus_requests_none() -> None:
    assert device_requests(None) is None
