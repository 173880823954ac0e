"""A change of a cluster: made under its lock, and written to its audit afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from msgspec import Struct

from kit.errors import Interrupted, KitError, NotReadyError, StepError, UnreachableError
from kit.events import Phase, Warned
from kit.flows.context import Context
from kit.model import names
from kit.model.lock import AuditEntry
from kit.remote.cluster import audit
from kit.remote.cluster.execution import Execution
from kit.remote.cluster.lock import Lock
from kit.remote.machine.operator import operator


def execution_of(
    context: Context, check: Callable[[], None], *, removed: dict[str, list[str]] | None = None
) -> Execution:
    """Return what the steps of a plan share. `check` raises NotReadyError if the lock was lost."""
    return Execution(
        cluster=context.spec.name,
        hosts={host.name: host for host in context.inventory.hosts},
        logins=context.logins,
        connect=context.connect,
        engine_of=context.engine_of,
        reporter=context.reporter,
        check=check,
        removed=removed,
    )


class Change(Struct, kw_only=True):
    """A change that is being made. `what` goes into the audit; while it is empty, nothing was changed."""

    lock: Lock | None
    what: str = ""

    def check(self) -> None:
        """Raise NotReadyError if the lock was lost: then nothing more may begin."""
        if self.lock is not None:
            self.lock.check()

    def execution(self, context: Context, *, removed: dict[str, list[str]] | None = None) -> Execution:
        """Return what the steps of this change's plan share. Steps add to `removed` what they remove from a host."""
        return execution_of(context, self.check, removed=removed)


@contextmanager
def changing(context: Context, verb: str, *, needs_lock: bool = True) -> Iterator[Change]:
    """Hold the lock during a change, and write its outcome to the audit. Raise NotReadyError if somebody else holds it.

    Without `needs_lock`, the change also happens if the head cannot hold a lock.
    """
    start = time.monotonic()
    change = Change(lock=_taken(context, verb, needs_lock=needs_lock))
    outcome = "failed"
    try:
        yield change
        outcome = "done"
        _warn_if_lost(context, change)
    except (KeyboardInterrupt, Interrupted):
        outcome = "interrupted"
        raise
    finally:
        # First, because this also stops threads of this change that are about to begin something.
        if change.lock is not None:
            change.lock.release()
            if change.what:
                record(context, verb, change.what, outcome=outcome, seconds=time.monotonic() - start)


def record(context: Context, verb: str, what: str, *, outcome: str, seconds: float) -> None:
    """Write one line to the cluster's audit. The change itself is done, so a failure is only a warning."""
    entry = AuditEntry(
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        who=operator(),
        verb=verb,
        what=what,
        outcome=outcome,
        seconds=round(seconds, 1),
    )
    try:
        with closing(context.connect(context.inventory.head)) as transport:
            audit.append(transport, context.spec.name, entry)
    except KitError as error:
        context.reporter.report(Warned(text=f"kit {verb} is not in the cluster's audit: {error}", hint=error.hint))


def _warn_if_lost(context: Context, change: Change) -> None:
    try:
        change.check()
    except NotReadyError as error:
        hint = "check with kit audit whether somebody else changed hosts; then: kit deploy"
        context.reporter.report(Warned(text=f"all is done, but {error.message}", hint=hint))


def _taken(context: Context, verb: str, *, needs_lock: bool) -> Lock | None:
    head = context.inventory.head
    context.reporter.report(Phase(name="lock", hosts=(head.name,)))
    try:
        return context.take(context.login(head), names.lock_file(context.spec.name), f"kit {verb}")
    except (UnreachableError, StepError) as error:
        if needs_lock:
            raise
        context.reporter.report(Warned(text=f"kit {verb} continues without the cluster's lock: {error}"))
        return None
