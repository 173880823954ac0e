"""Does the steps that concern Swarm, on the VMs' own engines.

What steps tell each other is kept here: ids of nodes that have just joined, and the token with which they do. It goes
from the head to a host's standard input, and stands nowhere.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from kit.errors import KitError, StepError
from kit.model import names
from kit.model.host import Host
from kit.model.secret import Secret
from kit.model.swarm import (
    HEARTBEAT_S,
    LEFT,
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
from kit.remote.engine.hiccups import persistently
from kit.remote.scripts import script
from kit.remote.ssh.transport import Completed, Connect, Transport

TIMEOUT_S = 90.0
POLL_S = 0.3
# A task that failed so often in its new form will not run.
ENOUGH_FAILURES = 3

Say = Callable[[str, str], None]


class SwarmHands:
    """For one execution of a plan. `head` is the host whose swarm it is. Used by several threads, one a host."""

    def __init__(self, *, head: Host, connect: Connect, say: Say, check: Callable[[], None] = lambda: None) -> None:
        self._head = head
        self._connect = connect
        self._say = say
        self._check = check
        self._ids: dict[str, str] = {}
        self._token: Secret | None = None
        self._asking = threading.Lock()

    def do(self, transport: Transport, step: SwarmStep) -> None:
        """One step, on the host of the transport. Raises StepError."""
        name = transport.host.name
        match step:
            case MakeFolder():
                done = transport.run(script("make_folder", step.path, step.mode))
                _ok(done, name, f"the folder {step.path} could not be made", "volumes: in kit.yaml names it")
            case RemoveNode():
                self._say(name, "removing the node's container")
                done = transport.run(script("remove_node", step.cluster), timeout_s=TIMEOUT_S)
                _ok(done, name, "the node's container could not be removed", "look at it by hand: docker ps -a")
            case SwarmInit():
                self._say(name, "docker swarm init")
                argv = script("swarm_init", step.address, str(names.MANAGER_PORT), names.MEMBER, f"{HEARTBEAT_S}s")
                done = transport.run(argv, timeout_s=TIMEOUT_S)
                _ok(done, name, "docker swarm init failed", f"by hand: kit ssh {name} -- docker swarm init")
                self._ids[name] = done.text.strip()
            case SwarmJoin():
                self._join(transport, step)
            case SwarmLeave():
                leave(transport, gone=step.others)
            case _:
                self._manage(transport, step)

    def _manage(self, transport: Transport, step: ManagerStep) -> None:
        """A step for the whole swarm, on its manager."""
        name = transport.host.name
        match step:
            case LabelNodes() | UnlabelNodes() | ForgetNodes():
                self._nodes(transport, step)
            case SecretCreate():
                labels = {
                    names.LABEL_CLUSTER: step.cluster,
                    names.LABEL_ROLE: step.role,
                    names.LABEL_PUBLIC: step.public,
                }
                words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
                argv = ["docker", "secret", "create", *words, step.name, "-"]
                done = transport.run(argv, stdin=step.content.reveal())
                _ok(done, name, f"the secret {step.name} could not be made", "docker secret ls shows what is there")
            case SecretRemove():
                done = transport.run(["docker", "secret", "rm", *step.names])
                _ok(done, name, "old secrets could not be removed", "docker secret ls shows what is there")
            case StackDeploy():
                self._say(name, "docker stack deploy")
                file = f"{step.folder}/{names.STACK_FILE}"
                argv = ["docker", "stack", "deploy", "--resolve-image", "never", "--prune", "--compose-file", file]
                argv = [*argv, step.stack]
                done = persistently(lambda: transport.run(argv, timeout_s=TIMEOUT_S), _outrun)
                _ok(done, name, "docker stack deploy failed", f"by hand: {' '.join(argv)}")
            case WaitTasks():
                self._wait(transport, step)
            case StackRemove():
                self._say(name, f"removing the stack of {step.cluster}")
                remove_stack(transport, step.cluster)

    def _join(self, transport: Transport, step: SwarmJoin) -> None:
        name = transport.host.name
        self._say(name, "joining the swarm")
        request = {
            "ListenAddr": f"{step.address}:{names.MANAGER_PORT}",
            "AdvertiseAddr": step.address,
            "DataPathAddr": step.address,
            "RemoteAddrs": [step.manager],
            "JoinToken": self._join_token().reveal().decode(),
            "Availability": "active",
        }
        done = transport.run(
            script("swarm_join", names.MEMBER, step.image), stdin=json.dumps(request).encode(), timeout_s=TIMEOUT_S
        )
        gossip = names.GOSSIP_PORT
        hint = (
            f"open {names.MANAGER_PORT}/tcp to the head, and {gossip}/tcp, {gossip}/udp, {names.DATA_PORT}/udp among "
            "all VMs (firewall, security group)"
        )
        _ok(done, name, f"it could not join the swarm at {step.manager}", hint)
        self._ids[name] = done.text.strip()

    def _join_token(self) -> Secret:
        """Asked of the head once, over a connection of its own: hosts join side by side."""
        with self._asking:
            if self._token is None:
                with closing(self._connect(self._head)) as transport:
                    done = transport.run(["docker", "swarm", "join-token", "--quiet", "worker"])
                _ok(done, self._head.name, "it gives no token to join its swarm", "is it a manager? docker node ls")
                self._token = Secret(done.stdout.strip())
            return self._token

    def _nodes(self, transport: Transport, step: LabelNodes | UnlabelNodes | ForgetNodes) -> None:
        name = transport.host.name
        if isinstance(step, ForgetNodes):
            done = transport.run(["docker", "node", "rm", "--force", *step.ids])
            _ok(done, name, "lost nodes could not be removed from the swarm", "docker node ls shows them")
            return
        if isinstance(step, UnlabelNodes):
            pairs = [f"{node}={LEFT}" for node in step.ids]
        else:
            pairs = [f"{node or self._ids[host]}={role}" for host, node, role in step.nodes]
        done = transport.run(script("swarm_nodes", step.key, *pairs), timeout_s=TIMEOUT_S)
        _ok(done, name, "nodes of the swarm could not be labelled", "docker node ls shows them")

    def _wait(self, transport: Transport, step: WaitTasks) -> None:
        """Until every task of the services is a running one of the wanted definition."""
        start = time.monotonic()
        services = [service for service, _, _ in step.services]
        wanted = {service: digest for service, digest, _ in step.services}
        total = sum(count for _, _, count in step.services)
        before: set[str] | None = None
        while True:
            self._check()
            tasks = _tasks(transport.run(script("swarm_tasks", *services)).text)
            # Swarm remembers tasks that failed before somebody mended the cause.
            before = {t.id for t in tasks} if before is None else before
            new = [t for t in tasks if t.digest == wanted[t.service]]
            running = sum(t.wanted == t.state == "running" for t in new)
            old = [t for t in tasks if t.state == "running" and t not in new]
            if running == total and not old:
                return
            self._say(transport.host.name, f"{running} of {total} tasks run")
            failed = [t for t in new if t.state in ("failed", "rejected") and t.id not in before]
            worst = next((t for t in failed if sum(f.node == t.node for f in failed) >= ENOUGH_FAILURES), None)
            if worst or time.monotonic() - start > step.timeout_s:
                raise _no_tasks(transport.host.name, worst, new, services[0].rpartition("_")[0])
            time.sleep(POLL_S)


def _outrun(done: Completed) -> bool:
    """Whether Swarm refused a change, since it had changed the service itself after the docker command looked at it."""
    return done.code != 0 and "update out of sequence" in done.error_text


class _Task:
    """A line of swarm_tasks.sh."""

    def __init__(self, line: str) -> None:
        words = line.split(" ", 6)
        self.service, self.id, self.node, self.wanted, self.state, self.digest = words[:6]
        self.error = words[6].strip() if len(words) > 6 else ""


def _tasks(text: str) -> list[_Task]:
    return [_Task(line) for line in text.splitlines() if line.count(" ") >= 5]


def _no_tasks(name: str, worst: _Task | None, tasks: Sequence[_Task], stack: str) -> KitError:
    """What Swarm itself says of a task that does not run."""
    waiting = [t for t in tasks if t.wanted == "running" and t.state != "running"]
    told = worst or next((t for t in waiting if t.error), None) or next(iter(waiting), None)
    what = "a service" if told is None else told.service
    if told is not None and told.node != "-":
        what += f" on node {told.node}"
    why = f": {told.error or told.state}" if told else ""
    hint = f"kit ssh {name} -- docker stack ps --no-trunc {stack}"
    return StepError(f"Swarm does not start {what}{why}", hint=hint, host=name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unstacked:
    """`removed` has a line for each thing, `stay` the ids of nodes that others need in the swarm, or `all`."""

    manager: bool = False
    removed: tuple[str, ...] = ()
    stay: tuple[str, ...] = ()


def remove_stack(transport: Transport, cluster: str) -> Unstacked:
    """On a manager; elsewhere nothing happens."""
    done = transport.run(script("swarm_remove", cluster), timeout_s=TIMEOUT_S)
    if done.code != 0 and "sudo" in done.error_text:
        return Unstacked()  # A login that cannot become root is told with the hosts.
    _ok(done, transport.host.name, "the stack could not be removed", "by hand: docker stack ls, docker stack rm")
    lines = [line.partition(" ") for line in done.text.splitlines()]
    return Unstacked(
        manager=any(word == "manager" for word, _, _ in lines),
        removed=tuple(rest for word, _, rest in lines if word == "removed"),
        stay=tuple(rest for word, _, rest in lines if word == "stay"),
    )


def leave(transport: Transport, *, stay: Sequence[str] = (), gone: Sequence[str] = ()) -> str | None:
    """Leave a swarm that kit made. Returns the id of the node that left; None where it had no reason to.

    `stay`: ids of nodes that must not, or `all`. A manager leaves last: when all others are `gone`, or down.
    """
    done = transport.run(script("swarm_leave", names.MEMBER, " ".join(stay), " ".join(gone)), timeout_s=TIMEOUT_S)
    _ok(done, transport.host.name, "it could not leave the swarm", "by hand: docker swarm leave --force")
    return next((line.split()[1] for line in done.text.splitlines() if line.startswith("left ")), None)


def _ok(done: Completed, host: str, what: str, hint: str) -> None:
    if done.code == 0:
        return
    lines = (done.error_text or done.text.strip()).splitlines()
    said = "\n".join(lines[-8:]) if lines else f"exit {done.code}"
    raise StepError(f"{what}: {said}", hint=hint, host=host)
