"""The rules of kit tune for mpirun, binding and threads: from facts and measurements to settings with their reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kit.model.tune import Candidate, Machine, Setting, Timing, Tried, Tuning

MIB = 1 << 20
# Algorithms differ where the wire is what takes time. From this size on that is so on all but the fastest.
TELLING = 8 * MIB
# A gain below that is not worth a line in a file, however sure it is.
LEAST_GAIN = 0.03
# From here on the processing of packets of 1500 bytes costs a core.
JUMBO_MBIT = 10_000

_TCP = (("btl_tcp_flags", "send,inplace"),)
_SEND = (
    "both directions of a link at once: as Open MPI comes, a message goes as one piece, and what the other side has to "
    "say waits behind it on the same connection"
)
_LINKS = "two connections to each peer, so that one that TCP slows for a moment does not hold up the whole ring"
_RING = (
    "a ring sends each byte over each link as few times as can be, and all links carry at once; for large messages "
    "alone, as its many steps cost small ones more than it gains"
)
# In kit's image. Open MPI asks this file before it asks coll_tuned_allreduce_algorithm.
RULES = "/opt/kit/lib/allreduce-ring.conf"
_FILE, _FORCED = "coll_tuned_dynamic_rules_filename", "coll_tuned_allreduce_algorithm"
_RULES = (("coll_tuned_use_dynamic_rules", "1"), (_FILE, RULES))
# Never _TCP together with btl_tcp_links: Open MPI 4.1.4 then stalls for good in some all-gathers of 8 ranks.
# Simple ones first: of those that are as good as the best, the first is taken.
CANDIDATES = (
    Candidate(name="default", parameters=(), reason="Open MPI as it comes"),
    Candidate(name="duplex", parameters=_TCP, reason=_SEND),
    Candidate(name="ring", parameters=_RULES, reason=_RING),
    Candidate(name="duplex-ring", parameters=(*_TCP, *_RULES), reason=f"{_RING}; {_SEND}"),
    Candidate(
        name="ring-links",
        parameters=(("btl_tcp_links", "2"), *_RULES),
        reason=f"{_RING}; {_LINKS}",
    ),
)


def candidates(machines: Sequence[Machine]) -> tuple[Candidate, ...]:
    """What is worth trying on these hosts. On one host nothing goes over a wire."""
    return CANDIDATES if len(machines) > 1 else ()


def stalls(parameters: Mapping[str, str]) -> bool:
    """Whether these together may never come to an end (Open MPI 4.1.4)."""
    return "btl_tcp_flags" in parameters and parameters.get("btl_tcp_links", "1") != "1"


def takes_over(parameters: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    """Whether `parameters` would choose an algorithm where a person has: by name, or by rules of their own."""
    return _FILE in parameters and (_FORCED in theirs or _FILE in theirs)


def parameters_of(words: Sequence[str]) -> dict[str, str]:
    """The MCA parameters among mpirun's words."""
    return {
        words[at + 1]: words[at + 2]
        for at, word in enumerate(words[:-2])
        if word in ("--mca", "-mca", "--gmca", "-gmca")
    }


