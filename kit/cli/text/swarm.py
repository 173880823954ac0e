"""Steps that concern Swarm, as text: what is done, and with what."""

from __future__ import annotations

from kit.cli.text.fold import fold
from kit.model.swarm import (
    ForgetNodes,
    LabelNodes,
    MakeFolder,
    ManagerStep,
    RemoveNode,
    SecretCreate,
    SecretRemove,
    StackDeploy,
    StackRemove,
    SwarmInit,
    SwarmJoin,
    SwarmLeave,
    SwarmStep,
    UnlabelNodes,
    WaitTasks,
)


def step(value: SwarmStep) -> tuple[str, str]:
    """(verb, what). Of a secret its name alone."""
    match value:
        case MakeFolder():
            return "make", f"the folder {value.path} {value.mode}"
        case RemoveNode():
            return "remove", f"the container of {value.cluster}"
        case SwarmInit():
            return "init", f"a swarm, managed on {value.address}"
        case SwarmJoin():
            return "join", f"the swarm at {value.manager}"
        case SwarmLeave():
            return "leave", "the swarm that kit made"
        case _:
            return _on_manager(value)


def _on_manager(value: ManagerStep) -> tuple[str, str]:
    told: tuple[str, str]
    match value:
        case LabelNodes():
            told = "label", f"{fold(host for host, _, _ in value.nodes)} with {value.key}"
        case UnlabelNodes():
            told = "unlabel", f"{len(value.ids)} nodes, {value.key}"
        case ForgetNodes():
            told = "forget", f"{len(value.ids)} nodes that are down"
        case SecretCreate():
            told = "keep", f"{value.name} (secret)"
        case SecretRemove():
            told = "remove", f"secrets {', '.join(value.names)}"
        case StackDeploy():
            anew = f", anew on {fold(value.restarts)}" if value.restarts else ""
            told = "deploy", f"docker stack deploy {value.stack}{anew}"
        case WaitTasks():
            told = "wait", f"for {sum(count for _, _, count in value.services)} tasks of Swarm"
        case StackRemove():
            told = "remove", f"the stack of {value.cluster}, its secrets and labels"
    return told
