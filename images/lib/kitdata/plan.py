"""Decides what a staging has to bring: which extents which hosts lack, the pieces to carry them, the parts of a split.

Pure functions. A host is a number: its place in the request's list of members. A set of hosts is a bit mask.
"""

import collections
from typing import Deque, Dict, Iterable, List, NamedTuple, Sequence, Tuple

from kitdata import manifest
from kitdata.manifest import EXTENT
from kitdata.source import Entry

# A piece ends at this size, or at this number of extents.
MOST_PARTS = 8192
# How much more than another host one may have after a later staging, before files move to even it out.
SLACK = 0.02
# kit reads the summary of every host, so that of a split names no hosts if their names are longer than this.
MOST_NAMES = 1 << 14


class Have(NamedTuple):
    """What a host has of a listing: the numbers of its whole files, and the extents of others by number of file."""

    whole: "frozenset[int]"
    parts: "Dict[int, frozenset[int]]"


class Piece(NamedTuple):
    """What travels at once: extents as (number of file, number of extent). `need` and `have` are sets of hosts."""

    parts: Tuple[Tuple[int, int], ...]
    size: int
    need: int
    have: int


class Plan(NamedTuple):
    """What to bring: `need` and `have` are bytes by host, and `files` are those of which a host lacks a part.

    `new` is how many files some host lacks, and `read` the bytes that no host has.
    """

    pieces: Tuple[Piece, ...]
    new: int
    read: int
    need: Tuple[int, ...]
    have: Tuple[int, ...]
    files: Tuple[int, ...]


def bits(mask: int) -> List[int]:
    """Return the numbers in a set of hosts."""
    return [number for number in range(mask.bit_length()) if mask >> number & 1]


def plan(entries: Sequence[Entry], haves: Sequence[Have], owners: Sequence[int]) -> Plan:
    """Return what to bring. `owners` has for each file the set of hosts that must have it.

    A piece has only extents that the same hosts lack and the same hosts have. So nothing that a host has comes again.
    """
    groups: Dict[Tuple[int, int], List[Tuple[int, int]]] = {}
    need, have, files = [0] * len(haves), [0] * len(haves), [0] * len(haves)
    new = 0
    whole = _masks(haves, len(entries))
    partly = set().union(*(item.parts for item in haves)) if haves else set()
    for number, entry in enumerate(entries):
        owner, here = owners[number], whole[number]
        if owner and not owner & ~here:
            for host in bits(owner):
                have[host] += entry.size
            continue
        new += 1 if owner else 0
        incomplete = 0
        for part in range(manifest.extents(entry.size)):
            holders = here | (_part_mask(haves, number, part) if number in partly else 0)
            length = manifest.extent(entry.size, part)[1]
            lack = owner & ~holders
            for host in bits(owner & holders):
                have[host] += length
            for host in bits(lack):
                need[host] += length
            if lack:
                incomplete |= lack
                groups.setdefault((lack, holders), []).append((number, part))
        for host in bits(incomplete):
            files[host] += 1
    pieces: List[Piece] = []
    for (lack, holders), parts in groups.items():
        pieces += _pieces(entries, parts, lack, holders)
    # In the order of the listing, which is the order in which a source reads best.
    pieces.sort(key=lambda piece: piece.parts[0])
    read = sum(piece.size for piece in pieces if not piece.have)
    return Plan(tuple(pieces), new, read, tuple(need), tuple(have), tuple(files))


def _masks(haves: Sequence[Have], count: int) -> List[int]:
    """Return for each file the set of hosts that have all of it."""
    masks = [0] * count
    for host, item in enumerate(haves):
        for number in item.whole:
            masks[number] |= 1 << host
    return masks


def _part_mask(haves: Sequence[Have], number: int, part: int) -> int:
    mask = 0
    for host, item in enumerate(haves):
        if part in item.parts.get(number, ()):
            mask |= 1 << host
    return mask


def _pieces(entries: Sequence[Entry], parts: Iterable[Tuple[int, int]], need: int, have: int) -> Iterable[Piece]:
    pack: List[Tuple[int, int]] = []
    size = 0
    for number, part in parts:
        length = manifest.extent(entries[number].size, part)[1]
        if pack and (size + length > EXTENT or len(pack) >= MOST_PARTS):
            yield Piece(tuple(pack), size, need, have)
            pack, size = [], 0
        pack.append((number, part))
        size += length
    if pack:
        yield Piece(tuple(pack), size, need, have)


def runs(parts: Sequence[Tuple[int, int]]) -> List[List[int]]:
    """Return extents in short: [number of file, number of extent, how many files from that one on] each."""
    result: List[List[int]] = []
    for number, part in parts:
        if result and part == result[-1][1] and number == result[-1][0] + result[-1][2]:
            result[-1][2] += 1
        else:
            result.append([number, part, 1])
    return result


def parts_of(runs: Iterable[Sequence[int]]) -> Tuple[Tuple[int, int], ...]:
    """Return the extents that `runs` has in short. Raises ValueError if these are too many for a piece."""
    result: List[Tuple[int, int]] = []
    for number, part, count in runs:
        if len(result) + count > MOST_PARTS:
            raise ValueError("a piece of too many extents")
        result += [(at, part) for at in range(number, number + count)]
    return tuple(result)


def split(entries: Sequence[Entry], hosts: int, holders: Sequence[int]) -> List[int]:
    """Return for each file its one host. The hosts get the same number of bytes, as nearly as whole files allow.

    `holders` has for each file the set of hosts that have it. A file stays where it is, unless that leaves one host
    with much more than another. Then files move from the host with the most to the one with the least.
    """
    load = [0] * hosts
    count = [0] * hosts
    result = [-1] * len(entries)

    def put(number: int, among: Iterable[int]) -> None:
        host = result[number] = min(among, key=lambda one: (load[one], count[one], one))
        load[host] += entries[number].size
        count[host] += 1

    order = sorted(range(len(entries)), key=lambda number: (-entries[number].size, number))
    for number in order:
        if holders[number]:
            put(number, bits(holders[number]))
    for number in order:
        if result[number] < 0:
            put(number, range(hosts))
    _even(entries, order, result, load)
    return result


def among(hosts: Iterable[str]) -> str:
    """Return the names of the hosts that share a split, as its summary has them; "" if they are too long for one.

    By them, kit notices that one is no longer in the cluster.
    """
    names = " ".join(sorted(hosts))
    return names if len(names) <= MOST_NAMES else ""


def _even(entries: Sequence[Entry], order: Sequence[int], result: List[int], load: List[int]) -> None:
    """Move files until no host has more than another by more than the largest file, or by SLACK of its part."""
    if not order:
        return
    allowed = max(entries[order[0]].size, int(SLACK * sum(load) / len(load)))
    of_host: List[Deque[int]] = [collections.deque() for _ in load]
    # The largest last, so that it moves first: the fewest files move.
    for number in reversed(order):
        of_host[result[number]].append(number)
    while True:
        full = max(range(len(load)), key=lambda host: (load[host], -host))
        least = min(range(len(load)), key=lambda host: (load[host], host))
        if load[full] - load[least] <= allowed:
            return
        number = of_host[full].pop()
        of_host[least].appendleft(number)
        result[number] = least
        load[full] -= entries[number].size
        load[least] += entries[number].size
