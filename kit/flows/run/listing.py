"""kit runs, kit runs show: the runs that the head keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from msgspec import Struct

from kit.errors import ArrayMeant, InputError, KitError, NotReadyError, StepError
from kit.events import Warned
from kit.flows.context import Context
from kit.model import names
from kit.model.answer import OddAnswer, answer_of, decode
from kit.model.host import Host
from kit.model.names import LATEST
from kit.model.queue import WaitingRun
from kit.model.result import RunsResult
from kit.model.run import RUN_ID, RunRecord, ShownRun
from kit.model.text import plural
from kit.plan.queue import answers
from kit.plan.run.code_record import diff_fields, diff_of
from kit.plan.run.owners import named
from kit.plan.run.records import find, several, shared_checkpoints, stored_record
from kit.remote.scripts import script
from kit.remote.ssh.transport import Transport

# A run, and the fields of its record.json.
StoredRun = tuple[RunRecord, Mapping[str, Any]]


def listing(context: Context) -> RunsResult:
    """Return all runs that the head keeps, the latest first. It reads the VM's disk.

    It needs no container, unless the VM has no Python.
    """
    with closing(context.connect(context.inventory.head)) as transport:
        listed = _listed(context, transport)
    runs = _latest_first(record for record, _ in listed.stored)
    return RunsResult(cluster=context.spec.name, runs=tuple(runs), waiting=listed.waiting, now=listed.now)


def show(context: Context, word: str | None) -> ShownRun:
    """Return one run with all that the head keeps about it. `word` is its id, or see kit.plan.run.records.find."""
    record, fields = stored_run(context, word)
    code = fields.get("code") or {}
    folder = f"{runs_folder(context)}/{record.id}"
    return ShownRun(
        record=record,
        head=context.inventory.head.name,
        log=f"{folder}/log",
        work=f"{folder}/{names.WORK}" if record.code else "",
        checkpoints=shared_checkpoints(record, fields),
        diff=diff_of(code).decode("utf-8", "surrogateescape"),
        diff_cut=bool(code.get("diff_cut")),
    )


def stored_run(context: Context, word: str | None) -> StoredRun:
    """Return a run (kit.plan.run.records.find), and the fields of its record.json, with the difference of its code."""
    with closing(context.connect(context.inventory.head)) as transport:
        listed = _listed(context, transport)
        stored = listed.stored
        record = find(_latest_first(record for record, _ in stored), word)
        if record is None:
            raise _not_stored(word, listed)
        fields = next(fields for one, fields in stored if one is record)
        code = fields.get("code") or {}
        if code.get("dirty"):
            argv = script("runs", names.folder(context.spec.name), "read", record.id, "code.diff")
            done = transport.run(argv, timeout_s=30)
            fields = {**fields, "code": {**diff_fields(done.stdout), **code}}
    return record, fields


def _not_stored(word: str | None, listed: RunList) -> Exception:
    """Return the error for a word that means none of the stored runs: a run in line has no record yet."""
    waiting = [run.id for run in listed.waiting]
    ids = [*(run.id for run, _ in listed.stored), *waiting]
    known = RunsResult(cluster="", runs=tuple(run for run, _ in listed.stored), waiting=listed.waiting)
    array = _array(known, word) if word else None
    if array is not None:
        return array
    matches = [name for name in ids if word and name.startswith(word)]
    if len(matches) == 1 and matches[0] in waiting:
        return _not_started(matches[0], "see why: kit queue")
    return no_such_run(word, ids)


def started(context: Context, words: Iterable[str], known: Iterable[str], hint: str) -> tuple[str, ...]:
    """Return the words, with those runs of an array in place of its id that hosts have. `known` are the runs of hosts.

    Raises NotReadyError if a word means none of them, but one in line. `hint` may have {run}.
    """
    ids = dict.fromkeys(known)
    meant: list[str] = []
    listed: RunsResult | None = None
    for word in words:
        if any(name.startswith(word) for name in ids):
            meant.append(word)
            continue
        if listed is None:
            listed = RunsResult(cluster=context.spec.name, runs=())
            with suppress(KitError):
                listed = listing(context)
        array = _array(listed, word)
        matches = [run.id for run in listed.waiting if run.id.startswith(word)] if array is None else list(array.runs)
        have = [run for run in matches if run in ids]
        if (len(matches) == 1 or array is not None) and not have:
            raise _not_started(matches[0], hint.format(run=matches[0]))
        meant += have or [word]
    return tuple(meant)


def _not_started(run: str, hint: str) -> NotReadyError:
    return NotReadyError(f"run {run} waits in line, and has not started yet", hint=hint)


def unknown_run(context: Context, word: str | None) -> Exception:
    """Return the error for a word by which the head finds no run: several ids begin with it, none does, or an array's.

    The launcher knows an array by its id as long as one of its runs has not ended.
    """
    ids: list[str] = []
    if word and word != LATEST:
        with suppress(KitError):
            listed = listing(context)
            ids = _ids(listed)
            if (meant := _array(listed, word)) is not None:
                return meant
    return no_such_run(word, ids)


def _ids(listed: RunsResult) -> list[str]:
    """Return the ids of all runs and arrays."""
    return [*(run.id for run in listed.runs), *(run.id for run in listed.waiting), *arrays_of(listed)]


def _array(listed: RunsResult, word: str) -> ArrayMeant | None:
    """Return the only array whose id begins with a word, if the id of no run does."""
    arrays = arrays_of(listed)
    meant = [name for name in _ids(listed) if name.startswith(word)]
    return ArrayMeant(meant[0], arrays[meant[0]]) if len(meant) == 1 and meant[0] in arrays else None


def arrays_of(listed: RunsResult) -> dict[str, list[str]]:
    """Return the runs of each array by its id, in the order of their indexes."""
    arrays: dict[str, list[tuple[int, str]]] = {}
    known: list[RunRecord | WaitingRun] = [*listed.runs, *listed.waiting]
    for run in known:
        if run.array is not None:
            arrays.setdefault(run.array.of, []).append((run.array.index, run.id))
    return {array: [run for _, run in sorted(runs)] for array, runs in arrays.items()}


def no_such_run(run: str | None, ids: Sequence[str] = ()) -> Exception:
    """Return the error for a run that is not the only one among these."""
    if not run or run == LATEST:
        return NotReadyError("this cluster has had no run yet", hint="start one: kit run --np 8 --npernode 2")
    matches = sorted((name for name in ids if name.startswith(run)), reverse=True)
    if len(matches) > 1:
        return several(run, matches)
    return InputError(f"no run '{run}' on the head", hint="list the runs: kit runs")


def stored_runs(context: Context, transport: Transport) -> list[StoredRun]:
    """Return the runs of the head whose records kit can read, with their fields."""
    return list(_listed(context, transport).stored)


def _listed(context: Context, transport: Transport) -> RunList:
    # Not always the first host of the hosts file: an earlier head has runs, too.
    head = transport.host.name
    done = transport.run(script("runs", names.folder(context.spec.name), "list"), timeout_s=30)
    if done.code != 0:
        raise StepError(
            f"its runs could not be read: {done.error_text or f'exit {done.code}'}",
            hint=f"look at the host: kit ssh {head}",
            host=head,
        )
    with answer_of(head, "its list of runs"):
        runs = read_list(done.stdout)
    for text in runs.problems:
        context.reporter.report(Warned(text=text, hint=f"look at the host: kit ssh {head}"))
    return runs


def _latest_first(runs: Iterable[RunRecord]) -> list[RunRecord]:
    return sorted(runs, key=lambda run: (run.started, run.id), reverse=True)


class _Row(Struct, frozen=True, kw_only=True):
    """A line of runs.py: a run, a run in line with the reason why it waits, or the end of the list.

    The end says how many runs the list leaves out, and the time by the head's clock.
    """

    id: str = ""
    live: bool = False
    record: str = ""
    end: str | bool = ""
    more: int = 0
    now: float | None = None
    queued: dict[str, Any] | None = None
    reason: dict[str, Any] | None = None


class RunList(Struct, frozen=True, kw_only=True):
    """The runs of a head, the latest first, those in line in the order of turns, and why others are missing.

    `now` is the time by the head's clock, or None without any run.
    """

    stored: tuple[StoredRun, ...]
    problems: tuple[str, ...] = ()
    waiting: tuple[WaitingRun, ...] = ()
    now: float | None = None


def read_list(answer: bytes) -> RunList:
    """Return the runs in the output of runs.py. Raises OddAnswer if it is not the whole output of that program.

    Ranks can write records. So a record that is odd hides no other run.
    """
    *rows, last = [decode(line, _Row) for line in answer.splitlines()] or [_Row()]
    if last.end is not True:
        raise OddAnswer("the end of the list is missing", answer[-60:])
    answers.check_time(last.now or 0.0)
    stored: list[StoredRun] = []
    odd: list[str] = []
    waiting: list[tuple[object, object]] = []
    for row in rows:
        if row.queued is not None:
            waiting.append((row.queued, row.reason))
            continue
        if not RUN_ID.fullmatch(row.id) or not isinstance(row.end, str):
            raise OddAnswer("this is not the id of a run", row.id or "''")
        try:
            stored.append(stored_record(row.id, row.record, row.end, live=row.live))
        except OddAnswer as error:
            odd.append(f"{row.id} ({error})")
    problems = []
    if odd:
        others = f", and those of {plural(len(odd) - 1, 'more run')}" if len(odd) > 1 else ""
        problems.append(f"kit cannot read the record of run {odd[0]}{others}")
    if last.more > 0:
        problems.append(f"the list leaves out {last.more} older runs: the records are too large")
    in_line, odd_entries = answers.in_turn(waiting)
    problems += [f"kit cannot read a run in line: {text}" for text in odd_entries]
    return RunList(stored=tuple(stored), problems=tuple(problems), waiting=in_line, now=last.now)


def parse(text: str) -> list[RunRecord]:
    """Return the runs in the output of runs.py. Raises OddAnswer."""
    return [record for record, _ in read_list(text.encode()).stored]


def with_owners(context: Context, ids: Iterable[str], heads: Sequence[Host] = ()) -> list[str]:
    """Return these runs in the order of their ids, each with user@machine of the person who started it.

    `heads` are the hosts that have their records (default: the head). Return the id alone if kit cannot read who it is.
    """
    owners: dict[str, str] = {}
    for head in heads or (context.inventory.head,):
        with suppress(KitError), closing(context.connect(head)) as transport:
            owners |= {run.id: run.by for run, _ in stored_runs(context, transport)}
    return [named(run, owners.get(run, "")) for run in sorted(ids)]


def runs_folder(context: Context) -> str:
    """Return the folder on the head's VM that holds a folder for each run."""
    return f"{names.folder(context.spec.name)}/{names.RUNS}"
