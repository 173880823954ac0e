"""Reads what the head answers about the line. Ranks of root can change the head's files, so all of it is checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from msgspec import Struct, field

from kit.model.answer import OddAnswer, convert
from kit.model.queue import After, Cordon, How, Kind, Line, Out, Reason, Reserved, WaitingRun
from kit.model.run import RUN_ID, Member
from kit.model.text import one_line

# Limits of what an entry may say: seconds since 1970, and any count.
_LATEST, _MOST = 2.0**36, 2**31
_HOW = ("ok", "failed", "any")


class _Need(Struct, frozen=True, kw_only=True):
    counts: tuple[int, ...]
    hosts: tuple[str, ...]


class _Entry(Struct, frozen=True, kw_only=True):
    """What the head shows of an entry (images/lib/kitqueue/desk.py). Its other fields are for the head."""

    id: str
    need: _Need
    place: int
    np: int = 0
    command: tuple[str, ...] = ()
    by: str = ""
    queued: float = 0.0
    priority: int = 0
    limit: float | None = None
    after: tuple[tuple[str, str], ...] = ()
    held: bool = False
    array: Member | None = None
    data: tuple[str, ...] = ()


class _Reason(Struct, frozen=True, kw_only=True):
    kind: Literal["held", "after", "never", "hosts", "gone", "slots", "turn", "error", "broken"]
    ids: tuple[str, ...] = ()
    at: float | None = None
    about: float | None = None
    more: int = 0
    out: dict[str, Out] = field(default_factory=dict)
    why: str = ""


class _State(Struct, frozen=True, kw_only=True):
    reasons: dict[str, Any] = field(default_factory=dict)


class _Cordon(Struct, frozen=True, kw_only=True):
    why: str = ""
    by: str = ""
    at: float = 0.0


class _Reserved(Struct, frozen=True, kw_only=True):
    id: str
    slots: dict[str, tuple[int, ...]]
    left: float | None = None


class _Line(Struct, frozen=True, kw_only=True):
    line: tuple[dict[str, Any], ...]
    state: _State
    cordons: dict[str, _Cordon]
    # The runs whose files are damaged.
    torn: tuple[str, ...] = ()
    # Heads of earlier kits do not send it.
    now: float | None = None


def line(cluster: str, answer: Mapping[str, Any]) -> tuple[Line, tuple[str, ...]]:
    """Return the line in the head's answer, in the order of turns, and what is odd in it. Raises OddAnswer."""
    read: _Line = convert(answer, _Line)
    reasons = read.state.reasons
    check_time(read.now or 0.0)
    runs, odd = in_turn((entry, reasons.get(str(entry.get("id")))) for entry in read.line)
    odd += tuple(f"the file of run {one_line(name)} is damaged" for name in read.torn)
    return Line(cluster=cluster, runs=runs, cordons=_cordons(read.cordons), now=read.now), odd


def in_turn(pairs: Iterable[tuple[object, object]]) -> tuple[tuple[WaitingRun, ...], tuple[str, ...]]:
    """Return runs in line in the order of turns, each from its entry and the reason why it waits; and what is odd.

    Ranks of root can write entries. So one that is odd hides no other.
    """
    entries: list[tuple[tuple[int, int], WaitingRun]] = []
    odd = []
    for entry, reason in pairs:
        try:
            read: _Entry = convert(entry, _Entry)
            entries.append(((-read.priority, read.place), _waiting(read, reason)))
        except OddAnswer as error:
            odd.append(str(error))
    entries.sort(key=lambda pair: pair[0])
    return tuple(run for _, run in entries), tuple(odd)


def waiting(entry: object, reason: object) -> WaitingRun:
    """Return one run in line, and why it waits. Raises OddAnswer."""
    return _waiting(convert(entry, _Entry), reason)


def cordons(answer: object) -> tuple[Cordon, ...]:
    """Return the cordoned hosts, by name. Raises OddAnswer."""
    return _cordons(convert(answer, dict[str, _Cordon]))


def reserved(answer: object) -> Reserved | None:
    """Return what is reserved for the first in line, or None if nothing is. Raises OddAnswer."""
    read: _Reserved | None = convert(answer, _Reserved | None)
    if read is None:
        return None
    if not RUN_ID.fullmatch(read.id):
        raise OddAnswer("this is not the id of a run", read.id or "''")
    check_time(read.left or 0.0)
    slots = {host: frozenset(numbers) for host, numbers in read.slots.items()}
    return Reserved(run=read.id, slots=slots, left=read.left)


def _cordons(hosts: Mapping[str, _Cordon]) -> tuple[Cordon, ...]:
    for cordon in hosts.values():
        check_time(cordon.at)
    return tuple(
        Cordon(host=name, why=cordon.why, by=cordon.by, at=cordon.at) for name, cordon in sorted(hosts.items())
    )


def _reason(answer: object) -> Reason:
    """Return why a run waits. A reason that this kit cannot read, such as one of a newer kit, must not hide the run."""
    try:
        read: _Reason | None = convert(answer, _Reason | None)
        # A hold that the entry does not have is over.
        if read is None or read.kind == "held":
            return Reason()
        for moment in (read.at, read.about):
            check_time(moment or 0.0)
    except OddAnswer:
        return Reason(kind="unknown")
    if abs(read.more) > _MOST:
        return Reason(kind="unknown")
    out = tuple(sorted(read.out.items()))
    return Reason(
        kind=cast("Kind", read.kind),
        runs=read.ids,
        at=read.at,
        more=read.more,
        out=out,
        text=read.why,
        about=read.about,
    )


def _waiting(entry: _Entry, reason: object) -> WaitingRun:
    for word in (entry.id, *((entry.array.of,) if entry.array else ())):
        if not RUN_ID.fullmatch(word):
            raise OddAnswer("this is not the id of a run", word or "''")
    check_time(entry.queued)
    counts = (
        entry.np,
        entry.priority,
        *entry.need.counts,
        *((entry.array.index, entry.array.size) if entry.array else ()),
    )
    if not all(abs(count) <= _MOST for count in counts) or not 0 <= (entry.limit or 0) <= _LATEST:
        raise OddAnswer(f"a number is greater than {_MOST}")
    if not all(how in _HOW for _, how in entry.after):
        raise OddAnswer(f"the end of an earlier run is none of {', '.join(_HOW)}")
    return WaitingRun(
        id=entry.id,
        np=entry.np,
        counts=entry.need.counts,
        hosts=entry.need.hosts,
        command=entry.command,
        by=entry.by,
        queued=entry.queued,
        priority=entry.priority,
        limit=entry.limit,
        after=tuple(After(run=run, how=cast("How", how)) for run, how in entry.after),
        array=entry.array,
        data=entry.data,
        # A hold counts at once. The keeper's reason follows within a second.
        reason=Reason(kind="held") if entry.held else _reason(reason),
    )


def check_time(moment: float) -> None:
    """Raise OddAnswer for a time that no clock has."""
    if not 0 <= moment <= _LATEST:
        raise OddAnswer("a time is not between 1970 and 4147")
