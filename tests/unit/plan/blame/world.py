"""A model of synchronous training: hosts, cores, loaders, links, Horovod, and what the kernel would count meanwhile.

It knows nothing of how kit decides. Time passes as in a real step: a rank takes a batch from its loader, computes
forward and backward on its cores or its GPU, and enqueues one gradient after the other. Horovod's thread looks once a
cycle which gradients all ranks have, and sums those over a ring. The optimizer then ends the step. A fault changes how
fast one of these goes, not what the counters show; the counters follow from what happened.
"""

from __future__ import annotations

import bisect
import itertools
import random
from dataclasses import dataclass, field

from kit.model.blame import Gpu, HostInterval, Other, Peer, RankShares, Readiness, Watched

FAULTS = ("busy-core", "link", "loader", "disk", "gpu-throttle", "steal", "cgroup-throttle")


@dataclass
class Setup:
    """A cluster and a training, drawn from a seed. Times are seconds; `compute` is one rank's step on its own cores."""

    hosts: int
    per_host: int
    gpus: bool
    compute: float
    forward: float
    tensors: int
    size: float
    link: float
    cycle: float
    threads: int
    load: float
    spins: bool
    noise: float
    optimizer: float

    @property
    def ranks(self) -> int:
        return self.hosts * self.per_host


# Three hosts with a rank each, without GPUs.
SETUP = Setup(
    hosts=3,
    per_host=1,
    gpus=False,
    compute=0.2,
    forward=0.33,
    tensors=12,
    size=4e6,
    link=125e6,
    cycle=0.001,
    threads=1,
    load=0.3,
    spins=False,
    noise=0.03,
    optimizer=0.0,
)


@dataclass
class Fault:
    kind: str
    host: int
    rank: int
    strength: float
    # Of a link: also what the host receives is slow, not only what it sends.
    both: bool = False


@dataclass
class Trace:
    """What happened in one rank. Spans are (from, to); moments are of counters of Horovod, after each event."""

    computing: list[tuple[float, float]] = field(default_factory=list)
    loading: list[tuple[float, float]] = field(default_factory=list)
    summing: list[tuple[float, float]] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    counters: list[Readiness] = field(default_factory=list)


def drawn_setup(chance: random.Random, *, gpus: bool | None = None) -> Setup:
    hosts = chance.choice((2, 2, 3, 4, 4, 8))
    compute = chance.uniform(0.06, 0.6)
    link = chance.choice((125e6, 1.25e9, 3.1e9))
    on_gpu = chance.random() < 0.5 if gpus is None else gpus
    return Setup(
        hosts=hosts,
        per_host=chance.choice((1, 1, 2, 4)),
        gpus=on_gpu,
        compute=compute,
        forward=chance.uniform(0.25, 0.4),
        tensors=chance.randint(6, 60),
        # The gradients take 15 to 60 % of the time of computing on the link.
        size=chance.uniform(0.15, 0.6) * compute * link / 2,
        link=link,
        cycle=chance.choice((0.001, 0.001, 0.005)),
        threads=1 if on_gpu else chance.choice((1, 2, 4)),
        load=chance.uniform(0.3, 0.8),
        spins=chance.random() < 0.5,
        noise=chance.uniform(0.01, 0.06),
        optimizer=chance.uniform(0.0, 0.05) * compute,
    )


