"""The hosts of a cluster as a table. Many hosts are folded: those that differ only in name and address share a row."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kit.cli.text.table import hosts, table
from kit.model.failures import masked, unmasked
from kit.model.pretended import MARK, gpus_word
from kit.model.result import NodeStatus, PsResult
from kit.model.text import fold
from kit.plan.cluster.versions import other_defaults

# With more hosts than this, equal rows are folded.
MANY = 16
HEADER = ("HOST", "ADDRESS", "SERVICE", "STATE", "IMAGE", "SLOTS", "GPUS", "RANKS")
# Without addresses: 256 of them are no table for 80 columns. The numbers are those of each host of the row.
FOLDED = ("HOST", "COUNT", "SERVICE", "STATE", "IMAGE", "EACH: SLOTS", "GPUS", "RANKS")
# The columns that a narrow terminal cuts, in this order, and what they keep. Then it leaves out columns.
FLEXIBLE = ("IMAGE", "GPUS", "ADDRESS", "STATE", "HOST")
LEAST, KEEPS = 8, {"HOST": 24, "ADDRESS": 15, "STATE": 24}
DROP = ("IMAGE", "SERVICE", "ADDRESS", "GPUS", "SLOTS", "EACH: SLOTS")
# Docker's words for a container's age: "Up 2 hours", "Exited (137) About a minute ago".
_AGE = re.compile(r"(?:(\d+)|Less than a|About an?) (second|minute|hour|day|week|month|year)s?\b")


def ps(value: PsResult, *, width: int | None = None, verbose: bool = False) -> str:
    """Return a row for each host, or for each group of equal hosts if there are many and `verbose` is not set.

    `width` cuts long cells with …; a verbose table is never cut.
    """
    folded = len(value.nodes) > MANY and not verbose
    head = f"Cluster {value.cluster}, {hosts([node.host for node in value.nodes])}"
    if folded:
        head += f"\nIn total: {_totals(value.nodes)}"
        rows, header = [_group_row(group) for group in _groups(value.nodes)], FOLDED
    else:
        rows, header = [(node.host, node.address, *_shared(node)) for node in value.nodes], HEADER
    runs = sorted({run for node in value.nodes for run in node.ranks})
    tail = f"\nRunning: {', '.join(runs)}" if runs else ""
    tail += "".join(f"\n{line}" for line in _notes(value.nodes))
    if value.differs:
        words = "; ".join(value.differs) + ("" if value.version is None else other_defaults(value.version))
        tail += f"\nkit.yaml differs from what is deployed (deployed → now): {words}"
        tail += "\n  → run: kit deploy"
    room = None if verbose else width
    text = table(rows, header, width=room, flexible=FLEXIBLE, drop=DROP, least=LEAST, keeps=KEEPS)
    if MARK not in f"{text}{tail}":
        # A narrow table cuts the names of the GPUs, or has no column for them.
        first, _, totals = head.partition("\n")
        head = first + gpus_word(name for node in value.nodes for name in node.gpu_models) + (totals and f"\n{totals}")
    return f"{head}\n{text}{tail}"


def _shared(node: NodeStatus) -> tuple[str | int, ...]:
    ranks = sum(len(ranks) for ranks in node.ranks.values())
    return (node.service, node.problem or node.state, node.image, node.slots, _gpus(node), ranks)


def _gpus(node: NodeStatus) -> str | int:
    """Return the number and models of the GPUs, and how many are free; or 0."""
    if node.gpus_free is None:
        return node.gpus
    model = " and ".join(name.removeprefix("NVIDIA ") for name in node.gpu_models)
    return f"{node.gpus} × {model}, {node.gpus_free} free"


def _groups(nodes: Sequence[NodeStatus]) -> list[list[NodeStatus]]:
    """Return the hosts whose rows are equal but for name, address and the number in a container's age."""
    groups: dict[tuple[str | int, ...], list[NodeStatus]] = {}
    for node in nodes:
        service, state, *rest = _shared(node)
        key = (service, _AGE.sub(r"\2", masked(str(state), (node.host, node.ssh))), *rest)
        groups.setdefault(key, []).append(node)
    return list(groups.values())


def _notes(nodes: Sequence[NodeStatus]) -> list[str]:
    """Return a line for each note. Hosts whose notes differ only in their own name share one, with the first's name."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for node in nodes:
        for note in node.notes:
            groups.setdefault(masked(note, (node.host, node.ssh)), []).append((node.host, note))
    return [f"{fold(host for host, _ in group)}: {group[0][1]}" for group in groups.values()]


def _group_row(group: Sequence[NodeStatus]) -> tuple[str | int, ...]:
    service, _, *rest = _shared(group[0])
    return (fold(node.host for node in group), len(group), service, _state(group), *rest)


def _state(group: Sequence[NodeStatus]) -> str:
    """Return the state of equal hosts: `Up 2 to 5 minutes` if their containers have different ages."""
    first = group[0].problem or group[0].state
    masks = [masked(node.problem or node.state, (node.host, node.ssh)) for node in group]
    text = first if len(group) == 1 else unmasked(masks[0], [_spelled(node) for node in group])
    ages = sorted({int(match[1] or 1) for mask in masks if (match := _AGE.search(mask))})
    if len(ages) < 2:
        return text
    return _AGE.sub(lambda match: f"{ages[0]} to {ages[-1]} {match[2]}s", text, count=1)


def _spelled(node: NodeStatus) -> str:
    return node.ssh if node.ssh in (node.problem or node.state) else node.host


def _totals(nodes: Sequence[NodeStatus]) -> str:
    slots, gpus = sum(node.slots for node in nodes), sum(node.gpus for node in nodes)
    ranks = sum(len(ranks) for node in nodes for ranks in node.ranks.values())
    known = [node.gpus_free for node in nodes if node.gpus_free is not None]
    return f"{slots} slots, {gpus} GPUs{f' ({sum(known)} free)' if known else ''}, {ranks} ranks"
