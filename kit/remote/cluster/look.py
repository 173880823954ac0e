"""Runs observe.sh on a VM. It imports little, so that kit asks the hosts before it imports what reads their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from kit.remote.scripts import script
from kit.remote.ssh.transport import Completed, Transport

TIMEOUT_S = 75.0
# The orchestrator of a deploy needs to know more of Docker than the other verbs: whether Compose works on the host, or
# what the engine offers to Swarm.
Wanted = Literal["compose", "swarm", "state"]


def look(
    transport: Transport,
    *,
    folder: str,
    image: str = "",
    wanted: Wanted = "state",
    paths: Sequence[str] = (),
    name: Literal["observe", "look"] = "observe",
) -> Completed:
    """Return what the host prints; of `paths`, those that are missing. `look` also lists the ranks.

    kit.remote.cluster.observe turns it into facts.
    """
    return transport.run(script(name, folder, image, wanted, *paths), timeout_s=TIMEOUT_S)
