"""Swarm as data: what the engines of hosts report, and the steps that form a swarm and deploy a stack on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from kit.model import names
from kit.model.plan import Step
from kit.model.secret import Secret
from kit.model.text import fold

# Whose key a secret holds. client: the head's key for its logins. head: its sshd's host key. node: the other nodes'.
Role = Literal["client", "head", "node"]

# The round in which Swarm starts the nodes.
START = "start"
# How often members of a swarm made by kit send a heartbeat. Managers mark a member as down after three missed ones.
HEARTBEAT_S = 20
# The value of a node's label after its host left the cluster. The other values are head and node.
LEFT = "left"
# The hint if members do not reach the manager or each other.
OPEN_PORTS = (
    f"open {names.MANAGER_PORT}/tcp to the head, and {names.GOSSIP_PORT}/tcp, {names.GOSSIP_PORT}/udp, "
    f"{names.DATA_PORT}/udp among all VMs (firewall, security group)"
)
# What remove.sh and swarm_leave.sh print if the host still manages the cluster's stack.
STACK_STAYS = "Swarm still runs the stack of "


def remove_stack(host: str) -> str:
    """Return the hint if this host still manages the cluster's stack: kit down removes that of the first host."""
    return f"put {host} first in the hosts file, then: kit down"


class SwarmNode(Struct, frozen=True, kw_only=True):
    """A member as a manager sees it. `state` is ready, down or unknown."""

    id: str
    hostname: str
    address: str
    state: str
    availability: str
    labels: Mapping[str, str] = field(default_factory=dict)


class SwarmService(Struct, frozen=True, kw_only=True):
    """A service of any stack. `cluster` and `spec` (the digest of its definition) are '' if kit did not make it."""

    name: str
    cluster: str
    spec: str


class SwarmSecret(Struct, frozen=True, kw_only=True):
    """A secret of a cluster: the private half of `public`."""

    name: str
    role: str
    public: str


class SwarmFacts(Struct, frozen=True, kw_only=True):
    """What one host's engine reports about Swarm.

    `state` is inactive, pending, active, error or locked. `made`: kit made this host a member. Only a manager reports
    `nodes`, `services` (of every stack), `secrets` (of this cluster) and `heartbeat_s`. `resources` counts the generic
    resources that the engine advertises, by kind. The engine itself listens on `ports` (address:port). `remaps_users`:
    it has userns-remap.
    """

    state: str = "inactive"
    node_id: str = ""
    manager: bool = False
    managers: tuple[str, ...] = ()
    error: str = ""
    heartbeat_s: float = 0.0
    made: bool = False
    live_restore: bool = False
    remaps_users: bool = False
    ports: frozenset[str] = frozenset()
    resources: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[SwarmNode, ...] = ()
    services: tuple[SwarmService, ...] = ()
    secrets: tuple[SwarmSecret, ...] = ()


class MakeFolder(Step, frozen=True, kw_only=True):
    """Create a folder that a mount needs. Compose creates it; Swarm refuses the task without it."""

    path: str
    mode: str
    why: str

    def line(self) -> tuple[str, str]:
        return "make", f"the folder {self.path} {self.mode}"


class RemoveNode(Step, frozen=True, kw_only=True):
    """Remove the cluster's containers from the host. Swarm then starts a new one."""

    cluster: str
    why: str

    def line(self) -> tuple[str, str]:
        return "remove", f"the container of {self.cluster}"


class SwarmInit(Step, frozen=True, kw_only=True):
    """Create a swarm with this host as its manager, listening on this address only."""

    address: str
    why: str

    def line(self) -> tuple[str, str]:
        return "init", f"a swarm, managed on {self.address}"


class SwarmJoin(Step, frozen=True, kw_only=True):
    """Join the head's swarm. The executor gets the token from the head and stores it nowhere.

    `image` (an id or a tag) has a Python that can talk to the engine if the host has none.
    """

    address: str
    manager: str
    image: str
    why: str

    def line(self) -> tuple[str, str]:
        return "join", f"the swarm at {self.manager}"


class LabelNodes(Step, frozen=True, kw_only=True):
    """On the manager: set `key`=role on nodes, given as (host, id, role). The id is '' if the host has yet to join."""

    key: str
    nodes: tuple[tuple[str, str, str], ...]
    why: str

    def line(self) -> tuple[str, str]:
        return "label", f"{fold(host for host, _, _ in self.nodes)} with {self.key}"


class UnlabelNodes(Step, frozen=True, kw_only=True):
    """On the manager: end the cluster's tasks on these nodes (ids), which left the cluster.

    Their label becomes LEFT. A later deploy removes the entry of such a node once it is down, if nobody else uses it.
    """

    key: str
    ids: tuple[str, ...]
    why: str

    def line(self) -> tuple[str, str]:
        return "unlabel", f"{_nodes(self.ids)}, {self.key}"


class ForgetNodes(Step, frozen=True, kw_only=True):
    """On the manager: remove the entries of nodes (ids) that will not come back."""

    ids: tuple[str, ...]
    why: str

    def line(self) -> tuple[str, str]:
        return "forget", f"{_nodes(self.ids)} that left or are down"


class SecretCreate(Step, frozen=True, kw_only=True):
    """On the manager: store a private key as a secret. `public` is its public half."""

    name: str
    cluster: str
    role: Role
    public: str
    content: Secret
    why: str

    def line(self) -> tuple[str, str]:
        return "create", f"{self.name} (secret)"


class SecretRemove(Step, frozen=True, kw_only=True):
    """On the manager: remove secrets that no service uses."""

    names: tuple[str, ...]
    why: str

    def line(self) -> tuple[str, str]:
        return "remove", f"secrets {', '.join(self.names)}"


class StackDeploy(Step, frozen=True, kw_only=True):
    """On the manager: `docker stack deploy` of the head's file. `restarts` names the hosts whose node is recreated."""

    folder: str
    stack: str
    restarts: tuple[str, ...]
    why: str

    def line(self) -> tuple[str, str]:
        started = f", starting new nodes on {fold(self.restarts)}" if self.restarts else ""
        return "deploy", f"docker stack deploy {self.stack}{started}"


class WaitTasks(Step, frozen=True, kw_only=True):
    """On the manager: wait until every service runs the wanted number of tasks of its current definition.

    `services` are (name, digest, tasks). `silent` are IDs of nodes that left the cluster and are down. Swarm believes
    for a day that their last tasks run.
    """

    services: tuple[tuple[str, str, int], ...]
    timeout_s: float
    why: str
    silent: tuple[str, ...] = ()

    def line(self) -> tuple[str, str]:
        return "wait", f"for {sum(count for _, _, count in self.services)} Swarm tasks"


class StackRemove(Step, frozen=True, kw_only=True):
    """On the manager: remove the cluster's services, secrets and node labels, and wait until its tasks are gone.

    `spares`: keep them if the cluster's head is a host outside the plan.
    """

    cluster: str
    why: str
    spares: bool = False

    def line(self) -> tuple[str, str]:
        return "remove", f"the stack of {self.cluster}, its secrets and labels"


class SwarmLeave(Step, frozen=True, kw_only=True):
    """Leave a swarm that kit made the host join. `others` are the ids of the nodes that leave at the same time.

    The host stays if the swarm has something of another cluster or of yours (swarm_leave.sh).
    """

    others: tuple[str, ...]
    why: str

    def line(self) -> tuple[str, str]:
        return "leave", "the swarm that kit made, unless something else needs it"


def _nodes(ids: tuple[str, ...]) -> str:
    return f"{len(ids)} node{'' if len(ids) == 1 else 's'}"
