"""What the text of an option's value becomes. Each function raises ValueError with what to write instead."""

from __future__ import annotations

import re

_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,3})?"


def words(text: str) -> str:
    """Return the text, which may be anything but empty."""
    if not text.strip():
        raise ValueError("the value is empty")
    return text


def count(text: str) -> int:
    """Return a whole number of 1 or more."""
    # int() alone would accept ' 1_0 ' as well.
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) or int(text) < 1:
        raise ValueError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


def lines(text: str) -> int:
    """Return a whole number of 0 or more."""
    if not re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        raise ValueError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) or not 1 <= int(text) <= 65535:
        raise ValueError(f"'{text}' is not a port from 1 to 65535")
    return int(text)


def positive(text: str) -> float:
    """Return a number above 0, such as 290 or 0.5."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,20})?", text, re.ASCII) or float(text) <= 0:
        raise ValueError(f"'{text}' is not a number above 0, such as 290 or 0.5")
    return float(text)


def not_negative(text: str) -> float:
    """Return a number of 0 or more."""
    if re.fullmatch(r"0+(\.0+)?", text, re.ASCII):
        return 0.0
    try:
        return positive(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a number of 0 or more") from None


def share(text: str) -> float:
    """Return a part of 1, such as 0.9."""
    try:
        value = positive(text)
    except ValueError:
        value = 2.0
    if value > 1:
        raise ValueError(f"'{text}' is not a part of 1, such as 0.9")
    return value


def minutes(text: str) -> float:
    """Return minutes, from 1 to 120."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,2})?", text, re.ASCII) or not 1 <= float(text) <= 120:
        raise ValueError(f"'{text}' is not a number of minutes from 1 to 120")
    return float(text)


def span(text: str) -> float:
    """Return a time in seconds: 90, 90s, 10m, 8h, 2d or 1h30m."""
    if not re.fullmatch(rf"{_NUMBER}|(?:{_NUMBER}[dhms])+", text, re.ASCII):
        raise ValueError(f"'{text}' is not a time such as 90s, 10m or 8h")
    return sum(float(number) * _SECONDS[unit or "s"] for number, unit in re.findall(r"([0-9.]+)([dhms]?)", text))


def rate(text: str) -> str:
    """Return a rate as tc takes it: 200mbit, 1gbit."""
    if not re.fullmatch(r"[1-9][0-9]{0,5}(k|m|g)bit", text, re.ASCII):
        raise ValueError(f"'{text}' is not a rate such as 200mbit or 1gbit")
    return text


def names(text: str) -> tuple[str, ...]:
    """Return words that commas separate."""
    listed = tuple(word.strip() for word in text.split(",") if word.strip())
    if not listed:
        raise ValueError(f"'{text}' has no names: separate them with commas")
    return listed


def numbers(text: str) -> tuple[int, ...]:
    """Return whole numbers of 1 or more that commas separate."""
    return tuple(count(word) for word in names(text))


def png_file(text: str) -> str:
    """Return the name of a file that ends in .png."""
    if not text.lower().endswith(".png"):
        raise ValueError(f"'{text}' is not the name of a PNG file, such as both.png")
    return text


def variable(text: str) -> tuple[str, str | None]:
    """Return (name, value) of `VAR=value`. The value of `VAR` alone is None: kit takes it from this shell."""
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
        raise ValueError(f"'{text}' is not VAR or VAR=value")
    return (name, value if equals else None)
