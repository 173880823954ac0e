"""Which TCP ports must be open between the hosts of a cluster."""

from __future__ import annotations

from msgspec import Struct

from kit.model import names
from kit.model.spec import ClusterSpec
from kit.plan.run import mpi

# How many ports of a range kit tries until one is free.
_TRIES = 64


class Span(Struct, frozen=True, kw_only=True):
    """A range of ports of which kit tries the first free one. `use` says who listens there.

    Where `taken` is True and a program listens on the first port already, kit connects to that program.
    """

    first: int
    last: int
    use: str
    taken: bool = False


def spans(spec: ClusterSpec) -> tuple[Span, ...]:
    """Return the ports that matter, without the ephemeral one that each probe has anyway."""
    made = [Span(first=spec.ssh_port, last=spec.ssh_port, use="the nodes' sshd", taken=True)]
    for use, ports in mpi.listening_ports(spec.mpi.args):
        made.append(Span(first=ports.start, last=min(ports.stop - 1, ports.start + _TRIES), use=use))
    if spec.orchestrator == "swarm":
        for port in (names.MANAGER_PORT, names.GOSSIP_PORT):
            made.append(Span(first=port, last=port, use="Swarm", taken=True))
    return tuple(made)
