"""kit runs: the runs that the head keeps."""

from __future__ import annotations

import json
import re
from contextlib import closing

from kit.errors import StepError
from kit.flows.context import Context
from kit.model import names
from kit.model.result import RunsResult
from kit.model.run import RunRecord
from kit.plan.run.records import record_of
from kit.remote.scripts import script


def listing(context: Context) -> RunsResult:
    """Return all runs that the head keeps, the latest first. It reads the VM's disk and needs no container."""
    head = context.inventory.head
    with closing(context.connect(head)) as transport:
        done = transport.run(script("runs", runs_folder(context)), timeout_s=30)
    if done.code != 0:
        raise StepError(
            f"its runs could not be read: {done.error_text or f'exit {done.code}'}",
            hint=f"look at the host: kit ssh {head.name}",
            host=head.name,
        )
    latest_first = sorted(parse(done.text), key=lambda run: (run.started, run.id), reverse=True)
    return RunsResult(cluster=context.spec.name, runs=tuple(latest_first))


def parse(text: str) -> list[RunRecord]:
    """Return the runs in the output of runs.sh."""
    records = []
    # Only at the start of a line, because a command can contain any text.
    for block in re.split(r"^@@ ", text, flags=re.MULTILINE)[1:]:
        live, _, rest = block.partition("\n")
        objects = [json.loads(line) for line in rest.splitlines() if line.strip()]
        if objects:
            records.append(record_of(objects[0], objects[1] if len(objects) > 1 else None, live=live == "yes"))
    return records


def runs_folder(context: Context) -> str:
    """Return the folder on the head's VM that holds a folder for each run."""
    return f"{names.folder(context.spec.name)}/{names.RUNS}"
