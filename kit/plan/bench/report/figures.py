"""The figures in the JSON object that a measuring program prints; what is missing or no number is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from msgspec import Struct

from kit.model.bench import Sample
from kit.model.benchsummary import Better, Unit, Workload
from kit.model.values import replace

# Point-to-point tests have one figure a size; the collectives a bandwidth, and the time that it was worked out from.
_POINT_TO_POINT: Mapping[str, tuple[str, Unit, Better]] = {
    "latency": ("seconds", "s", "lower"),
    "bandwidth": ("algbw", "B/s", "higher"),
}

# No program measures more; the fourth power of it, of which the rule of the noise is made, is still a number.
GREATEST = 1e60


class Figure(Struct, frozen=True, kw_only=True):
    """One number of one repeat."""

    metric: str
    unit: Unit
    better: Better
    value: float
    size: int | None = None
    primary: bool = True


def workload_of(sample: Sample) -> Workload:
    """What kind of program it was; none for one that only had to end well."""
    result = sample.result if isinstance(sample.result, Mapping) else {}
    name = result.get("workload", "training" if "img_sec_total" in result else None)
    # The probe of a network speaks as mpi_perf does.
    if name == "perf" and result.get("through") == "tcp":
        return "network"
    return next((known for known in get_args(Workload) if known == name), "none")


def is_simulated(sample: Sample) -> bool:
    """Whether the program itself says so."""
    return isinstance(sample.result, Mapping) and sample.result.get("simulated") is True


def figures(sample: Sample) -> tuple[Figure, ...]:
    """All figures of a repeat that passed, with the time of its launch as the last."""
    result = sample.result if isinstance(sample.result, Mapping) else {}
    match workload_of(sample):
        case "training":
            values = list(_training(result))
        case "perf":
            values = list(_perf(result))
        case "paced":
            values = list(_paced(result))
        case "network":
            values = list(_network(result))
        case _:
            values = []
    took = number(sample.seconds)
    if took is not None:
        values.append(Figure(metric="wall_s", unit="s", better="lower", value=took, primary=False))
    return tuple(values)


def _training(result: Mapping[str, Any]) -> Iterator[Figure]:
    rate = number(result.get("img_sec_total"))
    if rate is not None:
        yield Figure(metric="images_per_s", unit="img/s", better="higher", value=rate)


def _paced(result: Mapping[str, Any]) -> Iterator[Figure]:
    share = number(result.get("efficiency"))
    if share is not None:
        yield Figure(metric="efficiency", unit="1", better="higher", value=share)
    listed = result.get("steps")
    steps = sorted(
        step for entry in (listed if isinstance(listed, list) else ()) if (step := number(entry)) is not None
    )
    if steps:
        # The efficiency says the same, where there is one.
        middle = (steps[(len(steps) - 1) // 2] + steps[len(steps) // 2]) / 2
        yield Figure(metric="step_s", unit="s", better="lower", value=middle, primary=share is None)
    rate = number(result.get("img_sec_total"))
    if rate is not None:
        yield Figure(metric="images_per_s", unit="img/s", better="higher", value=rate, primary=False)


def _network(result: Mapping[str, Any]) -> Iterator[Figure]:
    rate, latency = number(result.get("rate")), number(result.get("latency_s"))
    for figure in _perf(result):
        if figure.metric == "bandwidth.algbw":
            rate = figure.value
        elif figure.metric == "latency.seconds":
            # The smallest message comes first.
            latency = figure.value if latency is None else latency
            yield replace(figure, primary=False)
    if rate is not None:
        yield Figure(metric="rate", unit="bit/s", better="higher", value=rate * 8)
    if latency is not None:
        yield Figure(metric="latency", unit="s", better="lower", value=latency)


def _perf(result: Mapping[str, Any]) -> Iterator[Figure]:
    seen: set[tuple[str, int]] = set()
    for test, size, row in _rows(result):
        if (test, size) in seen:
            continue
        seen.add((test, size))
        if test in _POINT_TO_POINT:
            key, unit, better = _POINT_TO_POINT[test]
            value = number(row.get(key))
            if value is not None:
                yield Figure(metric=f"{test}.{key}", unit=unit, better=better, value=value, size=size)
            continue
        bandwidth, took = number(row.get("busbw")), number(row.get("seconds"))
        if bandwidth is not None:
            yield Figure(metric=f"{test}.busbw", unit="B/s", better="higher", value=bandwidth, size=size)
        if took is not None:
            yield Figure(
                metric=f"{test}.seconds", unit="s", better="lower", value=took, size=size, primary=bandwidth is None
            )


def _rows(result: Mapping[str, Any]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    tests = result.get("tests")
    for test in tests if isinstance(tests, list) else ():
        rows = test.get("rows") if isinstance(test, Mapping) else None
        for row in rows if isinstance(rows, list) else ():
            size = number(row.get("bytes")) if isinstance(row, Mapping) else None
            if size is not None:
                yield str(test.get("test", "")), int(size), row


def number(given: object) -> float | None:
    """A number that can be reckoned with, or None for anything else: a result is what a program printed."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    try:
        value = float(given)
    except OverflowError:
        return None
    return value if abs(value) <= GREATEST else None
