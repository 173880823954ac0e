"""One examination of the ways between hosts, by a probe on each: ports, packets, names, clocks, round trips, rates."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct

from kit.errors import KitError, StepError
from kit.events import HostStep
from kit.flows.context import Context
from kit.model.doctor import Pairing, PairSeen, Port
from kit.model.host import Host
from kit.plan.cluster import network
from kit.plan.doctor import links, rounds
from kit.plan.doctor.ports import spans
from kit.remote.doctor import answers
from kit.remote.doctor.probes import Order, Probes, Read

T = TypeVar("T")

TASK = "pairs"
# How long a connection may take, and how long a stream lasts, in seconds.
CONNECT_S, STREAM_S = 2.0, 0.3
# A suspect is measured again for longer, and then, if there are few, with nothing else at the same time.
AGAIN_S = 0.6
MOST_ALONE, MOST_ROUNDS = 8, 16
# No further round of suspects begins after this time, and no further suspect alone: many mean that the hosts are busy.
AGAIN_ROUNDS_S, AGAIN_MOST_S = 6.0, 12.0
# Added to the time of a measurement: a busy host.
PATIENCE_S = 30.0
# A probe ends without an order for two minutes. One that is only measured by others gets one after this time.
STAY_S = 30.0
# How many connections a probe tries at the same time.
_WIDTH = 400


class Target(Struct, kw_only=True):
    """A host that can be measured: its address in the cluster's network, its own name, and where its probe listens."""

    address: str
    mtu: int
    name: str
    ports: tuple[int, ...] = ()
    control: int = 0
    packets: int = 0


class Pair(Struct):
    """What is known so far from one host to another."""

    ports: tuple[Port, ...] = ()
    mtu: int | None = None
    local: int | None = None
    rtt_s: float | None = None
    clock_s: float | None = None
    clock_error_s: float | None = None
    rate: float | None = None
    # What the calmest of these measurements says, and the part of its time that was a wait for a core.
    possible: float | None = None
    waited: float = math.inf
    # Whether both ends had a core in one of the measurements: enough for a rate, and at once for a round trip.
    fed: bool = False
    calm: bool = False
    resolved: tuple[str, ...] = ()
    ssh: str | None = None

    def learn(self, rtt_s: float, clock_s: float, flow: answers.Flow) -> None:
        """Take over a measurement, where it is better than the earlier ones."""
        if self.rtt_s is None or rtt_s < self.rtt_s:
            self.rtt_s, self.clock_s, self.clock_error_s = rtt_s, clock_s, rtt_s / 2
        self.rate = max(self.rate or 0.0, flow.rate)
        if flow.waited < self.waited:
            self.waited, self.possible = flow.waited, flow.possible
        self.fed = self.fed or not flow.starved
        self.calm = self.calm or not flow.busy


