"""Which address of a host MPI uses, and which network mpirun is told. docker0 never wins."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kit.errors import KitError, StepError
from kit.model.host import Host

if TYPE_CHECKING:
    from kit.model.observed import HostFacts, Interface

# Bridges that every VM with an engine or a hypervisor has, mostly with the same address on each.
VIRTUAL_PREFIXES = ("docker", "br-", "veth", "virbr", "lxc", "cni", "flannel", "cali", "cilium", "weave", "podman")
# Where engines put their own bridges: a covering network must not swallow them by accident.
ENGINE_BRIDGES = ipaddress.IPv4Network("172.17.0.0/16")
SMALLEST_PREFIX = 8


def usable(interface: Interface) -> bool:
    """Whether a cluster could use this interface at all."""
    virtual = interface.name == "lo" or interface.name.startswith(VIRTUAL_PREFIXES)
    return not virtual and not interface.address.ip.is_loopback


def pick_interface(facts: HostFacts, network: str) -> Interface:
    """The interface whose address MPI uses on this host.

    In order: the hosts file's `internal=`; the address in `network`; with network 'auto', the address that ssh
    goes to, else that of the default route. Raises StepError, naming what the host does have.
    """
    host = facts.host
    have = ", ".join(f"{i.name} {i.address}" for i in facts.interfaces) or "none"
    if host.internal is not None:
        found = [i for i in facts.interfaces if str(i.address.ip) == host.internal]
        if not found:
            raise StepError(
                f"no interface has internal={host.internal}; its addresses: {have}",
                hint=f"correct internal= of {host.name} in the hosts file",
                host=host.name,
            )
        return found[0]
    candidates = [i for i in facts.interfaces if usable(i)]
    if network != "auto":
        inside = [i for i in candidates if i.address.ip in ipaddress.IPv4Network(network, strict=False)]
        if not inside:
            raise StepError(
                f"no address in the network {network}; its addresses: {have}",
                hint=f"set network: in kit.yaml to a network that every host has, or internal= for {host.name}",
                host=host.name,
            )
        return inside[0]
    for wanted in (
        lambda i: str(i.address.ip) == host.address,
        lambda i: i.name == facts.default_interface,
        lambda _: True,
    ):
        found = [i for i in candidates if wanted(i)]
        if found:
            return found[0]
    raise StepError(
        f"no interface that a cluster could use; its addresses: {have}",
        hint=f"write internal=ADDRESS for {host.name} in the hosts file",
        host=host.name,
    )


def covering(addresses: Iterable[str]) -> str:
    """What btl_tcp_if_include is given for these addresses: the smallest network that holds them all.

    Where that network would be wider than /8 or would take in the engines' own bridge, each address as a /32.
    """
    unique = sorted({ipaddress.IPv4Address(a) for a in addresses})
    if not unique:
        raise KitError("a cluster without addresses has no network")
    prefix = 32 - (int(unique[0]) ^ int(unique[-1])).bit_length()
    network = ipaddress.IPv4Network((int(unique[0]), prefix), strict=False)
    if prefix < SMALLEST_PREFIX or network.overlaps(ENGINE_BRIDGES):
        return exactly(map(str, unique))
    return str(network)


def exactly(addresses: Iterable[str]) -> str:
    """Each address as a /32: Open MPI accepts a list, and a list of exact addresses can match nothing else."""
    return ",".join(f"{address}/32" for address in sorted({ipaddress.IPv4Address(a) for a in addresses}))


def is_address(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def mpi_network(network: str, addresses: Sequence[str], others: Iterable[ipaddress.IPv4Address] = ()) -> str | None:
    """The network for mpirun, from kit.yaml's word or from the addresses. None while those are names.

    `others` are the hosts' addresses that MPI is not to use. Where one of them lies inside (a bridge, a second card),
    mpirun is told the exact addresses instead.
    """
    if network == "auto" and not all(is_address(a) for a in addresses):
        return None
    told = covering(addresses) if network == "auto" else str(ipaddress.IPv4Network(network, strict=False))
    inside = [ipaddress.IPv4Network(part) for part in told.split(",")]
    if len(inside) == 1 and any(other in inside[0] for other in others):
        return exactly(addresses)
    return told


def from_inventory(host: Host) -> str:
    """The MPI address as far as the hosts file tells it."""
    return host.internal or host.address
