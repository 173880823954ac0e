"""What must be true of the hosts before anything is changed, if Swarm starts the containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.errors import KitError, StepError
from kit.model import names
from kit.model.launch import Node
from kit.model.observed import HostFacts
from kit.model.swarm import HEARTBEAT_S, OPEN_PORTS, SwarmNode
from kit.plan.cluster.gpus import swarm_driver

OLDEST = (20, 10)


def problems_of(observed: Sequence[HostFacts], nodes: Sequence[Node]) -> list[KitError]:
    """Return everything that prevents a deploy with Swarm. `nodes` has only the hosts with an address."""
    return _problems(observed, nodes, observed[0])


def problems_without_head(observed: Sequence[HostFacts], nodes: Sequence[Node]) -> list[KitError]:
    """Return what a host alone shows. `observed` lacks the head: kit did not examine it, or could not."""
    return _problems(observed, nodes, None)


def _problems(observed: Sequence[HostFacts], nodes: Sequence[Node], head: HostFacts | None) -> list[KitError]:
    addresses = {node.name: node.address for node in nodes}
    problems: list[KitError] = []
    for facts in observed:
        if not facts.engine:
            continue  # The checks for every deploy report this.
        problem = _engine(facts) or _swarm(facts, observed, head, addresses)
        if problem is None and facts.swarm.state != "active" and facts.host.name in addresses:
            problem = _ports(facts, addresses[facts.host.name], manager=facts is head)
        problems += [problem] if problem else []
    return problems


def short_heartbeat(head: HostFacts) -> str | None:
    """Return a warning if a swarm that kit did not make gives up nodes early, which ends the ranks on them."""
    beat = head.swarm.heartbeat_s
    if head.swarm.made or not 0 < beat < HEARTBEAT_S:
        return None
    return f"the swarm gives up a node after {3 * beat:.0f} s without contact, and then ends the ranks that run there"


def _engine(facts: HostFacts) -> KitError | None:
    name, swarm = facts.host.name, facts.swarm
    version = tuple(int(word) for word in facts.engine.split(".")[:2] if word.isdigit())
    if len(version) == 2 and version < OLDEST:
        return StepError(
            f"the engine {facts.engine} is older than 20.10, and would silently drop the limits (ulimits)",
            hint="install a newer engine, or set orchestrator: compose in kit.yaml",
            host=name,
        )
    if swarm.live_restore and swarm.state == "inactive":
        return StepError(
            "the engine has live-restore on, and then takes no part in a swarm",
            hint='take "live-restore" out of /etc/docker/daemon.json and restart the engine; or orchestrator: compose',
            host=name,
        )
    if swarm.remaps_users:
        return StepError(
            "the engine has userns-remap on, and then Swarm cannot give the VM's network to a container",
            hint='set orchestrator: compose in kit.yaml; or take "userns-remap" out of /etc/docker/daemon.json and '
            "restart the engine, which then no longer shows its containers and images",
            host=name,
        )
    driver = swarm_driver(facts)
    return driver if isinstance(driver, StepError) else None


def _swarm(
    facts: HostFacts, observed: Sequence[HostFacts], head: HostFacts | None, addresses: Mapping[str, str]
) -> KitError | None:
    """Return a problem if the host is in a swarm that is not the head's, or whose manager the head is not.

    Nobody is advised to leave a swarm that may be the head's: its engine may be down, or its swarm locked.
    """
    name, swarm = facts.host.name, facts.swarm
    known = head is not None and bool(head.engine) and head.swarm.state in ("active", "inactive")
    whose = _managers(facts)
    leave = f"kit ssh {name} -- sudo docker swarm leave{' --force' if swarm.manager or swarm.state != 'active' else ''}"
    problem: tuple[str, str] | None = None
    if swarm.state == "inactive":
        return None
    if swarm.state == "locked":
        problem = "its swarm is locked", f"kit ssh {name} -- sudo docker swarm unlock; then: kit deploy"
    elif swarm.state != "active":
        why = f": {swarm.error}" if swarm.error else ""
        way = f"or leave that swarm: {leave}"
        if not known and facts is not head:
            way = "it needs its managers, so look at the head first: kit doctor"
        problem = f"its membership in a swarm is {swarm.state}{why}", f"wait a little; {way}"
    elif head is None or not known:
        return None
    elif facts is head and not swarm.manager:
        problem = (
            f"is a worker in a swarm (managers: {whose}), and the head has to be a manager",
            f"on a manager: sudo docker node promote {swarm.node_id}; or put a manager first in the hosts file; "
            f"or leave it: {leave}",
        )
    elif not head.swarm.manager:
        # The swarm that kit made may have lost its only manager with the head's old VM. kit can make another one.
        again = swarm.made and names.NODE_ENV in facts.files and not any(other.swarm.manager for other in observed)
        first = f"if the VM of {head.host.name} was replaced: kit down, then kit deploy; or " if again else ""
        problem = (
            f"is in a swarm already (managers: {whose}), and the head {head.host.name} is not in it",
            f"{first}put a manager of that swarm first in the hosts file; or leave it: {leave}",
        )
    elif not _listed(head, head):
        # The head then knows no member. Nothing can be said of the others, and leaving would lose what the head has.
        problem = _no_leader(head, addresses.get(head.host.name)) if facts is head else None
    else:
        problem = _entry(facts, head, leave)
    return None if problem is None else StepError(problem[0], hint=problem[1], host=name)


def _entry(facts: HostFacts, head: HostFacts, leave: str) -> tuple[str, str] | None:
    """Return what is wrong with the host's entry in the list of the head, its manager, and what to do."""
    entry, first = _listed(head, facts), head.host.name
    if entry is None:
        return f"is in another swarm (managers: {_managers(facts)}) than the head {first}", f"leave it: {leave}"
    if entry.availability != "active":
        return (
            f"its availability in the swarm is {entry.availability}, so it gets no task",
            f"kit ssh {first} -- sudo docker node update --availability active {entry.id}",
        )
    if entry.state == "down" and facts is not head and any(c.swarm and c.running for c in facts.containers):
        # A host without a task may have just started. The swarm then sees it in a moment, and starts its task.
        return f"is down for the swarm: its engine does not reach the head {first}", f"{OPEN_PORTS}; then: kit deploy"
    return None


