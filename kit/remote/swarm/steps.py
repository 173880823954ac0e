"""One function for each kind of step that concerns Swarm. They talk to the engines of the VMs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from kit.errors import KitError, StepError
from kit.events import Warned
from kit.model import names
from kit.model.answer import OddAnswer, answer_of
from kit.model.host import Host
from kit.model.plan import Step
from kit.model.secret import Secret
from kit.model.swarm import (
    HEARTBEAT_S,
    LEFT,
    OPEN_PORTS,
    STACK_STAYS,
    ForgetNodes,
    LabelNodes,
    MakeFolder,
    RemoveNode,
    SecretCreate,
    SecretRemove,
    StackDeploy,
    StackRemove,
    SwarmInit,
    SwarmJoin,
    SwarmLeave,
    UnlabelNodes,
    WaitTasks,
    remove_stack,
)
from kit.remote.cluster.execution import Execution, require
from kit.remote.cluster.mountfaults import described, mount_fault
from kit.remote.engine.hiccups import persistently
from kit.remote.engine.limits import limits_hint
from kit.remote.scripts import script
from kit.remote.ssh import fanout
from kit.remote.ssh.transport import Completed, Transport
from kit.remote.swarm.down import DownNodes

TIMEOUT_S = 90.0
# Time for a change of one node of a swarm, in addition to TIMEOUT_S: a manager changes one after another.
CHANGE_S = 0.5
# node_lock.sh waits that long for what an earlier kit has left running on the host.
LOCK_S = 120.0
POLL_S = 0.3
# What kit down reports for a host that left the swarm.
MEMBERSHIP = "membership in the swarm"
# A task that failed this often on one node will not run.
ENOUGH_FAILURES = 3
# What swarm_leave.sh prints before the hostname of a member that keeps its manager.
_STAYS = "stays for "
# What it prints before each thing that the swarm would lose and that kit did not make.
_KEEPS = "keeps "
_ID = re.compile(r"[A-Za-z0-9]{1,64}")


def make_folder(_execution: Execution, transport: Transport, step: MakeFolder) -> None:
    done = transport.run(script("make_folder", step.path, step.mode))
    require(done, transport.host.name, f"the folder {step.path} could not be created", "volumes: in kit.yaml names it")


def remove_node(_execution: Execution, transport: Transport, step: RemoveNode) -> None:
    done = transport.run(script("remove_node", step.cluster), timeout_s=TIMEOUT_S)
    require(done, transport.host.name, "the node's container could not be removed", "look at it: docker ps -a")


def swarm_init(execution: Execution, transport: Transport, step: SwarmInit) -> None:
    name = transport.host.name
    argv = script("swarm_init", step.address, str(names.MANAGER_PORT), names.MEMBER, f"{HEARTBEAT_S}s")
    done = transport.run(argv, timeout_s=TIMEOUT_S)
    require(done, name, "docker swarm init failed", f"run it by hand: kit ssh {name} -- sudo docker swarm init")
    execution.swarm.ids[name] = _member_id(name, done.text.strip())


def swarm_join(execution: Execution, transport: Transport, step: SwarmJoin) -> None:
    name = transport.host.name
    request = {
        "ListenAddr": f"{step.address}:{names.MANAGER_PORT}",
        "AdvertiseAddr": step.address,
        "DataPathAddr": step.address,
        "RemoteAddrs": [step.manager],
        "JoinToken": execution.swarm.token(lambda: _join_token(execution)).reveal().decode(),
        "Availability": "active",
    }
    argv = script("swarm_join", names.MEMBER, step.image)
    done = transport.run(argv, stdin=json.dumps(request).encode(), timeout_s=TIMEOUT_S)
    require(done, name, f"the host could not join the swarm at {step.manager}", OPEN_PORTS)
    execution.swarm.ids[name] = _member_id(name, done.text.strip())


def _member_id(host: str, text: str) -> str:
    """Return the id of a node of the swarm. It becomes an argument of commands on other hosts. Raises AnswerError."""
    with answer_of(host, "the id of its node in the swarm"):
        if not _ID.fullmatch(text):
            raise OddAnswer("this is not an id", text or "''")
    return text


def _join_token(execution: Execution) -> Secret:
    """Get the token from the head over a separate connection."""
    with closing(execution.connect(execution.head)) as transport:
        done = transport.run(["docker", "swarm", "join-token", "--quiet", "worker"])
    require(done, execution.head.name, "the head gives no token to join its swarm", "is it a manager? docker node ls")
    return Secret(done.stdout.strip())


def swarm_leave(execution: Execution, transport: Transport, step: SwarmLeave) -> None:
    """Leave a swarm that kit made, unless a node must stay. A manager leaves only when all others have left."""
    progress = execution.swarm
    gone = " ".join([*step.others, *progress.left])
    argv = script("swarm_leave", names.MEMBER, " ".join(progress.stay), gone, execution.cluster)
    done = transport.run(argv, timeout_s=TIMEOUT_S)
    name = transport.host.name
    by_hand = f"by hand: kit ssh {name} -- sudo docker swarm leave --force"
    if STACK_STAYS in done.error_text:
        by_hand = remove_stack(name)
    require(done, name, "the host could not leave the swarm", by_hand)
    left = [_member_id(name, line[5:]) for line in done.text.splitlines() if line.startswith("left ")]
    progress.left += left
    execution.record_removed(transport.host.name, [MEMBERSHIP] * len(left))
    kept = [line.removeprefix(_KEEPS) for line in done.text.splitlines() if line.startswith(_KEEPS)]
    if kept:
        more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
        hint = f"to leave it, which deletes that: kit ssh {name} -- sudo docker swarm leave --force"
        text = f"{name} stays in its swarm, which has something that kit did not make: the {kept[0]}{more}"
        execution.reporter.report(Warned(text=text, hint=hint))
    for other in (line.removeprefix(_STAYS) for line in done.text.splitlines() if line.startswith(_STAYS)):
        # The manager may learn a minute late that a member left.
        hint = f"if {other} has just left it, wait a minute, then: kit down; otherwise, to end the swarm: "
        hint += f"sudo docker swarm leave on {other}, then sudo docker swarm leave --force on {name}"
        execution.reporter.report(Warned(text=f"{name} still manages its swarm: {other} is a member", hint=hint))


def label_nodes(execution: Execution, transport: Transport, step: LabelNodes) -> None:
    _set_labels(transport, step.key, [f"{node or execution.swarm.ids[host]}={role}" for host, node, role in step.nodes])


def unlabel_nodes(_execution: Execution, transport: Transport, step: UnlabelNodes) -> None:
    _set_labels(transport, step.key, [f"{node}={LEFT}" for node in step.ids])


def _set_labels(transport: Transport, key: str, pairs: Sequence[str]) -> None:
    done = transport.run(script("swarm_nodes", key, *pairs), timeout_s=TIMEOUT_S + CHANGE_S * len(pairs))
    require(done, transport.host.name, "the nodes of the swarm could not be labeled", "docker node ls shows them")


def forget_nodes(_execution: Execution, transport: Transport, step: ForgetNodes) -> None:
    argv = ["docker", "node", "rm", "--force", *step.ids]
    done = transport.run(argv, timeout_s=TIMEOUT_S + CHANGE_S * len(step.ids))
    require(done, transport.host.name, "lost nodes could not be removed from the swarm", "docker node ls shows them")


def secret_create(_execution: Execution, transport: Transport, step: SecretCreate) -> None:
    labels = {names.LABEL_CLUSTER: step.cluster, names.LABEL_ROLE: step.role, names.LABEL_PUBLIC: step.public}
    words = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    done = transport.run(["docker", "secret", "create", *words, step.name, "-"], stdin=step.content.reveal())
    require(done, transport.host.name, f"the secret {step.name} could not be created", "docker secret ls lists them")


def secret_remove(_execution: Execution, transport: Transport, step: SecretRemove) -> None:
    done = transport.run(["docker", "secret", "rm", *step.names])
    require(done, transport.host.name, "old secrets could not be removed", "docker secret ls lists them")


def stack_deploy(_execution: Execution, transport: Transport, step: StackDeploy) -> None:
    file = f"{step.folder}/{names.STACK_FILE}"
    argv = ["docker", "stack", "deploy", "--resolve-image", "never", "--prune", "--compose-file", file, step.stack]
    done = persistently(lambda: transport.run(argv, timeout_s=TIMEOUT_S), _outrun)
    name = transport.host.name
    require(done, name, "docker stack deploy failed", f"run it by hand: kit ssh {name} -- sudo {' '.join(argv)}")


def stack_remove(execution: Execution, transport: Transport, step: StackRemove) -> None:
    """Remove the cluster's stack on a manager. Do nothing on a host of no swarm, or if its cluster is elsewhere."""
    name = transport.host.name

    def remove(members: str) -> list[tuple[str, str, str]]:
        argv = script("swarm_remove", step.cluster, names.folder(step.cluster), members)
        done = transport.run(argv, timeout_s=LOCK_S + TIMEOUT_S + CHANGE_S * len(execution.hosts))
        if done.code != 0 and "sudo" in done.error_text:
            return []  # The next step on this host reports a login that cannot become root.
        require(done, name, "the stack could not be removed", "by hand: docker stack ls, docker stack rm")
        return [line.partition(" ") for line in done.text.splitlines()]

    lines = remove("" if step.spares else "all")
    if any(word == "apart" for word, _, _ in lines) and len(execution.hosts) > 1:
        # Perhaps the head is only not the first host any more. A host knows the ID of its own node.
        lines = remove(" ".join(_ids_of_others(execution, name)))
    for word, _, rest in lines:
        if word == "worker":
            raise _not_a_manager(step.cluster, name, rest)
        if word == "apart" and rest.startswith("node "):
            raise _not_the_head(step.cluster, name, rest.removeprefix("node "))
    # More than one host may have had a stack.
    execution.swarm.stay += [rest for word, _, rest in lines if word == "stay"]
    execution.record_removed(name, [rest for word, _, rest in lines if word == "removed"])


