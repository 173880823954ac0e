"""kit tune's rules for mpirun, binding and threads: from facts and measurements to settings with reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kit.model import names
from kit.model.text import fold
from kit.model.tune import Candidate, Machine, Setting, Timing, Tried, Tuning
from kit.model.values import replace
from kit.plan.bench.cases import has_horovod
from kit.plan.run.allreduce import LEAST_HOSTS, OWN_CHOICE

MIB = 1 << 20
# Algorithms differ only if the wire is the limit. From this size on, it is on all but the fastest networks.
TELLING = 8 * MIB
# The next measurement of TCP may be a little slower, and --minutes takes no more than this.
MARGIN, MOST_MINUTES = 1.1, 120
# A smaller gain is not worth a line in kit.yaml, however certain it is.
LEAST_GAIN = 0.03
# From this rate on, packets of 1500 bytes keep a core busy.
JUMBO_MBIT = 10_000

_TCP = (("btl_tcp_flags", "send,inplace"),)
_SEND = (
    "both directions of a link at once: by default, Open MPI sends a message as one piece, and the peer's message "
    "waits behind it on the same connection"
)
_LINKS = "two connections to each peer, so that one slow TCP connection does not delay the whole ring"
_RING = (
    "a ring sends each byte over each link the fewest times possible and uses all links at once; only for large "
    "messages, because its many steps cost small ones more than they gain"
)
_OWN = (
    "Open MPI's own choice for all messages: where the cores are the limit and not the links, the ring that kit uses "
    "for large messages costs more than it gains"
)
_NO_BINDING = "kit's default: the hosts have no NUMA nodes that get the same number of ranks each"
_GPU_BINDING = "kit's default: with gpus_per_rank, it binds each rank near its GPU"
# In kit's image. Open MPI reads this file before coll_tuned_allreduce_algorithm.
RULES = f"{names.IMAGE_LIB}/allreduce-ring.conf"
_FILE, _FORCED = "coll_tuned_dynamic_rules_filename", "coll_tuned_allreduce_algorithm"
_USED = "coll_tuned_use_dynamic_rules"
_RULES = ((_USED, "1"), (_FILE, RULES))
# Never combine _TCP with btl_tcp_links: Open MPI 4.1.4 then hangs in some all-gathers of 8 ranks.
# Simple ones come first: kit takes the first of those that are as good as the best.
CANDIDATES = (
    Candidate(name="default", parameters=(), reason="kit's defaults"),
    Candidate(name="openmpi", parameters=OWN_CHOICE, reason=_OWN),
    Candidate(name="duplex", parameters=_TCP, reason=_SEND),
    Candidate(name="ring", parameters=_RULES, reason=_RING),
    Candidate(name="duplex-ring", parameters=(*_TCP, *_RULES), reason=f"{_RING}; {_SEND}"),
    Candidate(
        name="ring-links",
        parameters=(("btl_tcp_links", "2"), *_RULES),
        reason=f"{_RING}; {_LINKS}",
    ),
)


def candidates(machines: Sequence[Machine], *, allreduce: str = "auto") -> tuple[Candidate, ...]:
    """Return the candidates that are worth a try on these hosts, with this `mpi.allreduce` of kit.yaml.

    A single host has no wire to tune.
    """
    # There, kit's default is Open MPI's own choice: the same twice would differ by the noise alone.
    same = len(machines) < LEAST_HOSTS or allreduce == "openmpi"
    return tuple(one for one in CANDIDATES if not (same and one.name == "openmpi")) if len(machines) > 1 else ()


def stalls(parameters: Mapping[str, str]) -> bool:
    """Return whether this combination may hang (Open MPI 4.1.4)."""
    return "btl_tcp_flags" in parameters and parameters.get("btl_tcp_links", "1") != "1"


def takes_over(parameters: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    """Return whether the user chose an algorithm that `parameters` would replace, or that makes them do nothing.

    The user chooses by name, by a rules file, or by turning rules off.
    """
    chosen = _FORCED in theirs or _FILE in theirs or theirs.get(_USED) == "0"
    return (_FILE in parameters or _USED in parameters) and chosen


def parameters_of(words: Sequence[str]) -> dict[str, str]:
    """Return the MCA parameters among mpirun's arguments."""
    return {
        words[at + 1]: words[at + 2]
        for at, word in enumerate(words[:-2])
        if word in ("--mca", "-mca", "--gmca", "-gmca")
    }


