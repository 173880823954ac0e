"""The line of waiting runs and the cordons when kit deploy moves the head: they move, too, or kit says what is left."""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import Interrupted, KitError, NotReadyError
from kit.events import Note, Warned
from kit.flows.context import Context
from kit.model import names
from kit.model.observed import HostFacts
from kit.model.text import fold


def spare_line(observed: Sequence[HostFacts]) -> None:
    """Raise NotReadyError if runs wait in line on a host that is no head after this deploy: nobody would start them."""
    for old in left_lines(observed):
        # Cordons need no --force: no run is lost when they move. Only a head has a record. A line without one was left
        # by an earlier deploy, and this one moves it.
        if old.waiting and old.record is not None:
            raise NotReadyError(
                f"{line(old)}, and this deploy makes {observed[0].host.name} the head; nothing was changed",
                hint=f"move the line to {observed[0].host.name}: kit deploy --force; or, with the earlier hosts file, "
                "wait until they start, or take them out: kit queue rm",
            )


def left_lines(observed: Sequence[HostFacts]) -> list[HostFacts]:
    """Return the hosts that are no head after this deploy, and where runs wait in line or that have cordons."""
    return [facts for facts in observed[1:] if facts.waiting or facts.cordoned]


def move_lines(context: Context, left: Sequence[HostFacts]) -> None:
    """Move the runs in line and the cordons to the head. If that fails, warn: they stay, and the next deploy tries."""
    for old in left:
        from kit.flows.queue.move import move_line  # noqa: PLC0415  (only where the head moves away from a line)

        head = context.inventory.head.name
        try:
            count = move_line(context, old.host)
        except Interrupted:
            raise
        except KitError as error:
            text = f"the cordons on {old.host.name} could not be moved to {head}: {error}"
            if old.waiting:
                text = f"{line(old)}, and could not be moved to {head}, so they do not start: {error}"
            context.reporter.report(Warned(text=text, hint="when the cause is gone, move them: kit deploy"))
        else:
            if count < len(old.waiting):
                some = f"{len(old.waiting) - count} of the runs in line on {old.host.name}"
                text = f"{some} stay there, because their files are damaged"
                context.reporter.report(Warned(text=text, hint="queue them again: kit run --queue"))
            what = f"{count} waiting runs" if old.waiting else "the cordons"
            context.reporter.report(Note(text=f"moved {what} from {old.host.name} to {head}"))


def line(old: HostFacts) -> str:
    """Return `the run … waits in line on gpu1`."""
    count = len(old.waiting)
    runs = f"the run {old.waiting[0]} waits" if count == 1 else f"{count} runs, {old.waiting[0]} first, wait"
    return f"{runs} in line on {old.host.name}"


def warn_of_lost_head(context: Context, observed: Sequence[HostFacts]) -> None:
    """Warn if nodes of the cluster have no head: it left the hosts file with its runs."""
    service = (context.spec.name, names.NODE)
    # Swarm names its containers itself.
    nodes = [facts.host.name for facts in observed if service in ((c.cluster, c.service) for c in facts.containers)]
    # A head that has files and no record is one whose first deploy failed.
    if nodes and (observed[0].host.name in nodes or not observed[0].files):
        text = (
            f"{fold(nodes)} {'has a node' if len(nodes) == 1 else 'have nodes'} of the cluster, and no host has its "
            "record, so the earlier head is not in the hosts file: its runs, and those that wait in line there, stay "
            "on its disk, and are lost with it"
        )
        hint = (
            "if this is another cluster, set another name: in kit.yaml; if the earlier head still answers, add it to "
            "the hosts file, after the new head: kit deploy --force moves its line"
        )
        context.reporter.report(Warned(text=text, hint=hint))
