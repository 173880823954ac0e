"""Figures of a benchmark as people write them: 442.4 img/s, 1.13 GB/s, 64 MiB, 25.1 µs, 91.2 %."""

from __future__ import annotations

import re

from kit.model.benchsummary import Stat, Unit

SIMULATED = "SIMULATED"

METRICS = {
    "images_per_s": "images/s",
    "step_s": "step",
    "efficiency": "efficiency",
    "rate": "TCP rate",
    "latency": "latency",
    "wall_s": "launch",
    "speedup": "speed-up",
}
_TESTS = {"allreduce": "all-reduce", "bcast": "broadcast", "allgather": "all-gather"}
_PARTS = {"busbw": "bus bandwidth", "algbw": "bandwidth", "seconds": "time"}


def value(amount: float, unit: Unit) -> str:
    match unit:
        case "img/s":
            return f"{plain(amount)} img/s"
        case "B/s":
            return _scaled(amount, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s"))
        case "bit/s":
            return _scaled(amount, ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"))
        case "s":
            return seconds(amount)
        case "1":
            return percent(amount)
        case "x":
            return f"{amount:.2f} ×"


def tick(amount: float, unit: Unit) -> str:
    """As `value`, with no more digits than it takes: for round numbers."""
    number, _, of = value(amount, unit).partition(" ")
    return f"{float(number):g} {of}" if amount else "0"


def moment(text: str) -> str:
    """Convert 2026-11-21T16:44:07Z to 2026-11-21 16:44 UTC; return other text unchanged."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d(?:\.\d+)?(?:Z|\+00:00)", text, re.ASCII)
    return f"{match[1]} {match[2]} UTC" if match else text


def times(ratio: float) -> str:
    """Two digits; with more where the two are near each other."""
    return f"{ratio:.3f} ×" if 0.95 < ratio < 1.05 and ratio != 1 else f"{ratio:.2f} ×"


def half_range(figure: Stat) -> str:
    """Half of the way from the lowest to the highest, in % of the median; a dash for a single repeat."""
    if figure.count < 2 or figure.median == 0:
        return "–"
    return f"± {(figure.high - figure.low) / 2 / abs(figure.median) * 100:.1f} %"


def plain(amount: float) -> str:
    """Four significant digits, and no exponent."""
    whole = len(f"{abs(amount):.0f}")
    return f"{amount:.{max(0, 4 - whole)}f}" if abs(amount) >= 1 else f"{amount:.3g}"


def percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def seconds(amount: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(amount) >= factor:
            return f"{_digits(amount / factor)} {unit}"
    return "0 s" if amount == 0 else f"{amount * 1e9:.3g} ns"


def size(count: int) -> str:
    """A message's size, in powers of 1024: 8 B, 64 KiB, 1.5 MiB."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:g} {unit}" if amount == int(amount) else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:g} GiB" if amount == int(amount) else f"{amount:.1f} GiB"


def metric(name: str) -> str:
    """`allreduce.busbw` → `all-reduce, bus bandwidth`."""
    test, dot, part = name.partition(".")
    if not dot:
        return METRICS.get(name, name)
    if test in ("latency", "bandwidth"):
        return test
    return f"{_TESTS.get(test, test)}, {_PARTS.get(part, part)}"


def test(name: str) -> str:
    """`allreduce.busbw` → `all-reduce`."""
    first = name.partition(".")[0]
    return _TESTS.get(first, first)


def setting(name: str, text: str) -> str:
    """Return a setting of kit.yaml as in `nccl.plugin: X`, or `no nccl.plugin` if it must not be set."""
    return f"{name}: {' '.join(text.split())}" if text else f"no {name}"


def ranks(count: int) -> str:
    return f"{count} rank{'' if count == 1 else 's'}"


def repeats(count: int) -> str:
    return f"{count} repeat{'' if count == 1 else 's'}"


def too_few(enough: int | None) -> str:
    """Return the words for a difference that more repeats would decide; `enough` of each, None if unknown."""
    return "too few repeats to tell" + (f" (about {enough} of each would)" if enough is not None else "")


def repeat_it(enough: int | None) -> str:
    return "repeat it" + (f" with about --repeats {enough}" if enough is not None else "")


def _digits(amount: float) -> str:
    """Three significant digits, and no exponent."""
    return f"{amount:.{max(0, 3 - len(f'{abs(amount):.0f}'))}f}"


def _scaled(amount: float, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if abs(amount) < 1000:
            return f"{_digits(amount)} {unit}"
        amount /= 1000
    return f"{_digits(amount)} {units[-1]}"
