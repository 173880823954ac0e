"""Converts between RunRecord and the JSON of kit-launch and the supervisor (images/lib/kitrun)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kit.errors import InputError
from kit.model.code import Snapshot
from kit.model.launch import LaunchPlan
from kit.model.names import LATEST
from kit.model.run import Failure, Place, RunCode, RunRecord, RunState


def start_request(
    plan: LaunchPlan,
    *,
    cluster: str,
    image: str,
    head: str,
    by: str,
    wait: bool,
    code: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    stdin: bool = False,
) -> dict[str, Any]:
    """Return the request that starts a run. `code` (`code_record`) and `options` go into its record.

    `stdin`: kit sends its standard input, for rank 0.
    """
    return {
        "op": "start",
        "id": plan.run_id,
        "wait": wait,
        "detach": plan.policy.operator is None,
        "hostfile": plan.hostfile,
        "argv": list(plan.argv),
        "env": dict(plan.env),
        "head": head,
        "places": [asdict(place) for place in plan.places],
        "helpers": [asdict(helper) for helper in plan.helpers],
        "policy": asdict(plan.policy),
        "code": plan.code,
        "stdin": stdin,
        "torchrun": plan.torchrun,
        # Names only, because a value may be a secret and the head keeps the record.
        "info": {
            "cluster": cluster,
            "image": image,
            "command": list(plan.command),
            "env": sorted(name for name in plan.env if not name.startswith("KIT_")),
            "by": by,
            **({"options": dict(options)} if options else {}),
            **({"code": dict(code)} if code else {}),
        },
    }


def code_record(snapshot: Snapshot) -> dict[str, Any]:
    """Return what the record of a run says about its code."""
    git = snapshot.git
    place = snapshot.source or str(snapshot.folder)
    record = {"digest": snapshot.digest, "folder": place, "files": snapshot.files, "size": snapshot.size}
    if git is None:
        return record
    diff = {"diff": git.diff.decode("utf-8", "backslashreplace"), "diff_cut": git.cut} if git.dirty else {}
    return {**record, "commit": git.commit, "branch": git.branch, "origin": git.url, "dirty": git.dirty, **diff}


def started_record(request: Mapping[str, Any], *, started: float, ending: Mapping[str, Any] | None = None) -> RunRecord:
    """Return the record of a run that was started with this request, as the head would return it."""
    parts = {key: request[key] for key in ("id", "places", "helpers")}
    return record_of({**request["info"], **parts, "started": started}, ending)


def parse(text: str) -> RunRecord | None:
    """Return the record in a JSON text, or None if the text is not a record."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return record_of(value) if isinstance(value, dict) else None


def record_of(record: Mapping[str, Any], ending: Mapping[str, Any] | None = None, *, live: bool = True) -> RunRecord:
    """Return a run's record. `ending` is end.json, or None before the end; `live`: its supervisor is running."""
    state: RunState = "ended" if ending else "running" if live else "lost"
    end = ending or {}
    failure = end.get("failure")
    return RunRecord(
        id=str(record.get("id", "")),
        cluster=str(record.get("cluster", "")),
        image=str(record.get("image", "")),
        command=tuple(record.get("command", ())),
        places=tuple(_place(place) for place in record.get("places", ())),
        roles=tuple(str(helper["role"]) for helper in record.get("helpers", ())),
        env=tuple(record.get("env", ())),
        by=str(record.get("by", "")),
        state=state,
        started=float(record.get("started", 0.0)),
        ended=end.get("ended"),
        attempt=int(end.get("attempt", 0)),
        exit_code=end.get("exit_code"),
        stopped=str(end.get("stopped", "")),
        failure=_failure(failure) if failure else None,
        left=end.get("left"),
        code=_code(record.get("code")),
    )


def find(runs: Sequence[RunRecord], word: str | None) -> RunRecord | None:
    """Return the run with this id, or the only one whose id begins with it. None if no run or several match.

    `runs` has the latest first. No word, or `latest`, means the latest run that is running, or else the latest run.
    """
    if not word or word == LATEST:
        return next((run for run in runs if run.state == "running"), None) or next(iter(runs), None)
    matches = [run for run in runs if run.id == word] or [run for run in runs if run.id.startswith(word)]
    return matches[0] if len(matches) == 1 else None


def several(word: str, runs: Sequence[str]) -> InputError:
    """Return the error for a word with which the ids of several runs begin."""
    ids = ", ".join(runs[:3]) + (" …" if len(runs) > 3 else "")
    return InputError(f"'{word}' is the beginning of {len(runs)} runs: {ids}", hint="write more of the id")


def _code(value: object) -> RunCode | None:
    if not isinstance(value, Mapping) or not value.get("digest"):
        return None
    return RunCode(
        digest=str(value["digest"]),
        folder=str(value.get("folder", "")),
        files=int(value.get("files", 0)),
        size=int(value.get("size", 0)),
        commit=str(value.get("commit", "")),
        branch=str(value.get("branch", "")),
        origin=str(value.get("origin", "")),
        dirty=bool(value.get("dirty")),
    )


def _place(value: Mapping[str, Any]) -> Place:
    return Place(
        node=str(value["node"]),
        address=str(value["address"]),
        ranks=int(value["ranks"]),
        slots=tuple(int(slot) for slot in value["slots"]),
    )


def _failure(value: Mapping[str, Any]) -> Failure:
    kind = value.get("kind")
    return Failure(
        kind=kind if kind in ("rank", "host", "code") else "mpirun",
        host=str(value.get("host", "")),
        rank=value.get("rank"),
        role=str(value.get("role", "")),
        exit_code=value.get("exit_code"),
        signal=str(value.get("signal", "")),
        oom=bool(value.get("oom")),
        lines=tuple(value.get("lines", ())),
        mpirun=tuple(value.get("mpirun", ())),
    )
