"""Samples and figures in a few words."""

from __future__ import annotations

from typing import Any

from kit.model.bench import Sample
from kit.plan.bench.headline import headline, span


def sample(**more: Any) -> Sample:
    return Sample(case="a", repeat=1, at="2026-01-01T00:00:00Z", seconds=1.5, **more)


def test_headlines() -> None:
    row = {"bytes": 1 << 20, "seconds": 0.001, "busbw": 1.25e9, "algbw": 1.0}
    perf = {"tests": [{"test": "latency", "rows": [{"bytes": 8, "seconds": 31e-6}]}, {"test": "bcast", "rows": [row]}]}
    assert headline(sample(result=perf)) == "latency 31.0 µs, broadcast 1.25 GB/s at 1 MiB"
    assert headline(sample(result={"img_sec_total": 172.34})) == "172.3 img/s"
    paced = {"efficiency": 0.912, "simulated": True}
    assert headline(sample(result=paced)) == "efficiency 91.2 %, SIMULATED compute"
    assert headline(sample(result={"right": True, "ranks": 8})) == "8 ranks agree"
    assert headline(sample(result={"tests": [{"test": "latency"}, 7]})) == ""


def test_units() -> None:
    assert [span(0.2), span(89), span(300), span(4800)] == ["1 s", "89 s", "5 min", "80 min"]
    assert span(2 * 3600) == "2 h 0 min"
