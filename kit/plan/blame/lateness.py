"""Decides which rank or host is late, if any is. Pure.

All ranks begin an operation together, so the late rank is the one that waits least for the others. In a healthy run,
each rank is as likely as any other to be the last. So kit counts in how many samples the same one is last, and asks how
likely that is by chance (a binomial tail, for as many candidates as there are). A rank that is always last by little
costs nothing. So the others must also lose a part of their time by it that is above its own uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, sqrt
from statistics import fmean, median, stdev
from typing import TypeVar

from msgspec import Struct

from kit.plan.blame.samples import Sample

Key = TypeVar("Key", int, str)

# A healthy run is blamed at most this often by chance.
CHANCE = 0.01
# The others lose at least this share of their time. Less is not worth a person's attention.
LEAST_SHARE = 0.05
# The share must be this many standard errors above zero.
ERRORS = 3.0
# A rank is named alone if it is responsible for this part of its host's lateness.
OWN_PART = 0.5


class Late(Struct, frozen=True, kw_only=True):
    """Who is late: the host, and its ranks that are. `share` is what the others lose, in seconds per second.

    It was the last one in `wins` of `samples`.
    """

    host: str
    ranks: tuple[int, ...]
    share: float
    wins: int
    samples: int


def late(samples: Sequence[Sample], hosts: Mapping[int, str]) -> Late | None:
    """Return who is late, or None if nobody is. `hosts` has the host of each rank."""
    if len(samples) < 2:
        return None
    ranks = sorted(samples[0].wait)
    names = {hosts[rank] for rank in ranks}
    if len(names) > 1:
        host = latest([_by_host(sample, hosts) for sample in samples])
        if host is None:
            return None
        own = [rank for rank in ranks if hosts[rank] == host]
    else:
        rank = latest([sample.wait for sample in samples])
        if rank is None:
            return None
        host, own = hosts[rank], [rank]
    others = [rank for rank in ranks if rank not in own]
    chosen = _own_ranks(samples, own, others)
    shares = [lost(sample, chosen, others) for sample in samples]
    share = fmean(shares)
    if share < LEAST_SHARE or share < ERRORS * stdev(shares) / sqrt(len(shares)):
        return None
    wins = sum(min(sample.wait, key=sample.wait.__getitem__) in chosen for sample in samples)
    return Late(host=host, ranks=tuple(chosen), share=min(share, 1.0), wins=wins, samples=len(samples))


def needed(hosts: int, ranks: int) -> int:
    """Return how many samples can show at all that one host, or rank of a single host, is always the last: 8 for 2."""
    count = hosts if hosts > 1 else ranks
    samples = 1
    while count > 1 and count * (1 / count) ** samples > CHANCE:
        samples += 1
    return samples


def latest(waits: Sequence[Mapping[Key, float]]) -> Key | None:
    """Return the one that waits least in more samples than chance explains. None if nobody does."""
    keys = list(waits[0])
    if len(keys) < 2:
        return None
    last = [min(keys, key=one.__getitem__) for one in waits]
    candidate = max(keys, key=lambda key: (last.count(key), -fmean(one[key] for one in waits)))
    if len(keys) * tail(len(last), last.count(candidate), 1 / len(keys)) > CHANCE:
        return None
    return candidate


def tail(count: int, wins: int, chance: float) -> float:
    """Return the probability of at least `wins` in `count` independent trials with this chance each."""
    return sum(comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(wins, count + 1))


def lost(sample: Sample, late: Sequence[int], others: Sequence[int]) -> float:
    """Return which share of the time the others lose in a sample, because these ranks are late.

    The waits for a step's last tensor say it, less what the late ranks wait there themselves. Where Horovod's cycle is
    long beside the step, the mean wait of a tensor says more. Both are at most the truth. A rank whose operations end
    later than on other ranks begins its next step later: that part is the network's, and not its own.
    """
    by_tail = median(sample.tail[rank] for rank in others) - fmean(sample.tail[rank] for rank in late)
    by_wait = median(sample.wait[rank] for rank in others) - fmean(sample.wait[rank] for rank in late)
    in_operations = fmean(sample.operation[rank] for rank in late) - median(sample.operation[rank] for rank in others)
    return max(by_tail, by_wait * (sample.steps or 0.0)) - max(0.0, in_operations)


def _by_host(sample: Sample, hosts: Mapping[int, str]) -> dict[str, float]:
    """Return how long each host waits: as long as its latest rank."""
    result: dict[str, float] = {}
    for rank, wait in sample.wait.items():
        result[hosts[rank]] = min(wait, result.get(hosts[rank], wait))
    return result


def _own_ranks(samples: Sequence[Sample], own: Sequence[int], others: Sequence[int]) -> list[int]:
    """Return the one rank that makes its host late, or all ranks of the host.

    That the host is late is no chance. So this asks only how much of it is the rank's.
    """
    rank = min(own, key=lambda one: fmean(sample.wait[one] for sample in samples))
    rest = [one for one in own if one != rank]
    if not rest:
        return [rank]
    by_rank = fmean(median(s.wait[r] for r in rest) - s.wait[rank] for s in samples)
    by_host = fmean(median(s.wait[r] for r in others) - s.wait[rank] for s in samples)
    return [rank] if by_rank >= OWN_PART * by_host else list(own)
