"""Reads what observe.sh reports about Swarm: the engine's state, and what a manager knows about the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.model import names
from kit.model.answer import OddAnswer, decode, number
from kit.model.swarm import SwarmFacts, SwarmNode, SwarmSecret, SwarmService
from kit.remote.cluster.forms import Info, LabelledRow, NodeRow, Resource, Swarm

# kit writes this before it makes a host a member, so that it recognizes the host even if kit was killed then.
PENDING = "pending"
_MOST_RESOURCES = 2**40


def swarm_facts(info: Info, sections: Mapping[str, Sequence[str]]) -> SwarmFacts:
    """Return the facts from `info`, the output of `docker info`, and the sections of observe.sh. Raises OddAnswer."""
    swarm = info.Swarm or Swarm()
    state, node_id = swarm.LocalNodeState or "inactive", swarm.NodeID or ""
    member = next(iter(sections.get("member", ())), "")
    return SwarmFacts(
        state=state,
        node_id=node_id,
        manager=bool(swarm.ControlAvailable),
        managers=tuple(peer.Addr for peer in swarm.RemoteManagers or ()),
        error=swarm.Error or "",
        heartbeat_s=_heartbeat_ns(swarm) / 1e9,
        made=state == "active" and member in (node_id, PENDING),
        live_restore=bool(info.LiveRestoreEnabled),
        remaps_users=info.remaps_users,
        ports=frozenset(sections.get("engine_ports", ())),
        resources=_resources(info.GenericResources or ()),
        nodes=tuple(_node(decode(row, NodeRow)) for row in _lists(sections.get("nodes", ()))),
        services=tuple(_service(decode(row, LabelledRow)) for row in _lists(sections.get("services", ()))),
        secrets=tuple(_secret(decode(row, LabelledRow)) for row in _lists(sections.get("secrets", ()))),
    )


def _heartbeat_ns(swarm: Swarm) -> int:
    """Return 0 if the host is not a manager."""
    spec = swarm.Cluster.Spec if swarm.Cluster else None
    period = spec.Dispatcher.HeartbeatPeriod if spec and spec.Dispatcher else None
    return number(str(period or 0))


def _lists(lines: Sequence[str]) -> list[str]:
    """Return the lines that are lists of JSON. Others are complaints of the engine."""
    return [line for line in lines if line.startswith("[")]


def _resources(rows: Sequence[Resource]) -> dict[str, int]:
    """Return the number of resources by kind. A named resource counts as one, a discrete one has a count."""
    counts: dict[str, int] = {}
    for row in rows:
        named, discrete = row.NamedResourceSpec, row.DiscreteResourceSpec
        if named:
            counts[named.Kind] = counts.get(named.Kind, 0) + 1
        if discrete:
            if not 0 <= discrete.Value <= _MOST_RESOURCES:
                raise OddAnswer("this is not a number of resources", str(discrete.Value))
            counts[discrete.Kind] = counts.get(discrete.Kind, 0) + discrete.Value
    return counts


def _node(row: NodeRow) -> SwarmNode:
    node_id, spec, hostname, status = row
    return SwarmNode(
        id=node_id,
        hostname=hostname or "",
        address=status.Addr or "",
        state=status.State or "unknown",
        availability=spec.Availability or "active",
        labels=dict(spec.Labels or {}),
    )


def _service(row: LabelledRow) -> SwarmService:
    name, labels = row[0], row[1] or {}
    return SwarmService(name=name, cluster=labels.get(names.LABEL_CLUSTER, ""), spec=labels.get(names.LABEL_SPEC, ""))


def _secret(row: LabelledRow) -> SwarmSecret:
    name, labels = row[0], row[1] or {}
    return SwarmSecret(name=name, role=labels.get(names.LABEL_ROLE, ""), public=labels.get(names.LABEL_PUBLIC, ""))
