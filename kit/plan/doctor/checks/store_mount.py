"""A store that rclone has mounted on a host, and that has ended, does not answer, or is missing there alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from kit.model import names
from kit.model.data import DataSpec
from kit.model.doctor import Check, Command, Examined, Mount, Mounts, Seen, Sight
from kit.model.spec import NAME
from kit.model.text import fold

# To open a folder is what rclone answers without the store, and what the kernel never answers for it.
_STORES = Mounts(kind="fuse.rclone")
# Of the node. It starts with the mounts of its VM, and keeps those that end there later.
_NODE = Command(argv=("cat", "/proc/self/mountinfo"), node=True, only_with=names.DATA_DISK)
_LINE = re.compile(
    rf"^[0-9]+ [0-9]+ ([0-9]+:[0-9]+) \S+ (\S+) [^\n]*? - {re.escape(_STORES.kind)} ", re.ASCII | re.MULTILINE
)
_ESCAPED = re.compile(r"\\(0[0-7]{2}|1[0-7]{2})")
# The folder of a mount may be elsewhere if a link is on its way, but its end is always the same.
_FOLDER = names.DATA_DISK.rpartition("/")[2]
_ENDED = "Transport endpoint is not connected"
_HOSTS = 4

# A cluster and its data set.
_Set = tuple[str, str]


def judge(examined: Examined) -> Iterator[Sight]:
    cluster = examined.spec.name
    stores = {host.name: _stores(host, cluster) for host in examined.hosts}
    wanted = {(cluster, data.name): data for data in examined.spec.data if data.mounted_by == "rclone"}
    for key, data in wanted.items():
        well = [name for name, mounts in stores.items() if key in mounts and not _fault(mounts[key])]
        for host in examined.hosts:
            yield from _wanted(host, data, stores[host.name].get(key), well)
    for name, mounts in stores.items():
        for key, mount in mounts.items():
            if key not in wanted:
                yield from _other(name, key, mount, cluster)


def _wanted(host: Seen, data: DataSpec, mount: Mount | None, well: Sequence[str]) -> Iterator[Sight]:
    """Yield what is wrong with a data set that kit.yaml mounts. `well` are the hosts where its mount answers."""
    name, again = data.name, f"kit data mount {data.name}"
    if mount is not None and (fault := _fault(mount)):
        # rclone may still run. Then kit data mount changes nothing.
        fix = again if mount.fault == "ENOTCONN" else f"kit data rm {name}, then: {again}"
        yield Sight(hosts=(host.name,), seen=f"{name}: {fault}", fix=fix)
        return
    inside = _inside(host)
    if inside is None or host.mounted(_STORES.kind) is None:
        return
    device = inside.get(data.to)
    if mount is not None and device is None:
        yield Sight(hosts=(host.name,), seen=f"{name}: the node does not see the mount", fix=again)
    elif mount is not None and device != mount.device:
        yield Sight(hosts=(host.name,), seen=f"{name}: the node has an earlier mount, which has ended", fix=again)
    elif mount is None and device is not None:
        yield Sight(hosts=(host.name,), seen=f"{name}: the mount has ended, and the node still has it", fix=again)
    elif mount is None and well:
        # A run that names the data set mounts it first.
        seen = f"{name} is not mounted, but is on {fold(well, most=_HOSTS)}"
        yield Sight(hosts=(host.name,), seen=seen, fix=again, severity="watch")


def _other(host: str, key: _Set, mount: Mount, cluster: str) -> Iterator[Sight]:
    """Yield what is wrong with a mount that kit.yaml does not name."""
    if fault := _fault(mount):
        owner, name = key
        where, fix = "kit.yaml does not mount", f"kit data rm {name}"
        if owner != cluster:
            where, fix = f"is of the cluster {owner}", f"in the folder of the cluster {owner}: kit data mount {name}"
        yield Sight(hosts=(host,), seen=f"{name}, which {where}: {fault}", fix=fix, severity="watch")


def _fault(mount: Mount) -> str:
    """Return what is wrong with a mount, or ""."""
    if mount.fault is None:
        return f"the mount does not answer within {_STORES.timeout_s:g} s"
    if mount.fault == "ENOTCONN":
        return f"the mount has ended: {_ENDED}"
    return f"the mount cannot be read: {mount.fault}" if mount.fault else ""


def _stores(host: Seen, cluster: str) -> dict[_Set, Mount]:
    """Return kit's mounts of a host. Others that rclone made are not kit's."""
    mounts = (host.mounted(_STORES.kind) or {}).items()
    return {key: mount for place, mount in mounts if (key := store_at(place, cluster))}


def store_at(place: str, cluster: str) -> _Set | None:
    """Return which data set kit mounts at this folder of a host. None if the mount is not kit's."""
    *above, owner, name, last = ["", "", *place.split("/")]
    is_named = NAME.fullmatch(owner) and NAME.fullmatch(name) and last == names.DATA_MOUNT
    return (owner, name) if is_named and (owner == cluster or above[-1] == _FOLDER) else None


def _inside(host: Seen) -> Mapping[str, str] | None:
    """Return what rclone has mounted in the host's node: the devices by their folders. None if no node runs."""
    ran = host.ran(*_NODE.argv, node=True)
    if ran is None or ran.code != 0:
        return None
    return {_plain(place): device for device, place in _LINE.findall(ran.out)}


def _plain(place: str) -> str:
    """Return a folder without the kernel's escapes, such as \\040 for a space."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), place)


CHECK = Check(
    id="store-mount",
    title="The mount of a store has ended or is missing",
    area="host",
    severity="breaks",
    judge=judge,
    reads=(_STORES, _NODE),
    leads_to="Where a mount has ended, each rank of the host ends at its start: `cannot read /data/crawl: its mount "
    "has ended`. Where it does not answer, ranks wait at their start. Where it is missing, programs find an empty "
    "folder, and many take it for no data.",
    fix="Mount it again: `kit data mount NAME`. If the mount does not answer, run `kit data rm NAME` first. Look for "
    "the reason: `dmesg` names an rclone that the kernel killed because memory ran out.",
    lab="kit lab fault HOST store-mount",
)
