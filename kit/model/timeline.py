"""A timeline of a run: what each rank of Horovod did, on one clock."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

# The slice from the moment at which a rank gave a tensor to the begin of its operation (images/horovod).
WAIT = "WAIT"
ALLREDUCE = "ALLREDUCE"


class Slice(NamedTuple):
    """Something that a rank did with a tensor. `start` and `end` are in µs. `args` has dtype and shape, if known.

    `depth` is 0 for a slice that is in no other one.
    """

    tensor: str
    name: str
    start: float
    end: float
    depth: int = 0
    args: tuple[tuple[str, str], ...] = ()


class Trace(Struct, frozen=True, kw_only=True):
    """What one rank wrote: `size` bytes. The slices' µs count from `epoch_us` (µs since 1970, by the host's clock)."""

    epoch_us: int
    slices: tuple[Slice, ...]
    size: int = 0


class Clock(Struct, frozen=True, kw_only=True):
    """How far a host's clock is ahead of this machine's, in µs, and how wrong that may be."""

    offset_us: float
    error_us: float


class RankTime(Struct, frozen=True, kw_only=True):
    """A rank in a timeline. Its shares are of the time from its own first slice to its last.

    `waited` is the share in which it had given tensors and waited for other ranks, `operated` the share in operations.
    `operations` counts them.
    """

    rank: int
    host: str
    operations: int
    waited: float
    operated: float


class TimelineResult(Struct, frozen=True, kw_only=True):
    """A timeline that was written to `file` (`size` bytes). `seconds` is from its first slice to its last.

    `clock_error_us` is how wrong the clocks of the hosts may be in it, compared with each other. `missed` says by rank
    why it is missing or shorter.
    """

    run: str
    file: str
    size: int
    seconds: float
    ranks: tuple[RankTime, ...]
    clock_error_us: float
    missed: dict[str, str]