def with_parameters(words: Sequence[str], parameters: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the user's mpirun arguments plus those `parameters` that the user has not set."""
    known = parameters_of(words)
    added = [word for name, value in parameters if name not in known for word in ("--mca", name, value)]
    return (*words, *added)


def without_candidates(words: Sequence[str]) -> tuple[str, ...]:
    """Return mpirun's arguments without the parameters that kit tune adds: what the user wrote of them."""
    own = {("--mca", name, value) for candidate in CANDIDATES for name, value in candidate.parameters}
    left, at = [], 0
    while at < len(words):
        if tuple(words[at : at + 3]) in own:
            at += 3
        else:
            left.append(words[at])
            at += 1
    return tuple(left)


def args_text(parameters: Sequence[tuple[str, str]]) -> str:
    return " ".join(f"--mca {name} {value}" for name, value in parameters)


def message_bytes(*, wire: float | None, ranks: int, per_run_s: float, most: int = 64 * MIB) -> int:
    """Return the message size to measure with: the largest power of two such that eight slow all-reduces fit a run."""
    affordable = max(per_run_s - 4.0, 1.0) * _bytes_a_second(wire, ranks)
    return int(min(most, max(MIB, 2 ** math.floor(math.log2(max(affordable, 1.0))))))


def _bytes_a_second(wire: float | None, ranks: int) -> float:
    """Return how many more message bytes each second of a run allows."""
    # If the wire's rate is unknown, assume a slow one: 100 Mbit/s.
    rate = 0.4 * (wire or 12.5e6)
    return rate * ranks / (2 * max(ranks - 1, 1)) / 8


def more_time(current: Tried, *, wire: float | None, ranks: int, runs: int, spent_s: float) -> str | None:
    """Return advice for when nothing gained because the time allowed only small messages, else None.

    `spent_s` are the seconds before the first of these `runs`, for TCP.
    """
    if wire is None or current.timing is None or current.timing.bytes >= TELLING:
        return None
    per_run_s = MARGIN * TELLING / _bytes_a_second(wire, ranks) + 4.0
    minutes = math.ceil((MARGIN * spent_s + runs * per_run_s) / 60)
    if minutes > MOST_MINUTES:
        return None
    return (
        f"no algorithm gained with messages of {current.timing.bytes // MIB} MB, the largest that the time allowed, "
        f"but gradients use larger ones: kit tune --minutes {minutes} measures with {TELLING // MIB} MB"
    )


def better(before: Timing, after: Timing) -> bool:
    """Return whether the gain is real: more than LEAST_GAIN, and more than the noise of both measurements together."""
    gain = before.median - after.median
    return gain > LEAST_GAIN * before.median and gain > before.noise + after.noise


def best(current: Tried, tried: Sequence[Tried]) -> Tried:
    """Return the first of `tried` (simple ones first) that is as good as the fastest, or `current` if none gains."""
    measured = [
        trial
        for trial in tried
        if trial.timing is not None and (current.timing is None or better(current.timing, trial.timing))
    ]
    if not measured:
        return current
    fastest = min(measured, key=lambda trial: trial.timing.median if trial.timing else math.inf)
    return next(
        trial
        for trial in measured
        if trial.timing is None or fastest.timing is None or not better(trial.timing, fastest.timing)
    )


def mpi_setting(current: Tried, chosen: Tried) -> Setting | None:
    """Return the `mpi.args` setting for the chosen candidate, or None if the current arguments stay."""
    if chosen.parameters == current.parameters or chosen.timing is None:
        return None
    reason = next((c.reason for c in CANDIDATES if c.parameters == chosen.parameters), chosen.name)
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


def by_facts(machines: Sequence[Machine], frameworks: Sequence[str] = (), *, cpus: float | None = None) -> Tuning:
    """Return what needs no measurement: binding, threads, and advice about NICs, MTU and GPUs.

    `frameworks` are those of the image. They are empty if they are not known. `cpus` limits what the ranks of a host
    can use at once (`cpus:` in kit.yaml).
    """
    binding = _binding(machines)
    threads = _threads(machines, tensorflow=not frameworks or "tensorflow" in frameworks, cpus=cpus)
    return Tuning(
        settings=(*binding.settings, *threads.settings),
        defaults=(*binding.defaults, *threads.defaults),
        advice=(*_wire_advice(machines), *_gpu_advice(machines, horovod=has_horovod(frameworks), cpus=cpus)),
    )


def _cores(machine: Machine, cpus: float | None) -> int:
    """Return how many cores the ranks of the host can use at once, or 0 if that is not known."""
    cores = machine.cores or machine.threads
    return cores if cpus is None else min(cores, max(1, int(cpus)))


def _binding(machines: Sequence[Machine]) -> Tuning:
    """Bind ranks to sockets or NUMA nodes, near their memory. Only if each one gets the same number of ranks.

    Not on hosts with GPUs: mpirun does not choose a socket by the GPU, and kit-rank then binds no rank near its own.
    """
    default = Setting(path="mpi.bind_to", value="auto", reason=_NO_BINDING, acts="run")
    if any(m.gpus for m in machines):
        return Tuning(defaults=(replace(default, reason=_GPU_BINDING),))
    for name, places in (("numa", [m.numa for m in machines]), ("socket", [m.sockets for m in machines])):
        sockets = [m.sockets for m in machines]
        if name == "numa" and places == sockets:
            continue
        even = all(
            m.slots % place == 0 and m.slots <= (m.cores or m.threads)
            for m, place in zip(machines, places, strict=True)
        )
        # Sockets without NUMA nodes are those that a hypervisor invents: all memory is equally near.
        if min(places) > 1 and even and min(m.numa for m in machines) > 1:
            word = "NUMA node" if name == "numa" else "socket"
            share = f"{machines[0].slots // places[0]} of {machines[0].slots} ranks"
            reason = f"each host has {_range(places)} {word}s ({share} each): a rank that moves away leaves its memory"
            return Tuning(settings=(Setting(path="mpi.bind_to", value=name, reason=reason, acts="run"),))
    return Tuning(defaults=(default,))


def _threads(machines: Sequence[Machine], *, tensorflow: bool, cpus: float | None) -> Tuning:
    """Divide a host's cores among its ranks. By default, each rank of a framework starts a thread for every core."""
    usable = [_cores(m, cpus) for m in machines]
    # A rank that is alone also starts more threads than it may use, because it does not know of the limit.
    limited = cpus is not None and any(few < (m.cores or m.threads) for few, m in zip(usable, machines, strict=True))
    alone = max(m.slots for m in machines) < 2
    share = max(1, min(cores // m.slots for cores, m in zip(usable, machines, strict=True)))
    kind = f"cores (cpus: {cpus:g} in kit.yaml)" if limited else "physical cores"
    ranks = (
        "for the only rank of a host" if alone else f"shared by {_range([m.slots for m in machines])} ranks of a host"
    )
    reason = f"{_range(usable)} {kind} {ranks}"
    settings: tuple[Setting, ...] = (
        Setting(
            path="env.OMP_NUM_THREADS",
            value=str(share),
            reason=f"{reason}; PyTorch, MXNet, OpenBLAS and oneDNN read it",
            acts="deploy",
        ),
        Setting(
            path="env.TF_NUM_INTRAOP_THREADS",
            value=str(share),
            reason=f"{reason}; TensorFlow reads it",
            acts="deploy",
        ),
        Setting(
            path="env.TF_NUM_INTEROP_THREADS",
            value=str(share),
            reason=f"{reason}; TensorFlow's parallel operations, and the functions of a tf.data pipeline, use them",
            acts="deploy",
        ),
    )
    if not tensorflow:
        # Nothing would read them, and a new variable recreates the containers.
        settings = tuple(setting for setting in settings if not setting.path.startswith("env.TF_"))
    return Tuning(defaults=settings) if alone and not limited else Tuning(settings=settings)


def _wire_advice(machines: Sequence[Machine]) -> list[str]:
    advice = []
    rates = [m.nic_mbit for m in machines if m.nic_mbit]
    if len(machines) > 1 and rates and min(rates) != max(rates):
        slow = [m.name for m in machines if m.nic_mbit == min(rates)]
        advice.append(
            f"{fold(slow)}: a NIC of {min(rates)} Mbit/s where others have {max(rates)}: all wait for the slowest"
        )
    mtus = {m.mtu for m in machines if m.mtu}
    if len(mtus) > 1:
        advice.append(
            f"hosts differ in MTU ({', '.join(map(str, sorted(mtus)))}): large packets may be lost between them"
        )
    elif mtus and max(mtus) < 9000 and rates and min(rates) > JUMBO_MBIT:
        advice.append(
            f"MTU {max(mtus)} on links of {min(rates)} Mbit/s: jumbo frames (MTU 9000, also on the switches between) "
            "cost less CPU time"
        )
    slow = [m.name for m in machines if m.congestion == "bbr"]
    if len(machines) > 1 and slow:
        advice.append(
            f"TCP's congestion control is bbr on {len(slow)} of {len(machines)} hosts: each step of an all-reduce "
            "waits for the link that bbr slows just then. Compare with cubic: sysctl net.ipv4.tcp_congestion_control"
        )
    return advice


def _gpu_advice(machines: Sequence[Machine], *, horovod: bool, cpus: float | None) -> list[str]:
    if not all(m.gpus for m in machines):
        return []
    links = {link for m in machines for link in m.gpu_links}
    advice = []
    if horovod:
        # mpi_perf goes through NCCL with Horovod only.
        advice.append(
            "GPUs: their tensors travel by NCCL, and mpi.args affects host memory only. NCCL tunes itself; "
            "measure it with: kit run -- mpi_perf --through nccl"
        )
    share = max(1, min(_cores(m, cpus) // len(m.gpus) for m in machines))
    option, program = ("num_parallel_calls", "tf_benchmark") if horovod else ("num_workers", "torch_benchmark")
    advice += [
        f"input pipelines: {share} threads for each GPU (physical cores divided by GPUs), such as "
        f"{option}={share} in your own script; {program} divides them by itself",
        "clocks: kit doctor names GPUs below their maximum application clocks, and kit setup --only clocks raises them",
    ]
    nvlink = any(link.startswith("NV") for link in links)
    if horovod and len(machines) > 1 and nvlink and min(len(m.gpus) for m in machines) > 1:
        advice.append(
            "NVLink connects the GPUs of a host and is faster than the wire between hosts: try "
            "HOROVOD_HIERARCHICAL_ALLREDUCE=1"
        )
    if len(machines) >= 1 and "SYS" in links:
        advice.append(
            "some GPUs reach each other across sockets (SYS): gpus_per_rank: 1 in kit.yaml keeps each rank near its GPU"
        )
    return advice


def _range(values: Sequence[int]) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"
