"""The forms of what Docker's engine and client answer to a look, with the engine's own names. See kit.model.answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugin:
    Name: str = ""
    Version: str | None = None
    Err: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    Plugins: tuple[Plugin, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    Addr: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dispatcher:
    HeartbeatPeriod: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmSpec:
    Dispatcher: Dispatcher | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SwarmCluster:
    Spec: SwarmSpec | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Swarm:
    LocalNodeState: str | None = None
    NodeID: str | None = None
    ControlAvailable: bool | None = None
    RemoteManagers: tuple[Peer, ...] | None = None
    Error: str | None = None
    Cluster: SwarmCluster | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """A generic resource with a name, such as a GPU with its UUID."""

    Kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Discrete:
    """A generic resource with a count."""

    Kind: str
    Value: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    NamedResourceSpec: Named | None = None
    DiscreteResourceSpec: Discrete | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """A program that starts containers. `path` may be a name on the engine's PATH. A shim of containerd has none."""

    path: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device that the engine offers to containers: `ID` is nvidia.com/gpu=all. Engines before 28.2 list none."""

    Source: str = ""
    ID: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Info:
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
    DefaultRuntime: str | None = None
    GenericResources: tuple[Resource, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineContainer:
    """A container in the engine's own list."""

    Names: tuple[str, ...] | None = None
    Image: str = ""
    Labels: dict[str, str] | None = None
    State: str = ""
    Status: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientContainer:
    """A row of `docker ps`. `Labels` is `name=value,name=value`."""

    Names: str = ""
    Image: str = ""
    Labels: str = ""
    State: str = ""
    Status: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    Labels: dict[str, str] | None = None
    Availability: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeStatus:
    State: str | None = None
    Addr: str | None = None


# The rows of observe.sh: id, spec, hostname and status of a node; name and labels of a service or a secret.
NodeRow = tuple[str, NodeSpec, str | None, NodeStatus]
LabelledRow = tuple[str, dict[str, str] | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class LeasePlace:
    node: str
    slots: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRow:
    """A line of `runs.py slots`."""

    id: str
    places: tuple[LeasePlace, ...]
