"""Durations and rates as people write them: 1h30m, 290ms, 90s, 1w; 8Gbps, 100mbit, 1.5Gbit/s, 125MB/s."""

from __future__ import annotations

import re

_DAYS = {"w": 604800.0, "d": 86400.0}
_SECONDS = {**_DAYS, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
_UNIT = "|".join(sorted(_SECONDS, key=len, reverse=True))
_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,6})?"
_DURATION = re.compile(rf"(?:{_NUMBER}(?:{_UNIT}))+", re.ASCII | re.IGNORECASE)
_PART = re.compile(rf"({_NUMBER})({_UNIT})", re.ASCII | re.IGNORECASE)
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# Sizes as Kubernetes, Slurm and data sheets write them.
_OTHER_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([kmgt])i?b?", re.ASCII | re.IGNORECASE)
_POWERS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
# tc's words (mbit), and those of data sheets: Mbps and Mbit/s are bits, MB/s and MBps are bytes.
_RATE = re.compile(rf"({_NUMBER})([kmgt]?)(bit|bits|bit/s|bits/s|bps|b/s|byte/s|bytes/s)", re.ASCII | re.IGNORECASE)


def seconds(text: str, *, unit: str = "s") -> float:
    """Return a duration in seconds. A bare number is in `unit`. Raises ValueError with what to write."""
    word = text.strip()
    if re.fullmatch(_NUMBER, word, re.ASCII):
        return float(word) * _SECONDS[unit]
    if not _DURATION.fullmatch(word):
        raise ValueError(f"'{text}' is not a time such as 90s, 290ms, 10m or 1h30m")
    return sum(float(number) * _SECONDS[name.lower()] for number, name in _PART.findall(word))


def bits_per_second(text: str) -> float:
    """Return a rate in bits per second. Raises ValueError with what to write."""
    match = _RATE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise ValueError(f"'{text}' is not a rate such as 200mbit, 8gbit or 8Gbps")
    word = match[3]
    # MB/s and MBps are bytes by their capital B.
    of_bytes = word.lower().startswith("byte") or word in ("B/s", "Bps", "BPS", "B/S")
    return float(match[1]) * _POWERS[match[2].lower()] * (8 if of_bytes else 1)


def size_bytes(text: str) -> int:
    """Return a size such as 8gb, 512m or 4096b in bytes. The caller has checked its form."""
    digits = text.rstrip("bkmgBKMG")
    return int(digits) * _UNITS[text[len(digits)].lower()]


def in_known_units(text: str) -> str:
    """Return a size such as 64GiB, 1.5 GB or 1Ti in whole gb, mb or kb. '' for other text, and for 0."""
    match = _OTHER_SIZE.fullmatch(text.strip())
    if match is None:
        return ""
    unit = match[2].lower()
    number = round(float(match[1]) * (1 << 40 if unit == "t" else _UNITS[unit]))
    for name in "gmk":
        if number and number % _UNITS[name] == 0:
            return f"{number // _UNITS[name]}{name}b"
    return ""


def in_words_of_tc(text: str) -> str:
    """Return a rate in whole words of tc: 200mbit, 1gbit, 1500mbit. Raises ValueError with what to write."""
    bits = round(bits_per_second(text))
    for name, power in (("g", 10**9), ("m", 10**6), ("k", 10**3)):
        if bits and bits % power == 0 and bits // power < 10**6:
            return f"{bits // power}{name}bit"
    raise ValueError(f"'{text}' is not a rate such as 200mbit, 8gbit or 8Gbps")
