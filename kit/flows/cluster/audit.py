"""kit audit: who changed the cluster and its hosts, when and how."""

from __future__ import annotations

from contextlib import closing

from kit.events import Warned
from kit.flows.context import Context
from kit.model import names
from kit.model.failures import alike
from kit.model.host import Host
from kit.model.lock import AuditEntry, AuditResult
from kit.model.setup.paths import AUDIT
from kit.model.text import fold
from kit.plan.cluster.audit import merged
from kit.remote.cluster import audit
from kit.remote.ssh import fanout

Entries = tuple[AuditEntry, ...]


def read_audit(context: Context, count: int) -> AuditResult:
    """Return the last `count` changes: those of the cluster, which the head keeps, and those of kit setup.

    Each host keeps its own of kit setup. Warn of a host that does not answer. Raises its error if it is the head.
    """
    head, name = context.inventory.head, context.spec.name

    def work(host: Host) -> tuple[Entries, Entries]:
        with closing(context.connect(host)) as transport:
            of_cluster = audit.last(transport, names.audit_file(name), count) if host == head else ()
            return of_cluster, audit.last(transport, AUDIT, count)

    outcome = fanout.each(context.inventory.hosts, work)
    if head.name in outcome.failures:
        raise outcome.failures[head.name]
    for failure in alike(outcome.failures.values()):
        text = f"{fold(failure.hosts)}: what kit setup did there is missing: {failure.message}"
        context.reporter.report(Warned(text=text, hint=failure.hint))
    setups = {host: own for host, (_, own) in outcome.results.items()}
    return AuditResult(cluster=name, entries=merged(outcome.results[head.name][0], setups, count))
