"""Reads the log of a node whose sshd hung up on the head. Only that log says why."""

from __future__ import annotations

from contextlib import closing

from kit.errors import KitError
from kit.flows.context import Context
from kit.model import names
from kit.model.run import Failure
from kit.model.values import replace
from kit.plan.run.diagnose import hung_up

LINES = 20
TIMEOUT_S = 10.0


def with_node_log(context: Context, failure: Failure) -> Failure:
    """Return the failure with the last lines of the node's sshd, or unchanged if they cannot be read or do not matter.

    The node answered a moment ago, so its VM is up and this takes little time.
    """
    host = next((host for host in context.inventory.hosts if host.name == failure.host), None)
    if host is None or not hung_up(failure):
        return failure
    from kit.remote.scripts import node_logs  # noqa: PLC0415  (only after a failure)

    service = names.HEAD if host == context.inventory.head else names.NODE
    try:
        with closing(context.connect(host)) as transport:
            name = names.container(context.spec.name, service)
            done = transport.run(node_logs(name, "--tail", str(LINES)), timeout_s=TIMEOUT_S)
    except KitError:
        return failure
    # The log is on standard output. Without a node, the error of docker says why.
    return replace(failure, lines=tuple(f"{done.text}\n{done.error_text}".splitlines()))
