"""Which hosts differ from the others. The most frequent value is the reference, and in a tie that of the first host.

Where less is worse, the larger value wins a tie: of two hosts, the head may be the bad one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Odd(NamedTuple):
    """A host whose value is not that of the majority."""

    host: str
    value: str
    usual: str


def usual(values: Iterable[T], amount: Callable[[T], float] | None = None) -> T | None:
    """Return the most frequent value, or None for no values.

    In a tie, that with the largest `amount` wins, or without it the first: it is the head's.
    """
    counts = Counter(values)
    # max() returns the first of equals, and a Counter keeps the order of the first occurrences.
    return max(counts, key=lambda value: (counts[value], amount(value) if amount else 0), default=None)


def odd(values: Mapping[str, str], amount: Callable[[str], float] | None = None) -> tuple[Odd, ...]:
    """Return the hosts that differ from the majority. `values` has them in the order of the hosts file."""
    reference = usual(values.values(), amount)
    if reference is None:
        return ()
    return tuple(Odd(host, value, reference) for host, value in values.items() if value != reference)
