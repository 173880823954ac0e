"""kit tune: look at the hosts, measure TCP and MPI between them, and write what is better into kit.yaml."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct

from kit.errors import InputError, KitError, NotReadyError
from kit.events import HostDone, Phase
from kit.flows.context import Context
from kit.flows.run.listing import with_owners
from kit.flows.run.run import run
from kit.flows.tune.file import TunedFile
from kit.flows.tune.perf import TASK, Perf, Run
from kit.flows.tune.rounds import curve_of, halves, try_all
from kit.flows.tune.wires import WireRates, measure_networks
from kit.model import names
from kit.model.launch import ClusterRecord, Node
from kit.model.observed import HostFacts
from kit.model.tune import AllReduces, Machine, Setting, Tried, TuneResult, Tuning
from kit.model.values import replace
from kit.plan.bench.cases import frameworks_of, has_horovod, usable_gpus
from kit.plan.cluster import record
from kit.plan.flavour import OPEN, flavour_of
from kit.plan.run.owners import active
from kit.plan.tune import candidates as rules
from kit.plan.tune import horovod
from kit.remote.cluster.observe import observe
from kit.remote.ssh import fanout
from kit.remote.tune.wire import machine, replace_text, wire_rates


class TuneRequest(Struct, frozen=True, kw_only=True):
    """`minutes` limits the measurements. `force` also changes settings of the user. `file` is the kit.yaml.

    `fp16` allows half precision for gradients on the wire. It changes the numbers, so it is off by default.
    `now` takes slots that are reserved for a run in line.
    """

    file: Path
    minutes: float = 5.0
    dry_run: bool = False
    force: bool = False
    fp16: bool = False
    now: bool = False


def tune(context: Context, request: TuneRequest, *, run: Run = run, wire: WireRates = wire_rates) -> TuneResult:
    """Measure, and write unless it is a dry run. Ctrl-C at any time leaves kit.yaml unchanged."""
    start = time.monotonic()
    file = TunedFile.read(request.file, spec=context.spec, force=request.force)
    cluster, head = _deployed(context)
    living = head.living
    frameworks = _frameworks(context, cluster)
    with_horovod = has_horovod(frameworks)
    deployed = {node.name for node in cluster.nodes}
    # Its runs have the slots of the hosts file, which may have changed since the deploy.
    nodes = list(record.nodes_for_runs([h for h in context.inventory.hosts if h.name in deployed], cluster))
    ranking = nodes if context.spec.head_runs_ranks or len(nodes) == 1 else nodes[1:]
    out = _cordoned(context, nodes, ranking) if head.cordoned else frozenset()
    if out:
        nodes, ranking = ([node for node in some if node.name not in out] for some in (nodes, ranking))
    if living and len(ranking) > 1:
        # Only all-reduces need slots. TCP would fill the links of other people's runs, and a run slows down the network
        # that it uses: another one would seem faster.
        raise _disturbed(with_owners(context, living))
    machines = _machines(context, nodes)
    perf = Perf(context=context, run=run, start=start, minutes=request.minutes, nodes=ranking, now=request.now)
    networks = measure_networks(perf, machines, nodes, file, wire, horovod=with_horovod, cordoned=bool(out))
    ranked = [machine for machine in machines if machine.name in {node.name for node in ranking}]
    facts = rules.by_facts(ranked, frameworks, cpus=context.spec.cpu_limit)
    if networks.moving or not with_horovod:
        mpi, measured = None, Tuning(advice=() if with_horovod else (horovod.WITHOUT,))
    else:
        nccl = _nccl(context, cluster, ranked)
        mpi, measured = _mpi(perf, machines, file, networks.rate, fp16=request.fp16, nccl=nccl)
    if len(ranking) > 1 or perf.done:
        context.reporter.report(HostDone(host=TASK))
    back = [setting for setting in (*facts.defaults, *measured.defaults) if setting.path in file.owned]
    settings, ignored = file.effective((*networks.tuning.settings, *facts.settings, *measured.settings, *back))
    changed, kept = file.split(settings)
    written = bool(changed) and not request.dry_run
    diff = _write(file, request.file if written else None, changed)
    return TuneResult(
        machines=tuple(machines),
        wire=networks.rate,
        before=mpi.before if mpi else None,
        after=mpi.after if mpi else None,
        tried=mpi.tried if mpi else (),
        small_s=mpi.small_s if mpi else None,
        changed=tuple(changed),
        kept=tuple(kept),
        advice=(*networks.tuning.advice, *ignored, *facts.advice, *measured.advice),
        diff=diff,
        written=written,
        file=file.source,
        seconds=time.monotonic() - start,
        skipped=tuple(perf.skipped),
        networks=networks.others,
    )


def _write(file: TunedFile, target: Path | None, settings: Sequence[Setting]) -> str:
    """Write the settings into the `target`, if there is one. Return the difference of the file."""
    try:
        after, diff = file.changed(settings)
        if target is not None:
            replace_text(target, before=file.text, after=after)
    except KitError as error:
        # Minutes of measuring are not lost with the file.
        measured_values = ", ".join(f"{setting.path}: {setting.value}" for setting in settings)
        error.hint = f"{error.hint}; measured: {measured_values}"
        raise
    return diff


def _mpi(
    perf: Perf, machines: Sequence[Machine], file: TunedFile, tcp: float | None, *, fp16: bool, nccl: bool
) -> tuple[AllReduces, Tuning]:
    """Measure MPI on the network in use, and return the settings for it and for Horovod.

    With `nccl`, Horovod sends gradients by NCCL.
    """
    args = perf.context.spec.mpi.args
    ranks = sum(node.slots for node in perf.nodes)
    ranking = [machine for machine in machines if machine.name in {node.name for node in perf.nodes}]
    current = Tried(name="current", parameters=tuple(rules.parameters_of(args).items()))
    if ranks < 2:
        return AllReduces(before=current, after=current), Tuning()
    # A single host has no wire that half precision would relieve.
    halved = fp16 and len(perf.nodes) > 1 and not nccl
    perf.later += halved
    current, tried = try_all(perf, ranking, current, theirs=file.theirs, tcp=tcp, ranks=ranks)
    chosen = rules.best(current, tried)
    words = rules.with_parameters(file.theirs, chosen.parameters)
    half = halves(perf, words, ranks, chosen.timing.bytes) if halved and chosen.timing else None
    small, curve = curve_of(perf, words, ranks, tcp)
    if perf.broken is not None and chosen is not current:
        # It was the fastest with one size of messages, and does not work with another.
        tried = [replace(one, timing=None, failure=perf.broken) if one is chosen else one for one in tried]
        chosen, half, small, curve = current, None, None, {}
    mpi = rules.mpi_setting(current, chosen)
    longer = None
    if chosen is current:
        longer = rules.more_time(current, wire=tcp, ranks=ranks, runs=perf.planned + 1, spent_s=perf.spent_s)
    buffers = horovod.horovod(
        curve,
        small,
        fusion_now=file.own(horovod.FUSION),
        cycle_now=file.own(horovod.CYCLE),
        nccl=nccl,
    )
    if half is not None:
        precision = horovod.half(*half)
    elif nccl:
        precision = Tuning()
    else:
        advice = horovod.half_advice(
            chosen.timing.busbw if chosen.timing else None, ranks, file.value(horovod.COMPRESSION)
        )
        precision = Tuning(advice=(advice,) if advice and len(perf.nodes) > 1 else ())
    return (
        AllReduces(before=current, after=chosen, tried=tuple(tried), small_s=small),
        Tuning(
            settings=(*([mpi] if mpi else []), *buffers.settings, *precision.settings),
            defaults=(*buffers.defaults, *precision.defaults),
            advice=(*([longer] if longer else []), *buffers.advice, *precision.advice),
        ),
    )


def _nccl(context: Context, cluster: ClusterRecord, machines: Sequence[Machine]) -> bool:
    """Return whether Horovod's gradients travel by NCCL: all ranks have GPUs, and the image uses them."""
    flavour = _flavour(context, cluster)
    return all(usable_gpus(flavour, len(machine.gpus)) for machine in machines)


