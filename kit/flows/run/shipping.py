"""Ships the code of a run: from this machine, as the difference from a snapshot that the hosts have, or from a host.

A host that has nothing of it gets it whole from a host of the cluster that has it. This machine's link may be slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kit.errors import KitError, NotReadyError, StepError
from kit.events import Warned
from kit.flows.context import Context
from kit.model import names
from kit.model.code import Needed, Snapshot
from kit.model.launch import ClusterRecord
from kit.remote.run.door import Door

if TYPE_CHECKING:
    from kit.remote.ship.lanes import Target
    from kit.remote.ship.result import Shipped

# Fewer bytes of code than this come from this machine: to ask another host for them takes longer.
LITTLE = 1 << 20


def bring(
    context: Context,
    door: Door,
    snapshot: Snapshot,
    cluster: ClusterRecord,
    hosts: Sequence[str],
    *,
    sure: bool = False,
) -> None:
    """Bring the snapshot to the head and to `hosts`, unless the head says that they have it.

    `sure`: the hosts themselves said that they lack it. Raises the error of the first host that cannot get it: no rank
    starts before every host has it.
    """
    lacking = list(hosts) if sure else lacking_of(context, door, snapshot.digest, hosts)
    if not lacking:
        return
    from kit.remote.code.manifests import recall  # noqa: PLC0415

    # The newest snapshot that all of them have, and whose manifest this machine still has.
    shared = (digest for digest, have in (door.code or {}).items() if set(lacking) <= set(have))
    base = next(filter(None, map(recall, shared)), None)
    head = context.inventory.head.name
    is_far = base is None and snapshot.size > LITTLE and head not in lacking and not sure
    if is_far and from_host(context, snapshot.digest, head, cluster, lacking, door=door):
        return
    failures, without = shipped(context, snapshot, base, cluster, lacking, door=door)
    if without and not failures:
        failures, _ = shipped(context, snapshot, None, cluster, without, door=door)
    raise_first(context, failures, lacking)


def lacking_of(context: Context, door: Door, digest: str, hosts: Sequence[str]) -> list[str]:
    """Return the head and those of `hosts` that the head does not know to have the snapshot."""
    head = context.inventory.head.name
    if door.code is None:
        raise NotReadyError(
            "the cluster was deployed by a version of kit that cannot send code", hint="run: kit deploy", host=head
        )
    have = door.code.get(digest, ())
    return [name for name in with_head(context, hosts) if name not in have]


def with_head(context: Context, hosts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([context.inventory.head.name, *hosts]))


def from_host(
    context: Context,
    digest: str,
    holder: str,
    cluster: ClusterRecord,
    hosts: Sequence[str],
    *,
    base: str | None = None,
    door: Door,
) -> bool:
    """Bring the snapshot from the store of the host `holder` to `hosts`. Return False if it does not give it.

    `base`: a snapshot that all of them should have, so only the difference goes. Those that lack it get everything.
    Raises the error of the first host that cannot take it.
    """
    from kit.remote.ship.faults import BaseMissingError  # noqa: PLC0415

    try:
        failures = _ship_stored(context, digest, holder, cluster, hosts, base=base, door=door).failures
    except StepError as error:
        if base is None:
            text, hint = f"{holder} {error.message}", "kit looks for the code on this machine"
            context.reporter.report(Warned(text=text, hint=hint))
            return False
        return from_host(context, digest, holder, cluster, hosts, door=door)
    without = [host for host, error in failures.items() if isinstance(error, BaseMissingError)]
    raise_first(context, {host: error for host, error in failures.items() if host not in without}, hosts)
    return not without or from_host(context, digest, holder, cluster, without, door=door)


def shipped(
    context: Context,
    snapshot: Snapshot,
    base: bytes | None,
    cluster: ClusterRecord,
    hosts: Sequence[str],
    *,
    door: Door,
) -> tuple[dict[str, KitError], list[str]]:
    """Send a pack. Return the hosts that failed, and those that lack its base."""
    from kit.remote.ship.faults import BaseMissingError  # noqa: PLC0415

    # The head writes down who has the snapshot, so it is always asked.
    targets = with_head(context, hosts)
    failures = _ship(context, snapshot, base, cluster, targets, door=door).failures
    without = [host for host, error in failures.items() if isinstance(error, BaseMissingError)]
    return {host: error for host, error in failures.items() if host not in without}, without


def _ship(
    context: Context,
    snapshot: Snapshot,
    base: bytes | None,
    cluster: ClusterRecord,
    hosts: Sequence[str],
    *,
    door: Door,
) -> Shipped:
    from kit.remote.ship.broadcast import ship_code  # noqa: PLC0415
    from kit.remote.ship.packs import PackSpool  # noqa: PLC0415

    return ship_code(
        PackSpool(snapshot, base),
        store=store_of(cluster.name),
        owner=cluster.name,
        targets=_targets(context, cluster, hosts),
        confirm=context.inventory.head.name,
        reporter=context.reporter,
        needed=door.needed,
        renewed=lambda: _listed_again(door),
    )


def _ship_stored(
    context: Context,
    digest: str,
    holder: str,
    cluster: ClusterRecord,
    hosts: Sequence[str],
    *,
    base: str | None,
    door: Door,
) -> Shipped:
    from kit.remote.ship.broadcast import ship_stored  # noqa: PLC0415

    head = context.inventory.head.name
    # The head writes down who has the snapshot, so it is part of the ship.
    others = [name for name in with_head(context, hosts) if name != holder]
    (source,) = _targets(context, cluster, [holder])
    return ship_stored(
        digest,
        source=source,
        store=store_of(cluster.name),
        owner=cluster.name,
        targets=_targets(context, cluster, others),
        confirm=head,
        reporter=context.reporter,
        base=base,
        needed=door.needed,
        renewed=lambda: _listed_again(door),
    )


def _listed_again(door: Door) -> Needed:
    """Return which snapshots runs need now. Raises UnreachableError."""
    another = door.another()
    try:
        another.open()
        return another.needed
    finally:
        another.close(ended=True)


def store_of(cluster: str) -> str:
    """Return the folder of the cluster's code on its hosts."""
    return f"{names.folder(cluster)}/{names.CODE}"


def _targets(context: Context, cluster: ClusterRecord, hosts: Sequence[str]) -> list[Target]:
    from kit.remote.ship.lanes import Target  # noqa: PLC0415

    addresses = {node.name: node.address for node in cluster.nodes}
    # Once: each use of context.logins computes those of all hosts.
    logins = context.logins
    return [Target(login=logins[name], address=addresses[name]) for name in hosts]


def raise_first(context: Context, failures: Mapping[str, KitError], order: Sequence[str]) -> None:
    if not failures:
        return
    first, *others = sorted(failures, key=lambda name: order.index(name) if name in order else -1)
    # Only after a failure:
    from kit.model.failures import alike  # noqa: PLC0415

    errors = [KitError(failures[name].message, hint=failures[name].hint, host=name) for name in others]
    for error, name in zip(errors, others, strict=True):
        # ssh spells the host so.
        error.address = context.host(name).address
    for failure in alike(errors):
        context.reporter.report(Warned(text=str(failure), hint=failure.hint))
    raise failures[first]
