"""kit timeline: what each rank of a living run does for some seconds, on one clock, in one file."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kit.errors import InputError, NotReadyError, SlowError
from kit.events import HostDone, HostStep, Phase, Warned
from kit.flows.context import Context
from kit.flows.run.listing import stored_run
from kit.model import names
from kit.model.answer import answer_of
from kit.model.host import Host
from kit.model.run import RunRecord
from kit.model.timeline import Clock, TimelineResult, Trace
from kit.plan.run.numbering import hosts_with_ranks
from kit.plan.timeline import clocks, joined, merge, refuse, trace
from kit.remote.machine import whole
from kit.remote.ssh import fanout, open_files
from kit.remote.timeline.talk import Talk

# What a rank may write, and all together. The files go over the network and into memory.
MOST_BYTES = 64 << 20
MOST_TOTAL = 256 << 20
# A rank looks for orders once a second, and between two operations. A step may take a while.
BEGIN_S = 30.0
# After its time, a rank writes what is in its queue. An operation may be long.
END_S = 30.0
EVERY_S = 0.5
# The states of kitwatch.timeline.
_NONE, _WRITING, _WRITTEN, _REFUSED, _FAILED, _ENDED = range(6)
_WHY = {
    _NONE: "did not begin, because one operation took all the time",
    _WRITING: "did not end in time, so the last operations are missing",
    _REFUSED: "the script writes a timeline of Horovod already",
    _FAILED: "could not write the file: is the disk of the host full?",
    _ENDED: joined.ENDED,
}
_FULL = "reached the limit of bytes before the time was over, so the timeline is shorter"
_ABSENT = "has ended, or could not make the file of counters: /dev/shm of the host may be full"
_NOTHING = "did nothing together with other ranks in this time"
_LONGER = "try again for longer: --for 60s"
_ALONE = "a run of one rank exchanges nothing with others: start more (--np)"

T = TypeVar("T")
Talks = Mapping[str, Talk]


def timeline(context: Context, word: str | None, *, seconds: float, file: str | None, here: Path) -> TimelineResult:
    """Write the timeline of a run's ranks to a file, relative to `here`, and return what it shows.

    `word` is the run's id, or see kit.plan.run.records.find. The run goes on as before. `file` replaces a file of that
    name. Without it, the file's name has the run, and a number if an earlier timeline has that name.
    """
    _check_writable(here, file)
    record, fields = stored_run(context, word)
    if record.state != "running":
        raise refuse.ended(record)
    hosts = _hosts(context, record, fields)
    context.reporter.report(Phase(name="connect", hosts=tuple(host.name for host in hosts)))
    with _talks(context, hosts, record) as opened:
        hellos = _each(opened, Talk.open)
        talks = {name: talk for name, talk in opened.items() if hellos[name].ranks}
        if not talks:
            raise refuse.nobody_counts(record)
        # A host may say anything about the size of the world.
        world = min(record.np, max(hello.size for hello in hellos.values()))
        before = _clocks(talks)
        context.reporter.report(Phase(name="write", hosts=tuple(talks)))
        number = secrets.randbits(48) + 1
        most = min(MOST_BYTES, MOST_TOTAL // sum(len(hello.ranks) for hello in hellos.values()))
        begun = _each(talks, lambda talk: talk.begin(number, seconds, most))
        states = _wait(context, talks, seconds)
        after = _clocks(talks)
        context.reporter.report(Phase(name="fetch", hosts=tuple(talks)))
        traces = _each(talks, lambda talk: _traces(context, talk, begun[talk.host.name]))
    missed = _missed(world, most, states, traces)
    if fields.get("elastic"):
        missed = joined.missed(missed, _late(context, record, hosts))
    common = clocks.together(before, after, {name: tuple(by_rank.values()) for name, by_rank in traces.items()})
    return _written(record, traces, common, missed, here=here, file=file)


def _check_writable(here: Path, file: str | None) -> None:
    """Raise InputError if the file cannot be written: now, and not after a long recording."""
    path = here / file if file else here.absolute()
    if file and path.is_dir():
        raise _unwritable(path, "it is a folder")
    folder = path.parent if file else path
    if not folder.is_dir():
        raise _unwritable(path, f"{folder} is not a folder" if folder.exists() else f"there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise _unwritable(path, "permission denied, or the file system is read-only")


def _unwritable(path: Path, why: str | None) -> InputError:
    return InputError(f"{path} cannot be written: {why}", hint="name another file: --file PATH")


def _hosts(context: Context, record: RunRecord, fields: Mapping[str, Any]) -> Sequence[Host]:
    """Return the hosts with ranks. `fields` are those of record.json."""
    known = {host.name: host for host in context.inventory.hosts}
    chosen = hosts_with_ranks(record, fields)
    missing = [name for name in chosen if name not in known]
    if missing:
        raise InputError(
            f"run {record.id} has ranks on {missing[0]}, which is not in the hosts file", hint="add the host again"
        )
    return [known[name] for name in dict.fromkeys(chosen)]


def _late(context: Context, record: RunRecord, hosts: Sequence[Host]) -> Mapping[str, Sequence[int]]:
    """Return the ranks on hosts that joined an elastic run after the recording had begun."""
    now, fields = stored_run(context, record.id)
    if now.state != "running":
        return {}
    late = [host for host in _hosts(context, now, fields) if host not in hosts]
    with _talks(context, late, record) as opened:
        ranks_by_host = {name: hello.ranks for name, hello in _each(opened, Talk.open).items()}
    for name in [name for name, ranks in ranks_by_host.items() if not ranks]:
        context.reporter.report(Warned(text=f"{name} joins the run just now; its ranks are not in the timeline"))
    return ranks_by_host


@contextmanager
def _talks(context: Context, hosts: Sequence[Host], record: RunRecord) -> Iterator[Talks]:
    def container(host: Host) -> str:
        role = names.HEAD if host.name == context.inventory.head.name else names.NODE
        return names.container(context.spec.name, role)

    talks = {host.name: Talk(host, context.connect, container(host), record.id) for host in hosts}
    # They stay open while other commands run.
    open_files.allow(len(hosts))
    try:
        yield talks
    finally:
        fanout.each(hosts, lambda host: talks[host.name].close())


def _each(talks: Talks, ask: Callable[[Talk], T]) -> Mapping[str, T]:
    """Return what each host answers. Raises the error of a host that fails."""
    hosts = [talk.host for talk in talks.values()]
    return fanout.each(hosts, lambda host: ask(talks[host.name])).or_raise("kit timeline")


def _clocks(talks: Talks) -> Mapping[str, Clock]:
    return {name: clocks.clock_of(pings) for name, pings in _each(talks, Talk.pings).items()}


def _wait(context: Context, talks: Talks, seconds: float) -> Mapping[int, int]:
    """Wait until each rank has written its timeline, or cannot. Return their states. Raises SlowError if none began."""
    start = time.monotonic()
    while True:
        states = {rank: state for by_rank in _each(talks, Talk.states).values() for rank, state in by_rank.items()}
        past = time.monotonic() - start
        writing = any(state == _WRITING for state in states.values())
        waiting = writing or any(state == _NONE for state in states.values())
        if not waiting or past > BEGIN_S + (seconds + END_S if writing else 0):
            break
        for name in talks:
            done = min(past / seconds, 1.0)
            context.reporter.report(
                HostStep(host=name, text=f"{min(past, seconds):.0f} s of {seconds:g} s", fraction=done)
            )
        time.sleep(EVERY_S)
    for name in talks:
        context.reporter.report(HostDone(host=name))
    if all(state == _NONE for state in states.values()):
        raise SlowError(
            f"no rank began its timeline within {BEGIN_S:.0f} s: each is in an operation, which waits for another rank",
            hint="see what the ranks do: kit ps; for the stacks of a run that hangs, see docs/troubleshooting.md",
        )
    return states


def _traces(context: Context, talk: Talk, ranks: Sequence[int]) -> Mapping[int, Trace]:
    name = talk.host.name
    traces = {}
    for at, rank in enumerate(ranks):
        context.reporter.report(HostStep(host=name, text=f"rank {rank}", fraction=at / len(ranks)))
        data = talk.receive(rank, trace.MOST_BYTES)
        with answer_of(name, f"the timeline of rank {rank}"):
            traces[rank] = trace.read(data)
    context.reporter.report(HostDone(host=name))
    return traces


def _missed(
    world: int, most: int, states: Mapping[int, int], traces: Mapping[str, Mapping[int, Trace]]
) -> Mapping[int, str]:
    """Return by rank why it is missing or shorter. `most` is how many bytes a rank may write."""
    missed = {rank: _ABSENT for rank in range(world) if rank not in states}
    pieces = {rank: piece for by_rank in traces.values() for rank, piece in by_rank.items()}
    for rank, state in states.items():
        piece = pieces.get(rank)
        if state in _WHY:
            missed[rank] = _WHY[state]
        elif piece is None or not piece.slices:
            missed[rank] = _NOTHING
        elif piece.size > most:
            missed[rank] = _FULL
    return missed


def _written(
    record: RunRecord,
    traces: Mapping[str, Mapping[int, Trace]],
    common: Mapping[str, Clock],
    missed: Mapping[int, str],
    *,
    here: Path,
    file: str | None,
) -> TimelineResult:
    """Merge the timelines, write the file, and return what it shows. `common` has the clocks of the hosts."""
    ranks = sorted(
        (
            merge.RankTrace(rank=rank, host=name, trace=piece, offset_us=common[name].offset_us)
            for name, by_rank in traces.items()
            for rank, piece in by_rank.items()
            if piece.slices
        ),
        key=lambda rank: rank.rank,
    )
    if not ranks:
        rank, why = next(iter(missed.items()), (0, _NOTHING))
        hint = _ALONE if record.np == 1 and why == _NOTHING else _LONGER
        raise NotReadyError(f"no rank of run {record.id} has a timeline: rank {rank}: {why}", hint=hint)
    error = clocks.apart_us(common)
    content = merge.merged(ranks, run=record.id, clock_error_us=error, missed=missed)
    path = _save(content, here, file or f"kit-timeline-{record.id}.json", replace=bool(file))
    return TimelineResult(
        run=record.id,
        file=str(path),
        size=path.stat().st_size,
        seconds=merge.seconds(ranks),
        ranks=merge.rank_times(ranks),
        clock_error_us=error,
        missed={str(rank): why for rank, why in sorted(missed.items())},
    )


def _save(content: Iterable[bytes], here: Path, name: str, *, replace: bool) -> Path:
    """Write a file and return its path. Unless it may replace one, its name gets the first number that is free.

    Ctrl-C and a full disk leave no half of a file, and the earlier file that it would replace.
    """
    path, number = here / name, 1
    while True:
        try:
            if replace:
                whole.replace_file(path, content)
                return path
            with path.open("xb") as file:
                try:
                    file.writelines(content)
                    file.flush()
                except BaseException:
                    path.unlink(missing_ok=True)
                    raise
        except FileExistsError:
            number += 1
            path = (here / name).with_stem(f"{Path(name).stem}-{number}")
        except OSError as failed:
            raise _unwritable(path, failed.strerror) from None
        else:
            return path
