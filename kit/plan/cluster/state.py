"""The state of a host's node for kit ps, and what to type if the node is gone or cannot be seen."""

from __future__ import annotations

from typing import NamedTuple

from kit.model import names
from kit.model.observed import HostFacts
from kit.model.spec import ClusterSpec
from kit.plan.cluster.network import address_of

# What a deploy leaves on each host before it starts the node.
_SET_UP = (names.COMPOSE_FILE, names.NODE_ENV, names.AUTHORIZED_KEYS)


class NodeState(NamedTuple):
    """`text` is for the table. `note` says what happened and what to type, or is ""."""

    text: str
    note: str = ""


def node_state(facts: HostFacts, spec: ClusterSpec) -> NodeState:
    """Return the state of the cluster's node on a host. Without an engine, nobody knows whether the node runs."""
    own = next((one for one in facts.containers if one.cluster == spec.name), None)
    if own is not None:
        return NodeState(own.status)
    if facts.slow:
        return NodeState("slow: the engine did not answer in time")
    if not facts.engine:
        start = f"start it: kit ssh {facts.host.name} -- sudo systemctl start docker"
        return NodeState(
            "no Docker Engine answers",
            f"no Docker Engine answers, so kit cannot see the node; {start}; or install one: kit setup --only docker",
        )
    if any(path in facts.files for path in _SET_UP):
        return NodeState(
            "container missing",
            "the cluster was deployed here, and its container is missing, for example after docker system prune; "
            f"{names.BRING_BACK}",
        )
    return NodeState("not deployed", "the cluster is not deployed here; run: kit deploy")


def address_note(facts: HostFacts, recorded: str | None) -> str:
    """Return what happened and what to type if the host lost the address of the last deploy, or "".

    Clouds may give a VM another one when it starts again, and the node's sshd listens on the old one.
    """
    if recorded is None or not facts.interfaces or recorded in map(address_of, facts.interfaces):
        return ""
    return (
        f"this host no longer has the address {recorded} of the last deploy, so runs do not reach it; run: kit deploy"
    )
