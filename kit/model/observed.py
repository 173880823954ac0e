"""The state of a host: facts of one observation, without judgement."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from msgspec import Struct, field

from kit.model.host import Host
from kit.model.swarm import SwarmFacts


class Interface(Struct, frozen=True, kw_only=True):
    """An IPv4 address of a host: `name` eth0, `address` 10.0.0.4/24."""

    name: str
    address: ipaddress.IPv4Interface


class Gpu(Struct, frozen=True, kw_only=True):
    """A GPU as nvidia-smi lists it. `pci` is its bus id, 00000000:17:00.0. `mig` has the UUIDs of its MIG devices.

    `capability` is its CUDA compute capability, 9.0. `index` is -1, and `pci` and `capability` are empty, if nvidia-smi
    did not report them. `mig` is None if MIG is off.
    """

    name: str
    memory_mib: int
    uuid: str
    index: int = -1
    pci: str = ""
    capability: str = ""
    mig: tuple[str, ...] | None = None


class GpuProcess(Struct, frozen=True, kw_only=True):
    """A process that computes on a GPU. `cluster` is the cluster of kit whose container it is in, or "".

    `command` is the first 15 characters of its program's name. `memory_mib` is 0 if nvidia-smi does not know it.
    """

    gpu: str
    pid: int
    user: str
    command: str
    cluster: str = ""
    memory_mib: int = 0


class GpuEngine(Struct, frozen=True, kw_only=True):
    """What decides whether a host's engine can give GPUs to a container. kit reads it only if the host has nvidia-smi.

    `hook` is the path of nvidia-container-runtime-hook on dockerd's PATH, and `hook_newer` whether it changed after
    dockerd started. `runtime` is the path of nvidia-container-runtime there. `snap`: dockerd is a snap. `cdi_enabled`:
    the engine reads CDI files. `cdi` has the names of its CDI devices of the kind nvidia.com/gpu. The device `all` is
    from a file in `cdi_folder`, which mounts the libraries of the driver `cdi_driver`. `runtimes` maps the name of an
    engine's runtime to its program.
    """

    hook: str = ""
    hook_newer: bool = False
    runtime: str = ""
    snap: bool = False
    cdi_enabled: bool = False
    cdi: tuple[str, ...] = ()
    cdi_driver: str = ""
    cdi_folder: str = ""
    runtimes: Mapping[str, str] = field(default_factory=dict)
    default_runtime: str = ""
    cgroup_driver: str = ""

    @property
    def toolkit_base_only(self) -> bool:
        """Return whether only nvidia-container-toolkit-base is installed, which brings the runtime and no hook."""
        return bool(self.runtime) and not self.hook


class RdmaGid(Struct, frozen=True, kw_only=True):
    """An entry of a RoCE port's table of GIDs. `address` is IPv4, or '' for a GID of another kind.

    `kind` is `RoCE v2` or `IB/RoCE v1`.
    """

    index: int
    kind: str
    interface: str
    address: str


class RdmaPort(Struct, frozen=True, kw_only=True):
    """A port of an RDMA adapter: `state` ACTIVE or DOWN, `layer` InfiniBand or Ethernet (RoCE). `gids` are of RoCE."""

    adapter: str
    number: int
    state: str
    layer: str
    gids: tuple[RdmaGid, ...] = ()


class HugePages(Struct, frozen=True, kw_only=True):
    """How much memory of a host is in huge pages, of all sizes together, and how much of it no program uses."""

    total_mib: int = 0
    free_mib: int = 0


class Container(Struct, frozen=True, kw_only=True):
    """A container of kit on a host. `image` is the tag of its image, `spec` the hash of its definition.

    `swarm`: it is a task of a service, and Swarm recreates it when it ends.
    """

    name: str
    service: str
    cluster: str
    image: str
    spec: str
    running: bool
    status: str
    swarm: bool = False


class Lease(Struct, frozen=True, kw_only=True):
    """The slots that an active run holds, by host."""

    run: str
    slots: Mapping[str, frozenset[int]]


class HostFacts(Struct, frozen=True, kw_only=True):
    """One observed host.

    `files` maps a path below the cluster's folder to the SHA-256 of its content, `modes` to its permissions.
    `listening` has the address:port of every TCP listener, `udp` of every UDP socket. On a head, `record` is the text
    of cluster.json, `living` has the ids of running runs, and `waiting` those of runs that wait in line. `cordoned`: it
    has a list of cordoned hosts. `absent` has the requested folders that do not exist, and `plugins` the names of those
    that hold a plugin out of an image. `python` is the version of python3, if it is installed. `slow`: its engine did
    not answer in time. `podman`: Podman answers in place of Docker, and `engine` is "". `driver` is the version of
    NVIDIA's driver, or "". `gpu_fault` is the first complaint of nvidia-smi, or "". `gpu_processes` is None if kit did
    not ask. `node_gpus` has the UUIDs of the GPUs and MIG devices that the cluster's node sees, or is None if no node
    runs or kit cannot know. `node_gpu_fault` is what nvidia-smi prints there if it sees none. `leases` are those of the
    cluster's runs, on the head if kit asked. `images` maps each requested tag that the host has to its ID, and
    `image_id` is the first. `rdma_devices` has the names of the files in /dev/infiniband.
    """

    host: Host
    engine: str
    compose: str | None
    arch: str
    os: str
    cores: int
    memory_mib: int
    disk_free_mib: int
    interfaces: tuple[Interface, ...]
    default_interface: str | None
    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    gpu_fault: str = ""
    gpu_engine: GpuEngine = field(default_factory=GpuEngine)
    gpu_processes: tuple[GpuProcess, ...] | None = None
    node_gpus: frozenset[str] | None = None
    node_gpu_fault: str = ""
    image_id: str | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    record: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)
    host_key: str | None = None
    client_key: str | None = None
    listening: frozenset[str] = frozenset()
    udp: frozenset[str] = frozenset()
    living: tuple[str, ...] = ()
    leases: tuple[Lease, ...] = ()
    waiting: tuple[str, ...] = ()
    cordoned: bool = False
    absent: frozenset[str] = frozenset()
    plugins: frozenset[str] = frozenset()
    swarm: SwarmFacts = field(default_factory=SwarmFacts)
    python: str | None = None
    slow: bool = False
    podman: bool = False
    rdma_devices: tuple[str, ...] = ()
    rdma_ports: tuple[RdmaPort, ...] = ()
    huge_pages: HugePages = field(default_factory=HugePages)