def _frameworks(context: Context, cluster: ClusterRecord) -> tuple[str, ...]:
    """Return the frameworks of the image. They are empty if they are not known."""
    return frameworks_of(context.spec.image, _flavour(context, cluster))


def _flavour(context: Context, cluster: ClusterRecord) -> str:
    flavour = context.spec.image.flavour
    return flavour_of(cluster.image) if flavour in OPEN else flavour


def _disturbed(runs: Sequence[str]) -> NotReadyError:
    return NotReadyError(
        f"{active(runs)}, and kit tune measures the network that runs use; nothing was measured",
        hint="wait for it (kit wait), or stop it (kit stop ID)",
    )


def record_of(context: Context) -> ClusterRecord:
    return _deployed(context)[0]


def _cordoned(context: Context, nodes: Sequence[Node], ranking: Sequence[Node]) -> frozenset[str]:
    """Return which of these hosts are cordoned, and warn of them. Raises NotReadyError if no host is left for ranks."""
    # Only where hosts are cordoned.
    from kit.flows.queue.cordon import left_out  # noqa: PLC0415

    return left_out(
        context, [node.name for node in nodes], [node.name for node in ranking], "kit tune does not measure"
    )


def _deployed(context: Context) -> tuple[ClusterRecord, HostFacts]:
    """Return the cluster as it is deployed, and the facts of its head."""
    head = context.inventory.head
    with closing(context.connect(head)) as transport:
        facts = observe(transport, folder=names.folder(context.spec.name), image="")
    if facts.record is None:
        raise NotReadyError(f"no cluster {context.spec.name} is deployed here", hint="run: kit deploy", host=head.name)
    return record.from_text(facts.record), facts


def _machines(context: Context, nodes: Sequence[Node]) -> list[Machine]:
    if not nodes:
        raise InputError("no host of the hosts file is in the cluster", hint="run: kit deploy")
    context.reporter.report(Phase(name="look", hosts=tuple(node.name for node in nodes)))
    by_name = {node.name: node for node in nodes}

    def look(host: Any) -> Machine:
        with closing(context.connect(host)) as transport:
            return machine(transport, by_name[host.name])

    outcome = fanout.each([context.host(name) for name in by_name], look)
    return list(outcome.or_raise("kit tune").values())