def _ids_of_others(execution: Execution, name: str) -> list[str]:
    """Return the IDs of the nodes that the other hosts are. A host that does not answer has none."""

    def read(host: Host) -> str:
        with closing(execution.connect(host)) as transport:
            return transport.run(["docker", "info", "--format", "{{.Swarm.NodeID}}"]).text.strip()

    others = [host for host in execution.hosts.values() if host.name != name]
    return [node for node in fanout.each(others, read).results.values() if _ID.fullmatch(node)]


def _not_a_manager(cluster: str, name: str, managers: str) -> StepError:
    whose = ", ".join(address.rpartition(":")[0] for address in managers.split()) or "not known"
    return StepError(
        f"is a worker in a swarm (managers: {whose}), so the stack of {cluster} cannot be removed there",
        hint="put the head first in the hosts file, then: kit down; to remove only this host: kit deploy without it, "
        f"then this again; if no manager answers: kit ssh {name} -- sudo docker swarm leave, then this again",
        host=name,
    )


def _not_the_head(cluster: str, name: str, head: str) -> StepError:
    return StepError(
        f"is a node of {cluster}, whose head is {head}; this hosts file does not have the head",
        hint="put the head first in the hosts file, then: kit down; to remove only this host: kit deploy without it, "
        "then this again",
        host=name,
    )