class Examination:
    """The steps of one examination, in their order. Each asks all probes at once."""

    def __init__(self, context: Context, probes: Probes, hosts: Sequence[Host], pairing: Pairing) -> None:
        self._context, self._probes, self._pairing = context, probes, pairing
        self._hosts = {host.name: host for host in hosts}
        self.targets: dict[str, Target] = {}
        self.seen: dict[rounds.Pair, Pair] = {}
        self.unsure: list[rounds.Pair] = []

    def run(self) -> None:
        """Do all steps. The results are in `targets`, `seen` and `unsure`."""
        self._step("starting a probe on each host", 0.0)
        self._greet()
        self._listen()
        names_of = [name for name in self._probes.alive if name in self.targets]
        self.seen = {pair: Pair() for pair in rounds.directions(names_of, self._pairing)}
        self._step("connecting all ports", 0.2)
        self._reach(again=False)
        self._reach(again=True)
        self._ask({name: {"do": "close"} for name in self._alive()}, lambda _line: None)
        self._step("finding the largest packet", 0.3)
        self._packets(list(self.seen))
        self._packets([pair for pair, one in self.seen.items() if one.mtu is None or one.mtu < (one.local or 0)])
        planned = rounds.rounds(self._alive(), self._pairing)
        for number, pairs in enumerate(planned, 1):
            text = f"measuring rates, round {number} of {len(planned)}"
            self._step(text, 0.4 + 0.5 * number / (len(planned) + 1))
            self._measure(pairs, STREAM_S)
        self._again()

    def _alive(self) -> list[str]:
        return [name for name in self._probes.alive if name in self.targets]

    def _step(self, text: str, fraction: float) -> None:
        self._context.reporter.report(HostStep(host=TASK, text=text, fraction=fraction))

    def _ask(self, orders: Mapping[str, Order], read: Read[T], *, within_s: float = 0.0) -> dict[str, T]:
        return self._probes.ask(orders, read, within_s=within_s + PATIENCE_S)

    def _greet(self) -> None:
        """Choose each host's address in the cluster's network, as a deploy does."""
        used: dict[str, str] = {}
        for name, hello in self._probes.greet(answers.hello).items():
            try:
                address, interface = _address(self._hosts[name], hello, self._context.spec.network)
            except KitError as error:
                self._probes.fail(name, error)
                continue
            if address in used:
                twice = StepError(
                    f"its address in the cluster's network, {address}, is also that of {used[address]}",
                    hint="write each VM once into the hosts file, with another address: internal=ADDRESS",
                    host=name,
                )
                self._probes.fail(name, twice)
                continue
            used[address] = name
            self.targets[name] = Target(address=address, mtu=hello.mtus.get(interface, 0), name=hello.name)

    def _listen(self) -> None:
        wanted = [[span.first, span.last, span.taken] for span in spans(self._context.spec)]
        orders = {
            name: {"do": "listen", "address": self.targets[name].address, "ports": wanted} for name in self._alive()
        }
        for name, answer in self._ask(orders, partial(answers.listening, spans=len(wanted))).items():
            target = self.targets[name]
            # Where a range has no free port, a host cannot listen, whatever the network does.
            target.ports = (*(port for port, fault in answer.ports if not fault), answer.control)
            target.control, target.packets = answer.control, answer.packets

    def _reach(self, *, again: bool) -> None:
        """Connect every source with all ports of its targets, and ask for the targets' names. `again`: what failed."""
        orders: dict[str, Order] = {}
        endpoints: dict[str, list[tuple[str, int]]] = {}
        named: dict[str, list[str]] = {}
        for (source, target), pair in self.seen.items():
            wanted = [port.number for port in pair.ports if not port.open] if again else self.targets[target].ports
            endpoints.setdefault(source, []).extend((target, port) for port in wanted)
            if not again and self.targets[target].name:
                named.setdefault(source, []).append(target)
        for source in self._alive():
            if endpoints.get(source):
                orders[source] = {
                    "do": "reach",
                    "targets": [(self.targets[target].address, port) for target, port in endpoints[source]],
                    "names": [self.targets[target].name for target in named.get(source, ())],
                    "seconds": CONNECT_S,
                }
        counts = {source: (len(endpoints[source]), len(named.get(source, ()))) for source in orders}
        read = {
            source: partial(answers.reached, targets=targets, names=names)
            for source, (targets, names) in counts.items()
        }
        longest = max((count for count, _ in counts.values()), default=0) / _WIDTH * CONNECT_S
        for source, answer in self._ask(orders, read, within_s=longest).items():
            for (target, number), fault in zip(endpoints[source], answer.faults, strict=True):
                pair = self.seen[source, target]
                others = tuple(port for port in pair.ports if port.number != number)
                pair.ports = (*others, Port(number=number, open=not fault, fault=fault))
            for target, addresses in zip(named.get(source, ()), answer.names, strict=not again):
                self.seen[source, target].resolved = addresses or ()

    def _packets(self, pairs: Sequence[rounds.Pair]) -> None:
        by_source: dict[str, list[str]] = {}
        for source, target in pairs:
            by_source.setdefault(source, []).append(target)
        alive = set(self._alive())
        orders = {
            source: {
                "do": "packets",
                "targets": [(self.targets[target].address, self.targets[target].packets) for target in of_source],
                "mtu": self.targets[source].mtu,
            }
            for source, of_source in by_source.items()
            if source in alive
        }
        read = {source: partial(answers.packets, targets=len(by_source[source])) for source in orders}
        for source, answer in self._ask(orders, read).items():
            for target, largest in zip(by_source[source], answer.largest, strict=True):
                pair = self.seen[source, target]
                pair.local = answer.local
                # A lost packet is not the path's fault: the larger result counts.
                pair.mtu = max(pair.mtu or 0, largest or 0) or None

    def _measure(self, pairs: Sequence[rounds.Pair], seconds: float) -> None:
        """Measure links at the same time. Either end may begin: a firewall may let in only one of them."""
        self._ask({name: {"do": "stay"} for name in self._probes.idle(STAY_S)}, lambda _line: None)
        alive = set(self._alive())
        ends: dict[str, str] = {}
        for one, other in pairs:
            if one in alive and other in alive:
                source, target = (one, other) if self._opens(one, other) else (other, one)
                if self._opens(source, target):
                    ends[source] = target
        orders = {
            source: {
                "do": "measure",
                "target": (self.targets[target].address, self.targets[target].control),
                "seconds": seconds,
            }
            for source, target in ends.items()
        }
        for source, answer in self._ask(orders, answers.measured, within_s=2 * seconds).items():
            target = ends[source]
            there, back = self.seen[source, target], self.seen[target, source]
            if isinstance(answer, str):
                # It was open a moment ago, and says now that it is another program, or nothing at all.
                port = Port(number=self.targets[target].control, open=False, fault=answer)
                there.ports = (*(one for one in there.ports if one.number != port.number), port)
                continue
            there.learn(answer.rtt_s, answer.clock_s, answer.there)
            back.learn(answer.rtt_s, -answer.clock_s, answer.back)

    def _opens(self, source: str, target: str) -> bool:
        control = self.targets[target].control
        return any(port.open for port in self.seen[source, target].ports if port.number == control)

    def _again(self) -> None:
        """Measure once more what a check would report, and forget what the hosts' own load explains."""
        # Where most hosts are busy, another measurement of them would be disturbed, too.
        rated = [way for way in self.seen.values() if way.rate is not None]
        disturbed = sum(not way.fed for way in rated) > len(rated) / 2
        worth = [
            (one, other)
            for one, other in self._suspects()
            if not disturbed or self.seen[one, other].fed or self.seen[other, one].fed
        ]
        again = rounds.disjoint(worth)[:MOST_ROUNDS]
        start = time.monotonic()
        done: set[rounds.Pair] = set()
        for number, pairs in enumerate(again, 1):
            if time.monotonic() > start + AGAIN_ROUNDS_S:
                break
            self._step(f"measuring slow links again, round {number} of {len(again)}", 0.9)
            self._measure(pairs, AGAIN_S)
            done.update(pairs)
        left = [pair for pair in self._suspects() if pair in done]
        for pair in left if len(left) <= MOST_ALONE and time.monotonic() < start + AGAIN_MOST_S else ():
            self._step(f"measuring {pair[0]} and {pair[1]} again, alone", 0.95)
            self._measure([pair], AGAIN_S)
        for one, other in self._suspects():
            ways = (self.seen[one, other], self.seen[other, one])
            known = [(way.rate, way.rtt_s) for way in ways]
            for way in ways:
                if not way.fed or (one, other) not in done:
                    way.rate = way.possible = None
                if not way.calm or (one, other) not in done:
                    way.rtt_s = None
            if [(way.rate, way.rtt_s) for way in ways] != known:
                self.unsure.append((one, other))

    def _suspects(self) -> tuple[rounds.Pair, ...]:
        return links.suspects(
            [
                PairSeen(
                    source=source, target=target, address="", rate=pair.rate, possible=pair.possible, rtt_s=pair.rtt_s
                )
                for (source, target), pair in self.seen.items()
            ]
        )


def _address(host: Host, hello: answers.Hello, wanted: str) -> tuple[str, str]:
    """Return the host's address in the cluster's network, and its interface, or "" if kit cannot see it."""
    try:
        interface = network.pick_interface_of(host, hello.interfaces, hello.route, wanted)
    except StepError:
        address = network.from_inventory(host)
        if not network.is_address(address):
            raise
        return address, ""
    return network.address_of(interface), interface.name
