"""Converts between RunRecord and the JSON of kit-launch and the supervisor (images/lib/kitrun)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from kit.errors import AnswerError, InputError
from kit.model.answer import OddAnswer, convert, decode, within
from kit.model.launch import LaunchPlan
from kit.model.names import LATEST
from kit.model.run import RUN_ID, EndedBefore, Failure, Member, Place, RunCode, RunRecord, RunState, RunUse
from kit.model.values import asdict
from kit.plan.run import encoding

# Limits of what a record may say: seconds since 1970, and any count.
_LATEST = 2.0**36
_MOST_COUNT = 2**31
# And of what it may say of its use of hosts.
_MOST_BYTES = 2**63
_MOST_HOSTS = 1024
_LONGEST_PATH = 4096


class _Helper(Struct, frozen=True, kw_only=True):
    role: str


class _Code(Struct, frozen=True, kw_only=True):
    digest: str = ""
    folder: str = ""
    files: int = 0
    size: int = 0
    commit: str | None = ""
    branch: str | None = ""
    origin: str | None = ""
    dirty: bool = False


class _Shares(Struct, frozen=True, kw_only=True):
    """The options of a run that limit what it uses of a host, and its data sets."""

    cpus: int | None = None
    memory: int | None = None
    data: tuple[str, ...] = ()


class _Record(Struct, frozen=True, kw_only=True):
    """The form of record.json. Its other fields are for the head, or for kit.plan.run.again."""

    id: str = ""
    cluster: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    most_np: int = 0
    helpers: tuple[_Helper, ...] = ()
    env: tuple[str, ...] = ()
    by: str = ""
    started: float = 0.0
    code: _Code | None = None
    exclusive: bool = False
    options: _Shares | None = None
    array: Member | None = None


class _Failure(Struct, frozen=True, kw_only=True):
    kind: str = ""
    host: str | None = ""
    rank: int | None = None
    role: str | None = ""
    exit_code: int | None = None
    signal: str | None = ""
    oom: bool | None = False
    lines: tuple[str, ...] = ()
    mpirun: tuple[str, ...] = ()
    before: EndedBefore | None = None


class _Ending(Struct, frozen=True, kw_only=True):
    """The form of end.json."""

    ended: float | None = None
    attempt: int = 0
    exit_code: int | None = None
    stopped: str | None = ""
    failure: _Failure | None = None
    left: dict[str, int] | None = field(default=None)
    metrics: RunUse | None = None


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
    exclusive: bool = False,
    now: bool = False,
) -> dict[str, Any]:
    """Return the request that starts a run. `code` (`code_record`) and `options` go into its record.

    `stdin`: kit sends its standard input, for rank 0. `exclusive`: the run has CPUs for itself.
    `now`: it may take slots that are reserved for a run in line.
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
        **({"now": True} if now else {}),
        "elastic": dict(plan.elastic),
        # Names only, because a value may be a secret and the head keeps the record.
        "info": {
            "cluster": cluster,
            "image": image,
            "command": list(plan.command),
            "env": sorted(name for name in plan.env if not name.startswith("KIT_")),
            "by": by,
            **({"exclusive": True} if exclusive else {}),
            **({"elastic": dict(plan.elastic)} if plan.elastic else {}),
            **({"options": dict(options)} if options else {}),
            **({"code": encoding.shown(dict(code))} if code else {}),
        },
    }


def started_record(request: Mapping[str, Any], *, started: float, ending: Mapping[str, Any] | None = None) -> RunRecord:
    """Return the record of a run that was started with this request, as the head would return it."""
    parts = {key: request[key] for key in ("id", "places", "helpers")}
    return record_of({**request["info"], **parts, "started": started}, ending)


def parse(text: str) -> RunRecord | None:
    """Return the record in a JSON text, or None if the text is not a record."""
    try:
        return _record(decode(text, dict[str, Any]), None, live=True)
    except OddAnswer:
        return None


def stored_record(run_id: str, record: str, ending: str | None, *, live: bool) -> tuple[RunRecord, Mapping[str, Any]]:
    """Return a run from the texts of its record.json and end.json, and the fields of record.json.

    Ranks can write to both. So `run_id` is the name of the folder, whatever the record says. Raises OddAnswer.
    """
    fields: dict[str, Any] = decode(record, dict[str, Any])
    end = decode(ending, dict[str, Any]) if ending else None
    return _record({**fields, "id": run_id}, end, live=live), fields


def record_of(record: Mapping[str, Any], ending: Mapping[str, Any] | None = None, *, live: bool = True) -> RunRecord:
    """Return a run's record. `ending` is end.json, or None before the end; `live`: its supervisor is running.

    Raises AnswerError for a record that does not have the form of one.
    """
    try:
        return _record(record, ending, live=live)
    except OddAnswer as odd:
        raise AnswerError(
            f"kit cannot read the record of a run: {odd}", hint="a rank may have changed it; look: kit runs"
        ) from None


