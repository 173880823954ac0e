"""One function for each kind of step that does not concern Swarm (those are in kit/remote/swarm/steps.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, TypeAlias

from kit.errors import KitError, SlowError, StepError
from kit.events import HostDone, HostFailed, Warned
from kit.model import names
from kit.model.plan import (
    ComposeUp,
    CopyPlugin,
    DeleteFile,
    EndStagings,
    MakeDataFolder,
    Pull,
    RemoveCluster,
    RemovePlugins,
    Ship,
    Step,
    VerifyGpus,
    VerifyPeers,
    WaitSshd,
    WriteFile,
)
from kit.model.pretended import marked
from kit.model.registry import address_of, full_name
from kit.model.secret import Secret
from kit.model.swarm import STACK_STAYS, remove_stack
from kit.model.text import plural
from kit.remote.cluster.execution import Execution, require
from kit.remote.cluster.gpus import look_into_node
from kit.remote.cluster.mountfaults import described, mount_fault
from kit.remote.cluster.observe import listener_word
from kit.remote.cluster.peers import peer_failures
from kit.remote.engine import registry
from kit.remote.engine.hiccups import no_container, persistently
from kit.remote.engine.limits import limits_hint
from kit.remote.scripts import script
from kit.remote.ship.broadcast import ship
from kit.remote.ship.lanes import Target
from kit.remote.ssh.transport import Transport

# compose_up.sh waits up to 120 s for an earlier Compose that is still running.
COMPOSE_TIMEOUT_S = 300.0
COPY_TIMEOUT_S = 600.0
# What compose_up.sh writes after the folder if that has lost its Compose file.
_REMOVED = " was removed meanwhile"
# What remove.sh writes before the name of a data set that stays.
_KEPT = "kept "
# And what it writes if the home folders of ranks stay.
_HOME = "home stays"

# On one host; and on all hosts of a round at once, which returns the failures by host.
OnHost: TypeAlias = Callable[[Execution, Transport, Any], None]
OnAll: TypeAlias = Callable[[Execution, Mapping[str, Any]], Mapping[str, KitError]]


def ship_image(execution: Execution, steps: Mapping[str, Ship]) -> Mapping[str, KitError]:
    """Ship to all hosts that want the same image from the same source in one broadcast."""
    failures: dict[str, KitError] = {}
    for image, source, origin in dict.fromkeys((step.image, step.source, step.origin) for step in steps.values()):
        same = (image, source, origin)
        hosts = {host: step for host, step in steps.items() if (step.image, step.source, step.origin) == same}
        shipped = ship(
            image,
            owner=execution.cluster,
            targets=[Target(login=execution.logins[host], address=step.address) for host, step in hosts.items()],
            reporter=execution.reporter,
            source=Target(login=execution.logins[source[0]], address=source[1]) if source else None,
            origin=origin,
        )
        failures |= shipped.failures
    for host in steps:
        error = failures.get(host)
        if error is None:
            execution.reporter.report(HostDone(host=host, text="has the image"))
        else:
            error.address = error.address or execution.logins[host].address
            execution.reporter.report(HostFailed(host=host, text=error.message, hint=error.hint))
    return failures


def pull_image(execution: Execution, transport: Transport, step: Pull) -> None:
    """Let the host's engine pull. The transport is not used: the engine has its own connection."""
    name = transport.host.name
    login = execution.registries.login(address_of(full_name(step.source)))
    with closing(execution.engine_of(execution.logins[name])) as engine:
        registry.pull(engine, step, login, lambda text, fraction: execution.progress(name, text, fraction))


def write_file(execution: Execution, transport: Transport, step: WriteFile) -> None:
    content = step.content.reveal() if isinstance(step.content, Secret) else step.content
    argv = script("write_file", execution.folder, step.path, step.mode, str(len(content)))
    done = transport.run(argv, stdin=content)
    path = f"{execution.folder}/{step.path}"
    require(done, transport.host.name, f"{path} could not be written", "is its disk full? df -h")


def delete_file(execution: Execution, transport: Transport, step: DeleteFile) -> None:
    path = f"{execution.folder}/{step.path}"
    require(transport.run(["rm", "-f", "--", path]), transport.host.name, f"{path} could not be deleted", None)


def copy_plugin(_execution: Execution, transport: Transport, step: CopyPlugin) -> None:
    name = transport.host.name
    argv = script("copy_plugin", step.cluster, step.image, step.path, step.folder)
    done = transport.run(argv, timeout_s=COPY_TIMEOUT_S)
    what = f"nccl.plugin: {step.source}"
    hint = f"correct the folder in nccl.plugin, {step.source}:/FOLDER, or name another image; then: kit deploy"
    require(done, name, what, hint)


def remove_plugins(_execution: Execution, transport: Transport, step: RemovePlugins) -> None:
    done = transport.run(["rm", "-rf", "--", *step.folders])
    require(done, transport.host.name, f"{', '.join(step.folders)} could not be removed", None)


def make_data_folder(_execution: Execution, transport: Transport, step: MakeDataFolder) -> None:
    done = transport.run(script("make_data_folder", step.path))
    name = transport.host.name
    hint = f"data: in kit.yaml needs it; look at it: kit ssh {name} -- ls -ld {step.path.rpartition('/')[0]}"
    require(done, name, f"the folder {step.path} could not be made", hint)


