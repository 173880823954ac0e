"""A host's name that resolves differently from host to host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address

from kit.model.doctor import Check, Examined, Sight

_IPV4 = 4


def judge(examined: Examined) -> Iterator[Sight]:
    """A host that resolves a name to another address than the others do, which is not the cluster's.

    A name that nobody resolves does no harm: MPI uses addresses. Nor does one that is the same everywhere.
    """
    own = {host.name: {*host.addresses.get("", ())} for host in examined.hosts}
    pair_counts = Counter(pair.target for pair in examined.pairs)
    by_target: dict[str, dict[str, frozenset[str]]] = {}
    address = {}
    for pair in examined.pairs:
        address[pair.target] = pair.address
        if pair.resolved:
            by_target.setdefault(pair.target, {})[pair.source] = frozenset(pair.resolved)
    for target, by_source in by_target.items():
        # What the host itself resolves. A loopback address is the check own-name's, and others ask for IPv4 alone.
        itself = frozenset(one for one in own.get(target, set()) if _is_ipv4(one))
        # A part of it is no other answer: some servers return not all addresses each time.
        views = {itself if addresses <= itself else addresses for addresses in by_source.values()}
        views |= {itself} if itself else set()
        if len(views) == 1 and len(by_source) == pair_counts[target]:
            continue
        for source, addresses in by_source.items():
            if address[target] not in addresses and not addresses <= itself:
                yield Sight(hosts=(source, target), seen=f"the name of {target} is {', '.join(sorted(addresses))} here")


def _is_ipv4(word: str) -> bool:
    address = ip_address(word)
    return address.version == _IPV4 and not address.is_loopback


CHECK = Check(
    id="name-differs",
    title="A host's name is not the same address on all hosts",
    area="pair",
    severity="watch",
    judge=judge,
    measures=True,
    leads_to="Programs that connect by name reach another machine, or none. kit itself uses addresses.",
    fix="Correct `/etc/hosts` or the DNS of the host. `internal=ADDRESS` in the hosts file names MPI's address.",
    lab="kit lab fault HOST name-differs",
)
