"""kit blame on what real hosts showed: tests/captures/blame."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kit.model.blame import Watched
from kit.model.values import replace
from kit.plan.blame.judge import judge

CAPTURES = Path(__file__).parents[3] / "captures" / "blame"
# The host and rank of the fault in each file.
FAULTS = {
    "busy-core": ("gpu2", 1),
    "cgroup-throttle": ("gpu1", 0),
    "disk": ("gpu3", 2),
    "gpu-throttle": ("gpu4", 3),
    "link": ("gpu4", 3),
    "loader": ("gpu1", 0),
}


def captured(name: str) -> Watched:
    return msgspec.json.decode((CAPTURES / f"{name}.json").read_bytes(), type=Watched)


@pytest.mark.parametrize("name", FAULTS)
def test_a_real_fault_is_named(name: str) -> None:
    culprit = judge(captured(name)).culprit
    assert culprit is not None
    assert (culprit.host, culprit.ranks, culprit.reason) == (FAULTS[name][0], (FAULTS[name][1],), name)
    assert culprit.gain is not None
    # Without a fault, a step took about 220 ms on that busy machine.
    assert 0.1 < culprit.gain.then < 0.3 < culprit.gain.now


def test_a_pretended_gpu_is_named_as_one() -> None:
    watched = captured("gpu-throttle")
    lab = {
        host: tuple(
            replace(one, gpus=one.gpus and tuple(replace(gpu, name="NVIDIA H200 (PRETENDED)") for gpu in one.gpus))
            for one in intervals
        )
        for host, intervals in watched.hosts.items()
    }
    for seen, count in ((watched, 0), (replace(watched, hosts=lab), 1)):
        culprit = judge(seen).culprit
        assert culprit is not None
        (text,) = [text for text in culprit.evidence if "is throttled: " in text]
        assert text.count("(PRETENDED)") == count


def test_nobody_is_blamed_for_a_real_healthy_run() -> None:
    result = judge(captured("healthy"))
    assert (result.verdict, result.culprit) == ("nobody", None)
    assert len(result.ranks) == 4


def test_every_capture_is_judged() -> None:
    assert {path.stem for path in CAPTURES.glob("*.json")} == {*FAULTS, "healthy"}