def _no_leader(head: HostFacts, address: str | None) -> tuple[str, str]:
    """Return why a manager lists no nodes, not even itself, and what to do."""
    error = head.swarm.error
    what = "its swarm has no leader" if "leader" in error else "its swarm does not list its nodes"
    listen = f" --advertise-addr {address} --listen-addr {address}:{names.MANAGER_PORT}" if address else ""
    return (
        f"{what}{': ' + error if error else ''}",
        f"wait a minute, and start the swarm's other managers if they are down (managers: {_managers(head)}); only if "
        f"they are lost for good: kit ssh {head.host.name} -- sudo docker swarm init --force-new-cluster{listen}",
    )


def _listed(head: HostFacts, facts: HostFacts) -> SwarmNode | None:
    """Return the head's entry of the host."""
    return next((node for node in head.swarm.nodes if node.id == facts.swarm.node_id), None)


def _managers(facts: HostFacts) -> str:
    return ", ".join(address.rpartition(":")[0] for address in facts.swarm.managers) or "not known"


def _ports(facts: HostFacts, address: str, *, manager: bool) -> KitError | None:
    """Return a problem if another program listens where this host's engine is going to listen."""
    own = {f"{address}:", "0.0.0.0:"}

    def taken(port: int, by: frozenset[str]) -> list[str]:
        return sorted(word for word in (f"{start}{port}" for start in own) if word in by - facts.swarm.ports)

    busy = [f"{word} (tcp)" for word in taken(names.GOSSIP_PORT, facts.listening)]
    if manager:
        busy += [f"{word} (tcp)" for word in taken(names.MANAGER_PORT, facts.listening)]
    busy += [f"{word} (udp)" for port in (names.GOSSIP_PORT, names.DATA_PORT) for word in taken(port, facts.udp)]
    if not busy:
        return None
    return StepError(
        f"Swarm needs ports that are taken: {', '.join(busy)}",
        hint="Swarm cannot use other ports: stop what listens there, or set orchestrator: compose",
        host=facts.host.name,
    )
