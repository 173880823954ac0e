"""Durations, rates and sizes as people write them."""

from __future__ import annotations

import pytest

from kit.model.quantity import bits_per_second, in_known_units, in_words_of_tc, seconds, size_bytes


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("90", "s", 90), ("90s", "s", 90), ("1h30m", "s", 5400), ("1.5h", "s", 5400), ("2d", "s", 172800),
        ("1w", "s", 604800),
        ("290", "ms", 0.29), ("290ms", "s", 0.29), ("290ms", "ms", 0.29), ("1.5s", "ms", 1.5), ("50us", "us", 50e-6),
        ("5", "m", 300),
        ("10min", "s", 600), ("1M30S", "s", 90), (" 2m ", "s", 120), ("1s500ms", "s", 1.5), ("0", "s", 0),
    ],
)  # fmt: skip
def test_durations(text: str, unit: str, value: float) -> None:
    assert seconds(text, unit=unit) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "s", "1h30", "-1s", "1 h", "1e3", "\u0663s", "1y", "1.s", "ten"])
def test_other_words_are_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time such as 90s, 290ms, 10m or 1h30m"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "value", "tc"),
    [
        ("200mbit", 2e8, "200mbit"), ("1gbit", 1e9, "1gbit"), ("8Gbps", 8e9, "8gbit"), ("100Mbps", 1e8, "100mbit"),
        ("1.5Gbit/s", 1.5e9, "1500mbit"), ("12.5gbit", 12.5e9, "12500mbit"), ("64kbit", 64e3, "64kbit"),
        ("125MB/s", 1e9, "1gbit"), ("1GBps", 8e9, "8gbit"), ("1000mbit", 1e9, "1gbit"), ("100MBIT", 1e8, "100mbit"),
        ("100kb/s", 1e5, "100kbit"), ("100kB/s", 8e5, "800kbit"), ("1tbit", 1e12, "1000gbit"),
        ("999999gbit", 999999e9, "999999gbit"), ("2000bytes/s", 16e3, "16kbit"),
    ],
)  # fmt: skip
def test_rates(text: str, value: float, tc: str) -> None:
    assert bits_per_second(text) == pytest.approx(value)
    assert in_words_of_tc(text) == tc


@pytest.mark.parametrize("text", ["", "fast", "8", "8g", "0mbit", "-1gbit", "1pbit", "8 gbit", "none"])
def test_other_words_are_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate such as 200mbit"):
        bits_per_second(text)


def test_a_rate_below_1_kbit_is_none_for_tc() -> None:
    with pytest.raises(ValueError, match="is not a rate"):
        in_words_of_tc("100bit")


@pytest.mark.parametrize(
    ("text", "size"), [("1gb", 1 << 30), ("8g", 8 << 30), ("512MB", 512 << 20), ("4k", 4096), ("100b", 100)]
)
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("64GiB", "64gb"), ("1.5 GB", "1536mb"), ("1Ti", "1024gb"), ("512Mi", "512mb"), ("1536k", "1536kb"),
        ("0.5m", "512kb"), ("1.5k", ""), ("0gb", ""), ("64", ""), ("many", ""),
    ],
)  # fmt: skip
def test_sizes_of_other_tools_are_written_in_kits_units(text: str, known: str) -> None:
    assert in_known_units(text) == known
