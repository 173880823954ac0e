"""The rules of kit tune for network: which networks the hosts have beside the one in use, and which one to take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network

from kit.model.host import Host
from kit.model.observed import Interface
from kit.model.tune import Machine, Setting, Wire
from kit.plan.cluster import network

# Containers are made anew for another network, so the gain is to be seen; and two alike are not to take turns.
FASTER = 0.10


def others(machines: Sequence[Machine]) -> tuple[Wire, ...]:
    """The networks that every host is in, less the one in use, in the order of the first host's NICs.

    A network is what an interface's own prefix says. One that has the same address on two hosts joins none of them: it
    is a bridge of something that runs on each.
    """
    if len(machines) < 2 or not all(network.is_address(each.address) for each in machines):
        return ()
    in_use = [IPv4Address(each.address) for each in machines]
    found = []
    for one in dict.fromkeys(each.address.network for each in machines[0].addresses):
        places = [place for place in (_place(each, one) for each in machines) if place is not None]
        apart = len({place.address.ip for place in places}) == len(machines)
        if apart and not any(address in one for address in in_use):
            found.append(
                Wire(
                    network=str(one),
                    addresses=tuple(
                        (each.name, str(place.address.ip)) for each, place in zip(machines, places, strict=True)
                    ),
                    nics=tuple(dict.fromkeys(place.name for place in places)),
                )
            )
    return tuple(found)


def _place(machine: Machine, one: IPv4Network) -> Interface | None:
    """Where kit deploy would put the host in this network; None where that is no NIC that is up and of this network."""
    inside = [each for each in machine.addresses if network.usable(each) and each.address.ip in one]
    if not inside or inside[0].name not in machine.up:
        return None
    # Link-local addresses come by themselves, and say nothing about who is on the wire. /0 is no network to kit.
    fits = inside[0].address.network == one and not one.is_link_local and one.prefixlen > 0
    return inside[0] if fits else None


def faster(now: float | None, wires: Iterable[Wire]) -> Wire | None:
    """The fastest of the networks, where its slowest link beats that of the one in use (`now`, bytes/s) by FASTER."""
    best: tuple[float, Wire] | None = None
    for wire in wires:
        if wire.rate is not None and (best is None or wire.rate > best[0]):
            best = wire.rate, wire
    return best[1] if now is not None and best is not None and best[0] > (1 + FASTER) * now else None


def setting(wire: Wire, now: float, machines: Sequence[Machine]) -> Setting:
    """network: for a network that is faster than the one in use."""
    reason = (
        f"TCP on all links at once has {_mb(wire.rate)} on the slowest of this network ({'/'.join(wire.nics)}), and "
        f"{_mb(now)} on {in_use(machines)}, which was in use"
    )
    return Setting(path="network", value=wire.network, reason=reason, acts="deploy")


def in_use(machines: Sequence[Machine]) -> str:
    """The network in use with its NICs, `10.0.0.0/24 (eth0)`; the addresses' NICs where hosts differ in the network."""
    own = [each for m in machines for each in m.addresses if str(each.address.ip) == m.address]
    nics = "/".join(dict.fromkeys(each.name for each in own)) or "?"
    networks = {str(each.address.network) for each in own}
    return f"{networks.pop()} ({nics})" if len(networks) == 1 and len(own) == len(machines) else f"that of {nics}"


def overridden(wire: Wire, now: float, hosts: Sequence[Host]) -> str | None:
    """Advice where the hosts file goes before kit.yaml: internal= says which address of a host is used."""
    addresses = dict(wire.addresses)
    stated = [host.name for host in hosts if host.internal is not None and host.name in addresses]
    if not stated:
        return None
    shown = ", ".join(f"{name} internal={addresses[name]}" for name in stated)
    return (
        f"{_than(wire, now)}, but internal= in the hosts file goes before network:. Write there {shown}; or take "
        f"internal= away from {', '.join(stated)} and tune again"
    )


def elsewhere(wire: Wire, now: float, *, file: str, said: str) -> str | None:
    """Advice where a flag or a variable (`said`) goes before the `file`; both as kit.yaml has it, 'auto' too."""
    if said == file:
        return None
    return (
        f"{_than(wire, now)}, but --network or KIT_NETWORK says {said}, which goes before kit.yaml. Leave that out and "
        "tune again"
    )


def afterwards(wire: Wire) -> str:
    """What is still to be done once network: is another: all-reduces of the old network would tune the wrong one."""
    return (
        f"MPI was not measured, as the cluster still uses the other network. Run kit deploy, which moves it to "
        f"{wire.network}, then kit tune again for mpi.args, fusion, cycle and what --fp16 asks for"
    )


def failures(wires: Iterable[Wire]) -> list[str]:
    """Advice for each network that could not be measured: it may be no wire between these hosts at all."""
    return [
        f"every host has an address in {wire.network} ({'/'.join(wire.nics)}), which could not be measured and is left "
        f"alone: {wire.failure}"
        for wire in wires
        if wire.failure
    ]


def claimed(machines: Sequence[Machine], wires: Iterable[Wire] = ()) -> list[str]:
    """Advice by the speed that NICs claim, for those that were not measured: they have no network in common."""
    measured = {nic for wire in wires if wire.rate is not None or wire.failure for nic in wire.nics}
    if not machines:
        return []
    names = set.intersection(*({name for name, _ in each.others} for each in machines)) - measured
    return [
        f"every host has {name}, which claims to be faster than the NIC in use, and whose addresses show no network "
        "of all hosts: set network: to one that holds them"
        for name in sorted(names)
        if all(each.nic_mbit and dict(each.others)[name] > each.nic_mbit for each in machines)
    ]


def canonical(text: str) -> str:
    """A network as kit.yaml's reader has it: 10.1.0.5/24 is 10.1.0.0/24. What is none stays as it is."""
    try:
        return str(IPv4Network(text, strict=False))
    except ValueError:
        return text


def _than(wire: Wire, now: float) -> str:
    return (
        f"{wire.network} ({'/'.join(wire.nics)}) has {_mb(wire.rate)} by TCP on its slowest link, and the network in "
        f"use {_mb(now)}"
    )


def _mb(rate: float | None) -> str:
    return f"{(rate or 0.0) / 1e6:.1f} MB/s"
