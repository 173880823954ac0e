"""The paths of `kit setup` on a VM: what it keeps there, and the files of the system that it writes."""

from __future__ import annotations

from kit.model import names

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
