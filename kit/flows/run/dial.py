"""Connects to the head before the flow that needs it is imported: ssh and Python start side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kit.flows.context import Context
from kit.model import names
from kit.remote.run.door import Door


@contextmanager
def dialled(context: Context) -> Iterator[Door]:
    """Yield a door that is connecting. The flow that uses it closes it; after an error, it is closed here."""
    door = Door(context.login(context.inventory.head), names.container(context.spec.name, names.HEAD))
    door.start()
    try:
        yield door
    except BaseException:
        door.close()
        raise
