"""kit down: takes the cluster off every host, found by its labels; leaves nothing."""

from __future__ import annotations

from kit.errors import KitError
from kit.events import HostDone, HostFailed, HostStep, Phase
from kit.flows.change import changing
from kit.flows.context import Context
from kit.flows.image import content
from kit.model.host import Host
from kit.model.result import DownResult
from kit.plan import stack
from kit.plan.teardown import teardown_step
from kit.remote import fanout
from kit.remote.execute import remove


def down(context: Context, *, images: bool = False) -> DownResult:
    """Remove containers and folder of the cluster from all hosts, with `images` its image, too.

    Hosts go side by side; those that fail are named together after the others are done.
    """
    spec = context.spec
    tags = (content(spec.image).tag,) if images else ()
    step = teardown_step(spec, tags)

    def work(host: Host) -> tuple[str, ...]:
        context.reporter.report(HostStep(host=host.name, text=f"removing {stack.project(spec)}"))
        transport = context.connect(host)
        try:
            change.check()
            removed = remove(transport, step)
        except KitError as error:
            context.reporter.report(HostFailed(host=host.name, text=error.message, hint=error.hint))
            raise
        finally:
            transport.close()
        context.reporter.report(
            HostDone(host=host.name, text=f"removed {len(removed)}" if removed else "nothing there")
        )
        return removed

    # A head that is lost must not keep the other hosts from being taken down.
    with changing(context, "down", needs_lock=False) as change:
        change.what = f"{len(context.inventory.hosts)} hosts"
        context.reporter.report(Phase(name="take down", hosts=context.inventory.names))
        removed = fanout.each(context.inventory.hosts, work).or_raise("kit down")
    return DownResult(cluster=spec.name, removed=dict(removed))
