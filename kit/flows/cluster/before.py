"""The cluster as the last deploy left it: who left the hosts file since, and which hosts changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from kit.errors import Interrupted, KitError, SlowError, UnreachableError
from kit.events import Note, Warned
from kit.flows.cluster import lines
from kit.flows.cluster.drift import differences
from kit.flows.context import Context
from kit.model import names
from kit.model.changes import HostChange
from kit.model.host import Host
from kit.model.launch import ClusterRecord, Node
from kit.model.lock import AuditEntry
from kit.model.observed import HostFacts
from kit.model.text import fold
from kit.model.values import replace
from kit.plan.cluster import drift, versions
from kit.plan.cluster.changes import complete_deploy, host_changes, leavers
from kit.plan.cluster.nodes import nodes_of
from kit.plan.cluster.record import deployed_record, record_of
from kit.remote.cluster import audit
from kit.remote.cluster.observe import observe
from kit.remote.ssh import fanout

# Of the audit: the last deploy is among them, unless many runs were removed since.
_MOST_ENTRIES = 100


def report_changes(context: Context, observed: Sequence[HostFacts]) -> tuple[HostChange, ...]:
    """Report, and return, what the hosts file changes for the cluster that the last deploy recorded.

    Report also which settings of that deploy kit.yaml replaces, and whose deploy it was: two people may have two files.
    """
    head = next((facts for facts in observed if facts.record is not None), None)
    record = record_of(head) if head is not None else None
    if head is None or record is None:
        return ()
    if differing := differences(record.settings, context.spec):
        text = drift.replaced(differing, _last_deploy(context, head.host), record.version)
        context.reporter.report(Note(text=text))
    nodes, _ = nodes_of(observed, context.spec)
    changes = host_changes(record, observed, nodes, complete=complete_deploy(head))
    for change in changes:
        warns = change.hint is not None
        context.reporter.report(Warned(text=change.text, hint=change.hint) if warns else Note(text=change.text))
    return changes


def _last_deploy(context: Context, head: Host) -> AuditEntry | None:
    """Return the deploy in the audit of this head whose settings are there.

    Return None if that is not certain, or if kit cannot read the audit.
    """
    try:
        with closing(context.connect(head)) as transport:
            entries = audit.last(transport, names.audit_file(context.spec.name), _MOST_ENTRIES)
    except Interrupted:
        raise
    except KitError:
        return None
    return drift.last_deploy(entries)


def warn_of_newer_kit(context: Context, observed: Sequence[HostFacts]) -> None:
    """Warn if a newer kit deployed this cluster: another member of the team has installed it."""
    record = deployed_record(observed)
    if record is not None and (text := versions.step_back(record.version)):
        context.reporter.report(Warned(text=text, hint="update kit on this machine"))


def warn_of_leavers(context: Context, observed: Sequence[HostFacts], nodes: Sequence[Node]) -> None:
    """Warn of hosts that were removed from the hosts file: they still run their nodes, and no verb shows them.

    Only the head has the record of the earlier cluster. If the head itself was removed, say what went with it.
    """
    head = next((facts for facts in observed if facts.record is not None), None)
    if head is None:
        lines.warn_of_lost_head(context, observed)
    elif record := record_of(head):
        left = leavers(record, context.inventory.names, {node.address for node in nodes})
        if _own_node(record):
            _warn_of(context, left, one=", and still runs its node", several=", and still run their nodes")
        else:
            _warn_of(context, left, one=", and keeps its files", several=", and keep their files")


def _warn_of(context: Context, left: Sequence[Node], *, one: str, several: str) -> None:
    """Warn of hosts that left the hosts file, once for all of them. `one` or `several` is what becomes of them."""
    if not left:
        return
    alone = len(left) == 1
    which = f"{fold(node.name for node in left)} ({fold(node.address for node in left)}) {'is' if alone else 'are'}"
    # The record has the address in the cluster's network. Only the line says how kit logs in.
    lines_of, them = ("its former line", "it") if alone else ("their former lines", "them")
    hint = f"to remove {them}: write {lines_of} of the hosts file alone into a file, then: kit --hosts FILE down"
    text = f"{which} no longer in {context.inventory.source}{one if alone else several}"
    context.reporter.report(Warned(text=text, hint=hint))


def at_head(context: Context, failures: Mapping[str, KitError]) -> Context:
    """Return the context with the host first that the last deploy made the head, and report if that is another one.

    The head has the runs, the line and the lock, and somebody else's hosts file may begin with another host. Return
    `context` if its first host has the record of the cluster or does not answer, or if no host has one. `failures` are
    those of an earlier look by host: kit does not wait again for a host that did not answer.
    """
    inventory = context.inventory
    file = f"{names.folder(context.spec.name)}/{names.RECORD}"

    def have_record(hosts: Sequence[Host]) -> Mapping[str, bool]:
        answering = [host for host in hosts if not isinstance(failures.get(host.name), UnreachableError | SlowError)]
        return fanout.each(answering, has_record).results

    def has_record(host: Host) -> bool:
        with closing(context.connect(host)) as transport:
            return transport.run(["test", "-e", file]).code == 0

    if have_record([inventory.head]).get(inventory.head.name, True):
        return context
    others = have_record(inventory.hosts[1:])
    head = next((host for host in inventory.hosts[1:] if others.get(host.name)), None)
    if head is None:
        return context
    text = f"{head.name} is the head of cluster {context.spec.name}, though {inventory.source} begins with "
    context.reporter.report(Note(text=f"{text}{inventory.head.name}"))
    hosts = (head, *(host for host in inventory.hosts if host is not head))
    return replace(context, inventory=replace(inventory, hosts=hosts))


def left_behind(context: Context) -> tuple[str, ...]:
    """Warn of hosts of the last deploy that `kit down` does not reach, because they left the hosts file.

    Return their names. The record that knows them goes with the head's folder. Return none, without a warning, if the
    head does not answer or has no record: `kit down` says so itself.
    """
    try:
        with closing(context.connect(context.inventory.head)) as transport:
            record = record_of(observe(transport, folder=names.folder(context.spec.name), image=""))
    except Interrupted:
        raise
    except KitError:
        return ()
    if record is None:
        return ()
    hosts = context.inventory.hosts
    addresses = {address for host in hosts for address in (host.address, host.internal) if address}
    left = leavers(record, context.inventory.names, addresses)
    own, their = "its node and its files", "their nodes and their files"
    if not _own_node(record):
        own, their = "its files", "their files"
    _warn_of(
        context,
        left,
        one=f", so kit down leaves {own} there, unless the file has it by another name",
        several=f", so kit down leaves {their} there, unless the file has them by other names",
    )
    return tuple(node.name for node in left)


def _own_node(record: ClusterRecord) -> bool:
    """Return whether hosts run their nodes until somebody removes them. Swarm ends those of hosts that leave it."""
    return record.settings.get("orchestrator") != "swarm"
