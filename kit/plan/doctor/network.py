"""Which address each host has in the cluster's network, and which of its interfaces leads there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kit.model.doctor import Examined, File, Seen
from kit.plan.cluster.network import number_of
from kit.plan.doctor.kernel import is_virtual, leaf, routes, way

ROUTES = File(path="/proc/net/route")
# The most peers to which a host's interface is looked up: all leave by the same one, or nearly all.
_PEERS = 16


def address(host: Seen) -> int | None:
    """Return the host's address in the cluster as a number, or None if kit knows only a name."""
    named = (host.node.address if host.node else None, host.host.internal, host.host.address)
    return next((number for text in named if text and (number := number_of(text)) is not None), None)


def interface(host: Seen, examined: Examined) -> str | None:
    """Return the interface by which the host reaches the others, or that of its default route. None if unknown."""
    known = routes(host.file(ROUTES.path))
    peers = [peer for other in examined.hosts[: _PEERS + 1] if other is not host and (peer := address(other))]
    ways = Counter(name for peer in peers[:_PEERS] if (name := way(known, peer)) and not is_virtual(name))
    if ways:
        return ways.most_common(1)[0][0]
    return next((route.interface for route in known if route.mask == 0), None)


def of_interface(host: Seen, examined: Examined, files: Mapping[str, str]) -> str | None:
    """Return the text of the cluster's interface among files such as /sys/class/net/*/mtu, or None."""
    name = interface(host, examined)
    return leaf(files).get(name) if name else None
