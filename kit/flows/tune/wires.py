"""The networks of kit tune: TCP over the one in use and over the others, and whether to move to another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from kit.errors import HostsFailed, StepError
from kit.events import HostStep, Phase, Warned
from kit.flows.context import Context
from kit.flows.tune.file import TunedFile
from kit.flows.tune.perf import TASK, Perf
from kit.model.launch import Node
from kit.model.tune import Machine, Tuning, Wire
from kit.model.values import replace
from kit.plan.tune import network as networks

WireRates = Callable[..., Mapping[str, float]]

WIRE_S = 3.0
# Share of the time for networks that are not in use.
NETWORKS_SHARE = 0.4


class Networks(Struct, frozen=True, kw_only=True):
    """What kit tune knows about networks: TCP's `rate` on the one in use in bytes per second, and the `others`.

    `moving`: the cluster should move to another one. `tuning` has the setting and advice.
    """

    rate: float | None
    others: tuple[Wire, ...] = ()
    moving: bool = False
    tuning: Tuning = Tuning()


def measure_networks(
    perf: Perf,
    machines: Sequence[Machine],
    nodes: Sequence[Node],
    file: TunedFile,
    wire: WireRates,
    *,
    horovod: bool,
    cordoned: bool = False,
) -> Networks:
    """Measure TCP between the hosts with ranks, and over the networks that are not in use, over all `nodes`.

    `cordoned`: the cluster has other hosts, which may lack these networks. Then measure only the one in use.
    """
    context = perf.context
    rate = wire_rate(context, perf.nodes, wire)
    if context.spec.interfaces:
        # These networks have the data, so a faster one in network: would gain nothing.
        advice = (networks.BY_INTERFACES,) if len(nodes) > 1 else ()
        return Networks(rate=rate, tuning=Tuning(advice=advice))
    if cordoned:
        left_out = (networks.BY_CORDONS,) if networks.others(machines) else ()
        return Networks(rate=rate, tuning=Tuning(advice=(*left_out, *networks.claimed(machines))))
    rate, others = other_wires(perf, machines, nodes, rate, wire)
    moving, tuning = another_network(context, file, machines, rate, others, horovod=horovod)
    tuning = replace(tuning, advice=(*tuning.advice, *networks.claimed(machines)))
    return Networks(rate=rate, others=others, moving=moving, tuning=tuning)


def wire_rate(context: Context, nodes: Sequence[Node], wire: WireRates) -> float | None:
    """Return TCP's rate on the slowest link. If it is not known, warn and return None: MPI can still be measured."""
    if len(nodes) < 2:
        return None
    context.reporter.report(Phase(name=TASK))
    try:
        return _slowest(context, nodes, wire, "TCP between the hosts, all links at once")
    except (StepError, HostsFailed) as error:
        first = error.failures[0] if isinstance(error, HostsFailed) else error
        context.reporter.report(Warned(text=str(first), hint=first.hint))
        return None


def _slowest(context: Context, nodes: Sequence[Node], wire: WireRates, text: str) -> float:
    """Return TCP's rate on the slowest link between these addresses. Raises the hosts' errors."""
    context.reporter.report(HostStep(host=TASK, text=text, fraction=0.0))
    hosts = {node.name: context.host(node.name) for node in nodes}
    return min(wire(nodes, hosts, context.connect, seconds=WIRE_S).values())


def other_wires(
    perf: Perf, machines: Sequence[Machine], nodes: Sequence[Node], now: float | None, wire: WireRates
) -> tuple[float | None, tuple[Wire, ...]]:
    """Measure the networks that are not in use, over all `nodes`. Return the rate of the one in use, and the others.

    A network that does not answer is not a failure. A network counts as faster only after a second measurement of
    both, which compares the better rate of the one in use with the worse rate of the other. A change of network
    recreates the containers.
    """
    if now is None:
        return None, ()
    wires: list[Wire] = []
    # Most of the time is for MPI.
    end = time.monotonic() + (perf.end - time.monotonic()) * NETWORKS_SHARE
    for other in networks.others(machines):
        if time.monotonic() > end:
            perf.skipped.append(f"TCP over {other.network}: no time left")
            wires.append(other)
        else:
            wires.append(_measured(perf.context, other, nodes, wire))
    best = networks.faster(now, wires)
    if best is not None:
        now = max(now, wire_rate(perf.context, perf.nodes, wire) or 0.0)
        again = _measured(perf.context, best, nodes, wire)
        wires[wires.index(best)] = min(best, again, key=lambda measured: measured.rate or 0.0)
    return now, tuple(wires)


def _measured(context: Context, other: Wire, nodes: Sequence[Node], wire: WireRates) -> Wire:
    addresses = dict(other.addresses)
    nodes = [replace(node, address=addresses[node.name]) for node in nodes]
    try:
        rate = _slowest(context, nodes, wire, f"TCP over {other.network}, which is not in use")
    except (StepError, HostsFailed) as error:
        failure = str(error.failures[0] if isinstance(error, HostsFailed) else error)
        return replace(other, rate=None, failure=failure)
    return replace(other, rate=rate)


def another_network(
    context: Context,
    file: TunedFile,
    machines: Sequence[Machine],
    tcp: float | None,
    wires: Sequence[Wire],
    *,
    horovod: bool,
) -> tuple[bool, Tuning]:
    """Return whether the cluster should move to another network, with the setting and advice for it."""
    advice = tuple(networks.failures(wires))
    better = networks.faster(tcp, wires)
    if better is None or tcp is None:
        return False, Tuning(advice=advice)
    hindered = networks.overridden(better, tcp, context.inventory.hosts) or networks.elsewhere(
        better, tcp, file=file.network, in_force=context.spec.network
    )
    if hindered:
        return False, Tuning(advice=(*advice, hindered))
    setting = networks.setting(better, tcp, machines)
    if file.split([setting])[1]:
        # The user's network stays, so tune MPI for it.
        return False, Tuning(settings=(setting,), advice=advice)
    return True, Tuning(settings=(setting,), advice=(*advice, networks.afterwards(better, horovod=horovod)))
