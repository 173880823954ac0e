"""From what hosts have and what the spec wants to the plan between them. Nothing to do is a plan without rounds.

Compose and Swarm are dialects: each drafts how nodes start. The image, the check at the end and the order are here.
"""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import KitError
from kit.model import names
from kit.model.keys import ClusterKeys
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.plan import SET_UP, DeleteFile, Plan, Round, plan_of
from kit.model.spec import ClusterSpec
from kit.plan.cluster import checks, compose, data, rdma, record, resources
from kit.plan.cluster import plugin as plugins
from kit.plan.cluster.dialect import Dialect, Site
from kit.plan.cluster.files import is_current
from kit.plan.cluster.nodes import cluster_record
from kit.plan.cluster.plugin import Plugin
from kit.plan.cluster.supply import Image, supply_round
from kit.plan.cluster.verify import passed_file, verify_round


def dialect_of(spec: ClusterSpec) -> Dialect:
    """Return the dialect of the spec's orchestrator."""
    if spec.orchestrator == "swarm":
        from kit.plan.swarm import deploy as swarm  # noqa: PLC0415  (most deploys are without Swarm)

        return swarm
    return compose


def problems_of(
    observed: Sequence[HostFacts], spec: ClusterSpec, nodes: Sequence[Node], image: Image
) -> list[KitError]:
    """Return everything that prevents a deploy, so that kit reports it before it changes anything."""
    uses_compose, ships = spec.orchestrator == "compose", spec.registry is None
    problems = dialect_of(spec).problems(observed, nodes) + rdma.problems(observed, spec)
    for facts in observed:
        problems += checks.host_problems(facts, image_size=image.size, compose=uses_compose, ships=ships)
        problems += resources.problems(facts, spec)
        problems += data.problems(facts, spec)
        pythonless = plugins.python_problem(facts) if spec.nccl.image else None
        problems += [pythonless] if pythonless else []
    problems += [problem for facts in observed for problem in checks.arch_problems(facts, image.arches)]
    by_name = {node.name: node for node in nodes}
    before = record.deployed_record(observed)
    for facts in observed:
        if facts.host.name in by_name:
            taken = checks.port_problem(facts, spec, by_name[facts.host.name], before)
            problems += [taken] if taken else []
    return problems + checks.cluster_problems(observed, nodes)


def deploy_plan(
    spec: ClusterSpec,
    observed: Sequence[HostFacts],
    nodes: Sequence[Node],
    image: Image,
    keys: ClusterKeys,
    *,
    requirements: str | None = None,
    plugin: Plugin | None = None,
) -> Plan:
    """Return the plan of a deploy. `observed` and `nodes` are in step, the head first.

    `requirements` is the digest of the file that `requirements:` names, or None. `plugin` is what `nccl.plugin` names
    in an image, or None.
    """
    known = cluster_record(spec, observed, nodes, image.tag, requirements=requirements)
    text = record.to_text(known)
    nodes_spec = plugins.mounted(spec, plugin)
    site = Site(spec=nodes_spec, observed=observed, nodes=nodes, image=image, keys=keys, record=known, text=text)
    draft = dialect_of(spec).draft(site)
    supply = supply_round(image, observed, nodes)
    brought = plugins.rounds(spec, plugin, observed, nodes, needs="host" if supply else "all") if plugin else ()
    tidy = plugins.tidy_round(spec, plugin, observed)
    # A host that does not get the image, or the plugin, is not set up; the others are. If an earlier round failed,
    # nothing is set up.
    set_up = Round(name=SET_UP, hosts=draft.hosts, needs="host" if supply or brought else "all")
    before = [*draft.before, *([supply] if supply else []), *brought]
    rounds = [*before, set_up, *draft.after, *([tidy] if tidy else [])]
    hosts = [node.name for node in nodes]
    plan = plan_of(spec.name, hosts, rounds)
    passed = passed_file(text, keys, draft.digests)
    if plan.empty and is_current(passed, observed[0]):
        return plan
    # Steps that change the record delete it.
    deleted = any(isinstance(step, DeleteFile) and step.path == names.VERIFIED for _, step in plan.steps())
    checked = names.VERIFIED in observed[0].files and not deleted
    return plan_of(spec.name, hosts, [*rounds, verify_round(spec.name, nodes, passed, checked=checked)])
