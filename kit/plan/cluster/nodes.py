"""The cluster as MPI will see it: its nodes, their slots, and the record that later verbs read."""

from __future__ import annotations

from collections.abc import Sequence

from kit import __version__
from kit.errors import KitError
from kit.model.launch import ClusterRecord, Node
from kit.model.observed import HostFacts
from kit.model.spec import ClusterSpec
from kit.plan.cluster import drift, network
from kit.plan.cluster.gpus import gpus_of


def nodes_of(observed: Sequence[HostFacts], spec: ClusterSpec) -> tuple[tuple[Node, ...], list[KitError]]:
    """Return the hosts that can take part as nodes, and one problem for each host that cannot."""
    nodes, problems = [], []
    for facts in observed:
        try:
            interface = network.pick_interface(facts, spec.network)
            network.data_interfaces(facts, spec.interfaces)
        except KitError as error:
            problems.append(error)
            continue
        address = network.address_of(interface)
        nodes.append(
            Node(
                name=facts.host.name,
                address=address,
                slots=slots_of(facts, spec),
                cores=cores_of(facts, spec),
                gpus=gpus_of(facts),
                mig=any(gpu.mig is not None for gpu in facts.gpus),
            )
        )
    return tuple(nodes), problems


def cores_of(facts: HostFacts, spec: ClusterSpec) -> int:
    """Return how many CPUs the host's ranks can use at once: those of the host, or fewer with `cpus:`."""
    return facts.cores if spec.cpu_limit is None else min(facts.cores, max(1, int(spec.cpu_limit)))


def slots_of(facts: HostFacts, spec: ClusterSpec) -> int:
    """Return the host's slots: from the hosts file, else kit.yaml, else one for each GPU or MIG device, else 1."""
    if facts.host.slots is not None:
        return facts.host.slots
    if spec.slots != "auto":
        return spec.slots
    return gpus_of(facts) or 1


def cluster_record(
    spec: ClusterSpec,
    observed: Sequence[HostFacts],
    nodes: Sequence[Node],
    image: str,
    *,
    requirements: str | None = None,
) -> ClusterRecord:
    """Return the record of the cluster for every later verb. `image` is its tag.

    `requirements` is the digest of the file that `requirements:` names, or None.
    """
    chosen = [node.address for node in nodes]
    others = {int(i.address) for facts in observed for i in facts.interfaces} - {network.number_of(a) for a in chosen}
    covering = network.mpi_network(spec.network, chosen, others)
    return ClusterRecord(
        name=spec.name,
        image=image,
        network=covering or "",
        ssh_port=spec.ssh_port,
        nodes=tuple(nodes),
        data_networks=network.data_networks(spec.interfaces, observed),
        head_runs_ranks=spec.head_runs_ranks,
        settings=drift.deployed_settings(spec, requirements=requirements),
        version=__version__,
    )
