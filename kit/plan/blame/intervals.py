"""Turns the readings of hosts into the intervals that `kit blame` judges. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from kit.model import blame, watch
from kit.model.launch import Node
from kit.model.run import Place
from kit.plan.blame import together
from kit.plan.blame.reasons import core_numbers
from kit.plan.run.gpus import of_slots


def watched(
    run: str,
    places: Sequence[Place],
    readings: Mapping[str, Sequence[watch.SuspectReading]],
    slots: Mapping[str, int | None],
    np: int = 0,
) -> blame.Watched:
    """Return what the readings show of a run. Hosts without two readings are left out. `np` is that of blame.Watched.

    `slots` has the slots of each host, None for as many as it has GPUs, for runs that do not say how many it had.
    """
    counts = {host: max((len(row.gpus or ()) for row in rows), default=0) for host, rows in readings.items()}
    ranks = {host: _ranks(rows) for host, rows in readings.items()}
    parts = together.parts({host: rows for host, rows in readings.items() if len(rows) > 1})
    hosts = {host: tuple(_intervals(run, [part[host] for part in parts])) for host in (parts[0] if parts else ())}
    return blame.Watched(
        run=run,
        hosts=hosts,
        addresses={place.node: place.address for place in places},
        gpus=gpus_of(places, counts, slots, ranks),
        np=np,
    )


def over(readings: Mapping[str, Sequence[watch.SuspectReading]]) -> bool:
    """Return whether the run had ranks, and has none any more."""
    rows = [row for row in readings.values() if row]
    gone = not any(row[-1].suspects.ranks for row in rows)
    return gone and any(one.suspects.ranks for row in rows for one in row)


def gpus_of(
    places: Iterable[Place],
    counts: Mapping[str, int],
    slots: Mapping[str, int | None],
    ranks: Mapping[str, Sequence[int]],
) -> dict[int, tuple[int, ...]]:
    """Return the GPUs of each rank: those of its slots.

    `counts` has the number of GPUs of each host, `slots` is that of `watched`, and `ranks` are those that were seen on
    a host. mpirun numbers the hosts in their order; torchrun does so by their addresses, and a reset of an elastic run
    in any order.
    """
    numbers: dict[int, tuple[int, ...]] = {}
    first = 0
    for place in places:
        gpus = counts.get(place.node, 0)
        # The run knows best: kit.yaml may set slots, too, and the files may have changed since it began.
        total = place.of or slots.get(place.node) or max(gpus, 1)
        node = Node(name=place.node, address=place.address, slots=total, gpus=gpus)
        share = len(place.slots) // place.ranks if place.ranks else 0
        # Ranks that share slots may use any of them.
        own = [place.slots[i * share : (i + 1) * share] if share else place.slots for i in range(place.ranks)]
        gpus_of_ranks = [of_slots(node, held) for held in own]
        seen = sorted(set(ranks.get(place.node, ())))
        if len(seen) == place.ranks:
            numbers.update(zip(seen, gpus_of_ranks, strict=True))
        else:
            # Some are missing, and nobody knows which. These are mpirun's numbers.
            numbers = {**dict(enumerate(gpus_of_ranks, start=first)), **numbers}
        first += place.ranks
    return numbers


def _ranks(rows: Sequence[watch.SuspectReading]) -> tuple[int, ...]:
    """Return the ranks in the last reading that has any: the run may have ended since."""
    return next((tuple(one.rank for one in row.suspects.ranks) for row in reversed(rows) if row.suspects.ranks), ())


def _intervals(run: str, parts: Iterable[Sequence[watch.SuspectReading]]) -> Iterable[blame.HostInterval]:
    for number, rows in enumerate(parts):
        yield from _of_part(run, rows, number)


def _of_part(run: str, rows: Sequence[watch.SuspectReading], part: int) -> Iterable[blame.HostInterval]:
    first = rows[0]
    ranks = tuple(_shares(run, first, first, one) for one in first.suspects.ranks)
    yield blame.HostInterval(seconds=0.0, cores=first.cores, ranks=ranks, part=part)
    for before, now in pairwise(rows):
        seconds = now.seconds or max(now.at - before.at, 1e-3)
        steal = _part(now.steal)
        yield blame.HostInterval(
            seconds=seconds,
            cores=now.cores,
            steal=steal,
            iowait=_part(now.iowait),
            busy=max(0.0, _part(now.cpu) - steal),
            ranks=tuple(_shares(run, before, now, one) for one in now.suspects.ranks),
            others=tuple(
                blame.Other(pid=one.pid, name=one.comm, cpu=one.cpu / 100, core=one.core or 0) for one in now.others
            ),
            peers=now.suspects.peers,
            gpus=None if now.gpus is None else tuple(_gpu(gpu) for gpu in now.gpus),
            part=part,
        )


def _shares(run: str, before: watch.SuspectReading, now: watch.SuspectReading, one: watch.Suspect) -> blame.RankShares:
    rank = _rank(run, now, one.rank)
    earlier = _rank(run, before, one.rank)
    throttled = 0.0
    if rank and earlier and rank.throttled_s is not None and earlier.throttled_s is not None and now.seconds:
        throttled = max(0.0, rank.throttled_s - earlier.throttled_s) / now.seconds
    return blame.RankShares(
        rank=one.rank,
        pid=rank.pid if rank else 0,
        cpu=one.cpu,
        delay=one.delay,
        throttled=throttled if before is not now else 0.0,
        disk=min(one.disk, 1.0),
        asleep=min(one.asleep, 1.0),
        workers=one.workers,
        cores=_cores(rank.allowed or "") if rank else "",
        readiness=one.readiness,
    )


def _rank(run: str, reading: watch.Reading, number: int) -> watch.RankReading | None:
    return next((one for one in reading.ranks if one.run == run and one.rank == number), None)


def _cores(text: str) -> str:
    """Return a list of cores, or '' if it is not one: a host wrote it."""
    try:
        numbers = core_numbers(text)
    except ValueError:
        return ""
    return text if numbers else ""


def _gpu(gpu: watch.Gpu) -> blame.Gpu:
    return blame.Gpu(
        index=gpu.index,
        name=gpu.name,
        use=None if gpu.use is None else gpu.use / 100,
        sm_clock=gpu.sm_clock,
        throttle=gpu.throttle or (),
    )


def _part(percent: float | None) -> float:
    return (percent or 0.0) / 100
