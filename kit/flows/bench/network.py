"""The network cases of kit bench: TCP between two hosts, through one way of a container's (or none)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from kit.errors import Interrupted, KitError
from kit.events import Warned
from kit.flows.bench.launch import Launched
from kit.flows.context import Context
from kit.model.bench import Case
from kit.model.launch import Node
from kit.plan.bench.network import PORTS, probe
from kit.plan.bench.record import last_object
from kit.remote.bench.probe import clean, new_mark, new_port, prepare, program, run_pair


class Ends(Struct, frozen=True, kw_only=True):
    """The two nodes, and the image of their containers."""

    listener: Node
    caller: Node
    image: str


def ends_of(recorded: Mapping[str, Any]) -> Ends:
    """Return the first two nodes of the facts that a session records."""
    first, second = (Node(**node) for node in recorded["nodes"][:2])
    return Ends(listener=first, caller=second, image=str(recorded["image"]))


def measure(context: Context, case: Case, ends: Ends) -> Launched:
    """Run one probe, and remove everything it made on the hosts, also after Ctrl-C. Warn about what remains."""
    mark = new_mark()
    hosts = [context.host(ends.listener.name), context.host(ends.caller.name)]
    # The manager of the swarm creates and removes an overlay network.
    head = context.inventory.head
    planned = probe(
        case.network, mark=mark, cluster=context.spec.name, image=ends.image, listener=ends.listener,
        port=new_port(PORTS), program=program(),
    )  # fmt: skip
    names = tuple(host.name for host in hosts)
    try:
        if planned.prepare:
            prepare(context.connect, head, planned.prepare)
        text = run_pair(context.connect, (hosts[0], planned.listen), (hosts[1], planned.connect))
    except Interrupted:
        raise
    except KitError as error:
        return Launched(failure=f"{error}" + (f" ({error.hint})" if error.hint else ""), hosts=names)
    finally:
        everywhere = list(dict.fromkeys([head.name, *names]))
        for left in clean(context.connect, [context.host(name) for name in everywhere], mark).values():
            context.reporter.report(Warned(text=str(left), hint=left.hint))
    result = last_object(text.splitlines())
    failure = None if result else "the network probe succeeded but printed no result"
    return Launched(result={**result, "network": case.network} if result else {}, failure=failure, hosts=names)
