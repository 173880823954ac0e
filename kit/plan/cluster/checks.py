"""What must be true of the hosts before anything is changed. Each problem names the host, the cause and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import KitError, StepError
from kit.model import names
from kit.model.launch import ClusterRecord, Node
from kit.model.nccl import LIBRARY
from kit.model.observed import HostFacts
from kit.model.spec import ClusterSpec
from kit.plan.cluster import fence
from kit.plan.cluster.gpus import compose_driver

MIB = 1024 * 1024
# While the engine loads a layer, the disk holds it three times: as received, as the engine copied it, and unpacked.
SHIP_FACTOR = 3
# The oldest Python that the program receiving layers runs on.
PYTHON = (3, 6)
# Engines and kernels name the same processors differently.
_KERNELS = {"amd64": "x86_64", "arm64": "aarch64", "386": "i686", "arm": "armv7l"}


def bind_sources(spec: ClusterSpec) -> list[str]:
    """Return the paths on VMs that volumes name."""
    return [volume.split(":")[0] for volume in spec.volumes if volume[0] in "/."]


def devices(spec: ClusterSpec) -> list[str]:
    """Return the devices on VMs that kit.yaml names."""
    return [device.split(":")[0].rstrip("/") for device in spec.devices]


def needed_paths(spec: ClusterSpec) -> list[str]:
    """Return the paths that every host must have: no engine would create them. Their last part may be a pattern."""
    plugin = [nccl_library(spec.nccl.folder)] if spec.nccl.folder else []
    return [*devices(spec), *([fence.HUGE_PAGES] if spec.hugepages else []), *plugin]


def nccl_library(folder: str) -> str:
    """Return the pattern of the library that NCCL loads from the folder of its network plugin."""
    return f"{folder.rstrip('/')}/{LIBRARY}"


def missing_sources(observed: Sequence[HostFacts], spec: ClusterSpec) -> list[str]:
    """Return the sources of volumes that no host has. The engines would create them, empty."""
    sources = dict.fromkeys(bind_sources(spec))
    return [source for source in sources if all(source in facts.absent for facts in observed)]


def host_problems(facts: HostFacts, *, image_size: int, compose: bool = True, ships: bool = True) -> list[KitError]:
    """Return the problems of one host. `image_size` is in bytes, 0 if the host has the image or the size is unknown.

    `compose`: whether Compose starts the container. `ships`: whether kit ships a missing image, and the host's engine
    does not pull it.
    """
    problem = engine_problem(facts)
    if problem is not None:
        return [problem]
    # The checks for Swarm report what Swarm needs.
    driver = compose_driver(facts) if compose else ""
    problems = (
        compose_problem(facts) if compose else None,
        driver if isinstance(driver, StepError) else None,
        python_problem(facts) if ships else None,
        disk_problem(facts, image_size),
    )
    return [problem for problem in problems if problem is not None]


def engine_problem(facts: HostFacts) -> StepError | None:
    if facts.engine:
        return None
    if facts.podman:
        return podman_problem(facts.host.name)
    if facts.slow:
        reach = f"kit ssh {facts.host.name} --"
        return StepError(
            "the Docker Engine did not answer in time",
            hint=f"look at the load of the host: {reach} uptime; if the engine hangs, restart it, which ends the "
            f"containers there: {reach} sudo systemctl restart docker",
            host=facts.host.name,
        )
    return StepError(
        "no Docker Engine answers",
        hint="install it: kit setup --only docker; or start it: sudo systemctl start docker",
        host=facts.host.name,
    )


def podman_problem(host: str) -> StepError:
    """Return the error for a host whose command `docker` is Podman's."""
    return StepError(
        "its docker is Podman, which cannot run kit's nodes",
        hint=f"remove it: kit ssh {host} -- sudo apt-get remove podman-docker (or: dnf remove podman-docker); then: "
        "kit setup, or install Docker Engine by hand: https://docs.docker.com/engine/install/",
        host=host,
    )


def snap_problem(host: str) -> StepError:
    """Return the error for a host whose Docker is a snap."""
    return StepError(
        f"its Docker is a snap, which cannot read {names.ROOT} and gives no GPU to containers",
        hint=f"remove it, with its containers and images: kit ssh {host} -- sudo snap remove docker; then: kit setup",
        host=host,
    )


def compose_problem(facts: HostFacts) -> StepError | None:
    if not facts.engine or facts.compose is not None:
        return None
    return StepError(
        f"the engine {facts.engine} has no Compose v2 plugin",
        hint="kit setup --only docker; or install docker-compose-plugin (Docker's) or docker-compose-v2 (Ubuntu's)",
        host=facts.host.name,
    )


def python_problem(facts: HostFacts) -> StepError | None:
    """Return a problem if the host lacks the image and could not receive it."""
    if facts.image_id is not None or python_fits(facts.python):
        return None
    what = f"has Python {facts.python}" if facts.python else "has no python3"
    return StepError(
        f"{what}; Python 3.6 or newer is required to receive images",
        hint="sudo apt-get install python3 (or: dnf install python3)",
        host=facts.host.name,
    )


