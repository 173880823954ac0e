"""A disk that is full or almost full."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model import names
from kit.model.doctor import DATA_ROOT, Check, Disk, Examined, Room, Seen, Severity, Sight
from kit.model.text import size

# The engine's images, kit's folder, and where programs write. Several of them are mostly one disk.
PATHS = ("/", "/var/lib/docker", DATA_ROOT, names.ROOT, "/var/tmp", "/tmp")  # noqa: S108
FULL = 10**9
# Below both, the next image may not fit.
LITTLE, SHARE = 10 * 10**9, 0.05


def severity(room: Room) -> Severity | None:
    """Return how bad it is that a disk has so little room, or None."""
    if not room.total or room.free >= LITTLE:
        return None
    # A small disk that is empty is somebody's choice.
    if room.free < FULL and room.free < room.total / 2:
        return "breaks"
    return "watch" if room.free < room.total * SHARE else None


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        for path, room in _disks(host):
            how = severity(room)
            if how is not None:
                text = f"{path} has {size(room.free)} free of {size(room.total)}"
                yield Sight(hosts=(host.name,), seen=text, severity=how)


def _disks(host: Seen) -> Iterator[tuple[str, Room]]:
    """Yield each disk once, by the first of the paths on it."""
    known: set[tuple[int, int, int]] = set()
    for path in PATHS:
        room = host.room(path)
        if room is None:
            continue
        # Between two reads, somebody may write a little.
        disk = (room.total, room.inodes, room.free >> 26)
        if disk not in known:
            known.add(disk)
            yield path, room


CHECK = Check(
    id="disk",
    title="A disk is full",
    area="host",
    severity="breaks",
    judge=judge,
    reads=tuple(Disk(path=path) for path in PATHS),
    leads_to="Images do not arrive, checkpoints are cut, and runs end with `No space left on device`.",
    fix="Make room: `docker system prune`, `kit runs rm`, or a larger disk.",
    lab="kit lab fault HOST disk",
    deploy=True,
)
