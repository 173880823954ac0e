"""ClusterSpec: the values of a kit.yaml, with their defaults. kit.config.fields says what each one accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from kit.model.data import DataSpec
from kit.model.nccl import PluginImage, plugin_image

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?", re.ASCII)
# The value of `code` that means: no folder, also if kit.yaml names one.
NO_CODE = "none"
# The capabilities of Linux 6, as Compose writes them (capabilities(7)).
CAPABILITIES = (
    "AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "CHOWN",
    "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "LINUX_IMMUTABLE",
    "MAC_ADMIN", "MAC_OVERRIDE", "MKNOD", "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "PERFMON",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE",
    "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "SYSLOG", "WAKE_ALARM",
)  # fmt: skip
PROPAGATIONS = frozenset({"shared", "rshared", "slave", "rslave", "private", "rprivate"})

# What an image can be. `auto` leaves that to the hosts; `gpu` and `cuda` are `auto` that requires GPUs.
FlavourSetting = Literal[
    "auto", "gpu", "cuda", "cpu", "pytorch", "cuda-tensorflow", "cuda-mxnet", "cuda-pytorch", "ssh-layer"
]
Flavour = Literal["cpu", "pytorch", "cuda-tensorflow", "cuda-mxnet", "cuda-pytorch", "ssh-layer"]
_TF_BENCHMARK = ("tf_benchmark", "--model", "resnet50")
_BENCHMARKS: Mapping[str, tuple[str, ...]] = {
    "cuda-mxnet": ("mxnet_benchmark", "--model", "resnet50_v1"),
    "pytorch": ("torch_benchmark", "--model", "resnet50"),
    "cuda-pytorch": ("torch_benchmark", "--model", "resnet50"),
}
Framework = Literal["tensorflow", "mxnet", "pytorch"]
Orchestrator = Literal["compose", "swarm"]
NcclNetwork = Literal["any", "IB", "PLUGIN", "Socket"]
Binding = Literal["auto", "none", "core", "socket", "numa", "hwthread"]


class ImageSpec(Struct, frozen=True, kw_only=True):
    """The image that every node runs."""

    flavour: FlavourSetting = "auto"
    base: str | None = None
    frameworks: tuple[Framework, ...] = ("tensorflow", "mxnet")
    packages: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    wheels: str | None = None


class SshSpec(Struct, frozen=True, kw_only=True):
    """How kit reaches the VMs. None leaves the choice to ssh."""

    user: str | None = None
    port: int | None = None
    key: str | None = None
    known_hosts: str | None = None
    keep: bool = True


class UlimitSpec(Struct, frozen=True, kw_only=True):
    """Limits of the containers. `stack` is in bytes. None leaves the limit to the engine."""

    memlock: Literal["unlimited", "default"] = "unlimited"
    nofile: int | None = None
    stack: int | None = 67108864


class SecuritySpec(Struct, frozen=True, kw_only=True):
    """The fence around the containers (docs/nodes.md). `pids` limits processes and threads; 0 means no limit."""

    capabilities: tuple[str, ...] = ()
    new_privileges: bool = False
    read_only: bool = True
    pids: int = 32768
    seccomp: Literal["default", "unconfined"] = "default"


class MpiSpec(Struct, frozen=True, kw_only=True):
    """Options for mpirun."""

    bind_to: Binding = "auto"
    yield_when_idle: Literal["auto"] | bool = "auto"
    allreduce: Literal["auto", "openmpi"] = "auto"
    args: tuple[str, ...] = ()


class NcclSpec(Struct, frozen=True, kw_only=True):
    """The network of NCCL. A run ends if NCCL does not use what it must `require`.

    `plugin` is a folder of the VMs, or IMAGE:/FOLDER (kit.model.nccl).
    """

    plugin: str | None = None
    require: NcclNetwork = "any"

    @property
    def image(self) -> PluginImage | None:
        """Return the image that has the plugin. None without a plugin, and for one in a folder of the VMs."""
        return plugin_image(self.plugin) if self.plugin else None

    @property
    def folder(self) -> str | None:
        """Return the folder of the VMs that has the plugin. None without a plugin, and for one in an image."""
        return self.plugin if self.plugin and self.image is None else None


class RunsSpec(Struct, frozen=True, kw_only=True):
    """How kit cleans up after runs."""

    clean: Literal["all", "none"] = "all"
    ttl_days: float = 30.0
    keep: int = 200


class SetupSpec(Struct, frozen=True, kw_only=True):
    """What `kit setup` does beyond its defaults. `mtu` None leaves it alone; `hugepages` counts pages of 1 GiB.

    `driver` is a branch of NVIDIA's driver on Ubuntu, such as 570-server. `proxy` and `no_proxy` are the engine's.
    """

    docker: Literal["auto", "distribution", "docker.com"] = "auto"
    driver: str | None = None
    proxy: str | None = None
    no_proxy: str | None = None
    mtu: int | None = None
    hugepages: int = 0


class ClusterSpec(Struct, frozen=True, kw_only=True):
    """All settings of a kit.yaml. Nothing is checked here: kit.config.validate makes a valid one from text.

    `user` is UID:GID of the ranks, or None for root. `cpus` limits a node's share of the CPUs, or gives each run CPUs
    for itself. `pids` is another way to write security.pids.
    """

    name: str = "kit"
    orchestrator: Orchestrator = "compose"
    image: ImageSpec = field(default_factory=ImageSpec)
    builder: Literal["local", "head"] = "local"
    registry: str | None = None
    ssh: SshSpec = field(default_factory=SshSpec)
    ssh_port: int = 33
    network: str = "auto"
    interfaces: tuple[str, ...] = ()
    slots: Literal["auto"] | int = "auto"
    gpus_per_rank: int = 0
    head_runs_ranks: bool = True
    volumes: tuple[str, ...] = ()
    data: tuple[DataSpec, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    shm_size: str = "1gb"
    cpus: float | Literal["exclusive"] | None = None
    memory: str | None = None
    pids: int | None = None
    rdma: Literal["auto", "off", "require"] = "auto"
    devices: tuple[str, ...] = ()
    hugepages: str | None = None
    ulimits: UlimitSpec = field(default_factory=UlimitSpec)
    security: SecuritySpec = field(default_factory=SecuritySpec)
    user: str | None = None
    mpi: MpiSpec = field(default_factory=MpiSpec)
    nccl: NcclSpec = field(default_factory=NcclSpec)
    runs: RunsSpec = field(default_factory=RunsSpec)
    setup: SetupSpec = field(default_factory=SetupSpec)
    code: str | None = None
    requirements: str | None = None
    command: tuple[str, ...] = _TF_BENCHMARK

    @property
    def job(self) -> tuple[str, ...]:
        """Return the command of a run that names none. The default is a benchmark that the image's flavor has."""
        if self.command != _TF_BENCHMARK:
            return self.command
        image = self.image
        alone = image.frameworks[0] if len(image.frameworks) == 1 and image.flavour in ("auto", "gpu", "cuda") else ""
        return _BENCHMARKS.get(f"cuda-{alone}" if alone else image.flavour, self.command)

    @property
    def processes(self) -> int:
        """Return the largest number of processes and threads of a container, or 0 for no limit."""
        return self.security.pids if self.pids is None else self.pids

    @property
    def cpu_limit(self) -> float | None:
        """Return how many CPUs a node may use at once, or None for all of its host."""
        return None if self.cpus == "exclusive" else self.cpus

    @property
    def exclusive(self) -> bool:
        """Return whether each run has CPUs for itself."""
        return self.cpus == "exclusive"

    @property
    def code_source(self) -> str | None:
        """Return where the runs' code is: an absolute path or git+URL@REF. None if runs take no code along."""
        return None if self.code == NO_CODE else self.code
