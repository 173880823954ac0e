"""Looks for programs that kit did not start on the GPUs that a run is about to use."""

from __future__ import annotations

from kit.events import Warned
from kit.flows.context import Context
from kit.model.launch import LaunchPlan
from kit.plan.run import busy, gpus


def check_gpus(context: Context, plan: LaunchPlan, cluster: str, *, ignore: bool) -> None:
    """Raise NotReadyError if a program that kit did not start uses a GPU of the run; with `ignore`, warn.

    Also raise it if a running node has lost its GPUs.

    Contacts only hosts that had GPUs at the deploy. A host that does not answer in time is no reason to refuse the run:
    the head may reach it.
    """
    held = gpus.held(plan.placement, plan.places)
    if not held:
        return
    # Only clusters with GPUs pay for the imports.
    from kit.model.failures import alike  # noqa: PLC0415
    from kit.model.text import fold  # noqa: PLC0415
    from kit.remote.run.busy import users_of_gpus  # noqa: PLC0415

    hosts = [context.host(name) for name in held]
    outcome = users_of_gpus(hosts, context.connect, lambda processes: busy.strangers(processes, cluster), cluster)
    for failure in alike(outcome.failures.values()):
        text = f"{fold(failure.hosts)}: cannot look for other programs on the GPUs: {failure.message}"
        context.reporter.report(Warned(text=text))
    faults = {name: users.lost for name, users in outcome.results.items() if users.lost}
    if faults:
        raise busy.lost(faults)
    rows = [
        row
        for name, users in outcome.results.items()
        for row in busy.busy_gpus(name, users.processes, users.numbers, held[name])
    ]
    if rows and not ignore:
        raise busy.refusal(rows)
    if rows:
        context.reporter.report(Warned(text=f"other programs use GPUs of this run: {busy.shown(rows)}"))
