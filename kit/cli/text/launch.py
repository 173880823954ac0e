"""How kit launches ranks, as text to paste into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kit.model.text import fold
from kit.plan.run import gpus

# How many ranks a dry run lists with their GPUs.
_MOST_RANKS = 16

if TYPE_CHECKING:
    from kit.model.launch import Helper, LaunchPlan, Placement
    from kit.model.result import LocalResult


def launch(value: LaunchPlan) -> str:
    """Return the hostfile and mpirun's command line, to paste into a shell."""
    words = [*(["env", *(f"{k}={v}" for k, v in value.env.items())] if value.env else []), *value.argv]
    summary = placement(value.placement)
    if value.helpers:
        summary = f"{summary.replace('rank', 'worker', 1)}\n# {helpers(value.helpers)}"
    summary += "".join(f"\n# {line}" for line in (*assumed(value), *devices(value)))
    return f"# {summary}\n# hostfile\n{value.hostfile.rstrip()}\n# command\n{shlex.join(words)}"


def assumed(value: LaunchPlan) -> list[str]:
    """Return `slots: 1 assumed on gpu[1-4]; kit deploy counts their GPUs`, if a dry run does not know them."""
    slots = {node.name: node.slots for node in value.placement.nodes}
    if not value.assumed:
        return []
    whose = "its" if len(value.assumed) == 1 else "their"
    return [f"slots: {slots[value.assumed[0]]} assumed on {fold(value.assumed)}; kit deploy counts {whose} GPUs"]


def devices(value: LaunchPlan) -> list[str]:
    """Return `rank 0 on gpu1: GPU 0` for each rank, if the ranks get GPUs for themselves."""
    share = value.env.get(gpus.SHARE_VARIABLE, "")
    if not share:
        return []
    rows = gpus.of_ranks(value.placement, value.places, int(share))
    lines = [
        f"rank {rank} on {host}: GPU{'' if len(held) == 1 else 's'} {', '.join(map(str, held))}"
        for rank, host, held in rows[:_MOST_RANKS]
    ]
    more = [f"… and {len(rows) - _MOST_RANKS} more ranks"] if len(rows) > _MOST_RANKS else []
    return ["GPUs, if each host has one for each slot and no other run holds any:", *lines, *more]


def placement(value: Placement) -> str:
    """Return `8 ranks: 2 on each of gpu[1-4]`."""
    by_count: dict[int, list[str]] = {}
    for node, count in zip(value.nodes, value.counts, strict=True):
        by_count.setdefault(count, []).append(node.name)
    groups = [f"{count} on {'each of ' if len(names) > 1 else ''}{fold(names)}" for count, names in by_count.items()]
    return f"{value.np} rank{'' if value.np == 1 else 's'}: {', '.join(groups)}"


def helpers(value: Sequence[Helper]) -> str:
    """Return `4 servers: gpu1, gpu2, gpu3, gpu1; the scheduler: gpu1`."""
    servers = [helper.node for helper in value if helper.role == "server"]
    scheduler = next(helper.node for helper in value if helper.role == "scheduler")
    return f"{len(servers)} server{'' if len(servers) == 1 else 's'}: {', '.join(servers)}; the scheduler: {scheduler}"


def local(value: LocalResult) -> str:
    return f"# in a new container of {value.image}\n{shlex.join(value.argv)}"
