"""Reads what observe.sh reports about Swarm: the engine's state, and what a manager knows about the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kit.model import names
from kit.model.swarm import SwarmFacts, SwarmNode, SwarmSecret, SwarmService

# kit writes this before it makes a host a member, so that it recognizes the host even if kit was killed then.
PENDING = "pending"


def swarm_facts(info: Mapping[str, Any], sections: Mapping[str, Sequence[str]]) -> SwarmFacts:
    """Return the facts from `info`, the output of `docker info`, and the sections of observe.sh."""
    swarm = info.get("Swarm") or {}
    state, node_id = str(swarm.get("LocalNodeState") or "inactive"), str(swarm.get("NodeID") or "")
    member = next(iter(sections.get("member", ())), "")
    return SwarmFacts(
        state=state,
        node_id=node_id,
        manager=bool(swarm.get("ControlAvailable")),
        managers=tuple(str(peer.get("Addr", "")) for peer in swarm.get("RemoteManagers") or ()),
        error=str(swarm.get("Error") or ""),
        heartbeat_s=_heartbeat_ns(swarm) / 1e9,
        made=state == "active" and member in (node_id, PENDING),
        live_restore=bool(info.get("LiveRestoreEnabled")),
        default_runtime=str(info.get("DefaultRuntime") or ""),
        ports=frozenset(sections.get("engine_ports", ())),
        resources=_resources(info.get("GenericResources") or ()),
        nodes=tuple(_node(*row) for row in _rows(sections.get("nodes", ()), 4)),
        services=tuple(_service(*row) for row in _rows(sections.get("services", ()), 2)),
        secrets=tuple(_secret(*row) for row in _rows(sections.get("secrets", ()), 2)),
    )


def _heartbeat_ns(swarm: Mapping[str, Any]) -> int:
    """Return 0 if the host is not a manager."""
    spec = (swarm.get("Cluster") or {}).get("Spec") or {}
    return int((spec.get("Dispatcher") or {}).get("HeartbeatPeriod") or 0)


def _rows(lines: Sequence[str], width: int) -> list[list[Any]]:
    """Return the rows in lines of JSON. Other lines are complaints of the engine."""
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, list) and len(row) == width:
            rows.append(row)
    return rows


def _resources(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of resources by kind. A named resource counts as one, a discrete one has a count."""
    counts: dict[str, int] = {}
    for row in rows:
        named, discrete = row.get("NamedResourceSpec"), row.get("DiscreteResourceSpec")
        if named:
            counts[named["Kind"]] = counts.get(named["Kind"], 0) + 1
        if discrete:
            counts[discrete["Kind"]] = counts.get(discrete["Kind"], 0) + int(discrete["Value"])
    return counts


def _node(node_id: str, spec: Mapping[str, Any], hostname: str | None, status: Mapping[str, Any]) -> SwarmNode:
    return SwarmNode(
        id=node_id,
        hostname=hostname or "",
        address=str(status.get("Addr") or ""),
        state=str(status.get("State") or "unknown"),
        availability=str(spec.get("Availability") or "active"),
        labels=dict(spec.get("Labels") or {}),
    )


def _service(name: str, labels: Mapping[str, str] | None) -> SwarmService:
    given = labels or {}
    return SwarmService(name=name, cluster=given.get(names.LABEL_CLUSTER, ""), spec=given.get(names.LABEL_SPEC, ""))


def _secret(name: str, labels: Mapping[str, str] | None) -> SwarmSecret:
    given = labels or {}
    return SwarmSecret(name=name, role=given.get(names.LABEL_ROLE, ""), public=given.get(names.LABEL_PUBLIC, ""))
