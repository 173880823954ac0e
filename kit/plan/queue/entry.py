"""What waits on the head: the shape of a run, its turn, and the request that starts it.

images/lib/kitqueue/fill.py gives it the hosts and slots that it gets. images/lib/kitqueue/desk.py takes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kit.errors import InputError
from kit.model.launch import LaunchPlan, Node, RunRequest
from kit.model.queue import Turn
from kit.model.run import Member
from kit.model.values import asdict

# What a run of an array sees: its index, the number of runs, and the array's id.
INDEX, SIZE, ARRAY = "KIT_ARRAY_INDEX", "KIT_ARRAY_SIZE", "KIT_ARRAY_ID"


def check(request: RunRequest, *, repeated: bool = False) -> None:
    """Raise InputError for options that make no sense for a run that waits in line.

    `repeated`: the request has the options of the run that --again repeats, too.
    """
    others = {
        "-it": (request.terminal, "a run that waits has no terminal"),
        "--wait": (request.wait, "a run in line waits by itself"),
        "--now": (request.now, "it starts before the runs in line"),
        "--keep": (request.policy.operator == "keep", "a run in line never depends on this kit"),
        "--oversubscribe": (request.oversubscribe, "a run in line waits for free slots"),
        "--elastic": (request.launcher == "elastic", "its hosts come and go while it runs"),
        "--launcher ps": (request.launcher == "ps", "servers have their hosts before the run has its own"),
    }
    for name, (used, why) in others.items():
        if used:
            hint = f"run {request.again} has it; remove --queue" if repeated else f"remove {name}, or --queue"
            raise InputError(f"{name} does not go with --queue: {why}", hint=hint)


def check_nodes(nodes: Sequence[Node], share: int) -> None:
    """Raise InputError if ranks with `share` GPUs each do not have as many slots on each of the hosts."""
    if not share:
        return
    for node in nodes:
        if node.gpus != node.slots:
            raise InputError(
                f"{node.name} has {node.slots} slots and {node.gpus} GPUs, and --gpus-per-rank with --queue needs as "
                "many slots as GPUs",
                hint=f"set slots={node.gpus} in the hosts file, or choose other hosts with -H"
                if node.gpus
                else "choose other hosts with -H",
            )


def array_variables(member: Member) -> tuple[tuple[str, str], ...]:
    """Return the variables of a run of an array, as those of a request."""
    return ((INDEX, str(member.index)), (SIZE, str(member.size)), (ARRAY, member.of))


def entry(
    plan: LaunchPlan,
    start: Mapping[str, Any],
    turn: Turn,
    nodes: Sequence[Node],
    *,
    share: int,
    exclusive: bool,
    cpus: int | None,
    array: Member | None = None,
) -> dict[str, Any]:
    """Return a run as it waits on the head.

    `plan` is its launch on empty hosts, and `start` the request for it. `nodes` are the hosts that it may get. `share`
    is how many GPUs each rank gets for itself, or 0.
    """
    return {
        "id": plan.run_id,
        "request": dict(start),
        "need": {"counts": [len(place.slots) for place in plan.places], "hosts": [node.name for node in nodes]},
        "share": share or 1,
        "nodes": {node.name: _facts(node) for node in nodes},
        "np": plan.placement.np,
        "limit": plan.policy.timeout,
        "priority": turn.priority,
        "after": [[after.run, after.how] for after in turn.after],
        "held": False,
        "by": start["info"]["by"],
        "command": list(plan.command),
        "code": plan.code,
        "data": [*(start["info"].get("options") or {}).get("data", ())],
        "exclusive": exclusive,
        "cpus": cpus,
        **({"array": asdict(array)} if array else {}),
    }


def _facts(node: Node) -> dict[str, Any]:
    return {key: value for key, value in asdict(node).items() if key != "name"}
