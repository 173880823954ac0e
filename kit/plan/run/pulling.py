"""Decides what kit pull brings home, and where each file goes. Names and links are those of ranks, so hostile data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from kit.errors import InputError
from kit.model import names
from kit.model.names import LATEST
from kit.model.results import LOG, MADE, Clock, Entry, Listing, OtherFiles, SharedListing, Wanted
from kit.model.run import RunRecord

# At home, the log of a run is text.
LOG_TEXT = "log.txt"
_GLOB = frozenset("*?[")
# A run's last checkpoint may reach a slow store, or get the time of a store's clock, after the run has ended.
AFTER_S = 60
# Clocks of hosts that differ by less than this count as equal: kit cannot read two of them at the same moment.
SAME_CLOCK_S = 2.0
# Every time that a file can have.
ALWAYS = (-(2**63), 2**63 - 1)


class Request(Struct, frozen=True, kw_only=True):
    """The words of kit pull. `run` is None for the latest run, `folder` for the default folder."""

    run: str | None
    patterns: tuple[str, ...]
    folder: str | None


def request(words: Sequence[str]) -> Request:
    """Read RUN, PATH… and DEST. The last word is DEST, unless it can only be a path in a run's folder."""
    if not words:
        return Request(run=None, patterns=(), folder=None)
    run, *rest = words
    folder = None
    if rest and not is_pattern(rest[-1]):
        folder = rest.pop()
    for word in rest:
        if not is_pattern(word):
            kinds = ", ".join((*MADE, LOG))
            raise InputError(
                f"'{word}' is no path in the folder of a run: such a path begins with {kinds}",
                hint="write the folder at home as the last word",
            )
    return Request(run=None if run == LATEST else run, patterns=tuple(rest), folder=folder)


def is_pattern(word: str) -> bool:
    """Return whether this word is a path in the folder of a run: output/model.h5, 'checkpoints/*', '*/best'."""
    first = word.partition("/")[0]
    return first in (*MADE, LOG, LOG_TEXT) or bool(_GLOB & set(first))


class Chosen(Struct, frozen=True, kw_only=True):
    """What may come home, by host: its entries, and why each of the others stays away, by path (see `Sorted`).

    `without_work` are the hosts where files stay because the run's working folder still has its code.
    """

    entries: dict[str, tuple[Entry, ...]]
    skipped: dict[str, Mapping[str, str]]
    failed: dict[str, Mapping[str, str]]
    without_work: tuple[str, ...] = ()


def chosen(listings: Mapping[str, Listing], patterns: Sequence[str]) -> Chosen:
    """Return which entries of these hosts the patterns select and may come."""
    entries: dict[str, tuple[Entry, ...]] = {}
    skipped: dict[str, Mapping[str, str]] = {}
    failed: dict[str, Mapping[str, str]] = {}
    without_work: list[str] = []
    for host, listing in listings.items():
        there = listing.entries
        if listing.unsettled:
            there, files_stay = without_code(there, patterns)
            without_work += [host] * files_stay
        one = sorted_out(there, patterns, (*MADE, LOG))
        entries[host], skipped[host], failed[host] = one.entries, one.skipped, one.failed
    return Chosen(entries=entries, skipped=skipped, failed=failed, without_work=tuple(without_work))


def without_code(entries: Sequence[Entry], patterns: Sequence[str]) -> tuple[tuple[Entry, ...], bool]:
    """Return which entries may come from a host whose working folder still has the code, and whether files stay there.

    '**/*tfevents*' names files of that folder, as `work` does: they come. No pattern, or one such as '*', means all
    that the run made. kit cannot know which files of the folder are code, so these stay.
    """
    named = [pattern for pattern in patterns if not set(pattern.split("/")) <= {"*", "**", ""}]

    def stays_there(entry: Entry) -> bool:
        is_work = entry.path.partition("/")[0] == names.WORK
        return is_work and selects(patterns, entry.path) and not (named and selects(named, entry.path))

    known = tuple(entry for entry in entries if not stays_there(entry))
    return known, len(known) < len(entries)


def may_name_checkpoints(patterns: Sequence[str]) -> bool:
    """Return whether the patterns may select checkpoints. Without patterns, everything comes."""
    return not patterns or any(fnmatchcase(names.CHECKPOINTS, pattern.partition("/")[0]) for pattern in patterns)


def selects_only_the_log(patterns: Sequence[str]) -> bool:
    """Return whether the patterns select nothing but the log of the run."""
    return bool(patterns) and all(pattern.strip("/") in (LOG, LOG_TEXT) for pattern in patterns)


def selects(patterns: Sequence[str], path: str) -> bool:
    """Return whether one of the patterns selects a path. A folder selects all that is in it; ** is any folders."""
    parts = (LOG_TEXT if path == LOG else path).split("/")
    alike = [parts] if path != LOG else [parts, [LOG]]
    return not patterns or any(_matches(one, pattern.strip("/").split("/")) for pattern in patterns for one in alike)


def _matches(parts: Sequence[str], words: Sequence[str]) -> bool:
    if not words:
        return True
    if words[0] == "**":
        return any(_matches(parts[at:], words[1:]) for at in range(len(parts)))
    return bool(parts) and fnmatchcase(parts[0], words[0]) and _matches(parts[1:], words[1:])


def is_sound(path: str, tops: Collection[str]) -> bool:
    """Return whether a path stays in its folder and begins with one of `tops`."""
    parts = path.split("/")
    return parts[0] in tops and "\0" not in path and not {"", ".", ".."} & set(parts)