def with_parameters(words: Sequence[str], parameters: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """mpirun's words of a person, and parameters behind them, without those that a person has given a value."""
    known = parameters_of(words)
    added = [word for name, value in parameters if name not in known for word in ("--mca", name, value)]
    return (*words, *added)


def args_text(parameters: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"--mca {name} {value}" for name, value in parameters)


def message_bytes(*, wire: float | None, ranks: int, per_run_s: float, most: int = 64 * MIB) -> int:
    """A size to measure with: the largest power of two of which eight slow all-reduces fit into a run's time."""
    affordable = max(per_run_s - 4.0, 1.0) * _bytes_a_second(wire, ranks)
    return int(min(most, max(MIB, 2 ** math.floor(math.log2(max(affordable, 1.0))))))


def _bytes_a_second(wire: float | None, ranks: int) -> float:
    """By how much a message that fits into a run's time grows with each second of it."""
    # Nothing known of the wire: as slow as they come.
    rate = 0.4 * (wire or 12.5e6)
    return rate * ranks / (2 * max(ranks - 1, 1)) / 8


def more_time(chosen: Tried, *, wire: float | None, ranks: int, runs: int) -> str | None:
    """What to say where nothing gained, and the time allowed only messages smaller than gradients travel in."""
    if wire is None or chosen.parameters or chosen.timing is None or chosen.timing.bytes >= TELLING:
        return None
    minutes = math.ceil(runs * (TELLING / _bytes_a_second(wire, ranks) + 4.0) / 60)
    return (
        f"no algorithm gained with messages of {chosen.timing.bytes // MIB} MB, the largest that the time allowed; "
        f"gradients travel in larger ones: kit tune --minutes {minutes} measures with {TELLING // MIB} MB"
    )


def better(before: Timing, after: Timing) -> bool:
    """Whether the gain is real: more than LEAST_GAIN, and more than both measurements' noise together."""
    gain = before.median - after.median
    return gain > LEAST_GAIN * before.median and gain > before.noise + after.noise


def best(current: Tried, tried: Sequence[Tried]) -> Tried:
    """The first of `tried` (simple ones come first) that is as good as the fastest; `current` where none gains."""
    if current.timing is None:
        measured = [each for each in tried if each.timing is not None]
    else:
        measured = [each for each in tried if each.timing is not None and better(current.timing, each.timing)]
    if not measured:
        return current
    fastest = min(measured, key=lambda each: each.timing.median if each.timing else math.inf)
    return next(
        each
        for each in measured
        if each.timing is None or fastest.timing is None or not better(each.timing, fastest.timing)
    )


def mpi_setting(current: Tried, chosen: Tried) -> Setting | None:
    """mpi.args for the candidate that was chosen; None where the current words stay."""
    if chosen.parameters == current.parameters or chosen.timing is None:
        return None
    reason = next((each.reason for each in CANDIDATES if each.parameters == chosen.parameters), chosen.name)
    size = f"{chosen.timing.bytes // MIB} MB"
    if current.timing is None:
        gained = f"an all-reduce of {size} takes {chosen.timing.median:.3f} s, and failed before"
    else:
        gained = (
            f"an all-reduce of {size} on {chosen.timing.ranks} ranks took {current.timing.median:.3f} s "
            f"+-{current.timing.noise:.3f}, now {chosen.timing.median:.3f} s +-{chosen.timing.noise:.3f}"
        )
    return Setting(
        path="mpi.args",
        value=args_text(chosen.parameters),
        reason=f"{gained}. {reason[0].upper()}{reason[1:]}",
        acts="run",
    )


def by_facts(machines: Sequence[Machine]) -> Tuning:
    """Binding, threads, and what to say about NICs, MTU and GPUs: what needs no measurement."""
    return Tuning(
        settings=(*_binding(machines), *_threads(machines)), advice=(*_wire_advice(machines), *_gpu_advice(machines))
    )


def _binding(machines: Sequence[Machine]) -> list[Setting]:
    """A rank that stays on its socket keeps its memory there. Only where every socket gets the same number of ranks."""
    for name, places in (("numa", [m.numa for m in machines]), ("socket", [m.sockets for m in machines])):
        sockets = [m.sockets for m in machines]
        if name == "numa" and places == sockets:
            continue
        even = all(
            m.slots % place == 0 and m.slots <= (m.cores or m.threads)
            for m, place in zip(machines, places, strict=True)
        )
        if min(places) > 1 and even:
            word = "NUMA node" if name == "numa" else "socket"
            each = f"{machines[0].slots // places[0]} of {machines[0].slots} ranks"
            reason = f"each host has {_range(places)} {word}s ({each} to each): a rank that wanders leaves its memory"
            return [Setting(path="mpi.bind_to", value=name, reason=reason, acts="run")]
    return []


def _threads(machines: Sequence[Machine]) -> list[Setting]:
    """Ranks of a host share its cores. A framework that is told nothing starts a thread for every core in each rank."""
    if max(m.slots for m in machines) < 2:
        return []
    share = max(1, min((m.cores or m.threads) // m.slots for m in machines))
    cores = _range([m.cores or m.threads for m in machines])
    reason = f"{cores} physical cores shared by {_range([m.slots for m in machines])} ranks of a host"
    inter = max(1, min(share, *(m.sockets for m in machines)))
    return [
        Setting(
            path="env.OMP_NUM_THREADS",
            value=str(share),
            reason=f"{reason}; MXNet, OpenBLAS and oneDNN go by it",
            acts="deploy",
        ),
        Setting(
            path="env.TF_NUM_INTRAOP_THREADS",
            value=str(share),
            reason=f"{reason}; TensorFlow goes by it",
            acts="deploy",
        ),
        Setting(
            path="env.TF_NUM_INTEROP_THREADS",
            value=str(inter),
            reason="operations at a time: the sockets that a rank has",
            acts="deploy",
        ),
    ]


def _wire_advice(machines: Sequence[Machine]) -> list[str]:
    found = []
    told = [m.nic_mbit for m in machines if m.nic_mbit]
    if len(machines) > 1 and told and min(told) != max(told):
        slow = [m.name for m in machines if m.nic_mbit == min(told)]
        found.append(
            f"{', '.join(slow)}: a NIC of {min(told)} Mbit/s where others have {max(told)}: all wait for the slowest"
        )
    mtus = {m.mtu for m in machines if m.mtu}
    if len(mtus) > 1:
        found.append(
            f"hosts differ in MTU ({', '.join(map(str, sorted(mtus)))}): large packets may vanish between them"
        )
    elif mtus and max(mtus) < 9000 and told and min(told) > JUMBO_MBIT:
        found.append(
            f"MTU {max(mtus)} on links of {min(told)} Mbit/s: jumbo frames (MTU 9000, on every switch between too) "
            "cost the cores less"
        )
    slow = [m.name for m in machines if m.congestion == "bbr"]
    if len(machines) > 1 and slow:
        found.append(
            f"TCP's congestion control is bbr on {len(slow)} of {len(machines)} hosts: an all-reduce waits at every "
            "step for the link that bbr slows just then. Compare with cubic: sysctl net.ipv4.tcp_congestion_control"
        )
    return found


def _gpu_advice(machines: Sequence[Machine]) -> list[str]:
    if not all(m.gpus for m in machines):
        return []
    links = {link for m in machines for link in m.gpu_links}
    found = [
        "GPUs: their tensors go by NCCL, and mpi.args acts on the hosts' memory alone. NCCL chooses for itself; "
        "measure it with: kit run -- mpi_perf --through nccl"
    ]
    nvlink = any(link.startswith("NV") for link in links)
    if len(machines) > 1 and nvlink and min(len(m.gpus) for m in machines) > 1:
        found.append(
            "GPUs of a host are joined by NVLink, which is faster than the wire between hosts: try "
            "HOROVOD_HIERARCHICAL_ALLREDUCE=1"
        )
    if len(machines) >= 1 and "SYS" in links:
        found.append("some GPUs reach each other across sockets (SYS): mpi.bind_to: socket keeps ranks near theirs")
    return found


def _range(values: Sequence[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"
