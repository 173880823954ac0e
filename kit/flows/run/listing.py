"""kit runs, kit runs show: the runs that the head keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from kit.errors import InputError, KitError, NotReadyError, StepError
from kit.flows.context import Context
from kit.model import names
from kit.model.names import LATEST
from kit.model.result import RunsResult
from kit.model.run import RunRecord, ShownRun
from kit.plan.run.records import find, record_of, several
from kit.remote.scripts import script
from kit.remote.ssh.transport import Transport

# A run, and the fields of its record.json.
StoredRun = tuple[RunRecord, Mapping[str, Any]]


def listing(context: Context) -> RunsResult:
    """Return all runs that the head keeps, the latest first. It reads the VM's disk and needs no container."""
    with closing(context.connect(context.inventory.head)) as transport:
        runs = _latest_first(record for record, _ in _stored(context, transport))
    return RunsResult(cluster=context.spec.name, runs=tuple(runs))


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
        diff=str(code.get("diff", "")),
        diff_cut=bool(code.get("diff_cut")),
    )


def stored_run(context: Context, word: str | None) -> StoredRun:
    """Return a run (kit.plan.run.records.find), and the fields of its record.json, with the difference of its code."""
    with closing(context.connect(context.inventory.head)) as transport:
        stored = _stored(context, transport)
        record = find(_latest_first(record for record, _ in stored), word)
        if record is None:
            raise no_such_run(word, [run.id for run, _ in stored])
        fields = next(fields for one, fields in stored if one is record)
        code = fields.get("code") or {}
        if code.get("dirty"):
            done = transport.run(script("code_diff", f"{runs_folder(context)}/{record.id}"), timeout_s=30)
            fields = {**fields, "code": {"diff": done.stdout.decode(errors="replace"), **code}}
    return record, fields


def unknown_run(context: Context, word: str | None) -> Exception:
    """Return the error for a word by which the head finds no run: no id begins with it, or several do."""
    ids: Sequence[str] = ()
    if word and word != LATEST:
        with suppress(KitError):
            ids = [run.id for run in listing(context).runs]
    return no_such_run(word, ids)


def no_such_run(run: str | None, ids: Sequence[str] = ()) -> Exception:
    """Return the error for a run that is not the only one among these."""
    if not run or run == LATEST:
        return NotReadyError("this cluster has had no run yet", hint="start one: kit run --np 8 --npernode 2")
    matches = sorted((name for name in ids if name.startswith(run)), reverse=True)
    if len(matches) > 1:
        return several(run, matches)
    return InputError(f"no run '{run}' on the head", hint="list the runs: kit runs")


def _stored(context: Context, transport: Transport) -> list[StoredRun]:
    head = context.inventory.head
    done = transport.run(script("runs", runs_folder(context)), timeout_s=30)
    if done.code != 0:
        raise StepError(
            f"its runs could not be read: {done.error_text or f'exit {done.code}'}",
            hint=f"look at the host: kit ssh {head.name}",
            host=head.name,
        )
    return _parsed(done.text)


def _latest_first(runs: Iterable[RunRecord]) -> list[RunRecord]:
    return sorted(runs, key=lambda run: (run.started, run.id), reverse=True)


def parse(text: str) -> list[RunRecord]:
    """Return the runs in the output of runs.sh."""
    return [record for record, _ in _parsed(text)]


def _parsed(text: str) -> list[StoredRun]:
    stored = []
    # Only at the start of a line, because a command can contain any text.
    for block in re.split(r"^@@ ", text, flags=re.MULTILINE)[1:]:
        live, _, rest = block.partition("\n")
        objects = [json.loads(line) for line in rest.splitlines() if line.strip()]
        if objects:
            ending = objects[1] if len(objects) > 1 else None
            stored.append((record_of(objects[0], ending, live=live == "yes"), objects[0]))
    return stored


def runs_folder(context: Context) -> str:
    """Return the folder on the head's VM that holds a folder for each run."""
    return f"{names.folder(context.spec.name)}/{names.RUNS}"
