"""kit doctor: read all hosts, measure between them, judge. It changes nothing, and needs neither engine nor cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from kit.config.selection import select_hosts
from kit.errors import KitError
from kit.events import HostDone, HostFailed, HostStep, Phase
from kit.flows.cluster.look import paths_of
from kit.flows.context import Context
from kit.flows.doctor.pairs import Between, measure
from kit.flows.image.content import tag_of
from kit.model import names
from kit.model.doctor import DoctorResult, Examined, Lost, Pairing, Read, Seen
from kit.model.host import Host
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.values import replace
from kit.plan.cluster.nodes import nodes_of
from kit.plan.doctor import rounds
from kit.plan.doctor.checks import CHECKS
from kit.plan.doctor.judge import judge, reads_of
from kit.plan.flavour import candidates
from kit.remote.cluster import look as looks
from kit.remote.doctor.read import Look, NoPython, read_host
from kit.remote.scripts import in_node
from kit.remote.ssh import fanout


class _Read(NamedTuple):
    """What came from one host, and why a part of it is missing."""

    seen: Seen
    lost: Lost | None = None


def doctor(context: Context, *, hosts: str | None = None, pairing: Pairing | None = None) -> DoctorResult:
    """Return what is wrong with the hosts. A host that kit cannot reach is a finding, and hides no other host.

    `pairing` is by default that of kit.plan.doctor.rounds.
    """
    start = time.monotonic()
    head = context.inventory.head
    if hosts:
        context = replace(context, inventory=select_hosts(context.inventory, hosts))
    count = len(context.inventory.hosts)
    pairing = pairing or rounds.default(count)
    seen, lost = _read_all(context, head, reads_of(CHECKS))
    deployed = any(_has_node(one.facts, context.spec.name) for one in seen)
    between = Between()
    nodes = _deployed(seen, head, context.spec.name)
    # The probe needs Python. The checks see in the facts that it is missing.
    measured = [one.host for one in seen if one.facts is None or one.facts.python is not None]
    if len(seen) > 1 and (pairing != "none" or len(nodes) > 1):
        between = measure(context, measured, pairing, nodes=nodes)
    known = {one.host for one in lost}
    pairs = between.pairs
    examined = Examined(
        spec=context.spec,
        hosts=seen,
        lost=(*lost, *(_lost(name, error) for name, error in between.failures.items() if name not in known)),
        pairs=pairs,
        pairing=pairing,
        deployed=deployed,
        head=head.name,
    )
    judged = judge(examined, CHECKS)
    return DoctorResult(
        cluster=context.spec.name,
        hosts=context.inventory.names,
        deployed=examined.deployed,
        pairing=pairing,
        pairs=len(pairs),
        checks=len(CHECKS),
        findings=judged.findings,
        failed=judged.failed,
        unsure=between.unsure,
        gpu_models=tuple(dict.fromkeys(gpu.name for one in seen for gpu in (one.facts.gpus if one.facts else ()))),
        seconds=time.monotonic() - start,
    )


def _read_all(context: Context, head: Host, reads: Sequence[Read]) -> tuple[tuple[Seen, ...], tuple[Lost, ...]]:
    """Return what kit read from the hosts, and the hosts that it could not examine."""
    spec = context.spec
    tags = " ".join(tag_of(spec, image) for image in candidates(spec.image).values())
    folder, paths = names.folder(spec.name), paths_of(spec)

    def work(host: Host) -> _Read:
        context.reporter.report(HostStep(host=host.name, text="reading"))
        look = Look(looks.look_argv(folder=folder, image=tags, wanted=spec.orchestrator, paths=paths), looks.new_mark())
        service = names.HEAD if host == head else names.NODE
        node = in_node(names.container(spec.name, service), ())
        with closing(context.connect(host)) as transport:
            try:
                seen, answer = read_host(transport, reads, node=node, folder=folder, look=look)
            except NoPython:
                # The checks see it in the facts.
                seen = Seen(host=host)
                answer = looks.look(transport, folder=folder, image=tags, wanted=spec.orchestrator, paths=paths)
        one = _with_facts(seen, answer)
        if one.lost:
            context.reporter.report(HostFailed(host=host.name, text=one.lost.message))
        else:
            context.reporter.report(HostDone(host=host.name, text=_summary(one.seen)))
        return one

    context.reporter.report(Phase(name="read", hosts=context.inventory.names))
    outcome = fanout.each(context.inventory.hosts, work)
    for name, error in outcome.failures.items():
        context.reporter.report(HostFailed(host=name, text=error.message))
    lost = [_lost(name, error) for name, error in outcome.failures.items()]
    lost += [one.lost for one in outcome.results.values() if one.lost]
    return _placed([one.seen for one in outcome.results.values()], context), tuple(lost)


def _with_facts(seen: Seen, answer: looks.Answer | None) -> _Read:
    """Return a host with what a deploy observes of it."""
    from kit.remote.cluster.observe import facts_of  # noqa: PLC0415  (after the host was asked)

    host = seen.host
    if answer is None:
        what = "its engine or nvidia-smi did not answer in time"
        return _Read(seen, Lost(host=host.name, message=what, hint=f"look at its load: kit ssh {host.name} -- uptime"))
    try:
        return _Read(replace(seen, facts=facts_of(host, answer)))
    except KitError as error:
        return _Read(seen, _lost(host.name, error))


def _lost(host: str, error: KitError) -> Lost:
    return Lost(host=host, message=error.message, hint=error.hint or "")


def _placed(seen: Sequence[Seen], context: Context) -> tuple[Seen, ...]:
    """Return the hosts, each with its place in the cluster."""
    nodes, _ = nodes_of([one.facts for one in seen if one.facts is not None], context.spec)
    by_name = {node.name: node for node in nodes}
    return tuple(replace(one, node=by_name.get(one.name)) for one in seen)


def _deployed(seen: Sequence[Seen], head: Host, cluster: str) -> tuple[Node, ...]:
    """Return the nodes that run, the head first. None if the head's does not run, or was not to be examined."""
    nodes = [one.node for one in seen if one.node is not None and _has_node(one.facts, cluster)]
    heads = [node for node in nodes if node.name == head.name]
    return (*heads, *(node for node in nodes if node.name != head.name)) if heads else ()


def _has_node(facts: HostFacts | None, cluster: str) -> bool:
    return facts is not None and any(one.running and one.cluster == cluster for one in facts.containers)


def _summary(seen: Seen) -> str:
    if seen.facts is None:
        return "read"
    engine = f"engine {seen.facts.engine}" if seen.facts.engine else "no engine"
    return f"{engine}, {seen.facts.cores} cores"
