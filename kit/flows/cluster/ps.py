"""kit ps: every host of the inventory, its container, its image and the ranks that run on it now."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kit.errors import KitError, SlowError
from kit.flows.cluster.drift import differences
from kit.flows.context import Context
from kit.model import names
from kit.model.host import Host
from kit.model.launch import ClusterRecord
from kit.model.observed import HostFacts, Lease
from kit.model.result import NodeStatus, PsResult
from kit.plan.cluster import gpus, network, nodes
from kit.plan.cluster.record import from_text
from kit.plan.cluster.state import address_note, node_state
from kit.plan.run.gpus import idle
from kit.remote.cluster.observe import observe_ranks
from kit.remote.ssh import fanout


def ps(context: Context) -> PsResult:
    """Return a row for each host. The row of a host that kit cannot reach has the problem."""
    spec = context.spec

    def work(host: Host) -> tuple[HostFacts, str]:
        with closing(context.connect(host)) as transport:
            return observe_ranks(transport, folder=names.folder(spec.name))

    started = fanout.start(context.inventory.hosts, work)
    outcome = started.outcome()
    head = outcome.results.get(context.inventory.head.name)
    leases = head[0].leases if head else ()
    record = _record(head[0].record) if head else None
    recorded = {node.name: node.address for node in record.nodes} if record else {}
    rows = [
        _row(context, *outcome.results[host.name], leases, recorded.get(host.name))
        if host.name in outcome.results
        else _lost(host, outcome.failures[host.name])
        for host in context.inventory.hosts
    ]
    differs = differences(record.settings, spec) if record else ()
    version = record.version if record else None
    return PsResult(cluster=spec.name, nodes=tuple(rows), differs=differs, version=version)


def _record(text: str | None) -> ClusterRecord | None:
    """Return the head's record, or None without a readable one. flows/cluster/before.py would import much more."""
    try:
        return from_text(text) if text else None
    except KitError:
        return None


def _row(context: Context, facts: HostFacts, ranks: str, leases: Sequence[Lease], recorded: str | None) -> NodeStatus:
    """Return the row of a host. `recorded` is its address at the last deploy."""
    own = [c for c in facts.containers if c.cluster == context.spec.name]
    by_run, slots = ranks_of(ranks), nodes.slots_of(facts, context.spec)
    state = node_state(facts, context.spec)
    try:
        address = str(network.pick_interface(facts, context.spec.network).address.ip)
    except KitError:
        address = ""
    return NodeStatus(
        host=facts.host.name,
        address=address,
        service=own[0].service if own else "",
        state=state.text,
        image=own[0].image if own else "",
        slots=slots,
        gpus=len(facts.gpus),
        ranks=by_run,
        ssh=facts.host.address,
        down=not own[0].running if own else not facts.slow,
        gpu_models=tuple(dict.fromkeys(gpu.name for gpu in facts.gpus)),
        gpus_free=len(idle(facts, slots, leases, by_run)) if facts.gpus else None,
        notes=(*filter(None, (state.note, address_note(facts, recorded))), *gpus.notes(facts, context.spec)),
    )


def ranks_of(text: str) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each run from `RUN RANK PID` lines. A rank's children have its number, and count once."""
    by_run: dict[str, set[int]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1].isascii() and words[1].isdigit():
            by_run.setdefault(words[0], set()).add(int(words[1]))
    return {run: tuple(sorted(ranks)) for run, ranks in sorted(by_run.items())}


def _lost(host: Host, error: KitError) -> NodeStatus:
    return NodeStatus(
        host=host.name,
        address=host.internal or "",
        service="",
        # A busy host is there, and the next look may see it.
        state=f"slow: {error.message}" if isinstance(error, SlowError) else "unreachable",
        image="",
        slots=host.slots or 0,
        gpus=0,
        problem=None if isinstance(error, SlowError) else error.message,
        ssh=host.address,
    )
