"""The cluster's own ssh, from the head's node to the others."""

from __future__ import annotations

from collections.abc import Sequence

from kit.remote.engine.hiccups import run_in_node
from kit.remote.scripts import script
from kit.remote.ssh.transport import Completed, Transport

PEER_TIMEOUT_S = 60.0


def peer_failures(transport: Transport, container: str, addresses: Sequence[str]) -> tuple[dict[str, str], Completed]:
    """Log in to each address from the head's container, without a prompt. Return why it failed, by address.

    Also returns how the script itself ended.
    """
    done = run_in_node(transport, container, script("peers", *addresses), timeout_s=PEER_TIMEOUT_S)
    rows = (line.split(" ", 1) for line in done.text.splitlines() if " " in line)
    return {address: why for address, why in rows if address in addresses}, done
