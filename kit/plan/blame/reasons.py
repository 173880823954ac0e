"""Decides why a rank is late, from what its host and its process did. Pure.

Each reason explains some part of the time that the others lose: the excess of the late rank over the other ranks. The
one that explains most is named. The time in which a rank is ready and has no core, for example, is such a part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

from msgspec import Struct

from kit.model.blame import Gpu, HostInterval, Other, RankShares, Reason, Watched
from kit.model.pretended import marked
from kit.plan.blame.lateness import Late

# A reason must explain this part of what the others lose, and this share of the time.
LEAST_PART, LEAST_SHARE = 0.25, 0.03
# A GPU whose clock is lower than this part of that of others of its model does less work.
CLOCK = 0.93
# What nvidia-smi calls a reason, and is not a fault: nothing to do, or a clock that somebody chose for all.
_HARMLESS = frozenset({"gpu_idle", "applications_clocks_setting", "sync_boost", "display_clock_setting"})
# More than any machine has.
MOST_CORES = 65536
# Another process that uses less of a core is not named.
LEAST_OTHER = 0.05


class Cause(Struct, frozen=True, kw_only=True):
    """A reason, the share of the time that it explains, its evidence, and what to do."""

    reason: Reason
    share: float
    evidence: tuple[str, ...]
    fix: str


class _Means(Struct, frozen=True, kw_only=True):
    """What a rank did in the whole time, as shares of it; see RankShares. `steal` is its host's."""

    cpu: float
    delay: float
    throttled: float
    disk: float
    asleep: float
    workers: float
    steal: float
    gpu: float
    waiting: float

    @property
    def active(self) -> float:
        return max(0.0, 1 - self.asleep)

    @property
    def coreless(self) -> float:
        """The share in which it was ready and had no core, without the time that its cgroup took."""
        delay = max(0.0, self.delay - self.throttled)
        return self.active * delay / (self.cpu + delay) if delay > 0 else 0.0

    @property
    def limited(self) -> float:
        return min(1.0, self.throttled)

    @property
    def stolen(self) -> float:
        return self.active * self.steal

    @property
    def idle(self) -> float:
        """The share in which it neither computed nor waited for a core, a disk, a GPU or other ranks.

        It means something only beside that of other ranks. Operations, and GPUs for which a rank spins, count on both.
        """
        return self.asleep - self.disk - self.waiting - self.gpu

    @property
    def slept(self) -> float:
        """The share in which it slept and waited for no disk and no other rank. It cannot have been idle for longer."""
        return max(0.0, self.asleep - self.disk - self.waiting)


def cause(watched: Watched, late: Late, waiting: Mapping[int, float]) -> Cause:
    """Return why these ranks are late. `waiting` is the share in which each rank waited for others."""
    own = [_means(watched, rank, waiting) for rank in late.ranks]
    others = [_means(watched, rank, waiting) for rank in waiting if rank not in late.ranks]

    def excess(of: Callable[[_Means], float]) -> float:
        return fmean(of(one) for one in own) - (median(of(one) for one in others) if others else 0.0)

    gpu = _throttled_gpu(watched, late)
    causes = [
        *([gpu] if gpu else []),
        _cgroup(excess(lambda one: one.limited)),
        _steal(excess(lambda one: one.stolen), fmean(one.steal for one in own), late.host),
        _core(excess(lambda one: one.coreless), watched, late),
        _disk(excess(lambda one: one.disk), late.host),
        _loader(min(excess(lambda one: one.idle), fmean(one.slept for one in own)), fmean(one.workers for one in own)),
    ]
    causes = [one for one in causes if one.share >= max(LEAST_SHARE, LEAST_PART * late.share)]
    if not causes:
        return _own_work(excess(lambda one: one.active), late)
    # GPUs and cgroups say themselves that they are throttled; other figures follow from that.
    named = next((one for one in causes if one.reason in ("gpu-throttle", "cgroup-throttle")), None)
    return named or max(causes, key=lambda one: one.share)


