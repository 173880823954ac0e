"""Swarm as data: what a host's engine says of it, and the steps of a plan that form it and deploy a stack on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kit.model.secret import Secret

# Whose key a secret holds: the head's for its logins, the head's sshd's, and that of the sshd of every other node.
Role = Literal["client", "head", "node"]

# How often members of a swarm that kit makes tell that they are there; after three they are given up.
HEARTBEAT_S = 20
# The value of a node's label when its host has left the cluster. The others are head and node.
LEFT = "left"


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmNode:
    """A member, as a manager sees it. `state` is ready, down or unknown."""

    id: str
    hostname: str
    address: str
    state: str
    availability: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmService:
    """A service of any stack. `cluster` and `spec` (the digest of its definition) are '' where it is none of kit's."""

    name: str
    cluster: str
    spec: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmSecret:
    """A secret of a cluster of kit's: the private half of `public`."""

    name: str
    role: str
    public: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmFacts:
    """What one host's engine knows of Swarm.

    `state` is inactive, pending, active, error or locked. `made`: kit brought this host into the swarm. `nodes`,
    `services` (of every stack), `secrets` (of this cluster) and `heartbeat_s` are known to a manager alone. `resources`
    counts the generic resources that the engine advertises, by kind. `ports` (address:port) are those on which the
    engine itself listens.
    """

    state: str = "inactive"
    node_id: str = ""
    manager: bool = False
    managers: tuple[str, ...] = ()
    error: str = ""
    heartbeat_s: float = 0.0
    made: bool = False
    live_restore: bool = False
    default_runtime: str = ""
    ports: frozenset[str] = frozenset()
    resources: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[SwarmNode, ...] = ()
    services: tuple[SwarmService, ...] = ()
    secrets: tuple[SwarmSecret, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MakeFolder:
    """Make a folder that a mount needs: Compose's engine does that by itself, Swarm's refuses the task."""

    path: str
    mode: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveNode:
    """Remove the cluster's containers from the host. Under Swarm a new one comes by itself."""

    cluster: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmInit:
    """Make a swarm with this host as its manager, on this address alone."""

    address: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmJoin:
    """Join the head's swarm. The token is asked of the head, and stands nowhere.

    `image` (an id or a tag) has a Python that can talk to the engine, where the host itself has none.
    """

    address: str
    manager: str
    image: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelNodes:
    """On the manager: `key`=role for nodes, given as (host, id, role). The id is '' where the host is about to join."""

    key: str
    nodes: tuple[tuple[str, str, str], ...]
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UnlabelNodes:
    """On the manager: these nodes (ids) are no longer the cluster's; its tasks there end.

    Their label becomes LEFT: when such a node is down, too, its entry is removed.
    """

    key: str
    ids: tuple[str, ...]
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ForgetNodes:
    """On the manager: remove the entries of nodes (ids) that are gone for good."""

    ids: tuple[str, ...]
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretCreate:
    """On the manager: keep a private key as a secret. `public` is its public half."""

    name: str
    cluster: str
    role: Role
    public: str
    content: Secret
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretRemove:
    """On the manager: remove secrets that nothing uses any more."""

    names: tuple[str, ...]
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StackDeploy:
    """On the manager: `docker stack deploy` of the head's file. `restarts` names the hosts whose node is made anew."""

    folder: str
    stack: str
    restarts: tuple[str, ...]
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitTasks:
    """On the manager: wait until every service has so many running tasks of this very definition.

    `services` are (name, digest, tasks).
    """

    services: tuple[tuple[str, str, int], ...]
    timeout_s: float
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StackRemove:
    """On the manager: the cluster's services, secrets and node labels, and wait until its tasks are gone."""

    cluster: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmLeave:
    """Leave a swarm that kit brought the host into. `others` are the ids of those nodes that leave at the same time."""

    others: tuple[str, ...]
    why: str


# Of one host, and of the manager for all of them.
HostStep = MakeFolder | RemoveNode | SwarmInit | SwarmJoin | SwarmLeave
ManagerStep = (
    LabelNodes | UnlabelNodes | ForgetNodes | SecretCreate | SecretRemove | StackDeploy | WaitTasks | StackRemove
)
SwarmStep = HostStep | ManagerStep