def drawn_fault(chance: random.Random, kind: str, setup: Setup) -> Fault:
    strengths = {
        "busy-core": (1, 3),  # burners
        "link": (0.1, 0.4),  # of the usual rate
        "loader": (1.3, 2.5),  # seconds of loading for a second of the healthy step
        "disk": (1.3, 2.5),
        "gpu-throttle": (0.5, 0.8),  # of the usual clock
        "steal": (0.25, 0.5),  # of the cores' time
        "cgroup-throttle": (0.4, 0.75),  # of the CPU time that the ranks would use
    }
    low, high = strengths[kind]
    rank = chance.randrange(setup.ranks)
    strength = chance.randint(1, 3) if kind == "busy-core" else chance.uniform(low, high)
    both = kind == "link" and setup.hosts > 2 and chance.random() < 0.5
    return Fault(kind=kind, host=rank // setup.per_host, rank=rank, strength=strength, both=both)


class World:
    """Plays steps until `seconds` have passed."""

    def __init__(self, chance: random.Random, setup: Setup, fault: Fault | None, seconds: float) -> None:
        self.chance, self.setup, self.fault = chance, setup, fault
        self.traces = [Trace() for _ in range(setup.ranks)]
        self._tensors = [0] * setup.ranks
        self._steps = [0] * setup.ranks
        self._sums = [[0.0, 0.0, 0.0, 0.0] for _ in range(setup.ranks)]  # waits, operations, bytes, tails
        self.sent: list[tuple[float, float, float, int]] = []  # from, to, bytes of a host, operation's number
        self._batches = [[0.0, 0.0] for _ in range(setup.ranks)]  # batches are ready at these times
        self._alone = self._step_alone()
        self.now = [chance.uniform(0, 0.01) for _ in range(setup.ranks)]
        self.play(seconds)

    def play(self, seconds: float) -> None:
        """Go on until this moment."""
        while min(self.now) < seconds:
            self._step()

    def hit(self, kind: str, rank: int) -> float | None:
        """Return the strength of the fault if it is of this kind and at this rank, or at its host."""
        fault = self.fault
        if fault is None or fault.kind != kind:
            return None
        whole_host = kind in ("steal", "link", "cgroup-throttle")
        same = rank // self.setup.per_host == fault.host if whole_host else rank == fault.rank
        return fault.strength if same else None

    def slowdown(self, rank: int) -> float:
        """Return how much longer this rank computes by its fault."""
        setup, slower = self.setup, 1.0
        if (burners := self.hit("busy-core", rank)) is not None and not setup.gpus:
            slower *= 1 + burners
        if (stolen := self.hit("steal", rank)) is not None and not setup.gpus:
            slower /= 1 - stolen
        if (part := self.hit("cgroup-throttle", rank)) is not None and not setup.gpus:
            slower /= part
        if (clock := self.hit("gpu-throttle", rank)) is not None:
            slower /= clock
        return slower

    def ring(self) -> float:
        """Return bytes per second of the slowest link of the ring."""
        rate = self.setup.link
        return rate * self.fault.strength if self.fault and self.fault.kind == "link" else rate

    def _step_alone(self) -> float:
        setup = self.setup
        wire = 2 * setup.size * (setup.hosts - 1) / setup.hosts / setup.link
        return setup.compute + max(0.3 * wire, wire - (1 - setup.forward) * setup.compute) + setup.optimizer

    def _computing(self, rank: int) -> float:
        noise = self.chance.lognormvariate(0, self.setup.noise)
        hiccup = 1.3 if self.chance.random() < 0.01 else 1.0
        return self.setup.compute * noise * hiccup * self.slowdown(rank)

    def _step(self) -> None:
        setup, ranks = self.setup, range(self.setup.ranks)
        enqueued: list[list[float]] = []
        for rank in ranks:
            # Two batches wait at most; the loader begins the next one when one is taken.
            ready = self._batches[rank].pop(0)
            start = max(self.now[rank], ready)
            if start > self.now[rank]:
                self.traces[rank].loading.append((self.now[rank], start))
            strength = self.hit("loader", rank) or self.hit("disk", rank) or setup.load
            takes = self._alone * strength * self.chance.lognormvariate(0, 0.1)
            self._batches[rank].append(max(start, self._batches[rank][-1]) + takes)
            length = self._computing(rank)
            self.traces[rank].computing.append((start, start + length))
            back = length * (1 - setup.forward)
            enqueued.append([start + length - back * (1 - (i + 1) / setup.tensors) for i in range(setup.tensors)])
        begun, ended = self._horovod(enqueued)
        for rank in ranks:
            self._count(rank, enqueued[rank], begun, ended)
            self.now[rank] = ended[-1] + setup.optimizer * self.chance.uniform(0.9, 1.1)

    def _horovod(self, enqueued: list[list[float]]) -> tuple[list[float], list[float]]:
        """Return when the operation of each tensor begins and ends: the same moments on all ranks."""
        setup = self.setup
        ready = [max(one[i] for one in enqueued) for i in range(setup.tensors)]
        begun, ended = [0.0] * setup.tensors, [0.0] * setup.tensors
        now, todo = 0.0, 0
        while todo < setup.tensors:
            now = max(now, (ready[todo] // setup.cycle + 1) * setup.cycle)
            first = todo
            while todo < setup.tensors and ready[todo] <= now:
                todo += 1
            size = setup.size * (todo - first) / setup.tensors
            wire = 2 * size * (setup.hosts - 1) / setup.hosts / self.ring()
            took = (wire + 2 * (setup.hosts - 1) * 50e-6) * self.chance.uniform(0.97, 1.15)
            self.sent.append((now, now + took, 2 * size * (setup.hosts - 1) / setup.hosts, len(self.sent)))
            for i in range(first, todo):
                begun[i], ended[i] = now, now + took
            now += took
        return begun, ended

    def _count(self, rank: int, enqueued: list[float], begun: list[float], ended: list[float]) -> None:
        """Count as Horovod does in this rank: at the begin of each operation, and at its end."""
        trace, sums, setup = self.traces[rank], self._sums[rank], self.setup
        self._steps[rank] += 1
        at = 0
        while at < setup.tensors:
            batch = [i for i in range(at, setup.tensors) if begun[i] == begun[at]]
            waiting = [when for when in enqueued if when <= begun[at]]
            self._tensors[rank] += len(batch)
            sums[0] += sum(begun[i] - enqueued[i] for i in batch)
            sums[1] += ended[at] - begun[at]
            sums[2] += setup.size * len(batch) / setup.tensors
            if len(waiting) == batch[-1] + 1:
                sums[3] += begun[at] - max(waiting)
            trace.summing.append((begun[at], ended[at]))
            trace.moments.append(ended[at])
            trace.counters.append(
                Readiness(
                    tensors=self._tensors[rank],
                    wait_us=int(sums[0] * 1e6),
                    op_us=int(sums[1] * 1e6),
                    bytes=int(sums[2]),
                    steps=self._steps[rank],
                    tail_us=int(sums[3] * 1e6),
                )
            )
            at = batch[-1] + 1

    # What one who looks sees.

    def readiness(self, rank: int, moment: float) -> Readiness:
        at = bisect.bisect_right(self.traces[rank].moments, moment)
        return self.traces[rank].counters[at - 1] if at else Readiness(tensors=0, wait_us=0, op_us=0, bytes=0)


def watched(world: World, *, looks: int, every: float = 1.0, first: float = 2.0) -> Watched:
    """Return what a look each `every` seconds shows. Hosts look at slightly different times."""
    setup, chance = world.setup, world.chance
    hosts: dict[str, tuple[HostInterval, ...]] = {}
    decoy = chance.randrange(setup.hosts)
    for host in range(setup.hosts):
        offset = chance.uniform(0, 0.15)
        moments = [first + offset + every * i + chance.uniform(0, 0.03) for i in range(looks + 1)]
        rows = [_interval(world, host, moments[0], moments[0], decoy=False)]
        rows += [_interval(world, host, a, b, decoy=host == decoy) for a, b in itertools.pairwise(moments)]
        hosts[f"gpu{host + 1}"] = tuple(rows)
    return Watched(
        run="20261121-101500-3fa2",
        hosts=hosts,
        addresses={f"gpu{host + 1}": f"10.0.0.{host + 1}" for host in range(setup.hosts)},
        gpus={rank: (rank % setup.per_host,) for rank in range(setup.ranks)} if setup.gpus else {},
    )


def _share(spans: list[tuple[float, float]], start: float, end: float) -> float:
    if end <= start:
        return 0.0
    return sum(max(0.0, min(b, end) - max(a, start)) for a, b in spans if b > start and a < end) / (end - start)


def _looked(chance: random.Random, share: float, seconds: float) -> float:
    """Return a share as ten looks a second see it."""
    count = max(1, round(10 * seconds))
    return sum(chance.random() < share for _ in range(count)) / count


def _ticks(seconds: float) -> float:
    return round(seconds, 2)


def _interval(world: World, host: int, start: float, end: float, *, decoy: bool) -> HostInterval:
    setup, chance, seconds = world.setup, world.chance, end - start
    own = range(host * setup.per_host, (host + 1) * setup.per_host)
    cores = setup.per_host * setup.threads + 2
    if seconds <= 0:
        rows = tuple(_rank(world, rank, start, end) for rank in own)
        return HostInterval(seconds=0.0, cores=cores, ranks=rows)
    ranks = tuple(_rank(world, rank, start, end) for rank in own)
    others = [Other(pid=77, name="node-agent", cpu=chance.uniform(0, 0.06), core=cores - 1)]
    if decoy:
        # Somebody compiles on a core that no rank uses.
        others.append(Other(pid=4321, name="cc1plus", cpu=chance.uniform(0.7, 1.0), core=cores - 1))
    for rank in own:
        if (burners := world.hit("busy-core", rank)) is not None:
            active = _share(world.traces[rank].computing, start, end)
            used = 1 - active / (1 + burners)
            core = (rank % setup.per_host) * setup.threads
            others += [
                Other(pid=900 + i, name="python3", cpu=_ticks(used / burners), core=core) for i in range(int(burners))
            ]
    used = sum(one.cpu for one in ranks) + sum(one.cpu for one in others)
    stolen = world.hit("steal", own[0])
    steal = used / (1 - stolen) * stolen / cores if stolen else chance.uniform(0, 0.003)
    return HostInterval(
        seconds=seconds,
        cores=cores,
        steal=steal,
        iowait=chance.uniform(0, 0.01),
        busy=min(1.0, used / cores),
        ranks=ranks,
        others=tuple(others),
        peers=_peers(world, host, start, end),
        gpus=tuple(_gpu(world, rank, start, end) for rank in own) if setup.gpus else None,
    )


def _rank(world: World, rank: int, start: float, end: float) -> RankShares:
    setup, chance, trace = world.setup, world.chance, world.traces[rank]
    seconds = end - start
    counters = world.readiness(rank, end)
    first = (rank % setup.per_host) * setup.threads
    cores = f"{first}-{first + setup.threads - 1}" if setup.threads > 1 else str(first)
    if seconds <= 0:
        return RankShares(rank=rank, pid=1000 + rank, cores=cores, readiness=counters)
    computing, summing = _share(trace.computing, start, end), _share(trace.summing, start, end)
    loading = _share(trace.loading, start, end)
    delay = throttled = disk = workers = 0.0
    cpu = computing * (setup.threads if not setup.gpus else 1.0 if setup.spins else 0.15)
    if not setup.gpus:
        if (burners := world.hit("busy-core", rank)) is not None:
            # One thread shares its core; the others are done early, and wait for it.
            thread = computing / (1 + burners)
            cpu = setup.threads * thread
            delay = computing - thread
        if (part := world.hit("cgroup-throttle", rank)) is not None:
            cpu *= part
            throttled = computing * (1 - part)
            delay = throttled * (setup.threads if chance.random() < 0.5 else 0.2)
    if world.hit("disk", rank) is not None:
        disk = _looked(chance, loading, seconds)
    elif world.hit("loader", rank) is not None and setup.noise > 0.03:
        workers = loading * chance.uniform(0.8, 1.0)
    else:
        workers = chance.uniform(0, 0.2)
    delay += chance.uniform(0.0, 0.01)
    running = computing if not setup.gpus or setup.spins else 0.2 * computing
    awake = min(1.0, running + (0 if setup.gpus else summing) + chance.uniform(0, 0.02))
    asleep = _looked(chance, 1 - awake, seconds)
    return RankShares(
        rank=rank,
        pid=1000 + rank,
        cpu=_ticks((cpu + workers + (0 if setup.gpus else summing)) * seconds) / seconds,
        delay=delay,
        throttled=throttled,
        disk=disk,
        asleep=asleep,
        workers=workers,
        cores=cores,
        readiness=counters,
    )


def _gpu(world: World, rank: int, start: float, end: float) -> Gpu:
    chance = world.chance
    use = min(1.0, _share(world.traces[rank].computing, start, end) * chance.uniform(0.95, 1.05))
    clock, reasons = 1980.0 - chance.choice((0, 0, 15, 30)), []
    if (part := world.hit("gpu-throttle", rank)) is not None:
        clock, reasons = round(1980 * part / 15) * 15, ["sw_thermal_slowdown"]
    if chance.random() < 0.05:
        reasons.append("sw_power_cap")
    if use < 0.02:
        clock, reasons = 345.0, ["gpu_idle"]
    return Gpu(index=rank % world.setup.per_host, use=use, sm_clock=clock, throttle=tuple(reasons))


def _peers(world: World, host: int, start: float, end: float) -> tuple[Peer, ...]:
    """Return the flow to the next host of the ring. Its bytes are under way for as long as its own link needs."""
    setup, chance, target = world.setup, world.chance, (host + 1) % world.setup.hosts
    fault = world.fault
    slow = fault is not None and fault.kind == "link" and fault.host in ((host, target) if fault.both else (host,))
    rate = setup.link * (fault.strength if fault is not None and slow else 1.0) * chance.uniform(0.75, 1.0)
    sent = 0.0
    for a, b, size, _ in world.sent:
        if b > start and a < end:
            sent += size * (min(b, end) - max(a, start)) / (b - a)
    busy = min(end - start, sent / rate)
    return (Peer(address=f"10.0.0.{target + 1}", sent=int(sent), busy=busy),) if sent > 1 else ()