def _means(watched: Watched, rank: int, waiting: Mapping[int, float]) -> _Means:
    rows = [(i, r) for i in _lengthy(watched) for r in i.ranks if r.rank == rank]
    if not rows:
        return _Means(cpu=0, delay=0, throttled=0, disk=0, asleep=0, workers=0, steal=0, gpu=0, waiting=waiting[rank])

    def mean(of: Callable[[HostInterval, RankShares], float]) -> float:
        return fmean(of(interval, shares) for interval, shares in rows)

    return _Means(
        cpu=mean(lambda _, r: r.cpu),
        delay=mean(lambda _, r: r.delay),
        throttled=mean(lambda _, r: r.throttled),
        disk=mean(lambda _, r: r.disk),
        asleep=mean(lambda _, r: r.asleep),
        workers=mean(lambda _, r: r.workers),
        steal=mean(lambda i, _: i.steal / max(i.busy + i.steal, 1e-9)),
        gpu=mean(lambda i, _: _use(_gpus(i, watched.gpus.get(rank, ())))),
        waiting=waiting[rank],
    )


def _lengthy(watched: Watched) -> list[HostInterval]:
    return [interval for row in watched.hosts.values() for interval in row if interval.seconds > 0]


def _gpus(interval: HostInterval, numbers: Sequence[int]) -> list[Gpu]:
    return [gpu for gpu in interval.gpus or () if gpu.index in numbers]


def _use(gpus: Sequence[Gpu]) -> float:
    return fmean(gpu.use or 0.0 for gpu in gpus) if gpus else 0.0


def _throttled_gpu(watched: Watched, late: Late) -> Cause | None:
    """Return the cause if the late ranks' GPUs say that they are throttled, or have a lower clock than others.

    Clocks are compared only with GPUs of the same model: models differ in their highest clock.
    """
    numbers = {number for rank in late.ranks for number in watched.gpus.get(rank, ())}
    own: list[Gpu] = []
    others: list[Gpu] = []
    for host, intervals in watched.hosts.items():
        for interval in intervals:
            for gpu in interval.gpus or ():
                (own if host == late.host and gpu.index in numbers else others).append(gpu)
    if not own:
        return None
    models = {gpu.name for gpu in own}
    alike = [gpu for gpu in others if gpu.name in models]
    words = sorted({word for gpu in own for word in gpu.throttle} - _HARMLESS)
    usual = {word for word in words if _part(alike or others, word) > 0.5}
    words = [word for word in words if word not in usual and _part(own, word) > 0.5]
    clocks = _clocks(own, alike)
    if not words and (clocks is None or clocks[0] >= CLOCK * clocks[1]):
        return None
    names = ",".join(str(number) for number in sorted({gpu.index for gpu in own}))
    evidence = [f"GPU {names} of {late.host} is throttled: {', '.join(words)}"] if words else []
    if clocks is not None:
        which = "the other GPUs" if len(alike) == len(others) else "the other GPUs of its model"
        evidence.append(f"its SM clock is {clocks[0]:.0f} MHz, and {clocks[1]:.0f} MHz on {which}")
    evidence = [marked(text, [gpu.name for gpu in own]) for text in evidence]
    return Cause(
        reason="gpu-throttle",
        share=late.share,
        evidence=tuple(evidence),
        fix=f"look at its temperature and power: kit ssh {late.host} -- nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
    )


def _part(gpus: Sequence[Gpu], word: str) -> float:
    return sum(word in gpu.throttle for gpu in gpus) / len(gpus) if gpus else 0.0


def _clocks(own: Sequence[Gpu], others: Sequence[Gpu]) -> tuple[float, float] | None:
    """Return the clock of the own GPUs and of others of their model, or None. Of several models, the slowest counts."""
    pairs = []
    for model in {gpu.name for gpu in own}:
        clock, usual = (_clock([gpu for gpu in gpus if gpu.name == model]) for gpus in (own, others))
        if clock and usual:
            pairs.append((clock, usual))
    return min(pairs, key=lambda pair: pair[0] / pair[1], default=None)


def _clock(gpus: Sequence[Gpu]) -> float | None:
    # A GPU with nothing to do lowers its clock, which is no fault.
    clocks = [gpu.sm_clock for gpu in gpus if gpu.sm_clock and "gpu_idle" not in gpu.throttle]
    return median(clocks) if clocks else None


