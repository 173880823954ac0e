"""`kit setup`: what a bare VM has, the steps that make it ready, and what came of them.

The plan itself is kit.model.plan.Plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from kit.model import names
from kit.model.host import Host
from kit.model.observed import Interface
from kit.model.plan import Plan, Step
from kit.model.secret import Secret
from kit.model.text import plural

# What can be set up, in the order in which it is done.
Area = Literal["docker", "driver", "toolkit", "sysctl", "clocks", "hugepages", "mtu"]
AREAS: tuple[Area, ...] = get_args(Area)

# On every VM, only for root: the originals of the files that kit changed, and what it installed.
STATE = f"{names.ROOT}/.setup"
LOCK = f"{names.ROOT}/.lock/.setup"
# A line of JSON for each change of the host (kit.model.lock.AuditEntry).
AUDIT = f"{STATE}/audit"

# The files that kit reads before it plans.
DAEMON_JSON = "/etc/docker/daemon.json"
DOCKER_PROXY = "/etc/systemd/system/docker.service.d/90-kit-proxy.conf"
DOCKER_KEY = "/etc/apt/keyrings/kit-docker.asc"
DOCKER_SOURCES = "/etc/apt/sources.list.d/kit-docker.sources"
NVIDIA_KEY = "/etc/apt/keyrings/kit-nvidia.asc"
NVIDIA_SOURCES = "/etc/apt/sources.list.d/kit-nvidia.sources"
NON_FREE_SOURCES = "/etc/apt/sources.list.d/kit-non-free.sources"
UPGRADES = "/etc/apt/apt.conf.d/90kit-nvidia"
SYSCTL = "/etc/sysctl.d/90-kit.conf"
LIMITS = "/etc/security/limits.d/90-kit.conf"
CLOCKS_UNIT = "/etc/systemd/system/kit-gpu-clocks.service"
GRUB = "/etc/default/grub.d/90-kit.cfg"
MTU_NETPLAN = "/etc/netplan/90-kit-mtu.yaml"
MTU_IFUPDOWN = "/etc/network/if-up.d/kit-mtu"
MTU_DISPATCHER = "/etc/NetworkManager/dispatcher.d/90-kit-mtu"
FILES = (
    DAEMON_JSON, DOCKER_PROXY, DOCKER_KEY, DOCKER_SOURCES, NVIDIA_KEY, NVIDIA_SOURCES, NON_FREE_SOURCES, UPGRADES,
    SYSCTL, LIMITS, CLOCKS_UNIT, GRUB, MTU_NETPLAN, MTU_IFUPDOWN, MTU_DISPATCHER,
)  # fmt: skip

# How long a new MTU stays without a confirmation, in seconds.
MTU_CONFIRM_S = 60


# What a host has


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemFile:
    """A file of a host. `content` is None if it is not a regular file, or too long to read."""

    content: bytes | None
    mode: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Nic:
    """A network interface. `unit` is the file by which systemd-networkd configures it, or ""."""

    name: str
    mtu: int
    physical: bool
    unit: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuClocks:
    """The clocks of a GPU in MHz, with their maximum, and whether persistence mode is on.

    None: nvidia-smi does not know it.
    """

    index: int
    persistence: bool | None
    memory: int | None
    graphics: int | None
    most_memory: int | None
    most_graphics: int | None

    @property
    def at_most(self) -> bool:
        """Return whether nothing is left to raise."""
        pairs = ((self.memory, self.most_memory), (self.graphics, self.most_graphics))
        slow = any(now is not None and most is not None and now < most for now, most in pairs)
        return not slow and self.persistence is not False


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedFile:
    """A file that kit changed. `existed`: kit has its original. `state` compares it with what kit wrote last.

    same: as kit wrote it, or missing. original: it is the original again. changed: somebody else changed it since.
    """

    path: str
    area: str
    existed: bool
    state: Literal["same", "original", "changed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedValue:
    """A value of the running system before kit changed it: `kind` is sysctl, mtu, hugepages or unit."""

    kind: str
    key: str
    value: str
    area: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupFacts:
    """One observed host.

    `os` is the ID of os-release (debian), `version` its VERSION_ID, `codename` its VERSION_CODENAME. `packages` maps
    each installed package that matters to its version. `sources` has URI, suite and component of each source of
    packages. `docker` is the path of its client, with links resolved. `engine` and `compose` are versions, or "".
    `engine_fault` is the engine's complaint if it is installed and does not answer. `pending`: kit wrote daemon.json,
    and was killed before the engine answered. `running` counts containers. `gpus_on_bus` counts NVIDIA's devices on
    the PCI bus. `driver` is the version of the loaded driver, or "". `driver_fault` is the complaint of nvidia-smi.
    `pages` counts reserved pages of 1 GiB, None if the processor or the kernel has none. `boot_pages`: the running
    kernel was started with pages of 1 GiB. `saved_packages` are those that kit installed, with their area.
    """

    host: Host
    os: str = ""
    version: str = ""
    codename: str = ""
    name: str = ""
    arch: str = ""
    kernel: str = ""
    boot_id: str = ""
    machine_id: str = ""
    systemd: bool = False
    apt: bool = False
    interrupted: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[tuple[str, str, str], ...] = ()
    docker: str = ""
    engine: str = ""
    compose: str = ""
    engine_fault: str = ""
    pending: bool = False
    running: int = 0
    live_restore: bool = False
    files: Mapping[str, SystemFile] = field(default_factory=dict)
    kernel_settings: Mapping[str, str] = field(default_factory=dict)
    nics: tuple[Nic, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    default_interface: str | None = None
    network_manager: str = ""
    gpus_on_bus: int = 0
    driver: str = ""
    driver_fault: str = ""
    clocks: tuple[GpuClocks, ...] = ()
    pages: int | None = None
    boot_pages: bool = False
    grub: bool = False
    saved_files: tuple[SavedFile, ...] = ()
    saved_values: tuple[SavedValue, ...] = ()
    saved_packages: tuple[tuple[str, str], ...] = ()

    def has(self, path: str, content: bytes, mode: str = "644") -> bool:
        """Return whether the file is there with exactly this content and mode."""
        file = self.files.get(path)
        return file is not None and file.content == content and file.mode == mode


# The steps. Each step that changes something has `area`, for the record on the host.


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishPackages(Step):
    """Let dpkg finish what was interrupted."""

    why: str

    def line(self) -> tuple[str, str]:
        return "finish", "dpkg --configure -a"


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchKey(Step):
    """Fetch the key that signs a repository, and write it only if it has this fingerprint."""

    area: str
    url: str
    path: str
    fingerprint: str
    why: str

    def line(self) -> tuple[str, str]:
        return "fetch", f"{self.url} to {self.path}"

    def detail(self) -> str:
        return f"fingerprint {self.fingerprint}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteSystemFile(Step):
    """Write a file of the host's system atomically, owned by root. The host keeps its original."""

    area: str
    path: str
    content: bytes | Secret
    why: str
    mode: str = "644"

    def line(self) -> tuple[str, str]:
        return "write", f"{self.path}{' (secret)' if isinstance(self.content, Secret) else ''}"

    def detail(self) -> str:
        return "" if isinstance(self.content, Secret) else self.content.decode(errors="replace")


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallPackages(Step):
    """Install packages from the repositories that the host has."""

    area: str
    packages: tuple[str, ...]
    why: str

    def line(self) -> tuple[str, str]:
        return "install", " ".join(self.packages)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigureEngine(Step):
    """Write daemon.json, let dockerd validate it first, and restart the engine.

    If the engine does not answer after that, the file gets its former bytes, and the engine starts with them.
    """

    area: str
    content: bytes | Secret
    keys: tuple[str, ...]
    restart: bool
    why: str

    def line(self) -> tuple[str, str]:
        then = ", and restart the engine" if self.restart else ""
        return "merge", f"{', '.join(self.keys)} into {DAEMON_JSON}{then}"

    def detail(self) -> str:
        return "" if isinstance(self.content, Secret) else self.content.decode(errors="replace")


