"""The network cases of kit bench: TCP between two hosts, through one way of a container's (or none)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kit.errors import Interrupted, KitError
from kit.events import Warned
from kit.flows.bench.launch import Launched
from kit.flows.context import Context
from kit.model.bench import Case
from kit.model.launch import Node
from kit.plan.bench.network import PORTS, probe
from kit.plan.bench.record import last_object
from kit.remote.bench.probe import clean, new_mark, new_port, prepare, program, run_pair


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """The two nodes, and the image of their containers."""

    listener: Node
    caller: Node
    image: str


def ends_of(told: Mapping[str, Any]) -> Ends:
    """The first two nodes of a cluster, of what kit.flows.bench.facts tells of it."""
    first, second = (Node(**node) for node in told["nodes"][:2])
    return Ends(listener=first, caller=second, image=str(told["image"]))


def measure(context: Context, case: Case, ends: Ends) -> Launched:
    """One probe. Whatever it made on the hosts is gone afterwards, after Ctrl-C, too; what would not go is told."""
    mark = new_mark()
    hosts = [context.host(ends.listener.name), context.host(ends.caller.name)]
    # An overlay network is made, and removed, where its swarm is managed.
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
    failure = None if result else "the network probe ended well and printed no result"
    return Launched(result={**result, "network": case.network} if result else {}, failure=failure, hosts=names)
