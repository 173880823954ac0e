"""Keeps a run off GPUs that programs use which kit did not start, and off nodes that have lost GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kit.errors import NotReadyError
from kit.events import Warned
from kit.flows.context import Context
from kit.flows.run.ready import Ready, planned
from kit.model.launch import LaunchPlan, Node
from kit.plan.run import gpus

if TYPE_CHECKING:
    from kit.remote.cluster.gpus import GpuUse


def on_free_gpus(context: Context, plan: LaunchPlan, ready: Ready, *, ignore: bool) -> LaunchPlan:
    """Return the plan, or one on other GPUs of the same hosts if programs that kit did not start use some of its GPUs.

    Contacts only hosts that had GPUs at the deploy. A host that does not answer in time is no reason to refuse the run:
    the head may reach it. With `ignore`, it only warns of such programs.

    Raises NotReadyError if too few other GPUs are free, or if a host of the run has lost GPUs.
    """
    held = gpus.held(plan.placement, plan.places)
    if not held:
        return plan
    # Only clusters with GPUs pay for the import.
    from kit.plan.run import busy  # noqa: PLC0415

    nodes = {node.name: node for node in ready.nodes}
    cluster = ready.cluster.name
    uses = _uses(context, tuple(held), cluster)
    faults = _losses(context, nodes, uses)
    if faults:
        raise busy.lost(faults)
    rows = [
        row
        for name, use in uses.items()
        for row in busy.busy_gpus(name, busy.strangers(use.processes, cluster), use.host, held[name])
    ]
    if not rows:
        return plan
    if ignore:
        context.reporter.report(Warned(text=f"other programs use GPUs of this run: {busy.shown(rows)}"))
        return plan
    others = _uses(context, [node.name for node in ready.nodes if node.gpus and node.name not in held], cluster)
    faults = _losses(context, nodes, others)
    uses = {**uses, **others}
    holder = busy.holding(
        ready.nodes,
        {name: busy.strangers(use.processes, cluster) for name, use in uses.items()},
        {name: use.host for name, use in uses.items()},
        lost=faults,
    )
    try:
        again = planned(context, ready, run_id=plan.run_id, others=holder)
    except NotReadyError:
        raise busy.refusal(rows) from None
    # A run that waits for its slots, or shares them, is placed as on an empty cluster.
    if busy.overlaps(holder, again.places):
        raise busy.refusal(rows)
    context.reporter.report(Warned(text=busy.around(rows, gpus.held(again.placement, again.places))))
    return again


def _uses(context: Context, hosts: Sequence[str], cluster: str) -> Mapping[str, GpuUse]:
    """Return who uses the GPUs of each host. Warn of hosts that do not answer."""
    from kit.model.failures import alike  # noqa: PLC0415
    from kit.model.text import fold  # noqa: PLC0415
    from kit.remote.run.busy import users_of_gpus  # noqa: PLC0415

    outcome = users_of_gpus([context.host(name) for name in hosts], context.connect, cluster)
    for failure in alike(outcome.failures.values()):
        text = f"{fold(failure.hosts)}: cannot look for other programs on the GPUs: {failure.message}"
        context.reporter.report(Warned(text=text))
    return {name: outcome.results[name] for name in hosts if name in outcome.results}


def _losses(context: Context, nodes: Mapping[str, Node], uses: Mapping[str, GpuUse]) -> dict[str, str]:
    """Return what each host has lost of its GPUs, without the hosts that have lost nothing."""
    from kit.plan.run import busy  # noqa: PLC0415

    chosen = "NVIDIA_VISIBLE_DEVICES" in context.spec.env
    losses = {
        name: busy.loss(use.host, use.node.uuids, use.node.fault, deployed=nodes[name].gpus, chosen=chosen)
        for name, use in uses.items()
    }
    return {name: text for name, text in losses.items() if text}
