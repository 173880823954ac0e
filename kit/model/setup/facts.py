"""What a bare VM has, as `kit setup` observes it, without judgement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from kit.model.host import Host
from kit.model.observed import Interface


class SystemFile(Struct, frozen=True, kw_only=True):
    """A file of a host. `content` is None if it is not a regular file, or too long to read."""

    content: bytes | None
    mode: str


class Source(Struct, frozen=True, kw_only=True):
    """A source of packages, one component of it. `file` names it, and `origin` is who made it, "" if apt does not know.

    `options` are those that apt wants to be the same in all files that name this place, such as signed-by.
    """

    uri: str
    suite: str
    component: str
    file: str = ""
    origin: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @property
    def place(self) -> tuple[str, str]:
        """Return what apt takes for one place: two files with different options for it break apt."""
        return self.uri.rstrip("/"), self.suite


class Nic(Struct, frozen=True, kw_only=True):
    """A network interface. `unit` is the file by which systemd-networkd configures it, or "".

    `pending`: kit changed its MTU, and nobody has confirmed that yet.
    """

    name: str
    mtu: int
    physical: bool
    pending: bool = False
    unit: str = ""


class GpuClocks(Struct, frozen=True, kw_only=True):
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


class SavedFile(Struct, frozen=True, kw_only=True):
    """A file that kit changed. `existed`: kit has its original. `state` compares it with what kit wrote last.

    same: as kit wrote it, or missing. original: it is the original again. changed: somebody else changed it since,
    perhaps before kit wrote it again. `areas` are those that wrote it.
    """

    path: str
    areas: tuple[str, ...]
    existed: bool
    state: Literal["same", "original", "changed"]


class SavedValue(Struct, frozen=True, kw_only=True):
    """A value of the running system before kit changed it: `kind` is sysctl, mtu, hugepages or unit."""

    kind: str
    key: str
    value: str
    area: str


class SetupFacts(Struct, frozen=True, kw_only=True):
    """One observed host.

    `os` is the ID of os-release (debian), `version` its VERSION_ID, `codename` its VERSION_CODENAME. `packages` maps
    each installed package that matters to its version. `docker` is the path of its client, with links resolved,
    and `podman` whether that is Podman's.
    `engine` and `compose` are versions, or "". `engine_fault` is the engine's complaint if it is installed and does
    not answer. `pending`: kit wrote daemon.json, and was killed before the engine answered. `running` counts
    containers, also if the engine does not answer. `stale_engine`: systemd reloads before it restarts the engine,
    because a file of its unit changed.
    `gpus_on_bus` counts NVIDIA's GPUs on the PCI bus, `gpu_ids` are their device IDs, and `switches` counts NVSwitches.
    `fabric_manager`: its program is installed. `toolkit`: so are those of NVIDIA's container toolkit.
    `driver` is the version of the loaded driver, or "". `module_kernels` are those for which dkms has built the
    driver's module. `secure_boot`: the firmware makes the kernel load only modules with a key that it knows.
    `driver_fault` is the complaint of nvidia-smi. `smi`: nvidia-smi is there. `smi_late`: it did not answer in time.
    `pages` counts reserved pages of 1 GiB, None if the processor or the kernel has none. `boot_pages`: the running
    kernel was started with pages of 1 GiB.
    `later_settings` maps a setting of the kernel to the file that sets it at boot after kit's own, and its value there.
    `memory_kib` is 0 if the host does not say it. `saved_packages` are those that kit installed, with their area.
    `unfinished` has grub or engine if kit changed its settings, and was killed before it read them.
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
    sources: tuple[Source, ...] = ()
    docker: str = ""
    podman: bool = False
    engine: str = ""
    compose: str = ""
    engine_fault: str = ""
    pending: bool = False
    running: int = 0
    live_restore: bool = False
    stale_engine: bool = False
    files: Mapping[str, SystemFile] = field(default_factory=dict)
    kernel_settings: Mapping[str, str] = field(default_factory=dict)
    later_settings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    memory_kib: int = 0
    nics: tuple[Nic, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    default_interface: str | None = None
    network_manager: str = ""
    gpus_on_bus: int = 0
    gpu_ids: tuple[int, ...] = ()
    switches: int = 0
    fabric_manager: bool = False
    toolkit: bool = False
    driver: str = ""
    module_kernels: tuple[str, ...] = ()
    driver_fault: str = ""
    smi: bool = False
    smi_late: bool = False
    clocks: tuple[GpuClocks, ...] = ()
    pages: int | None = None
    boot_pages: bool = False
    secure_boot: bool = False
    grub: bool = False
    unfinished: tuple[str, ...] = ()
    saved_files: tuple[SavedFile, ...] = ()
    saved_values: tuple[SavedValue, ...] = ()
    saved_packages: tuple[tuple[str, str], ...] = ()

    def has(self, path: str, content: bytes, mode: str = "644") -> bool:
        """Return whether the file is there with exactly this content and mode."""
        file = self.files.get(path)
        return file is not None and file.content == content and file.mode == mode
