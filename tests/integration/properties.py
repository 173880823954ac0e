"""List each property of a node's container with Compose and with Swarm, and how kit sets it in a stack file.

test_swarm.py compares real containers of both with these rows. `python -m tests.integration.properties` writes the
table of docs/swarm.md from here, and a test of the documentation checks that the page is current.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs/swarm.md"
BEGIN, END = "<!-- properties -->\n", "<!-- /properties -->\n"

# These differ between any two containers.
IDENTITY = (
    "Id", "Created", "State.", "Name", "ExecIDs", "LogPath", "HostnamePath", "HostsPath", "ResolvConfPath",
    "GraphDriver.", "NetworkSettings.SandboxID", "NetworkSettings.Networks.host.EndpointID",
    "Config.Labels.com.docker.",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """A property of `docker inspect`. `setting` is its setting in kit.yaml, or '' if kit sets it.

    `same`: equal in both. `tried`: the test compares it. Its hosts have no GPU.
    """

    setting: str
    path: str
    compose: str
    swarm: str
    how: str
    same: bool = True
    tried: bool = True


ROWS = (
    Row(setting="image", path="Image", compose="the image's id", swarm="the same",
        how="`image: sha256:…`: engines never look up an ID in a registry, and kit copies the image to each VM"),
    Row(setting="image", path="Config.Image", compose="its tag", swarm="its id", same=False,
        how="the label `kit.image` has the tag"),
    Row(setting="", path="Path", compose="start.sh", swarm="the same", how="`entrypoint: [start.sh]`"),
    Row(setting="", path="Args", compose="none", swarm="the same", how=""),
    Row(setting="", path="Config.Entrypoint", compose="`[]`", swarm="start.sh", same=False,
        how="for Swarm, an empty entrypoint means the image's own"),
    Row(setting="", path="Config.Cmd", compose="start.sh", swarm="none", same=False, how="as above"),
    Row(setting="", path="HostConfig.NetworkMode", compose="host", swarm="the same",
        how="the external network `host`; `network_mode` is dropped"),
    Row(setting="", path="NetworkSettings.Networks.host.IPAMConfig", compose="none", swarm="`{}`", same=False,
        how="no effect: the host's own addresses"),
    Row(setting="", path="HostConfig.Init", compose="true", swarm="the same", how="`init: true`"),
    Row(setting="", path="HostConfig.RestartPolicy.Name", compose="unless-stopped", swarm="no", same=False,
        how="Swarm starts a new task: `deploy.restart_policy`, `condition: any`; `restart` is dropped"),
    Row(setting="shm_size", path="HostConfig.ShmSize", compose="the size", swarm="64 MB, not used", same=False,
        how="`shm_size` is dropped: a tmpfs on /dev/shm with the same size and options, compared inside"),
    Row(setting="ulimits", path="HostConfig.Ulimits", compose="the limits", swarm="the same",
        how="`ulimits`, from engine 20.10 on; kit refuses older engines"),
    Row(setting="ssh_port, env", path="Config.Env", compose="all variables", swarm="all but four on nodes", same=False,
        how="KIT_NODE, KIT_ADDRESS, NCCL_SOCKET_IFNAME, HOROVOD_GLOO_IFACE differ from VM to VM: start.sh reads them "
        "from `node.env`. The test checks that ranks see the same. `$` and `{{` are not replaced"),
    Row(setting="volumes", path="HostConfig.Binds", compose="`SOURCE:TARGET:MODE`", swarm="none", same=False,
        how="the long form, as mounts"),
    Row(setting="volumes", path="HostConfig.Mounts", compose="none", swarm="the mounts", same=False, how="as above"),
    Row(setting="volumes", path="Mounts", compose="type, source, target, read-only, propagation",
        swarm="the same, and /dev/shm and /run", same=False,
        how="compared one by one. kit creates a missing folder, because Swarm would fail the task. A volume has "
        "the same name, so its data stays"),
    Row(setting="", path="HostConfig.IpcMode", compose="private", swarm="the same", how="the engine's default"),
    Row(setting="", path="HostConfig.PidMode", compose="its own", swarm="the same", how="the engine's default"),
    Row(setting="", path="HostConfig.UsernsMode", compose="host", swarm="none", same=False,
        how="Swarm drops it, so kit refuses an engine with userns-remap there. Other engines ignore it"),
    Row(setting="", path="HostConfig.UTSMode", compose="the host's", swarm="the same", how="follows from the network"),
    Row(setting="", path="Config.Hostname", compose="the VM's", swarm="the same", how="follows from the network"),
    Row(setting="", path="HostConfig.Privileged", compose="false", swarm="the same",
        how="Swarm drops it; kit does not need it"),
    Row(setting="security.capabilities", path="HostConfig.CapAdd", compose="those that sshd and ranks need",
        swarm="the same", how="`cap_add`, from engine 20.10 on"),
    Row(setting="", path="HostConfig.CapDrop", compose="ALL", swarm="the same", how="`cap_drop`, as above"),
    Row(setting="security.new_privileges", path="HostConfig.SecurityOpt", compose="no-new-privileges", swarm="none",
        same=False,
        how="Swarm drops it: start.sh sets no_new_privs for sshd and all that it starts, and kit-launch for the ranks "
        "of the head. A command of `kit exec` sets it itself. A test reads it in the ranks and in `kit exec` of both. "
        "`seccomp: unconfined` is refused"),
    Row(setting="security.read_only", path="HostConfig.ReadonlyRootfs", compose="true", swarm="the same",
        how="`read_only`"),
    Row(setting="security.read_only", path="HostConfig.Tmpfs./run", compose="its size and mode", swarm="none",
        same=False, how="a tmpfs among the mounts with the same size and mode"),
    Row(setting="security.pids", path="HostConfig.PidsLimit", compose="the limit", swarm="the same",
        how="`deploy.resources.limits.pids`; `pids_limit` is dropped"),
    Row(setting="cpus", path="HostConfig.NanoCpus", compose="the limit", swarm="the same",
        how="`deploy.resources.limits.cpus`; `cpus` is dropped"),
    Row(setting="memory", path="HostConfig.Memory", compose="the limit", swarm="the same",
        how="`deploy.resources.limits.memory`; `mem_limit` is dropped"),
    Row(setting="memory", path="HostConfig.MemorySwap", compose="the limit of memory", swarm="the engine's default",
        same=False, how="Swarm drops `memswap_limit`: on a VM with swap, a task may use some"),
    Row(setting="", path="HostConfig.Devices", compose="none", swarm="the same",
        how="Swarm drops it; kit does not set it"),
    Row(setting="", path="HostConfig.Isolation", compose="not set", swarm="default", same=False,
        how="no effect on Linux"),
    Row(setting="", path="Config.AttachStdout", compose="true", swarm="false", same=False,
        how="no effect: output goes to the log"),
    Row(setting="", path="Config.AttachStderr", compose="true", swarm="false", same=False, how="as above"),
    Row(setting="name", path="Config.Labels.kit.cluster", compose="the name", swarm="the same", how="`labels`"),
    Row(setting="", path="Config.Labels.kit.service", compose="mpihead or mpinode", swarm="the same", how="`labels`"),
    Row(setting="", path="Config.Labels.kit.spec", compose="digest of its definition", swarm="another", same=False,
        how="`labels`, and those of the service"),
    Row(setting="", path="Config.Labels.kit.host-key", compose="digest of its host key", swarm="none", same=False,
        how="the key's secret has the digest in its name"),
    Row(setting="", path="Config.Labels.kit.image", compose="none", swarm="the tag", same=False, how="`labels`"),
    Row(setting="(GPUs)", path="HostConfig.DeviceRequests", compose="nvidia, all, with GPUs", swarm="none",
        tried=False, same=False,
        how="Swarm refuses `reservations.devices`. kit sets NVIDIA_VISIBLE_DEVICES=all for the NVIDIA runtime, which "
        "must be the engine's default (checked). `generic_resources` reserve the GPUs if all nodes advertise as many "
        "as they have"),
    Row(setting="(GPUs)", path="HostConfig.Runtime", compose="runc, with the NVIDIA hook", swarm="nvidia, the default",
        tried=False, same=False, how="Swarm does not know `runtime`"),
)  # fmt: skip


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf of an inspection with its path. All empty values become None; lists are sorted."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flat(item, f"{path}.{key}" if path else str(key))
    else:
        plain = sorted(value, key=str) if isinstance(value, list) else value
        yield path, None if plain in ("", [], 0, False) else plain


def compared(compose: Mapping[str, Any], swarm: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the properties that differ, except those that differ between any two containers."""
    one, other = dict(flat(compose)), dict(flat(swarm))
    return {
        path: (one.get(path), other.get(path))
        for path in sorted(one.keys() | other.keys())
        if one.get(path) != other.get(path) and not path.startswith(IDENTITY)
    }


def mounts(container: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return each mount as (type, source, target, read-only, propagation), without /dev/shm and /run."""
    rows = []
    for mount in container["Mounts"]:
        if mount["Destination"] in ("/dev/shm", "/run"):
            continue
        words = (mount["Type"], mount.get("Name") or mount["Source"], mount["Destination"])
        rows.append((*words, "rw" if mount["RW"] else "ro", mount["Propagation"]))
    return sorted(rows)


def table() -> str:
    lines = ["| kit.yaml | `docker inspect` | Compose | Swarm | how |", "|---|---|---|---|---|"]
    for row in ROWS:
        setting = f"`{row.setting}`" if row.setting and row.setting[0] != "(" else row.setting.strip("()")
        how = row.how if row.tried else f"{row.how} *(not in this comparison: a test of [GPUs](#gpus) deploys both)*"
        lines.append(f"| {setting} | `{row.path}` | {row.compose} | {row.swarm} | {how} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