def disk_problem(facts: HostFacts, image_size: int) -> StepError | None:
    """Return a problem if the host lacks the image and the room for it. `image_size` is as for `host_problems`."""
    return disk_short(facts, image_size, "the image") if facts.image_id is None else None


def disk_short(facts: HostFacts, image_size: int, what: str) -> StepError | None:
    """Return a problem if the host has no room for `what`. `image_size` is in bytes, 0 if it is unknown."""
    if not image_size or facts.disk_free_mib >= image_size * SHIP_FACTOR / MIB:
        return None
    return StepError(
        f"{facts.disk_free_mib} MiB are free for the engine, and {what} needs "
        f"{int(image_size * SHIP_FACTOR / MIB)} while it is loaded",
        hint="make room: docker system prune, or a larger disk",
        host=facts.host.name,
    )


def arch_problems(facts: HostFacts, arches: tuple[str, ...]) -> list[KitError]:
    """Return a problem if the image is for other processors than the host's. Either may be unknown."""
    hint = "build it on such a host: builder: head in kit.yaml, or kit deploy --builder head"
    problem = arch_differs(facts, arches, "the image", hint) if facts.image_id is None else None
    return [problem] if problem else []


def arch_differs(facts: HostFacts, arches: tuple[str, ...], what: str, hint: str) -> StepError | None:
    """Return a problem if `what` is for other processors than the host's. Either may be unknown."""
    wanted = {_KERNELS.get(arch, arch) for arch in arches}
    if not wanted or not facts.arch or facts.arch in wanted:
        return None
    text = f"is {facts.arch}, and {what} is for {' and '.join(sorted(wanted))}"
    return StepError(text, hint=hint, host=facts.host.name)


def python_fits(version: str | None) -> bool:
    """Return whether kit's programs for VMs run on this Python."""
    words = (version or "").split(".")
    return len(words) > 1 and words[0].isdigit() and words[1].isdigit() and (int(words[0]), int(words[1])) >= PYTHON


def port_problem(
    facts: HostFacts, spec: ClusterSpec, node: Node, before: ClusterRecord | None = None
) -> KitError | None:
    """Return a problem if another program listens on the port that the node's sshd needs.

    `before` is the record of the last deploy, or None without one.
    """
    if not facts.engine and facts.files:
        return None  # Only the engine knows whether the cluster's own node listens there.
    ours = any(c.running for c in facts.containers if c.cluster == spec.name)
    if before is not None and before.ssh_port != spec.ssh_port:
        # A node has one port. While it listens on that of the last deploy, somebody else has the new one.
        ours = ours and f"{node.address}:{before.ssh_port}" not in facts.listening
    # A node listens on its own address only. Another program has what is taken on all addresses: ssh_port may be new.
    wanted = {f"0.0.0.0:{spec.ssh_port}"}
    if not ours:
        wanted.add(f"{node.address}:{spec.ssh_port}")
    taken = wanted & facts.listening
    if not taken:
        return None
    others = sorted({c.cluster for c in facts.containers if c.running and c.cluster != spec.name})
    whose = f" by the cluster {', '.join(others)}" if others else ""
    return StepError(
        f"port {spec.ssh_port} is taken{whose} ({', '.join(sorted(taken))})",
        hint="set another ssh_port: in kit.yaml"
        + (f", or use that cluster (name: {others[0]}), or take it down" if others else ""),
        host=facts.host.name,
    )


def cluster_problems(observed: Sequence[HostFacts], nodes: Sequence[Node]) -> list[KitError]:
    """Return problems that only a comparison of hosts shows."""
    return [*one_machine_problems(nodes), *mixed_arch_problems(observed)]


def one_machine_problems(nodes: Sequence[Node]) -> list[KitError]:
    """Return a problem for each node whose address an earlier one has."""
    problems: list[KitError] = []
    owners: dict[str, str] = {}
    for node in nodes:
        if node.address in owners:
            problems.append(
                StepError(
                    f"has the address {node.address}, as {owners[node.address]} has: they are one machine",
                    hint="remove one of the two from the hosts file",
                    host=node.name,
                )
            )
        owners.setdefault(node.address, node.name)
    return problems


def mixed_arch_problems(observed: Sequence[HostFacts]) -> list[KitError]:
    """Return a problem for each host with other processors than most hosts have."""
    arches: dict[str, list[str]] = {}
    for facts in observed:
        arches.setdefault(facts.arch, []).append(facts.host.name)
    if len(arches) < 2:
        return []
    usual = max(arches, key=lambda arch: len(arches[arch]))
    return [
        StepError(
            f"is {arch}, the other hosts are {usual}",
            hint="one image serves one architecture: take these hosts out of the hosts file",
            host=name,
        )
        for arch, names in arches.items()
        if arch != usual
        for name in names
    ]


def container_is_current(facts: HostFacts, spec: ClusterSpec, service: str, digest: str) -> bool:
    """Return whether exactly the wanted container of the cluster runs on the host."""
    own = [c for c in facts.containers if c.cluster == spec.name]
    return (
        len(own) == 1
        and own[0].running
        and own[0].spec == digest
        and own[0].name == names.container(spec.name, service)
        and own[0].service == service
    )
