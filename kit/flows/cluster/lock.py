"""kit lock: who is changing the cluster, and how to release the lock."""

from __future__ import annotations

import time
from contextlib import closing

from kit.flows.cluster.change import record
from kit.flows.context import Context
from kit.model import names
from kit.model.lock import LockStatus
from kit.remote.cluster import lock


def lock_status(context: Context) -> LockStatus:
    """Return whether somebody holds the lock, and who."""
    with closing(context.connect(context.inventory.head)) as transport:
        return lock.look(transport, context.spec.name, names.lock_file(context.spec.name))


def lock_release(context: Context, seen: LockStatus) -> LockStatus:
    """Take the lock from the holder in `seen`, and return `seen`. Raise NotReadyError if the holder has changed."""
    if seen.state == "free":
        return seen
    start = time.monotonic()
    with closing(context.connect(context.inventory.head)) as transport:
        lock.take_away(transport, names.lock_file(context.spec.name), seen.holder)
    what = f"{seen.state}: {seen.holder.who}, since {seen.holder.since}, for {seen.holder.what}" if seen.holder else ""
    record(context, "lock release", what or seen.state, outcome="done", seconds=time.monotonic() - start)
    return seen
