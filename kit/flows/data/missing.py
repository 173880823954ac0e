"""kit run --data: before ranks start, bring the data sets that their hosts lack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.flows.context import Context
from kit.flows.data.hosts import check_deployed, cluster_of, look
from kit.flows.data.mount import mount_missing
from kit.flows.data.stage import stage
from kit.model.data import DataSpec
from kit.model.datasets import HostData
from kit.plan.data.choose import known_sets, lacking


def stage_missing(context: Context, words: Sequence[str], hosts: Sequence[str]) -> bool:
    """Stage what some of these hosts do not have. Return whether anything was staged.

    A store with stage: none is mounted where it is not. A file server is mounted since its node started. Raises if a
    data set cannot be brought to all of these hosts. Others do not count, except the head, which leads a staging.
    """
    known = known_sets(context.spec, words)
    sets = [data for data in known if data.staged]
    stores = [data for data in known if data.mounted_by == "rclone"]
    if not sets and not stores:
        return False
    head = context.inventory.head.name
    host_data = _look_at(context, hosts)
    check_deployed(cluster_of(context, host_data[head].record), context, [*sets, *stores])
    mounted = mount_missing(context, stores, host_data, hosts)
    missing = staged = _missing(context, sets, host_data, hosts)
    while missing:
        watched = {result.name for result in stage(context, missing, needing=hosts) if result.watched}
        # Another kit may have begun that staging with an earlier kit.yaml, or before a host was added.
        host_data = _look_at(context, hosts) if watched else {}
        missing = _missing(context, [data for data in sets if data.name in watched], host_data, hosts)
    return mounted or bool(staged)


def _look_at(context: Context, hosts: Sequence[str]) -> Mapping[str, HostData]:
    """Return what the head and these hosts have. A host that the run does not use may be down."""
    return look(context, quiet=True, only={context.inventory.head.name, *hosts}).or_raise("kit run --data")


def _missing(
    context: Context, sets: Sequence[DataSpec], host_data: Mapping[str, HostData], hosts: Sequence[str]
) -> list[str]:
    """Return the data sets that one of these hosts lacks."""
    names = context.inventory.names
    lacks = {data.name: lacking(host_data, context.spec.name, data, names) for data in sets}
    return [name for name, without in lacks.items() if not {*hosts}.isdisjoint(without)]
