"""The steps of `kit setup`. Each one that changes something has `area`, for the record on the host.

The plan itself is kit.model.plan.Plan.
"""

from __future__ import annotations

from kit.model.plan import Step
from kit.model.secret import Secret
from kit.model.setup.paths import DAEMON_JSON
from kit.model.text import plural

# How long a new MTU stays without a confirmation, in seconds.
MTU_CONFIRM_S = 60


class FinishPackages(Step, frozen=True, kw_only=True):
    """Let dpkg finish what was interrupted."""

    why: str

    def line(self) -> tuple[str, str]:
        return "finish", "dpkg --configure -a"


class FetchKey(Step, frozen=True, kw_only=True):
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


class WriteSystemFile(Step, frozen=True, kw_only=True):
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


class InstallPackages(Step, frozen=True, kw_only=True):
    """Install packages from the repositories that the host has."""

    area: str
    packages: tuple[str, ...]
    why: str

    def line(self) -> tuple[str, str]:
        return "install", " ".join(self.packages)


class ConfigureEngine(Step, frozen=True, kw_only=True):
    """Write daemon.json, let dockerd validate it first, and restart the engine.

    `seen` is the SHA-256 of the file that `content` was made from, "" without one. Another file is left unchanged.
    It is secret, because it confirms a guess of a password in the file.
    If the engine does not answer after that, the file gets its former bytes, and the engine starts with them.
    """

    area: str
    content: bytes | Secret
    keys: tuple[str, ...]
    restart: bool
    why: str
    seen: Secret

    def line(self) -> tuple[str, str]:
        then = ", and restart the engine" if self.restart else ""
        return "merge", f"{', '.join(self.keys)} into {DAEMON_JSON}{then}"

    def detail(self) -> str:
        return "" if isinstance(self.content, Secret) else self.content.decode(errors="replace")


class StartEngine(Step, frozen=True, kw_only=True):
    """Start the engine, now and at every start of the host. `restart` also restarts one that runs."""

    area: str
    why: str
    restart: bool = False

    def line(self) -> tuple[str, str]:
        return "restart" if self.restart else "start", "the engine"


class VerifyEngine(Step, frozen=True, kw_only=True):
    """Ask the engine and Compose for their versions."""

    why: str

    def line(self) -> tuple[str, str]:
        return "verify", "the engine and Compose answer"


class SetKernelValues(Step, frozen=True, kw_only=True):
    """Set values below /proc/sys. The host keeps what they were."""

    area: str
    values: tuple[tuple[str, str], ...]
    why: str

    def line(self) -> tuple[str, str]:
        return "set", plural(len(self.values), "kernel setting")

    def detail(self) -> str:
        return "\n".join(f"{key} = {value}" for key, value in self.values)


class LoadDriver(Step, frozen=True, kw_only=True):
    """Load the module of the driver that was installed. A driver that needs a reboot is no failure here."""

    why: str

    def line(self) -> tuple[str, str]:
        return "load", "the module nvidia"


class StartUnit(Step, frozen=True, kw_only=True):
    """Start a unit of systemd, now and at every start of the host."""

    area: str
    unit: str
    why: str

    def line(self) -> tuple[str, str]:
        return "start", self.unit


class ReservePages(Step, frozen=True, kw_only=True):
    """Reserve huge pages of 1 GiB in the running kernel. Too few free pages are no failure: they come by a reboot."""

    area: str
    count: int
    why: str

    def line(self) -> tuple[str, str]:
        return "reserve", f"{plural(self.count, 'page')} of 1 GiB"


class UpdateBootLoader(Step, frozen=True, kw_only=True):
    """Let GRUB read its settings."""

    why: str

    def line(self) -> tuple[str, str]:
        return "run", "update-grub"


class ChangeMtu(Step, frozen=True, kw_only=True):
    """Change an interface's MTU. The host takes it back unless kit confirms it over a new connection in time."""

    area: str
    interface: str
    mtu: int
    why: str
    seconds: int = MTU_CONFIRM_S

    def line(self) -> tuple[str, str]:
        return "change", f"MTU of {self.interface} to {self.mtu}, back in {self.seconds} s without a confirmation"


class Reboot(Step, frozen=True, kw_only=True):
    """Restart the host, and wait until it is back with another boot id."""

    boot_id: str
    why: str

    def line(self) -> tuple[str, str]:
        return "reboot", "and wait until ssh answers"


class StopUnit(Step, frozen=True, kw_only=True):
    """Stop a unit of systemd, now and at every start of the host."""

    unit: str
    why: str

    def line(self) -> tuple[str, str]:
        return "stop", self.unit


class RestoreFile(Step, frozen=True, kw_only=True):
    """Give a file its original bytes, mode and owner, or remove it if it did not exist."""

    path: str
    existed: bool
    why: str

    def line(self) -> tuple[str, str]:
        return ("restore" if self.existed else "remove"), self.path


class RestoreValues(Step, frozen=True, kw_only=True):
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
