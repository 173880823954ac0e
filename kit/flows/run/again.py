"""kit run --again: the request and the code of an earlier run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any

from kit.events import Note
from kit.flows.context import Context
from kit.flows.run.listing import stored_run
from kit.model.answer import answer_of
from kit.model.launch import RunRequest
from kit.plan.run.again import repeated


def repeat(context: Context, request: RunRequest) -> tuple[RunRequest, Mapping[str, Any]]:
    """Return the request that starts `request.again` once more, and that run's record. Raises InputError."""
    from kit.remote.run.values import recall  # noqa: PLC0415  (only for --again)

    run, fields = stored_run(context, request.again)
    values = recall(run.id, run.array.of if run.array else "")
    with answer_of(context.inventory.head.name, f"the options of run {run.id}"):
        request = repeated(request, run, fields.get("options") or {}, values=values, environ=os.environ)
    context.reporter.report(Note(text=f"starting run {run.id} again: {shlex.join(request.command)}"))
    return request, fields
