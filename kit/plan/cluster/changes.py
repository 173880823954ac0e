"""Compares the hosts of the last deploy with those of now: another head, other names, addresses and machines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kit.model import names
from kit.model.changes import HostChange
from kit.model.launch import ClusterRecord, Node
from kit.model.observed import HostFacts, Lease


def host_changes(
    before: ClusterRecord, observed: Sequence[HostFacts], nodes: Sequence[Node], *, complete: bool
) -> tuple[HostChange, ...]:
    """Return what changed since the deploy that wrote the record `before`. `observed` and `nodes` are in step.

    `complete`: that deploy finished on all of its hosts. Otherwise, a host without files may be one that it did not
    reach.
    """
    by_name = {node.name: node for node in before.nodes}
    by_address = {node.address: node for node in before.nodes}
    facts_of = {facts.host.name: facts for facts in observed}
    changes = list(_head(before.nodes[0], nodes, by_address)) if before.nodes else []
    for node in nodes:
        changes += _host(node, facts_of[node.name], by_name, by_address, complete=complete)
    return tuple(changes)


def leavers(before: ClusterRecord, hosts: Sequence[str], addresses: Collection[str]) -> tuple[Node, ...]:
    """Return the nodes of the last deploy that are not among these names of hosts, nor among these addresses.

    A host that only has another name is still in the cluster: to remove it would remove the cluster's node.
    """
    return tuple(node for node in before.nodes if node.name not in hosts and node.address not in addresses)


def runs_on(hosts: Collection[str], living: Iterable[str], leases: Iterable[Lease]) -> Mapping[str, tuple[str, ...]]:
    """Return the active runs that may use one of these hosts, each with those that it uses.

    Nobody knows the hosts of a run without a lease, as of ranks that somebody started by hand. It has none here.
    """
    used = {lease.run: tuple(host for host in lease.slots if host in hosts) for lease in leases}
    return {run: used.get(run, ()) for run in sorted(living) if used.get(run) != ()}


def complete_deploy(facts: HostFacts) -> bool:
    """Return whether the check at the end of the last deploy passed, by the files of the head that it set up."""
    return names.VERIFIED in facts.files


def _head(old: Node, nodes: Sequence[Node], by_address: Mapping[str, Node]) -> Iterator[HostChange]:
    """Yield the change of the head. A head with another name, or with another address, is still the same one."""
    new = nodes[0]
    if old.address == new.address or (old.name == new.name and new.address not in by_address):
        return
    stays = next((node.name for node in nodes if node.address == old.address), "")
    where = stays or f"{old.name} ({old.address})"
    text = f"the head moves from {where} to {new.name}: earlier runs, and what they made, stay on {where}, where "
    text += "kit runs, kit logs and kit pull no longer look for them"
    hint = f"keep {stays or old.name} as the first line of the hosts file; or, before this deploy and with the earlier "
    hint += "hosts file, bring home what you need: kit pull RUN"
    yield HostChange(kind="head", host=new.name, before=stays or old.name, after=new.name, text=text, hint=hint)


def _host(
    node: Node, facts: HostFacts, by_name: Mapping[str, Node], by_address: Mapping[str, Node], *, complete: bool
) -> Iterator[HostChange]:
    same_place, same_name = by_address.get(node.address), by_name.get(node.name)
    if same_place is not None and same_place.name != node.name:
        text = f"{same_place.name} ({node.address}) is called {node.name} now; what its runs made is still there"
        yield HostChange(kind="renamed", host=node.name, before=same_place.name, after=node.name, text=text)
    elif same_place is not None and complete and not facts.files:
        text = f"{node.name} ({node.address}) has no file of the cluster: it is another machine or was reinstalled, or "
        text += f"somebody removed {names.ROOT}/. What runs made there is gone, and so are its staged data sets"
        hint = "stage data sets again: kit data stage"
        yield HostChange(kind="replaced", host=node.name, before=node.address, after=node.address, text=text, hint=hint)
    elif same_place is None and same_name is not None:
        yield _moved(node, same_name, facts)


def _moved(node: Node, old: Node, facts: HostFacts) -> HostChange:
    """Return the change of a host that kept its name and has another address."""
    moved = f"{node.name} had the address {old.address} and has {node.address} now"
    if facts.files:
        text = f"{moved}; runs that were started before the change do not reach it"
        return HostChange(kind="address", host=node.name, before=old.address, after=node.address, text=text)
    text = (
        f"{moved}, and has no file of the cluster: it is another machine. The earlier one, if it still exists, keeps "
    )
    text += "its node and what runs made there"
    hint = "to remove the node there: write a hosts file with the earlier address alone, then: kit --hosts FILE down"
    return HostChange(kind="replaced", host=node.name, before=old.address, after=node.address, text=text, hint=hint)
