"""What an all-reduce costs on ranks that share their hosts' links. Pure arithmetic; no constant is measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import ceil, log2

from msgspec import Struct

from kit.model.allreduce import Algorithm, Library
from kit.model.scaling import Links

# Open MPI 4.1 and 5 (coll/tuned, fixed decisions) use recursive doubling below this size, and Rabenseifner from it on.
MPI_SWITCH = 8192
# Open MPI's btl_tcp sends longer messages by put, as one piece. The message that lets the other side begin travels
# behind it on the pair's only connection, so two ranks that exchange such messages take turns.
MPI_TURNS_FROM = 64 * 1024


class Cost(Struct, frozen=True, kw_only=True):
    """`seconds` of an all-reduce, and the bytes that leave each host for it."""

    seconds: float
    host_bytes: float
    algorithm: str


class Ranks(Struct, frozen=True, kw_only=True):
    """`count` ranks, `per_host` on each host, neighbors by number on the same host."""

    count: int
    per_host: int

    @property
    def local(self) -> int:
        return min(self.per_host, self.count)

    @property
    def hosts(self) -> int:
        return ceil(self.count / self.per_host)


def allreduce(size: float, ranks: Ranks, links: Links, *, algorithm: Algorithm, library: Library) -> Cost:
    """Return the cost of summing `size` bytes over all ranks."""
    if ranks.count == 1:
        return Cost(seconds=0.0, host_bytes=0.0, algorithm="none")
    if algorithm != "auto":
        return _COSTS[algorithm](size, ranks, links)
    if library == "mpi":
        return _COSTS["recursive-doubling" if size < MPI_SWITCH else "rabenseifner"](size, ranks, links)
    # NCCL estimates both and takes the faster one.
    return min((_COSTS[name](size, ranks, links) for name in ("ring", "tree")), key=lambda cost: cost.seconds)


def _ring(size: float, ranks: Ranks, links: Links) -> Cost:
    """Each rank sends a part of 1/n to the next one, 2(n-1) times; the first n-1 parts are added up on the way.

    Of the ranks on a host one has its successor on another, so a host's link carries one part a step. All move at the
    pace of the slowest.
    """
    part, rounds = size / ranks.count, 2 * (ranks.count - 1)
    pace = links.intra_latency + part / links.intra if ranks.local > 1 else 0.0
    between = ranks.hosts > 1
    if between:
        # Of two ranks each is the other's successor and predecessor.
        pace = max(pace, links.inter_latency + _turns(part, links, pair=ranks.count == 2) * part / links.inter)
    seconds = rounds * pace + (rounds / 2) * part / links.memory
    return Cost(seconds=seconds, host_bytes=rounds * part if between else 0.0, algorithm="ring")


def _hierarchical(size: float, ranks: Ranks, links: Links) -> Cost:
    """Within each host every rank gets the sum of its part of 1/p; a ring of hosts for each part, all over the hosts'
    links at once; then the ranks of a host hand each other their parts."""
    local, hosts = ranks.local, ranks.hosts
    within = 2 * (local - 1) * (links.intra_latency + size / local / links.intra)
    rounds = 2 * (hosts - 1)
    between = rounds * (links.inter_latency + size / hosts / links.inter)
    added = (local - 1) / local * size + (hosts - 1) / hosts * size / local
    return Cost(
        seconds=within + between + added / links.memory,
        host_bytes=rounds * size / hosts,
        algorithm="hierarchical",
    )


def _tree(size: float, ranks: Ranks, links: Links) -> Cost:
    """NCCL's two binary trees of hosts, each for one half of the numbers, with a chain within each host.

    Every host passes its sum up once and the result down once, for each half: 2 sizes over each link. It is sent in
    pieces, so that the depth costs latency alone.
    """
    depth = ceil(log2(ranks.hosts)) if ranks.hosts > 1 else 0
    latency = 2 * (depth * links.inter_latency + (ranks.local - 1) * links.intra_latency)
    within = 2 * size / links.intra if ranks.local > 1 else 0.0
    between = 2 * size / links.inter if depth else 0.0
    seconds = latency + max(within, between) + size / links.memory
    return Cost(seconds=seconds, host_bytes=2 * size if depth else 0.0, algorithm="tree")


def _recursive_doubling(size: float, ranks: Ranks, links: Links) -> Cost:
    """In round k each rank exchanges all of it with the rank 2^k away."""
    return _exchanges(size, ranks, links, "recursive-doubling", [1.0] * ceil(log2(ranks.count)), added=True)


def _rabenseifner(size: float, ranks: Ranks, links: Links) -> Cost:
    """In round k each rank exchanges 1/2^(k+1) with the rank 2^k away and adds it up; then the same way back."""
    shares = [0.5 ** (number + 1) for number in range(ceil(log2(ranks.count)))]
    there = _exchanges(size, ranks, links, "rabenseifner", shares, added=True)
    back = _exchanges(size, ranks, links, "rabenseifner", shares, added=False)
    return Cost(
        seconds=there.seconds + back.seconds,
        host_bytes=there.host_bytes + back.host_bytes,
        algorithm="rabenseifner",
    )


def _exchanges(size: float, ranks: Ranks, links: Links, name: str, shares: list[float], *, added: bool) -> Cost:
    """Rounds of pairs at distances 1, 2, 4 ...: pairs within a host are its own affair, and the ranks of a host whose
    partner is on another one share its link."""
    seconds = host_bytes = 0.0
    for number, share in enumerate(shares):
        part, leaving = size * share, _leaving(2**number, ranks)
        if leaving:
            seconds += links.inter_latency + _turns(part, links) * leaving * part / links.inter
            host_bytes += leaving * part
        else:
            seconds += links.intra_latency + part / links.intra
        seconds += part / links.memory if added else 0.0
    return Cost(seconds=seconds, host_bytes=host_bytes, algorithm=name)


@lru_cache(maxsize=1024)
def _leaving(distance: int, ranks: Ranks) -> int:
    """Return how many ranks of a host have their partner at this distance, a power of two, on another host.

    The busiest host counts. If the ranks of a host are a power of two, shorter distances stay within hosts. With three
    ranks on a host, 2 and 3 are on two hosts.
    """
    if distance >= ranks.local:
        return ranks.local if ranks.hosts > 1 else 0

    def upper(end: int) -> int:
        """Return how many of the ranks below `end` have their partner before them."""
        return end // (2 * distance) * distance + max(0, end % (2 * distance) - distance)

    most = 0
    for first in range(0, ranks.count, ranks.per_host):
        end = min(first + ranks.per_host, ranks.count)
        near, far = min(first + distance, end), max(end - distance, first)
        # The first ones have their partner on a host before, the last ones behind, if there is such a rank.
        last = max(far, min(end, ranks.count - distance))
        most = max(most, upper(near) - upper(first) + (last - far) - (upper(last) - upper(far)))
    return most


def _turns(part: float, links: Links, *, pair: bool = True) -> int:
    """How often a link is passed one way while two ranks hand each other `part`: once, or one after the other."""
    return 2 if pair and part >= links.turns_from else 1


_COSTS: dict[str, Callable[[float, Ranks, Links], Cost]] = {
    "ring": _ring,
    "hierarchical": _hierarchical,
    "tree": _tree,
    "recursive-doubling": _recursive_doubling,
    "rabenseifner": _rabenseifner,
}