@dataclass(frozen=True, kw_only=True, slots=True)
class StartEngine(Step):
    """Start the engine, now and at every start of the host. `restart` also restarts one that runs."""

    area: str
    why: str
    restart: bool = False

    def line(self) -> tuple[str, str]:
        return "restart" if self.restart else "start", "the engine"


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyEngine(Step):
    """Ask the engine and Compose for their versions."""

    why: str

    def line(self) -> tuple[str, str]:
        return "verify", "the engine and Compose answer"


@dataclass(frozen=True, kw_only=True, slots=True)
class SetKernelValues(Step):
    """Set values below /proc/sys. The host keeps what they were."""

    area: str
    values: tuple[tuple[str, str], ...]
    why: str

    def line(self) -> tuple[str, str]:
        return "set", plural(len(self.values), "kernel setting")

    def detail(self) -> str:
        return "\n".join(f"{key} = {value}" for key, value in self.values)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadDriver(Step):
    """Load the module of the driver that was installed. A driver that needs a reboot is no failure here."""

    why: str

    def line(self) -> tuple[str, str]:
        return "load", "the module nvidia"


@dataclass(frozen=True, kw_only=True, slots=True)
class StartUnit(Step):
    """Start a unit of systemd, now and at every start of the host."""

    area: str
    unit: str
    why: str

    def line(self) -> tuple[str, str]:
        return "start", self.unit


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservePages(Step):
    """Reserve huge pages of 1 GiB in the running kernel. Too few free pages are no failure: they come by a reboot."""

    area: str
    count: int
    why: str

    def line(self) -> tuple[str, str]:
        return "reserve", f"{plural(self.count, 'page')} of 1 GiB"


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateBootLoader(Step):
    """Let GRUB read its settings."""

    why: str

    def line(self) -> tuple[str, str]:
        return "run", "update-grub"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeMtu(Step):
    """Change an interface's MTU. The host takes it back unless kit confirms it over a new connection in time."""

    area: str
    interface: str
    mtu: int
    why: str
    seconds: int = MTU_CONFIRM_S

    def line(self) -> tuple[str, str]:
        return "change", f"MTU of {self.interface} to {self.mtu}, back in {self.seconds} s without a confirmation"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reboot(Step):
    """Restart the host, and wait until it is back with another boot id."""

    boot_id: str
    why: str

    def line(self) -> tuple[str, str]:
        return "reboot", "and wait until ssh answers"


