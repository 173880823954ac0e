"""What the record keeps of the options of a run, and the request that starts the same run once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from kit.errors import InputError
from kit.model.answer import convert, number
from kit.model.launch import RunRequest
from kit.model.names import OWN_VARIABLES
from kit.model.run import RunRecord
from kit.model.spec import NcclNetwork
from kit.model.values import replace

# Fields of a request, and of its policy. Its `share` and `operator` follow from others.
_REQUEST = (
    "np",
    "npernode",
    "hosts",
    "oversubscribe",
    "gpus_per_rank",
    "cpus",
    "nccl_require",
    "launcher",
    "servers",
    "max_restarts",
    "workdir",
    "data",
)
_POLICY = (
    "start_timeout",
    "timeout",
    "stall_timeout",
    "retries",
    "retry_on",
    "min_np",
    "max_np",
    "memory",
    "idle_gpu",
    "checkpoints",
)
# Options that only one launcher has, and those that a launcher refuses.
_OF_ONE_LAUNCHER = ("servers", "max_restarts", "max_np")
_REFUSED = {"elastic": ("np", "npernode", "oversubscribe", "retries"), "ps": ("min_np",)}
# More ranks than any cluster has.
_MOST = 2**20
# More memory than any host has.
_MOST_BYTES = 2**50
FIELDS = (*_REQUEST, *_POLICY)


class _Options(Struct, frozen=True, kw_only=True):
    """The form of the options in a record."""

    np: int | None = None
    npernode: int | None = None
    hosts: str | None = None
    oversubscribe: bool = False
    gpus_per_rank: int | None = None
    cpus: int | None = None
    nccl_require: NcclNetwork | None = None
    launcher: Literal["mpi", "ps", "torchrun", "elastic"] | None = None
    servers: int | None = None
    max_restarts: int | None = None
    workdir: str = ""
    data: tuple[str, ...] = ()
    start_timeout: float | None = None
    timeout: float | None = None
    stall_timeout: float | None = None
    retries: int = 0
    retry_on: Literal["any", "lost-host"] = "any"
    min_np: int | None = None
    max_np: int | None = None
    memory: int | None = None
    idle_gpu: float | None = None
    checkpoints: str | None = None
    variables: dict[str, tuple[str, ...]] = field(default_factory=dict)


def kept_options(request: RunRequest, variables: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return what the record keeps: no value of a variable, because it may be a secret.

    `variables` are the names of -x, by where the value came from (kit.flows.run.environment).
    """
    options = {name: getattr(request, name) for name in _REQUEST}
    options |= {name: getattr(request.policy, name) for name in _POLICY}
    return {**options, "variables": {kind: list(names) for kind, names in variables.items()}}


def repeated(
    request: RunRequest,
    run: RunRecord,
    options: Mapping[str, Any],
    *,
    values: Mapping[str, str | None],
    environ: Mapping[str, str],
) -> RunRequest:
    """Return the request with everything that its command line does not set taken from the run.

    `options` are those that the run's record keeps; empty for a run of an earlier kit. `values` are the variables that
    this machine remembers, with None for those that it copied or forwarded. Raises InputError if it does not have all
    of them, and OddAnswer for odd options, because ranks can change the record.
    """
    checked: _Options = convert(options, _Options)
    counts = (
        checked.np,
        checked.npernode,
        checked.gpus_per_rank,
        checked.cpus,
        checked.servers,
        checked.max_restarts,
    )
    for count in (*counts, checked.retries, checked.min_np, checked.max_np):
        number(str(count or 0), most=_MOST)
    number(str(checked.memory or 0), most=_MOST_BYTES)
    old: dict[str, Any] = {
        "np": run.most_np,
        "servers": run.roles.count("server") or None,
        **options,
        "data": checked.data,
    }
    old["launcher"] = old.get("launcher") or ("ps" if run.roles else "mpi")
    given = request.given
    if old["np"] is None and old["launcher"] != "elastic" and not given & {"npernode", "hosts"}:
        # Every slot there was, also of hosts that a retry left out. Other hosts have other slots.
        old["np"] = run.most_np
    if "launcher" in given:
        # Options of the other launcher.
        others = {*_OF_ONE_LAUNCHER, *_REFUSED.get(request.launcher, ())}
        old = {name: value for name, value in old.items() if name not in others}
    kept = {name: old[name] for name in FIELDS if name in old and name not in given}
    policy = replace(request.policy, **{name: kept[name] for name in _POLICY if name in kept})
    request = replace(request, **{name: kept[name] for name in _REQUEST if name in kept})
    return replace(
        request,
        again=run.id,
        env=_env(request, run, old.get("variables") or {"typed": run.env}, values, environ),
        policy=replace(policy, share=policy.share or request.oversubscribe),
        command=request.command or run.command,
    )


def _env(
    request: RunRequest,
    run: RunRecord,
    variables: Mapping[str, Sequence[str]],
    values: Mapping[str, str | None],
    environ: Mapping[str, str],
) -> tuple[tuple[str, str | None], ...]:
    member: tuple[tuple[str, str], ...] = ()
    if run.array:
        from kit.plan.queue.entry import array_variables  # noqa: PLC0415  (only for a run of an array)

        member = array_variables(run.array)
    # The record of a run of an array may name the variables of the array as typed: those of earlier versions do.
    # Earlier versions also accepted -x for variables that kit sets, and ignored the value.
    ours = {*OWN_VARIABLES, *(name for name, _ in (*member, *request.env))}
    typed = [name for name in variables.get("typed", ()) if name not in ours]
    copied = [name for name in variables.get("copied", ()) if name not in ours]
    forwarded = [name for name in variables.get("forwarded", ()) if name not in ours]
    if unset := [name for name in copied if name not in environ]:
        raise InputError(
            f"run {run.id} copied {', '.join(unset)} from the shell of {run.by}, and it is not set in this shell",
            hint=f"set it here, or write: {_written(unset)}",
        )
    # A rank can write any name into the record. It must not get a secret of this shell.
    if strange := [name for name in (*copied, *forwarded) if name in environ and name not in values]:
        raise InputError(
            f"the record of run {run.id} names {', '.join(strange)} of your shell, but this machine did not start it",
            hint=f"to copy them to the cluster, write: {' '.join(f'-x {name}' for name in strange)}",
        )
    if unknown := [name for name in typed if values.get(name) is None]:
        raise InputError(
            f"run {run.id} set {', '.join(unknown)}; kit keeps values only on the machine that started the run",
            hint=f"write them again: {_written(unknown)}",
        )
    old = [(name, values[name]) for name in typed] + [(name, None) for name in (*copied, *forwarded)]
    return (*member, *old, *request.env)


def _written(names: Sequence[str]) -> str:
    return " ".join(f"-x {name}=VALUE" for name in names)
