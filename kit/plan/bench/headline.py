"""A sample's result in a few words, shown while a session runs: in the units of its table and report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kit.model.bench import Sample
from kit.plan.bench.report import words as written
from kit.plan.bench.report.figures import number


def headline(sample: Sample) -> str:
    """`172.3 img/s`, `latency 31.0 µs, all-reduce 1.20 GB/s at 16 MiB`; '' for a result of which no figure is known."""
    result = sample.result
    words = []
    if (images := number(result.get("img_sec_total"))) is not None:
        words.append(written.value(images, "img/s"))
    if (efficiency := number(result.get("efficiency"))) is not None:
        words.append(f"efficiency {written.percent(efficiency)}")
    if isinstance(result.get("tests"), list):
        words += [text for test in result["tests"] if isinstance(test, dict) and (text := _test(test))]
    if result.get("right") is True:
        words.append(f"{result.get('ranks')} ranks agree")
    if words and result.get("simulated"):
        words.append("SIMULATED compute")
    return ", ".join(words)


def _test(test: Mapping[str, Any]) -> str:
    rows = [row for row in (test["rows"] if isinstance(test.get("rows"), list) else ()) if isinstance(row, dict)]
    if not rows:
        return ""
    name = written.test(str(test.get("test")))
    if name == "latency":
        return f"latency {written.seconds(_figure(rows[0], 'seconds'))}"
    last = max(rows, key=lambda row: _figure(row, "bytes"))
    rate = _figure(last, "busbw") or _figure(last, "algbw")
    return f"{name} {written.value(rate, 'B/s')} at {written.size(int(_figure(last, 'bytes')))}"


def _figure(row: Mapping[str, Any], name: str) -> float:
    return number(row.get(name)) or 0.0


def span(seconds: float) -> str:
    """`40 s`, `5 min`, `1 h 20 min`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