def wait_tasks(execution: Execution, transport: Transport, step: WaitTasks) -> None:
    """Wait until every task of the services runs the wanted definition."""
    start = changed = time.monotonic()
    services = [service for service, _, _ in step.services]
    wanted = {service: digest for service, digest, _ in step.services}
    total = sum(count for _, _, count in step.services)
    before: set[str] | None = None
    most = 0
    absent = DownNodes()
    while True:
        execution.check()
        text = transport.run(script("swarm_tasks", *services)).text
        tasks = [task for task in _tasks(text) if task.service in wanted]
        # Swarm also lists tasks that failed before somebody fixed the cause.
        before = {t.id for t in tasks} if before is None else before
        new = [t for t in tasks if t.digest == wanted[t.service]]
        running = sum(t.wanted == t.state == "running" for t in new)
        old = [t for t in tasks if t.state == "running" and t not in new and t.node not in step.silent]
        if running == total and not old:
            return
        execution.progress(transport.host.name, f"{running} of {total} tasks run")
        now = time.monotonic()
        if running > most:
            most, changed = running, now
        if absent.is_due(now, changed):
            absent.note(now, _down(execution, transport))
        gone = 0 < total - running <= len(absent.steady(changed))
        failed = [t for t in new if t.state in ("failed", "rejected") and t.id not in before]
        worst = next((t for t in failed if sum(f.node == t.node for f in failed) >= ENOUGH_FAILURES), None)
        if worst or gone or now - start > step.timeout_s:
            raise _no_tasks(execution, transport, worst, new, services[0].rpartition("_")[0])
        time.sleep(POLL_S)


