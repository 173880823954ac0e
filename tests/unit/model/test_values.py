"""Values of kit as Structs and as dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import Struct

from kit.model.values import asdict, fields, is_value, replace


class Inner(Struct, frozen=True, kw_only=True):
    name: str
    sizes: tuple[int, ...] = ()


class AStruct(Struct, frozen=True, kw_only=True):
    first: int
    inner: Inner
    more: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ADataclass:
    first: int
    inner: Inner
    more: dict[str, Any]


@pytest.mark.parametrize("kind", [AStruct, ADataclass])
def test_a_value(kind: Any) -> None:
    value = kind(first=1, inner=Inner(name="a", sizes=(1, 2)), more={"list": [Inner(name="b")], "none": None})
    assert fields(value) == fields(kind) == ("first", "inner", "more")
    assert asdict(value) == {
        "first": 1,
        "inner": {"name": "a", "sizes": (1, 2)},
        "more": {"list": [{"name": "b", "sizes": ()}], "none": None},
    }
    other = replace(value, first=2)
    assert (type(other), other.first, other.inner, value.first) == (kind, 2, value.inner, 1)
    with pytest.raises(TypeError):
        replace(value, second=2)


def test_classes_and_other_objects_are_no_values() -> None:
    assert is_value(Inner(name="a"))
    assert is_value(ADataclass(first=1, inner=Inner(name="a"), more={}))
    assert not any(map(is_value, (Inner, ADataclass, "text", ("a",), {"a": 1}, None)))
