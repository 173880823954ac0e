"""A host that uses swap."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Sight
from kit.model.text import size
from kit.plan.doctor.kernel import memory

_SWAPS = File(path="/proc/swaps")
_MEMORY = File(path="/proc/meminfo")
# In KiB, and as a share of the memory. The kernel also moves some pages to swap that nobody has used for days.
_LEAST, _SHARE = 512 * 1024, 0.05


def _used(text: str) -> int:
    """Return how much of the swap is used, in KiB. Compressed memory (zram) does not count."""
    rows = [line.rsplit(maxsplit=4) for line in text.splitlines()[1:65]]
    return sum(
        int(row[3]) for row in rows if len(row) == 5 and row[3].isascii() and row[3].isdigit() and "/zram" not in row[0]
    )


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        used = _used((host.file(_SWAPS.path) or "")[:65536])
        total = memory(host.file(_MEMORY.path)).get("MemTotal", 0)
        if used >= max(_LEAST, _SHARE * total):
            seen = f"{size(used * 1024)} of swap are used" + (f", with {size(total * 1024)} of memory" if total else "")
            yield Sight(hosts=(host.name,), seen=seen)


CHECK = Check(
    id="swap",
    title="The host uses swap",
    area="host",
    severity="slows",
    judge=judge,
    reads=(_SWAPS, _MEMORY),
    leads_to="A rank waits for the disk in the middle of a step, and all others wait for it.",
    fix="See what uses the memory: `ps aux --sort -rss | head`. Then turn swap off: `sudo swapoff -a`, and remove "
    "its line in `/etc/fstab`.",
    lab="kit lab fault HOST swap",
    deploy=True,
)
