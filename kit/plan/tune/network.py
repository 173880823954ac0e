"""kit tune's rules for `network:`: which other networks the hosts have, and which one to use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network

from kit.model.host import Host
from kit.model.observed import Interface
from kit.model.text import fold
from kit.model.tune import Machine, Setting, Wire
from kit.plan.cluster import network

# Another network recreates the containers, so the gain must be clear, and two equal networks must not alternate.
FASTER = 0.10
BY_INTERFACES = (
    "interfaces: in kit.yaml names the networks for the data of MPI and NCCL, so kit compared no other network, and "
    "measured TCP on network: alone. To compare, remove interfaces: and run kit tune again after kit deploy"
)
# network: is also that of the nodes on cordoned hosts.
BY_CORDONS = (
    "kit compared no other network, because cordoned hosts may not be in it. To compare, run kit tune again after "
    "kit hosts uncordon"
)


def others(machines: Sequence[Machine]) -> tuple[Wire, ...]:
    """Return the networks that every host is in, except the one in use, in the order of the first host's NICs.

    An interface's prefix defines its network. A network where two hosts have the same address connects nothing: it is
    a local bridge on each host, such as docker0.
    """
    if len(machines) < 2 or not all(network.is_address(machine.address) for machine in machines):
        return ()
    in_use = [IPv4Address(machine.address) for machine in machines]
    wires = []
    for candidate in dict.fromkeys(interface.address.network for interface in machines[0].addresses):
        places = [place for place in (_place(machine, candidate) for machine in machines) if place is not None]
        distinct = len({place.address.ip for place in places}) == len(machines)
        if distinct and not any(address in candidate for address in in_use):
            wires.append(
                Wire(
                    network=str(candidate),
                    addresses=tuple(
                        (machine.name, str(place.address.ip)) for machine, place in zip(machines, places, strict=True)
                    ),
                    nics=tuple(dict.fromkeys(place.name for place in places)),
                )
            )
    return tuple(wires)


def _place(machine: Machine, candidate: IPv4Network) -> Interface | None:
    """Return the interface that kit deploy would use in this network, or None if it is down or in another network."""
    inside = [i for i in machine.addresses if network.usable(i) and i.address.ip in candidate]
    if not inside or inside[0].name not in machine.up:
        return None
    # Every NIC gets a link-local address, so it proves no connection. kit does not accept /0 as a network.
    fits = inside[0].address.network == candidate and not candidate.is_link_local and candidate.prefixlen > 0
    return inside[0] if fits else None


def faster(now: float | None, wires: Iterable[Wire]) -> Wire | None:
    """Return the fastest network if its slowest link beats the one in use (`now`, bytes/s) by FASTER, else None."""
    best: tuple[float, Wire] | None = None
    for wire in wires:
        if wire.rate is not None and (best is None or wire.rate > best[0]):
            best = wire.rate, wire
    return best[1] if now is not None and best is not None and best[0] > (1 + FASTER) * now else None


def setting(wire: Wire, now: float, machines: Sequence[Machine]) -> Setting:
    """Return the `network:` setting for a network that is faster than the one in use."""
    reason = (
        f"with TCP on all links at once, the slowest link of this network ({'/'.join(wire.nics)}) reaches "
        f"{_mb(wire.rate)}, and {_mb(now)} on {in_use(machines)}, which was in use"
    )
    return Setting(path="network", value=wire.network, reason=reason, acts="deploy")


def in_use(machines: Sequence[Machine]) -> str:
    """Return the network in use with its NICs, `10.0.0.0/24 (eth0)`, or only the NICs if the hosts' networks differ."""
    own = [i for m in machines for i in m.addresses if str(i.address.ip) == m.address]
    nics = "/".join(dict.fromkeys(interface.name for interface in own)) or "?"
    networks = {str(interface.address.network) for interface in own}
    return f"{networks.pop()} ({nics})" if len(networks) == 1 and len(own) == len(machines) else f"that of {nics}"


def overridden(wire: Wire, now: float, hosts: Sequence[Host]) -> str | None:
    """Return advice if internal= in the hosts file overrides `network:` in kit.yaml, else None."""
    addresses = dict(wire.addresses)
    stated = [host.name for host in hosts if host.internal is not None and host.name in addresses]
    if not stated:
        return None
    shown = ", ".join(f"{name} internal={addresses[name]}" for name in stated)
    return (
        f"{_rates(wire, now)}, but internal= in the hosts file overrides network:. Change it to {shown}; or remove "
        f"internal= from {fold(stated)} and run kit tune again"
    )


def elsewhere(wire: Wire, now: float, *, file: str, in_force: str) -> str | None:
    """Return advice if a flag or variable (`in_force`) overrides the `file`, else None. 'auto' is a value too."""
    if in_force == file:
        return None
    return (
        f"{_rates(wire, now)}, but --network or KIT_NETWORK is {in_force} and overrides kit.yaml. Remove it and run "
        "kit tune again"
    )


def afterwards(wire: Wire, *, horovod: bool) -> str:
    """Return what to do after `network:` has changed. All-reduces on the old network would tune the wrong one.

    On an image without Horovod, kit tune measures none on the new network either.
    """
    if not horovod:
        return f"the cluster still uses the other network. Run kit deploy, which moves it to {wire.network}"
    return (
        f"MPI was not measured because the cluster still uses the other network. Run kit deploy, which moves it to "
        f"{wire.network}, then kit tune again for mpi.args, fusion, cycle and --fp16"
    )


def failures(wires: Iterable[Wire]) -> list[str]:
    """Return advice for each network that could not be measured. It may not connect these hosts at all."""
    return [
        f"every host has an address in {wire.network} ({'/'.join(wire.nics)}), but it could not be measured and is not "
        f"used: {wire.failure}"
        for wire in wires
        if wire.failure
    ]


def claimed(machines: Sequence[Machine]) -> list[str]:
    """Return advice for NICs that report a higher speed but cannot be measured because they share no network."""
    if not machines:
        return []
    # A NIC without an address may be a part of the one in use, as of a bond, or of a cloud's accelerated networking.
    with_address = [{i.name for i in machine.addresses if network.usable(i)} for machine in machines]
    named = [{name for name, _ in machine.others} for machine in machines]
    names = set.intersection(*named, *with_address) - {nic for wire in others(machines) for nic in wire.nics}
    return [
        f"every host has {name}, which reports a higher speed than the NIC in use, but its addresses share no network: "
        "set network: to a range that contains them"
        for name in sorted(names)
        if all(machine.nic_mbit and dict(machine.others)[name] > machine.nic_mbit for machine in machines)
    ]


def canonical(text: str) -> str:
    """Return a network in canonical form (10.1.0.5/24 → 10.1.0.0/24), or the text unchanged if it is not a network."""
    try:
        return str(IPv4Network(text, strict=False))
    except ValueError:
        return text


def _rates(wire: Wire, now: float) -> str:
    return (
        f"{wire.network} ({'/'.join(wire.nics)}) reaches {_mb(wire.rate)} by TCP on its slowest link, and the network "
        f"in use {_mb(now)}"
    )


def _mb(rate: float | None) -> str:
    return f"{(rate or 0.0) / 1e6:.1f} MB/s"