def _down(execution: Execution, transport: Transport) -> list[str]:
    """Return 'HOSTNAME (ADDRESS)' of each node of the cluster that is down for the swarm."""
    return transport.run(script("swarm_down", names.node_label(execution.cluster))).text.splitlines()


def _outrun(done: Completed) -> bool:
    """Return whether Swarm refused a change because it had changed the service after the docker command read it."""
    return done.code != 0 and "update out of sequence" in done.error_text


class _Task:
    """A line of swarm_tasks.sh."""

    def __init__(self, line: str) -> None:
        words = line.split(" ", 6)
        self.service, self.id, self.node, self.wanted, self.state, self.digest = words[:6]
        self.error = words[6].strip() if len(words) > 6 else ""


def _tasks(text: str) -> list[_Task]:
    return [_Task(line) for line in text.splitlines() if line.count(" ") >= 5]


def _no_tasks(
    execution: Execution, transport: Transport, worst: _Task | None, tasks: Sequence[_Task], stack: str
) -> KitError:
    """Return an error with what Swarm reports about a task that does not run, or the nodes that get none."""
    name = transport.host.name
    waiting = [t for t in tasks if t.wanted == "running" and t.state != "running"]
    task = worst or next((t for t in waiting if t.error), None) or next(iter(waiting), None)
    where = next((host for host, node in execution.swarm.ids.items() if task and node == task.node), "")
    fault = mount_fault(task.error, execution.cluster, where or "HOST") if task else None
    if fault is not None:
        # Only a host that joined in this deploy is known by its ID.
        on = "" if where or task is None else f" on the node {task.node} of the swarm"
        return StepError(f"{described(fault)}{on}", hint=fault.hint, host=where or name)
    if task is None or not task.error:
        down = _down(execution, transport)
        if down:
            return StepError(
                f"Swarm starts no task on {', '.join(down)}, which is down for the swarm",
                hint=f"if that host has just started, wait a minute; otherwise {OPEN_PORTS}; then: kit deploy",
                host=name,
            )
    what = "a service" if task is None else task.service
    if task is not None and task.node != "-":
        what += f" on node {task.node}"
    why = f": {task.error or task.state}" if task else ""
    hint = (limits_hint(task.error) if task else None) or f"kit ssh {name} -- sudo docker stack ps --no-trunc {stack}"
    return StepError(f"Swarm does not start {what}{why}", hint=hint, host=name)


ON_HOST: Mapping[type[Step], Callable[[Execution, Transport, Any], None]] = {
    MakeFolder: make_folder,
    RemoveNode: remove_node,
    SwarmInit: swarm_init,
    SwarmJoin: swarm_join,
    SwarmLeave: swarm_leave,
    LabelNodes: label_nodes,
    UnlabelNodes: unlabel_nodes,
    ForgetNodes: forget_nodes,
    SecretCreate: secret_create,
    SecretRemove: secret_remove,
    StackDeploy: stack_deploy,
    StackRemove: stack_remove,
    WaitTasks: wait_tasks,
}
