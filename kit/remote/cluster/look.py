"""Runs observe.sh on a VM. It imports little, so that kit asks the hosts before it imports what reads their answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from kit.remote.scripts import script
from kit.remote.ssh.transport import Completed, Transport

TIMEOUT_S = 75.0
# The orchestrator of a deploy needs to know more of Docker than the other verbs: whether Compose works on the host, or
# what the engine offers to Swarm.
Wanted = Literal["compose", "swarm", "state"]


class Answer(Struct, frozen=True, kw_only=True):
    """What a host printed. Only a line that begins with `@@ MARK ` starts a section: nobody else knows the mark."""

    done: Completed
    mark: str


def look(
    transport: Transport,
    *,
    folder: str,
    image: str = "",
    wanted: Wanted = "state",
    paths: Sequence[str] = (),
    name: Literal["observe", "look"] = "observe",
) -> Answer:
    """Return what the host prints; of `paths`, those that are missing. `look` also lists the ranks.

    `image` is a tag, or several with spaces between them.

    kit.remote.cluster.observe turns it into facts.
    """
    mark = new_mark()
    argv = look_argv(folder=folder, image=image, wanted=wanted, paths=paths, name=name)
    return Answer(done=transport.run(argv, stdin=f"{mark}\n".encode(), timeout_s=TIMEOUT_S), mark=mark)


def look_argv(
    *, folder: str, image: str, wanted: Wanted, paths: Sequence[str], name: Literal["observe", "look"] = "observe"
) -> Sequence[str]:
    """Return the command of a look. Its standard input is a line with a mark."""
    return script(name, folder, image, wanted, *paths)


def new_mark() -> str:
    """Return a mark for sections that nobody can guess."""
    return os.urandom(16).hex()
