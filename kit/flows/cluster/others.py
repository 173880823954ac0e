"""Ranks on hosts whose head is not in the hosts file, or has not recorded them: they can be another cluster's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kit.errors import Interrupted, KitError, NotReadyError
from kit.flows.context import Context
from kit.model import names
from kit.model.host import Host
from kit.plan.cluster.foreign import not_recorded
from kit.plan.cluster.record import from_text
from kit.remote.cluster.observe import runs_with_ranks
from kit.remote.ssh import fanout


def ranks_there(context: Context, hosts: Sequence[Host]) -> fanout.Outcome[frozenset[str]]:
    """Return the runs that have ranks on each of the hosts, of whichever cluster of this name."""

    def look(host: Host) -> frozenset[str]:
        with closing(context.connect(host)) as transport:
            return runs_with_ranks(transport, cluster=context.spec.name)

    return fanout.each(hosts, look)


def hosts_without_record(context: Context) -> Sequence[Host]:
    """Return the hosts that the head's record does not have. Return none if the head does not answer.

    If the record is missing or damaged, these are all hosts.
    """
    try:
        with closing(context.connect(context.inventory.head)) as transport:
            done = transport.run(["cat", f"{names.folder(context.spec.name)}/{names.RECORD}"], timeout_s=30)
    except Interrupted:
        raise
    except KitError:
        return ()
    try:
        record = from_text(done.text if done.code == 0 else "")
    except NotReadyError:
        record = None
    return not_recorded(context.inventory.hosts, record)
