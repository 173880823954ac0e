"""Which address of a host MPI uses, and which network mpirun gets. docker0 never wins."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from kit.errors import KitError, StepError
from kit.model.host import Host

if TYPE_CHECKING:
    from kit.model.observed import HostFacts, Interface

# Bridges of engines and hypervisors, which mostly have the same address on every VM.
ENGINE_PREFIX = "docker"
VIRTUAL_PREFIXES = (ENGINE_PREFIX, "br-", "veth", "virbr", "lxc", "cni", "flannel", "cali", "cilium", "weave", "podman")
# Where engines put their bridges: a covering network must not include them by accident.
ENGINE_BRIDGES = ipaddress.IPv4Network("172.17.0.0/16")
SMALLEST_PREFIX = 8
LOOPBACK = 127


# Both directions are remembered: ipaddress is slow, and a plan for 10,000 hosts asks several times for each.
@lru_cache(maxsize=1 << 16)
def text_of(number: int) -> str:
    """Return an address (a number of 32 bits) as text."""
    return str(ipaddress.IPv4Address(number))


@lru_cache(maxsize=1 << 16)
def number_of(text: str) -> int | None:
    """Return an address as a number of 32 bits, None for a name."""
    try:
        return int(ipaddress.IPv4Address(text))
    except ValueError:
        return None


def is_address(text: str) -> bool:
    """Return whether the text is an address and not a name."""
    return number_of(text) is not None


def address_of(interface: Interface) -> str:
    """Return the interface's address without its prefix length."""
    return text_of(int(interface.address))


def usable(interface: Interface) -> bool:
    """Return whether a cluster could use this interface at all."""
    virtual = interface.name == "lo" or interface.name.startswith(VIRTUAL_PREFIXES)
    return not virtual and int(interface.address) >> 24 != LOOPBACK


def pick_interface(facts: HostFacts, network: str) -> Interface:
    """Return the interface whose address MPI uses on this host. See `pick_interface_of`."""
    return pick_interface_of(facts.host, facts.interfaces, facts.default_interface, network)


def pick_interface_of(
    host: Host, interfaces: Sequence[Interface], default_interface: str | None, network: str
) -> Interface:
    """Return the interface whose address MPI uses on this host.

    It is the first of these: the one with `internal=` of the hosts file; the one in `network`; if network is 'auto',
    the one that ssh connects to, or that of the default route. Raises StepError, which lists the host's addresses.
    """
    if not interfaces:
        # `ip` lists the loopback at least. Small images of Ubuntu have no `ip`.
        raise StepError(
            "its addresses cannot be read: it has no program ip",
            hint=f"kit setup --only docker installs it; or: kit ssh {host.name} -- sudo apt-get install iproute2",
            host=host.name,
        )
    if host.internal is not None:
        named = next((i for i in interfaces if address_of(i) == host.internal), None)
        if named is None:
            raise StepError(
                f"no interface has internal={host.internal}; its addresses: {_addresses(interfaces)}",
                hint=f"correct internal= of {host.name} in the hosts file",
                host=host.name,
            )
        if named.name.startswith(ENGINE_PREFIX):
            raise StepError(
                f"internal={host.internal} is the address of {named.name}, the engine's own bridge, and no other VM "
                f"reaches it; the host's addresses: {_addresses(interfaces)}",
                hint=f"correct internal= of {host.name} in the hosts file",
                host=host.name,
            )
        return named
    candidates = [i for i in interfaces if usable(i)]
    if network != "auto":
        wanted = _network(network)
        inside = next((i for i in candidates if i.address.ip in wanted), None)
        if inside is None:
            raise StepError(
                f"no address in the network {network}; its addresses: {_addresses(interfaces)}",
                hint=f"set network: in kit.yaml to a network that every host has, or internal= for {host.name}",
                host=host.name,
            )
        return inside
    by_address = (i for i in candidates if address_of(i) == host.address)
    by_route = (i for i in candidates if i.name == default_interface)
    for interface in (*by_address, *by_route, *candidates):
        return interface
    raise StepError(
        f"no interface that a cluster could use; its addresses: {_addresses(interfaces)}",
        hint=f"write internal=ADDRESS for {host.name} in the hosts file",
        host=host.name,
    )


