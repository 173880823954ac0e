"""What all verbs of an existing lab need: its engine, its folder, one of its hosts."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from kit.errors import InputError, NotReadyError
from kit.model.lab import LabContainer, LabNetwork, LabObjects, LabSpec
from kit.plan import labshape
from kit.remote.lab.engine import LabEngine


@contextlib.contextmanager
def open_engine() -> Iterator[LabEngine]:
    engine = LabEngine()
    try:
        yield engine
    finally:
        engine.close()


def check_folder(name: str, folder: Path, network: LabNetwork | None) -> None:
    """Raise InputError if the lab belongs to another folder that still exists, or that you may not look into."""
    if network is None or Path(network.folder) == folder:
        return
    hint = f"Go there, or write: kit -C {network.folder} lab …"
    try:
        if not stat.S_ISDIR(os.stat(network.folder).st_mode):  # noqa: PTH116  (Path.is_dir hides errors since Python 3.14)
            return
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        # Such as the home of another user of this machine.
        hint = f"You may not look there. If the lab is another person's, give yours another name: --name {name}2"
    raise InputError(f"the lab '{name}' belongs to the folder {network.folder}", hint=hint)


def running_host(name: str, host: str, existing: LabObjects, *, lacks: str, options: str = "") -> LabContainer:
    """Return a host that runs. Raises InputError if the lab has no such host, and NotReadyError if it does not run.

    `options` are those of a lab to make, for the hint if there is no lab.
    """
    container = next((container for container in existing.containers if container.host == host), None)
    if existing.containers and container is None:
        known = ", ".join(container.host for container in existing.containers)
        raise InputError(f"the lab '{name}' has no host '{host}'", hint=f"It has: {known}.")
    if container is None or container.state != "running":
        what = f"{host} does not run" if container else "there is no such lab"
        start = start_command(name, existing) + ("" if existing.network else options)
        raise NotReadyError(f"the lab '{name}' has {lacks}: {what}", hint=f"Start it: {start}")
    return container


def up_command(name: str, shape: str = "") -> str:
    """Return the command that makes a lab, or that starts the one of this shape."""
    command = "kit lab up" if name == LabSpec().name else f"kit lab up --name {shlex.quote(name)}"
    return f"{command} {labshape.options(shape) or ''}".strip()


def start_command(name: str, existing: LabObjects) -> str:
    """Return the command that starts an existing lab: without the options that made it, kit would refuse."""
    return up_command(name, existing.network.shape if existing.network else "")
