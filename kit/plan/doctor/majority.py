"""Which hosts differ from the others. The most frequent value is the reference, and in a tie that of the first host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Odd(NamedTuple):
    """A host whose value is not that of the majority."""

    host: str
    value: str
    usual: str


def usual(values: Iterable[T]) -> T | None:
    """Return the most frequent value, or None for no values. In a tie, the first of these wins: it is the head's."""
    counts = Counter(values)
    # max() returns the first of equal counts, and a Counter keeps the order of the first occurrences.
    return max(counts, key=lambda value: counts[value], default=None)


def odd(values: Mapping[str, str]) -> tuple[Odd, ...]:
    """Return the hosts that differ from the majority. `values` has them in the order of the hosts file."""
    reference = usual(values.values())
    if reference is None:
        return ()
    return tuple(Odd(host, value, reference) for host, value in values.items() if value != reference)
