"""The output of `kit local`: whole lines, and unfinished ones as they come."""

from __future__ import annotations

from typing import Any

import pytest
from docker.models.containers import _create_container_args  # type: ignore[attr-defined]

from kit.events import OutputLine, UnfinishedLine
from kit.model.local import LocalContainer, LocalGpus
from kit.remote.cluster.forms import Info
from kit.remote.engine.container import _events, definition, device_requests

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


def test_a_line_that_is_not_utf_8_keeps_its_bytes() -> None:
    (line,) = _events(iter([(b"caf\xe9\n", None)]), tagged=False)
    assert line == OutputLine(text="caf\ufffd", raw=b"caf\xe9")


def relayed(rank: int, kind: str, body: str, more: str = ".") -> tuple[None, bytes]:
    """Return a record of kit-rank, as mpirun passes it on."""
    end = "" if body.endswith("\n") else "\n"
    return None, f"\x1ekit-line {rank} {kind} {more} {len(body)}\n{body}{end}".encode()


RANKS = [
    relayed(0, "u", "- 14"),
    relayed(0, "o", "a", "+"),
    relayed(1, "o", "whole\n"),
    relayed(1, "e", "\r10%", "+"),
    (None, b"mpirun's\n"),
    relayed(0, "o", "b\n"),
    relayed(1, "e", "\r20%\n"),
    relayed(0, "x", "- 0 0 0"),
]


def test_lines_of_ranks_do_not_mix() -> None:
    events = [event for event in _events(iter(RANKS), tagged=False, ranks=2) if isinstance(event, OutputLine)]
    assert [(event.stream, event.text, event.source) for event in events] == [
        ("stdout", "whole", ""),
        ("stderr", "mpirun's", ""),
        ("stdout", "ab", ""),
        ("stderr", "20%", ""),
    ]


def test_the_rank_of_a_tagged_line_is_its_source() -> None:
    events = [(event.text, event.source) for event in _events(iter(RANKS), tagged=True, ranks=2)]
    assert events == [("a", "0"), ("whole", "1"), ("10%", "1"), ("mpirun's", ""), ("ab", "0"), ("20%", "1")]


@pytest.mark.parametrize(("ranks", "live"), [(1, [("a", True), ("10%", True)]), (2, [("a", False), ("10%", True)])])
def test_in_a_file_an_unfinished_line_of_several_ranks_waits(ranks: int, live: list[tuple[str, bool]]) -> None:
    events = _events(iter(RANKS), tagged=False, ranks=ranks)
    assert [(event.text, event.live) for event in events if isinstance(event, UnfinishedLine)] == live


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


def test_a_rootless_engine_is_known_by_its_security_options() -> None:
    assert Info(SecurityOptions=("name=seccomp,profile=builtin", "name=rootless")).rootless
    assert not Info(SecurityOptions=("name=userns",)).rootless
    assert not Info().rootless


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, None),
        (("name=seccomp,profile=builtin", "name=cgroupns"), None),
        (("name=seccomp,profile=builtin", "name=userns"), "host"),
        # A rootless engine has one user, who is the container's root.
        (("name=rootless",), None),
    ],
)
def test_with_userns_remap_the_container_keeps_the_users_of_the_machine(
    options: tuple[str, ...] | None, expected: str | None
) -> None:
    words = definition(LocalContainer(image="kit:cpu-1", argv=("mpirun", "date")), Info(SecurityOptions=options))
    request = _create_container_args({**words, "version": "1.44"})
    assert request["host_config"].get("UsernsMode") == expected
    assert (request["image"], request["entrypoint"], request["command"]) == ("kit:cpu-1", ["mpirun"], ["date"])
