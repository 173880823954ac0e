"""What kit bench reads from a cluster before it measures: facts that decide on cases, and facts for the report."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any

from msgspec import Struct

import kit
from kit.errors import KitError, NotReadyError
from kit.flows.context import Context
from kit.model import names
from kit.model.host import Host
from kit.model.launch import ClusterRecord, Node
from kit.model.observed import HostFacts
from kit.model.spec import ClusterSpec
from kit.model.values import asdict, replace
from kit.plan.bench.cases import BenchFacts, frameworks_of, usable_gpus
from kit.plan.cluster.record import from_text, nodes_for_runs
from kit.plan.flavour import OPEN, flavour_of
from kit.remote.cluster.observe import observe
from kit.remote.ssh import fanout

# Only these variables' values go into a report. Other values may be secrets, so a report has only their names.
_TUNING = re.compile(r"(HOROVOD|NCCL|OMPI_MCA|OMP|MXNET|TF|KMP|UCX|LIGHT)_|KIT_COMPRESSION$")
# Open MPI's parameter with variables for all ranks: `A=1;B=2`.
_ENV_LIST = "mca_base_env_list"


class Survey(Struct, frozen=True, kw_only=True):
    """`facts` decide on the cases, `recorded` goes into the session. `failures` are hosts that cannot run ranks.

    `living` are the ids of active runs. `hosts` names those that run ranks, as -H does, if others are cordoned.
    """

    facts: BenchFacts
    recorded: Mapping[str, Any]
    failures: Mapping[str, KitError]
    living: tuple[str, ...] = ()
    hosts: str | None = None


def look(context: Context) -> Survey:
    """Look at every host, and leave out those that are cordoned: no run may be placed there.

    Raises an error if the head cannot be reached, if nothing is deployed, or if no host is left.
    """
    spec = context.spec

    def work(host: Host) -> HostFacts:
        with closing(context.connect(host)) as transport:
            return observe(transport, folder=names.folder(spec.name), image="")

    outcome = fanout.each(context.inventory.hosts, work)
    head = context.inventory.head.name
    if head in outcome.failures:
        raise outcome.failures[head]
    if outcome.results[head].record is None:
        raise NotReadyError(f"no cluster {spec.name} runs here", hint="run: kit deploy", host=head)
    record = from_text(outcome.results[head].record or "")
    out = _cordoned(context) if outcome.results[head].cordoned else frozenset()
    # The head is needed also without ranks there.
    seen = {name: facts for name, facts in outcome.results.items() if name == head or name not in out}
    ill = {name: error for name, facts in seen.items() if (error := _ill(spec, record, facts))}
    failures = {**{name: error for name, error in outcome.failures.items() if name not in out}, **ill}
    nodes = _nodes(context, record, out)
    return Survey(
        facts=_deciding(context, record, seen, nodes),
        recorded=_recorded(context, record, seen, nodes),
        failures=failures,
        living=seen[head].living,
        # Without it, each run would warn of the others.
        hosts=",".join(node.name for node in nodes) if out else None,
    )


def _ill(spec: ClusterSpec, record: ClusterRecord, facts: HostFacts) -> KitError | None:
    """Return why this host cannot run ranks, or None."""
    name = facts.host.name
    if not facts.engine:
        return NotReadyError("its engine does not answer", hint=f"kit ssh {name} -- sudo docker info", host=name)
    node = next((item for item in facts.containers if item.cluster == spec.name), None)
    if node is None or not node.running:
        state = f" ({node.status})" if node is not None else ""
        return NotReadyError(f"its node does not run{state}", hint="run: kit deploy", host=name)
    address = next((item.address for item in record.nodes if item.name == name), None)
    if address is not None and f"{address}:{record.ssh_port}" not in facts.listening:
        return NotReadyError(
            f"its node's sshd does not listen on {address}:{record.ssh_port}", hint=f"kit logs {name}", host=name
        )
    return None


def _ranking(context: Context) -> tuple[str, ...]:
    return context.inventory.names if context.spec.head_runs_ranks else context.inventory.names[1:]


def _cordoned(context: Context) -> frozenset[str]:
    """Return which hosts are cordoned, and warn of them. Raises NotReadyError if no host is left for ranks."""
    # Only where hosts are cordoned.
    from kit.flows.queue.cordon import left_out  # noqa: PLC0415

    return left_out(context, context.inventory.names, _ranking(context), "kit bench does not measure")


def _nodes(context: Context, record: ClusterRecord, out: Collection[str]) -> tuple[Node, ...]:
    """Return the nodes that run ranks, as kit run chooses them: without those that are cordoned (`out`)."""
    nodes = nodes_for_runs([host for host in context.inventory.hosts if host.name not in out], record)
    ranking = frozenset(_ranking(context))
    return tuple(node for node in nodes if node.name in ranking)


def _deciding(
    context: Context, record: ClusterRecord, seen: Mapping[str, HostFacts], ranking: Sequence[Node]
) -> BenchFacts:
    image = context.spec.image
    flavour = flavour_of(record.image) if image.flavour in OPEN else image.flavour
    swarm = seen[context.inventory.head.name].swarm
    members = {node.id for node in swarm.nodes if node.state == "ready"}
    return BenchFacts(
        nodes=tuple(ranking),
        gpus=usable_gpus(flavour, sum(len(facts.gpus) for facts in seen.values())),
        frameworks=frameworks_of(image, flavour),
        members=frozenset(name for name, facts in seen.items() if swarm.manager and facts.swarm.node_id in members),
        pythons=frozenset(name for name, facts in seen.items() if facts.python),
        plugin=bool(context.spec.nccl.plugin),
        data=tuple(one.name for one in context.spec.data),
        mpi=context.spec.mpi,
    )


def _recorded(
    context: Context, record: ClusterRecord, seen: Mapping[str, HostFacts], ranking: Sequence[Node]
) -> dict[str, Any]:
    spec = context.spec
    deployed = {node.name for node in record.nodes}
    hosts = [host for host in context.inventory.hosts if host.name in seen and host.name in deployed]
    nodes = {node.name: node for node in nodes_for_runs(hosts, record)}
    env = {name: value if _TUNING.match(name) else "(set)" for name, value in spec.env.items()}
    return {
        "kit": kit.__version__,
        "image": record.image,
        "orchestrator": spec.orchestrator,
        "network": record.network,
        # Without GPUs, as in sessions of earlier kits, with which --resume compares these.
        "nodes": [asdict(replace(node, gpus=0, mig=False)) for node in ranking],
        "hosts": [
            {
                "name": name,
                "address": nodes[name].address if name in nodes else "",
                "slots": nodes[name].slots if name in nodes else 0,
                "cores": facts.cores,
                "memory_mib": facts.memory_mib,
                "gpus": [gpu.name for gpu in facts.gpus],
                "os": facts.os,
                "engine": facts.engine,
            }
            for name, facts in seen.items()
        ],
        "settings": {"env": env, "mpi": {**asdict(spec.mpi), "args": _without_values(spec.mpi.args)}},
    }


def _without_values(args: Sequence[str]) -> list[str]:
    """Return mpirun's arguments, with only the names of the variables that they set, as of those in `env:`."""
    words = []
    for before, word in zip(("", *args), args, strict=False):
        if before == "-x":
            words.append(_without_value(word))
        elif before == _ENV_LIST:
            words.append(";".join(_without_value(piece, most=1) for piece in word.split(";")))
        elif word.startswith("-x"):
            words.append("-x" + _without_value(word[2:]))
        else:
            words.append(word)
    return words


def _without_value(word: str, most: int | None = None) -> str:
    """Return `NAME=(set)`, or the word if it is of a tuning variable. A word with more than `most` = may set others."""
    name, sets, _ = word.partition("=")
    known = _TUNING.match(name) and (most is None or word.count("=") <= most)
    return f"{name}=(set)" if sets and not known else word


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the differences between two surveys of a cluster that make their figures incomparable.

    A field that only one of them has is newer than the kit that made the other one.
    """
    return tuple(
        f"{what}: {before.get(name)} then, {now.get(name)} now"
        for name, what in (("image", "image"), ("nodes", "hosts"), ("network", "network"), ("settings", "settings"))
        if _shared(before.get(name), now.get(name)) != _shared(now.get(name), before.get(name))
    )


def _shared(value: Any, other: Any) -> Any:
    """Return `value` with only the fields that `other` has, too, at any depth. Variables come and go, so they stay."""
    if isinstance(value, dict) and isinstance(other, dict):
        return {
            name: part if name == "env" else _shared(part, other[name]) for name, part in value.items() if name in other
        }
    if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        return [_shared(part, others) for part, others in zip(value, other, strict=True)]
    return value
