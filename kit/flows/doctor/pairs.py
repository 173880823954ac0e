"""Measures between hosts for kit doctor: with probes, and by the head's logins to the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from msgspec import Struct, field

from kit.errors import Interrupted, KitError, StepError
from kit.events import HostDone, HostStep, Phase
from kit.flows.context import Context
from kit.flows.doctor.examination import TASK, Examination, Pair, Target
from kit.model import names
from kit.model.answer import beginning
from kit.model.doctor import Pairing, PairSeen
from kit.model.host import Host
from kit.model.launch import Node
from kit.plan.doctor import rounds
from kit.remote.cluster.peers import peer_failures
from kit.remote.doctor.probes import Probes

# How much of ssh's last line is kept.
_LONGEST = 200


class Between(Struct, frozen=True, kw_only=True):
    """What was measured between the hosts, and the hosts that could not take part, each with its error.

    `unsure` has the links that looked slow and are not judged: kit did not measure them again, or only busy hosts.
    """

    pairs: tuple[PairSeen, ...] = ()
    unsure: tuple[rounds.Pair, ...] = ()
    failures: Mapping[str, KitError] = field(default_factory=dict)


def measure(context: Context, hosts: Sequence[Host], pairing: Pairing, *, nodes: Sequence[Node] = ()) -> Between:
    """Measure between these hosts, and report progress. `nodes` are those of the deployed cluster, the head first.

    A host that cannot take part is in `failures`, and the others go on. Nothing stays on the hosts, also after Ctrl-C,
    which raises Interrupted.
    """
    context.reporter.report(Phase(name=TASK))
    seen: dict[rounds.Pair, Pair] = {}
    targets: Mapping[str, Target] = {}
    failures: Mapping[str, KitError] = {}
    unsure: Sequence[rounds.Pair] = ()
    try:
        if pairing != "none" and len(hosts) > 1:
            with Probes(hosts, context.connect) as probes:
                examination = Examination(context, probes, hosts, pairing)
                examination.run()
                seen, targets, failures = examination.seen, examination.targets, probes.failures
                unsure = examination.unsure
        if len(nodes) > 1:
            failures = {**failures, **_head_ssh(context, nodes, seen)}
    except KeyboardInterrupt:
        raise Interrupted("interrupted while kit measured between the hosts; its probes have ended") from None
    context.reporter.report(HostDone(host=TASK))
    by_name = {node.name: node.address for node in nodes}
    return Between(
        pairs=tuple(
            PairSeen(
                source=source,
                target=target,
                address=targets[target].address if target in targets else by_name[target],
                ports=pair.ports,
                mtu=pair.mtu,
                mtu_local=pair.local,
                rtt_s=pair.rtt_s,
                rate=pair.rate,
                possible=pair.possible,
                clock_s=pair.clock_s,
                clock_error_s=pair.clock_error_s,
                resolved=pair.resolved,
                ssh=pair.ssh,
            )
            for (source, target), pair in seen.items()
        ),
        unsure=tuple(unsure),
        failures=failures,
    )


def _head_ssh(context: Context, nodes: Sequence[Node], seen: dict[rounds.Pair, Pair]) -> dict[str, KitError]:
    """Log in from the head's node to each other one. Return the head's error if that is not possible."""
    head, *others = nodes
    context.reporter.report(HostStep(host=TASK, text="the head logs in to each node", fraction=0.97))
    try:
        with closing(context.connect(context.host(head.name))) as transport:
            container = names.container(context.spec.name, names.HEAD)
            failed, done = peer_failures(transport, container, [node.address for node in others])
        if done.code:
            raise StepError(
                f"the head could not check its nodes: {beginning(done.error_text)}",
                hint=f"kit logs {head.name}",
                host=head.name,
            )
    except KitError as error:
        return {head.name: error}
    for node in others:
        why = failed.get(node.address, "")
        seen.setdefault((head.name, node.name), Pair()).ssh = why[:_LONGEST]
    return {}