@dataclass(frozen=True, kw_only=True, slots=True)
class StopUnit(Step):
    """Stop a unit of systemd, now and at every start of the host."""

    unit: str
    why: str

    def line(self) -> tuple[str, str]:
        return "stop", self.unit


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreFile(Step):
    """Give a file its original bytes, mode and owner, or remove it if it did not exist."""

    path: str
    existed: bool
    why: str

    def line(self) -> tuple[str, str]:
        return ("restore" if self.existed else "remove"), self.path


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreValues(Step):
    """Give values of the running system what they were before kit changed them. `what`: sysctl, hugepages or mtu."""

    what: str
    values: tuple[tuple[str, str], ...]
    why: str

    def line(self) -> tuple[str, str]:
        if self.what == "sysctl":
            return "restore", plural(len(self.values), "kernel setting")
        mtu = f"the MTU of {self.values[0][0]}"
        return "restore", mtu if self.what == "mtu" else "the number of pages of 1 GiB"

    def detail(self) -> str:
        return "\n".join(f"{key} = {value}" for key, value in self.values)


# What came of it


@dataclass(frozen=True, kw_only=True, slots=True)
class Remark:
    """Something about hosts that a person should know. It does not prevent the rest."""

    host: str
    text: str
    hint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A plan with what it leaves open. `waiting` maps a host to what needs a reboot there."""

    plan: Plan
    waiting: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupHost:
    """One host after the verb. `status` is ok or unchanged. `waiting` is what needs a reboot."""

    host: str
    status: str
    steps: int
    engine: str
    compose: str
    waiting: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupResult:
    """What `kit setup` did. `undo`: it restored what an earlier one had changed."""

    hosts: tuple[SetupHost, ...]
    changed: bool
    undo: bool
    seconds: float
