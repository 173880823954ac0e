"""The forms of what Docker's engine and client answer to a look, with the engine's own names. See kit.model.answer."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Plugin(Struct, frozen=True, kw_only=True):
    Name: str = ""
    Version: str | None = None
    Err: Any = None


class Client(Struct, frozen=True, kw_only=True):
    Plugins: tuple[Plugin, ...] | None = None


class Peer(Struct, frozen=True, kw_only=True):
    Addr: str = ""


class Dispatcher(Struct, frozen=True, kw_only=True):
    HeartbeatPeriod: int | None = None


class SwarmSpec(Struct, frozen=True, kw_only=True):
    Dispatcher: Dispatcher | None = None


class SwarmCluster(Struct, frozen=True, kw_only=True):
    Spec: SwarmSpec | None = None


class Swarm(Struct, frozen=True, kw_only=True):
    LocalNodeState: str | None = None
    NodeID: str | None = None
    ControlAvailable: bool | None = None
    RemoteManagers: tuple[Peer, ...] | None = None
    Error: str | None = None
    Cluster: SwarmCluster | None = None


class Named(Struct, frozen=True, kw_only=True):
    """A generic resource with a name, such as a GPU with its UUID."""

    Kind: str


class Discrete(Struct, frozen=True, kw_only=True):
    """A generic resource with a count."""

    Kind: str
    Value: int


class Resource(Struct, frozen=True, kw_only=True):
    NamedResourceSpec: Named | None = None
    DiscreteResourceSpec: Discrete | None = None


class Runtime(Struct, frozen=True, kw_only=True):
    """A program that starts containers. `path` may be a name on the engine's PATH. A shim of containerd has none."""

    path: str = ""


class Device(Struct, frozen=True, kw_only=True):
    """A device that the engine offers to containers: `ID` is nvidia.com/gpu=all. Engines before 28.2 list none."""

    Source: str = ""
    ID: str = ""


class PodmanHost(Struct, frozen=True, kw_only=True):
    """A part of `podman info`, which the command `docker` of the package podman-docker prints."""

    buildah: str | None = field(default=None, name="buildahVersion")


class Info(Struct, frozen=True, kw_only=True):
    """The parts of `docker info` that kit reads."""

    ServerVersion: str | None = None
    ClientInfo: Client | None = None
    Runtimes: dict[str, Runtime] | None = None
    DiscoveredDevices: tuple[Device, ...] | None = None
    # Empty if the engine reads no CDI files.
    CDISpecDirs: tuple[str, ...] | None = None
    CgroupDriver: str | None = None
    DockerRootDir: str | None = None
    Swarm: Swarm | None = None
    LiveRestoreEnabled: bool | None = None
    SecurityOptions: tuple[str, ...] | None = None
    DefaultRuntime: str | None = None
    GenericResources: tuple[Resource, ...] | None = None
    # Only Podman has these two: behind Docker's socket, and as its command.
    BuildahVersion: str | None = None
    host: PodmanHost | None = None

    @property
    def podman(self) -> bool:
        """Return whether Podman answers in place of Docker."""
        return self.BuildahVersion is not None or (self.host is not None and self.host.buildah is not None)

    @property
    def remaps_users(self) -> bool:
        """Return whether the engine has userns-remap: the root of a container is then another user of the machine."""
        return "name=userns" in (self.SecurityOptions or ())

    @property
    def rootless(self) -> bool:
        """Return whether the engine runs as a user of the machine, who is then the root of its containers."""
        return "name=rootless" in (self.SecurityOptions or ())


class EngineContainer(Struct, frozen=True, kw_only=True):
    """A container in the engine's own list."""

    Names: tuple[str, ...] | None = None
    Image: str = ""
    Labels: dict[str, str] | None = None
    State: str = ""
    Status: str = ""


class ClientContainer(Struct, frozen=True, kw_only=True):
    """A row of `docker ps`. `Labels` is `name=value,name=value`."""

    Names: str = ""
    Image: str = ""
    Labels: str = ""
    State: str = ""
    Status: str = ""


class NodeSpec(Struct, frozen=True, kw_only=True):
    Labels: dict[str, str] | None = None
    Availability: str | None = None


class NodeStatus(Struct, frozen=True, kw_only=True):
    State: str | None = None
    Addr: str | None = None


# The rows of observe.sh: id, spec, hostname and status of a node; name and labels of a service or a secret.
NodeRow = tuple[str, NodeSpec, str | None, NodeStatus]
LabelledRow = tuple[str, dict[str, str] | None]


class LeasePlace(Struct, frozen=True, kw_only=True):
    node: str
    slots: tuple[int, ...]


class LeaseRow(Struct, frozen=True, kw_only=True):
    """A line of `runs.py slots`."""

    id: str
    places: tuple[LeasePlace, ...]
