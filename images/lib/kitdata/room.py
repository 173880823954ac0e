"""Whether what must come has room on every host. Checked before the first byte comes."""

from typing import Dict, NamedTuple, Optional, Sequence

from kitdata.crew import Failed
from kitdata.plan import Plan

_BLOCK = 4096


class Room(NamedTuple):
    """What a member's disk has left, in bytes and files, and how many files it has that the source no longer has."""

    free: int
    inodes: int
    gone: int


def check(step: Plan, rooms: Dict[int, Room], hosts: Sequence[str], stage: str, most: Optional[int]) -> None:
    """Raise Failed for the host that needs most and has too little. `most` is the most memory, with stage ram."""
    ram = stage == "ram"
    kind = "memory" if ram else "room"
    for member in sorted(rooms, key=lambda one: (-step.need[one], one)):
        need, room, host = step.need[member], rooms[member], hosts[member]
        total = need + step.have[member]
        if ram and most is not None and total > most:
            text = "the data needs %s of memory on %s, and size: allows %s" % (amount(total), host, amount(most))
            raise Failed("memory", text, host)
        if not need:
            continue
        files = step.files[member]
        # Half a block for the end of each file.
        takes = need + files * _BLOCK // 2
        if takes > room.free:
            where = "of memory " if ram else ""
            text = "what must come to %s takes %s, and %s %sis free there"
            raise Failed("shm" if ram else kind, text % (host, amount(takes), amount(room.free), where), host)
        if files > room.inodes:
            text = "%d files must come to %s, and its file system has room for %d more"
            raise Failed(kind, text % (files, host, room.inodes), host)


def amount(count: int) -> str:
    """Return a number of bytes for people."""
    size = float(count)
    unit = "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return "%d bytes" % count if unit == "bytes" else "%.1f %s" % (size, unit)