def data_interfaces(facts: HostFacts, wanted: Sequence[str]) -> tuple[Interface, ...]:
    """Return the host's interface for each network or name of `interfaces:` in kit.yaml, in their order.

    Raises StepError, which lists the host's addresses.
    """
    candidates = [interface for interface in facts.interfaces if usable(interface)] if wanted else []
    chosen = []
    for word in wanted:
        inside = _network(word) if "/" in word else None
        match = next((i for i in candidates if (i.address.ip in inside if inside else i.name == word)), None)
        if match is None:
            what = f"no address in the network {word}" if inside else f"no interface {word} with an address"
            raise StepError(
                f"{what}, which interfaces: in kit.yaml names; its addresses: {_addresses(facts.interfaces)}",
                hint="write networks or names that every host has",
                host=facts.host.name,
            )
        chosen.append(match)
    return tuple(chosen)


def data_networks(wanted: Sequence[str], observed: Sequence[HostFacts]) -> tuple[str, ...]:
    """Return the networks of `interfaces:` for Open MPI. They hold the chosen addresses, and no others of the hosts."""
    rows = [data_interfaces(facts, wanted) for facts in observed]
    mine = {int(interface.address) for row in rows for interface in row}
    others = {int(i.address) for facts in observed for i in facts.interfaces} - mine
    networks = [
        mpi_network(word if "/" in word else "auto", [address_of(row[place]) for row in rows], others)
        for place, word in enumerate(wanted)
    ]
    return tuple(dict.fromkeys(network for network in networks if network))


def _addresses(interfaces: Sequence[Interface]) -> str:
    return ", ".join(f"{i.name} {i.address}" for i in interfaces) or "none"


@lru_cache(maxsize=8)
def _network(text: str) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(text, strict=False)


def covering(addresses: Iterable[str]) -> str:
    """Return the smallest network that holds all addresses, as btl_tcp_if_include accepts it.

    If that network would be wider than /8 or would include the engines' bridge, return each address as a /32.
    """
    numbers = _numbers(addresses)
    if not numbers:
        raise KitError("a cluster without addresses has no network")
    low, high = min(numbers), max(numbers)
    prefix = 32 - (low ^ high).bit_length()
    network = ipaddress.IPv4Network((low, prefix), strict=False)
    if prefix < SMALLEST_PREFIX or network.overlaps(ENGINE_BRIDGES):
        return _exactly(numbers)
    return str(network)


def _numbers(addresses: Iterable[str]) -> set[int]:
    return {number for address in addresses if (number := number_of(address)) is not None}


def _exactly(numbers: Iterable[int]) -> str:
    """Return each address as a /32. Open MPI accepts such a list, which matches nothing else."""
    return ",".join(f"{text_of(number)}/32" for number in sorted(numbers))


def mpi_network(network: str, addresses: Sequence[str], others: Iterable[int] = ()) -> str | None:
    """Return the network for mpirun, from kit.yaml or from the addresses. None if some of these are names.

    `others` are addresses of the hosts (as numbers) that MPI must not use. If one of them is in the network (a bridge,
    a second card), return the exact addresses instead.
    """
    if network == "auto" and any(number_of(address) is None for address in addresses):
        return None
    parts = covering(addresses) if network == "auto" else str(_network(network))
    if "," in parts:
        return parts
    whole = ipaddress.IPv4Network(parts)
    first, last = int(whole.network_address), int(whole.broadcast_address)
    return _exactly(_numbers(addresses)) if any(first <= other <= last for other in others) else parts


def from_inventory(host: Host) -> str:
    """Return the host's MPI address as far as the hosts file says."""
    return host.internal or host.address
