"""A file system that has no room for more files, whatever its free bytes."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model import names
from kit.model.doctor import DATA_ROOT, Check, Disk, Examined, Severity, Sight

_PATHS = ("/", "/var/lib/docker", DATA_ROOT, names.ROOT, "/tmp")  # noqa: S108  (only read)
_DISKS = tuple(Disk(path=path) for path in _PATHS)
# An image of kit has about 60,000 files, and the code of a run some thousands.
_NONE, _FULL, _NEARLY = 1000, 0.99, 0.95


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        shown = set()
        for disk in _DISKS:
            room = host.room(disk.path)
            # Btrfs does not count inodes.
            if room is None or room.inodes <= 0 or room in shown:
                continue
            # Two paths of one file system have the same figures.
            shown.add(room)
            used = 1 - room.inodes_free / room.inodes
            if room.inodes_free < _NONE or used >= _NEARLY:
                severity: Severity = "breaks" if room.inodes_free < _NONE or used >= _FULL else "watch"
                seen = f"{disk.path}: {max(0, room.inodes_free)} of {room.inodes} inodes are free"
                yield Sight(hosts=(host.name,), seen=seen, severity=severity)


CHECK = Check(
    id="inodes",
    title="A disk has no room for more files",
    area="host",
    severity="breaks",
    judge=judge,
    reads=_DISKS,
    leads_to="`No space left on device`, although `df` shows free space: kit cannot ship an image or start a run.",
    fix="Find the folder with the most files, `sudo du --inodes -x -d 3 / | sort -n | tail`, and remove what nobody "
    "needs, such as old images: `sudo docker image prune`.",
    lab="kit lab fault HOST inodes",
    deploy=True,
)
