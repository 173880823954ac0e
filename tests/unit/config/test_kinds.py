"""Tests what each kind of value accepts, beyond the messages in test_yaml.py."""

from __future__ import annotations

import pytest

from kit.config.kinds import (
    Auto,
    Choice,
    Command,
    Days,
    FieldError,
    Items,
    Kind,
    Text,
    Truth,
    Variables,
    Whole,
    WrongItemsError,
    WrongKindError,
)
from kit.config.validate import spec_from
from kit.errors import InputErrors


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (Whole(1, 65535), " 33 ", 33),
        (Whole(1, 65535), "+33", 33),
        (Whole(1, 65535), "1_000", 1000),
        (Whole(1, 65535), "33.0", 33),
        (Whole(1, 65535), 33, 33),
        (Days(36500), "7e0", 7.0),
        (Days(36500), 7, 7.0),
        (Days(36500), "36h", 1.5),
        (Days(36500), "1w12h", 7.5),
        (Truth(), "On", True),
        (Truth(), "0", False),
        (Truth(), 1, True),
        (Auto(Truth()), "auto", "auto"),
        (Auto(Whole(1, 8)), "8", 8),
        (Items(Choice(("a", "b"))), ["b", "a"], ("b", "a")),
        (Command(), "python3 'a b.py'", ("python3", "a b.py")),
        (Command(), ["python3", ""], ("python3", "")),
        (Variables(), {"A": 1, "B": "x"}, {"A": "1", "B": "x"}),
    ],
)
def test_accepted(kind: Kind, value: object, read: object) -> None:
    assert kind.read(value) == read
    assert type(kind.read(value)) is type(read)


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        (Whole(1, 65535), True, WrongKindError),
        (Whole(1, 65535), "1.", WrongKindError),
        (Whole(1, 65535), "65536", WrongKindError),
        (Whole(1, 65535), "9" * 5000, WrongKindError),
        (Whole(1, 65535), "033", FieldError),
        # pydantic took true for one day.
        (Days(36500), True, WrongKindError),
        (Days(36500), "nan", WrongKindError),
        (Days(36500), "inf", WrongKindError),
        (Days(36500), "0s", WrongKindError),
        (Days(36500), "9999w", WrongKindError),
        (Days(36500), "7 days", WrongKindError),
        (Truth(), 2, WrongKindError),
        (Truth(), [], WrongKindError),
        (Text(), 1, WrongKindError),
        (Text(shortest=1), "", WrongKindError),
        (Text(), "a\0", FieldError),
        (Items(Text()), "a", WrongKindError),
        (Items(Text()), ["a", 1], WrongItemsError),
        (Command(), "a 'b", FieldError),
        (Variables(), {"A": True}, WrongItemsError),
        (Variables(), {"1A": "x"}, FieldError),
    ],
)
def test_refused(kind: Kind, value: object, error: type[ValueError]) -> None:
    with pytest.raises(error):
        kind.read(value)


def test_values_from_python_are_validated_like_a_file() -> None:
    assert spec_from({"ssh": {"user": None}, "volumes": ("/a:/b",)}).volumes == ("/a:/b",)
    with pytest.raises(InputErrors, match="ssh_port: '0' is not a whole number"):
        spec_from({"ssh_port": 0})