def _cgroup(share: float) -> Cause:
    return Cause(
        reason="cgroup-throttle",
        share=share,
        evidence=(f"the CPU limit of its container stopped it {share:.0%} of the time longer than other ranks",),
        fix="give the ranks more CPU time: raise --cpus of kit run, or the limit of the container or service",
    )


def _steal(share: float, steal: float, host: str) -> Cause:
    return Cause(
        reason="steal",
        share=share,
        evidence=(f"the hypervisor took {steal:.0%} of the time of {host}'s busy cores (steal)",),
        fix=f"ask the cloud for another machine for {host}, or run on the other hosts (-H)",
    )


def _core(share: float, watched: Watched, late: Late) -> Cause:
    evidence = [f"its threads were ready and had no core for {share:.0%} of the time longer than other ranks"]
    others = _others(watched, late)
    evidence += [f"{one.name} (pid {one.pid}) used {one.cpu:.2f} cores, last core {one.core}" for one in others]
    if others:
        fix = f"end or move that process: kit ssh {late.host} -- ps -o pid,user,lstart,args -p {others[0].pid}"
    else:
        fix = f"see what else runs there: kit ssh {late.host} -- top; or start fewer ranks or threads on a host"
    return Cause(reason="busy-core", share=share, evidence=tuple(evidence), fix=fix)


def _others(watched: Watched, late: Late) -> list[Other]:
    """Return the processes that use the cores of the late ranks, the busiest first."""
    intervals = [one for one in watched.hosts[late.host] if one.seconds > 0]
    cores: set[int] = set()
    for shares in (r for one in intervals for r in one.ranks if r.rank in late.ranks):
        cores |= core_numbers(shares.cores)
    rows: dict[int, list[Other]] = {}
    for other in (other for one in intervals for other in one.others):
        if not cores or other.core in cores:
            rows.setdefault(other.pid, []).append(other)
    means = [
        Other(pid=pid, name=row[-1].name, core=row[-1].core, cpu=sum(one.cpu for one in row) / len(intervals))
        for pid, row in rows.items()
    ]
    return sorted((one for one in means if one.cpu >= LEAST_OTHER), key=lambda one: -one.cpu)[:3]


def core_numbers(text: str) -> set[int]:
    """Return the cores of `0-3,8`. Raises ValueError for what is no such list: a host wrote it."""
    numbers: set[int] = set()
    highest = -1
    for part in text.split(",") if text else ():
        words = part.partition("-")
        first, last = int(words[0]), int(words[2] or words[0])
        if last >= MOST_CORES:
            raise ValueError("no machine has that many cores")
        if not highest < first <= last:
            raise ValueError("the kernel writes cores in their order")
        highest = last
        numbers |= set(range(first, last + 1))
    return numbers


def _disk(share: float, host: str) -> Cause:
    return Cause(
        reason="disk",
        share=share,
        evidence=(
            f"it waited for a disk or a network file system for {share:.0%} of the time longer than other ranks",
        ),
        fix=f"see which disk is busy: kit ssh {host} -- cat /proc/diskstats; or stage the data on fast disks: kit data",
    )


def _loader(share: float, workers: float) -> Cause:
    evidence = [f"it slept outside of Horovod for {share:.0%} of the time longer than other ranks, as one that waits"]
    if workers >= LEAST_OTHER:
        evidence.append(f"its loader's processes used {workers:.2f} cores meanwhile")
    return Cause(
        reason="loader",
        share=share,
        evidence=tuple(evidence),
        fix="give its data loader more workers, or put its data on a faster disk of the host: kit data",
    )


def _own_work(share: float, late: Late) -> Cause:
    """Return the cause of a rank that computes longer than the others, with all that it needs, or 'unknown'."""
    if share >= max(LEAST_SHARE, LEAST_PART * late.share):
        return Cause(
            reason="more-work",
            share=share,
            evidence=(f"it computed for {share:.0%} of the time longer than other ranks, and had a core for it",),
            fix="look for uneven batches, work that only this rank does (logs, evaluation), or slower hardware",
        )
    return Cause(
        reason="unknown",
        share=0.0,
        evidence=("nothing on its host explains that",),
        fix=f"compare the hosts: kit doctor; look at the rank: kit ps; kit ssh {late.host} -- top",
    )
