"""kit audit: who changed the cluster, when and how."""

from __future__ import annotations

from contextlib import closing

from kit.flows.context import Context
from kit.model.lock import AuditResult
from kit.remote.cluster import audit


def read_audit(context: Context, count: int) -> AuditResult:
    """Return the last `count` changes."""
    with closing(context.connect(context.inventory.head)) as transport:
        entries = audit.last(transport, context.spec.name, count)
    return AuditResult(cluster=context.spec.name, entries=entries)
