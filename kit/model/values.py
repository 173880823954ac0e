"""What can be done with any value of kit: with a Struct of msgspec, and with a dataclass.

Values are Structs. To define one takes far less time than a dataclass, and every start of kit defines many. The few
dataclasses have what a Struct lacks: a field that no repr shows, types that kit looks up, or no need of msgspec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import NODEFAULT, Struct, structs

T = TypeVar("T")


def is_value(value: object) -> bool:
    """Return whether it has fields, as an instance of a Struct or of a dataclass."""
    return not isinstance(value, type) and (isinstance(value, Struct) or hasattr(type(value), "__dataclass_fields__"))


def fields(value: Any) -> tuple[str, ...]:
    """Return the names of the fields of a value or of its class, in the order of their definition."""
    kind: Any = value if isinstance(value, type) else type(value)
    return kind.__struct_fields__ if issubclass(kind, Struct) else tuple(kind.__dataclass_fields__)


def defaults(kind: type[Struct]) -> dict[str, object]:
    """Return the defaults of a class by field, without the fields that have none. No function may make one of them."""
    # msgspec leaves out what is missing at the front.
    values = zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False)
    return {name: value for name, value in values if value is not NODEFAULT}


def replace(value: T, /, **changes: Any) -> T:
    """Return a copy with other values of some fields."""
    if isinstance(value, Struct):
        return structs.replace(value, **changes)
    return type(value)(**{**{name: getattr(value, name) for name in fields(value)}, **changes})


def asdict(value: Any) -> dict[str, Any]:
    """Return the fields with their values, and those of all values in them."""
    return {name: _plain(getattr(value, name)) for name in fields(value)}


def _plain(value: Any) -> Any:
    if is_value(value):
        return asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return value