def _record(record: Mapping[str, Any], ending: Mapping[str, Any] | None, *, live: bool) -> RunRecord:
    state: RunState = "ended" if ending else "running" if live else "lost"
    run: _Record = convert(record, _Record)
    end: _Ending = convert(ending or {}, _Ending)
    _check_limits(run, end)
    return RunRecord(
        id=run.id,
        cluster=run.cluster,
        image=run.image,
        command=run.command,
        places=run.places,
        most_np=max(run.most_np, sum(place.ranks for place in run.places)),
        roles=tuple(helper.role for helper in run.helpers),
        env=run.env,
        by=run.by,
        state=state,
        started=run.started,
        ended=end.ended,
        attempt=end.attempt,
        exit_code=end.exit_code,
        stopped=end.stopped or "",
        failure=_failure(end.failure) if end.failure else None,
        left=end.left,
        code=_code(run.code),
        exclusive=run.exclusive,
        cpus=run.options.cpus if run.options else None,
        memory=run.options.memory if run.options else None,
        data=run.options.data if run.options else (),
        metrics=end.metrics,
        array=run.array,
    )


def _check_limits(run: _Record, end: _Ending) -> None:
    """Raise OddAnswer if a number is beyond what it can count."""
    if not all(0 <= moment <= _LATEST for moment in (run.started, end.ended or 0.0)):
        raise OddAnswer("a time is not between 1970 and 4147")
    counts = [run.most_np, end.attempt, end.exit_code or 0, *(end.left or {}).values()]
    if end.failure is not None:
        counts += [end.failure.rank or 0, end.failure.exit_code or 0]
        counts += [end.failure.before.rank] if end.failure.before else []
    for place in run.places:
        counts += [place.ranks, *place.slots, place.of]
    if run.code is not None:
        counts.append(run.code.files)
    if run.array is not None:
        if not RUN_ID.fullmatch(run.array.of):
            raise OddAnswer("this is not the id of an array", run.array.of or "''")
        counts += [run.array.index, run.array.size]
    if run.options is not None:
        # Memory in MiB: a host may have more bytes than this.
        counts += [run.options.cpus or 0, (run.options.memory or 0) >> 20]
    if end.metrics is not None:
        _check_use(end.metrics)
    if not all(abs(count) <= _MOST_COUNT for count in counts):
        raise OddAnswer(f"a number is greater than {_MOST_COUNT}")


def _check_use(use: RunUse) -> None:
    """Raise OddAnswer if what a run used is more than any host has."""
    values = [use.every, use.readings, use.left_out]
    for host in use.hosts.values():
        values += [value for value in asdict(host).values() if value is not None]
    if len(use.hosts) > _MOST_HOSTS or not all(0 <= value <= _MOST_BYTES for value in values):
        raise OddAnswer("what the run used is more than hosts have")


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


def _code(code: _Code | None) -> RunCode | None:
    if code is None or not code.digest:
        return None
    return RunCode(
        digest=code.digest,
        folder=code.folder,
        files=code.files,
        size=code.size,
        commit=code.commit or "",
        branch=code.branch or "",
        origin=code.origin or "",
        dirty=code.dirty,
    )


def shared_checkpoints(run: RunRecord, fields: Mapping[str, Any]) -> str:
    """Return HOST:PATH of the folder that --checkpoint-dir named, as kit cp takes it. Return '' without that option.

    `fields` are those of record.json. The path is one of the nodes, and the host ran ranks of the run.
    """
    options = fields.get("options")
    path = options.get("checkpoints") if isinstance(options, dict) else None
    if not run.places or not isinstance(path, str) or not path.startswith("/") or len(path) > _LONGEST_PATH:
        return ""
    return f"{run.places[0].node}:{path}"


def failure_of(fields: Mapping[str, Any]) -> Failure:
    """Return the failure of an attempt, as the supervisor writes it. Raises OddAnswer."""
    failure: _Failure = convert(fields, _Failure)
    for count in (failure.rank or 0, failure.exit_code or 0):
        within(count, 0, _MOST_COUNT, "a number")
    return _failure(failure)


def _failure(failure: _Failure) -> Failure:
    kinds: dict[str, Literal["rank", "host", "code"]] = {"rank": "rank", "host": "host", "code": "code"}
    return Failure(
        kind=kinds.get(failure.kind, "mpirun"),
        host=failure.host or "",
        rank=failure.rank,
        role=failure.role or "",
        exit_code=failure.exit_code,
        signal=failure.signal or "",
        oom=bool(failure.oom),
        lines=failure.lines,
        mpirun=failure.mpirun,
        before=failure.before,
    )
