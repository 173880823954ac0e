"""A sample's result in a few words, shown while a session runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kit.model.bench import Sample
from kit.plan.bench.report.figures import number


def headline(sample: Sample) -> str:
    """`172.3 images/s`, `all-reduce 1.2 GB/s at 16 MB, latency 31 us`; '' for a result of which no figure is known."""
    result = sample.result
    words = []
    if (images := number(result.get("img_sec_total"))) is not None:
        words.append(f"{images:.1f} images/s")
    if (efficiency := number(result.get("efficiency"))) is not None:
        words.append(f"efficiency {efficiency:.1%}")
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
    if test.get("test") == "latency":
        return f"latency {_figure(rows[0], 'seconds') * 1e6:.0f} us"
    last = max(rows, key=lambda row: _figure(row, "bytes"))
    return (
        f"{test.get('test')} {rate(_figure(last, 'busbw') or _figure(last, 'algbw'))} at {size(_figure(last, 'bytes'))}"
    )


def _figure(row: Mapping[str, Any], name: str) -> float:
    return number(row.get(name)) or 0.0


def rate(bytes_s: float) -> str:
    """A rate as networks are sold: 941 Mbit/s, 9.41 Gbit/s."""
    bits = bytes_s * 8
    return f"{bits / 1e9:.2f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.0f} Mbit/s"


def size(count: float) -> str:
    """Sizes of messages are powers of two: 8 B, 64 kB, 16 MB."""
    value = int(count)
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value} B"


def span(seconds: float) -> str:
    """`40 s`, `5 min`, `1 h 20 min`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