def compose_up(execution: Execution, transport: Transport, step: ComposeUp) -> None:
    name = transport.host.name
    argv = script("compose_up", step.folder, *(["--force-recreate"] if step.recreate else []))
    try:
        done = persistently(lambda: transport.run(argv, timeout_s=COMPOSE_TIMEOUT_S), no_container)
    except SlowError as error:
        if not step.servers:
            raise
        late = f"docker compose up did not end within {COMPOSE_TIMEOUT_S:.0f} s"
        raise SlowError(
            f"{late}; the node mounts {', '.join(step.servers)}",
            hint="does that server answer, and is its port open from this host? 2049 for NFS, 988 for Lustre",
            host=name,
        ) from error
    fault = mount_fault(done.error_text, execution.cluster, name) if done.code != 0 else None
    if fault is not None:
        raise StepError(described(fault), hint=fault.hint, host=name)
    by_hand = f"kit ssh {name} -- sudo docker compose -f {step.folder}/{names.COMPOSE_FILE} up"
    removed = f"{step.folder}{_REMOVED}" in done.error_text
    hint = "run: kit deploy" if removed else limits_hint(done.error_text) or f"run it by hand: {by_hand}"
    require(done, name, "docker compose up failed", hint)


def wait_sshd(_execution: Execution, transport: Transport, step: WaitSshd) -> None:
    name = transport.host.name
    argv = script("wait_sshd", listener_word(step.address, step.port), f"{step.timeout_s:.0f}", step.container)
    done = transport.run(argv, timeout_s=step.timeout_s + 30)
    require(done, name, f"sshd does not answer on {step.address}:{step.port}", f"kit logs {name}")


def verify_gpus(execution: Execution, transport: Transport, step: VerifyGpus) -> None:
    name = transport.host.name
    node = look_into_node(transport, step.cluster)
    if node.uuids is None:
        text = f"{name}: kit cannot verify that the node sees the host's {plural(len(step.gpus), 'GPU')}"
        hint = (
            "add utility to NVIDIA_DRIVER_CAPABILITIES, in env: of kit.yaml or in the image.base, then run kit deploy; "
            f"or look at the devices: kit exec {name} -- sh -c 'ls /dev/nvidia*'"
        )
        execution.reporter.report(Warned(text=f"{text}: no nvidia-smi answers in it", hint=hint))
        return
    missing = [uuid for uuid in step.gpus if uuid not in node.uuids]
    if missing:
        cause = node.fault or f"{', '.join(missing)} is missing"
        text = f"the node sees {len(step.gpus) - len(missing)} of the host's {len(step.gpus)} GPUs: {cause}"
        raise StepError(
            marked(text, step.models),
            hint=f"see what it gets: kit exec {name} -- nvidia-smi -L; NVIDIA's settings on the host are in "
            "/etc/nvidia-container-runtime/config.toml and /etc/cdi; then: kit deploy",
            host=name,
        )


def verify_peers(_execution: Execution, transport: Transport, step: VerifyPeers) -> None:
    name = transport.host.name
    failed, done = peer_failures(transport, step.container, [address for _, address in step.peers])
    problems = [(peer, failed[address]) for peer, address in step.peers if address in failed]
    if problems:
        first, why = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise StepError(
            f"the head cannot reach {first}{more} by ssh: {why}",
            hint=_peer_hint(name, first, why),
            host=name,
        )
    require(done, name, "the head could not check its nodes", f"kit logs {name}")


def _peer_hint(head: str, peer: str, why: str) -> str:
    """Return what to do if the head's ssh to a node failed for this reason."""
    if "Permission denied" in why:
        # Its sshd answered. authorized_keys has from=, and a head with two networks may come from another address.
        return (
            f"{peer} accepts the key of {head} only from {head}'s address in the cluster's network; see from which it "
            f"came: kit logs {peer}; write that one as internal= of {head} in the hosts file, or correct the route; "
            "then: kit deploy"
        )
    return "open the port (ssh_port: in kit.yaml) between the VMs: firewall, security group"


def end_stagings(execution: Execution, transport: Transport, step: EndStagings) -> None:
    name = transport.host.name
    done = transport.run(script("data_end", step.cluster), timeout_s=COMPOSE_TIMEOUT_S)
    hint = f"look at it by hand: docker ps -a --filter label={names.LABEL_DATA}"
    require(done, name, "its stagings could not be ended", hint)
    execution.record_removed(name, done.text.splitlines())


def remove_cluster(execution: Execution, transport: Transport, step: RemoveCluster) -> None:
    name, slow = transport.host.name, next(iter(sorted(execution.slow)), None)
    if slow is not None and transport.run(["test", "-e", f"{step.folder}/{names.NODE_ENV}"]).code == 0:
        raise StepError(
            f"nothing was removed: {slow} did not remove the stack in time, and Swarm would start the node again",
            hint=f"see the failure of {slow}; then: kit down",
            host=name,
        )
    argv = script("remove", step.cluster, step.folder, "keep" if step.keep else "all", *step.images, "--", *step.data)
    done = transport.run(argv, timeout_s=COMPOSE_TIMEOUT_S)
    hint = remove_stack(name) if STACK_STAYS in done.error_text else "look at it by hand: docker ps -a"
    require(done, name, "the cluster could not be removed", hint)
    lines = done.text.splitlines()
    if _HOME in lines:
        execution.homes.append(name)
    execution.record_removed(name, [line for line in lines if line != _HOME and not line.startswith(_KEPT)])
    execution.record_kept(name, [line.removeprefix(_KEPT) for line in lines if line.startswith(_KEPT)])


ON_ALL: Mapping[type[Step], OnAll] = {Ship: ship_image}
ON_HOST: Mapping[type[Step], OnHost] = {
    Pull: pull_image,
    WriteFile: write_file,
    DeleteFile: delete_file,
    CopyPlugin: copy_plugin,
    RemovePlugins: remove_plugins,
    MakeDataFolder: make_data_folder,
    ComposeUp: compose_up,
    WaitSshd: wait_sshd,
    VerifyGpus: verify_gpus,
    VerifyPeers: verify_peers,
    EndStagings: end_stagings,
    RemoveCluster: remove_cluster,
}