def stays(path: str, target: str) -> bool:
    """Return whether a link at `path` leads to somewhere in its folder, whatever other links are there.

    `..` counts only at the beginning of the target: after the name of a link, it may lead anywhere.
    """
    if not target or target.startswith("/") or "\0" in target:
        return False
    depth, below = path.count("/"), False
    for name in target.split("/"):
        if name == "..":
            depth -= 1
            if below or depth < 0:
                return False
        elif name not in ("", "."):
            below = True
    return True


class Sorted(Struct, frozen=True, kw_only=True):
    """The files and links to bring home, and the reasons why selected ones stay away, by path.

    kit never brings what is in `skipped`, such as pipes. What is in `failed` should come, and cannot be read.
    """

    entries: tuple[Entry, ...]
    skipped: Mapping[str, str]
    failed: Mapping[str, str]


def sorted_out(entries: Sequence[Entry], patterns: Sequence[str], tops: Collection[str]) -> Sorted:
    """Return which of the selected entries may come home, and why the others may not."""
    good: list[Entry] = []
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    for entry in entries:
        if entry.kind == "d" or not selects(patterns, entry.path):
            continue
        why = _refusal(entry, tops)
        if why:
            skipped[entry.path] = why
        elif entry.kind == "e":
            failed[entry.path] = entry.text
        else:
            good.append(entry)
    return Sorted(entries=tuple(good), skipped=skipped, failed=failed)


def _refusal(entry: Entry, tops: Collection[str]) -> str:
    if not is_sound(entry.path, tops):
        return "its name leads out of the folder"
    if entry.kind == "s":
        return "it is a device, a socket or a pipe"
    if entry.kind == "l" and not stays(entry.path, entry.text):
        return "it is a link that leads out of the folder"
    return ""


def apart(host: str, path: str) -> str:
    """Return where a file of a host goes if it collides with one of another host."""
    return f"{host}/{at_home(path)}"


def at_home(path: str) -> str:
    """Return where a file goes if it collides with none."""
    return LOG_TEXT if path == LOG else path


def layout(
    listings: Mapping[str, Sequence[Entry]], kept: Mapping[str, Collection[str]] | None = None
) -> Mapping[str, tuple[Wanted, ...]]:
    """Return where the files of each host go: by their own names, or below the host's name where two hosts collide.

    `kept` has the paths by host that collided in an earlier pull. They stay where they are, even if the other host is
    away now or has removed its file.
    """
    owners: dict[str, set[str]] = {}
    folders: set[str] = set()
    for host, entries in listings.items():
        for entry in entries:
            owners.setdefault(entry.path, set()).add(host)
            folders.update(_above(entry.path))

    def collides(path: str) -> bool:
        return len(owners[path]) > 1 or path in folders or any(folder in owners for folder in _above(path))

    def target(host: str, path: str) -> str:
        return apart(host, path) if collides(path) or path in (kept or {}).get(host, ()) else at_home(path)

    return {
        host: tuple(Wanted(entry=entry, target=target(host, entry.path)) for entry in entries)
        for host, entries in listings.items()
    }


def _above(path: str) -> Sequence[str]:
    """Return the folders above a path: a and a/b for a/b/c."""
    parts = path.split("/")
    return ["/".join(parts[:at]) for at in range(1, len(parts))]


# The folder of --checkpoint-dir. It may be shared by hosts and by runs.


def during(run: RunRecord, clock_offset: float) -> tuple[int, int]:
    """Return the first and the last time, in ns, of files that changed during a run, by the clock of the host.

    `clock_offset` is how many seconds that clock is before the head's. A file system may keep whole seconds only.
    """
    first = int(run.started + clock_offset) * 10**9
    if run.ended is None:
        return first, ALWAYS[1]
    return first, int(run.ended + clock_offset + AFTER_S) * 10**9


def clock_offset(head: Clock, host: Clock) -> float:
    """Return how many seconds the clock of a host is before the head's, or 0 if kit cannot tell them apart."""
    offset = (host.there - head.there) / 1e9 - (host.here - head.here)
    return offset if abs(offset) > SAME_CLOCK_S else 0.0


def once(listings: Mapping[str, SharedListing]) -> Mapping[str, tuple[Entry, ...]]:
    """Return the entries that come from each host. A file that several hosts share comes from one of them.

    With the same store, hosts have the same files; one may see an older state than another one for some seconds.
    Otherwise, a file is the same if nothing about it differs.
    """
    chosen: dict[object, tuple[str, Entry]] = {}
    for host, listed in listings.items():
        for entry in listed.listing.entries:
            key: object = (listed.store, entry.path) if listed.store else entry
            known = chosen.get(key)
            if known is None or known[1].time < entry.time:
                chosen[key] = (host, entry)
    return {host: tuple(entry for owner, entry in chosen.values() if owner == host) for host in listings}


def others(listings: Mapping[str, SharedListing]) -> tuple[OtherFiles, ...]:
    """Return what kit leaves in the folder, with the hosts that count the same together."""
    hosts: dict[tuple[int, int], list[str]] = {}
    for host, listed in listings.items():
        if listed.others:
            hosts.setdefault((listed.others, listed.others_size), []).append(host)
    return tuple(OtherFiles(hosts=tuple(seen), files=count[0], size=count[1]) for count, seen in hosts.items())
