"""A kernel that compacts memory whenever a program asks for a huge page."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, File, Sight
from kit.plan.doctor.kernel import chosen

_FOLDER = "/sys/kernel/mm/transparent_hugepage"
_DEFRAG, _ENABLED = File(path=f"{_FOLDER}/defrag"), File(path=f"{_FOLDER}/enabled")


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        if chosen(host.file(_DEFRAG.path)) == "always" and chosen(host.file(_ENABLED.path)) in ("always", "madvise"):
            yield Sight(hosts=(host.name,), seen="transparent huge pages with defrag=always")


CHECK = Check(
    id="thp",
    title="The kernel compacts memory while programs wait",
    area="host",
    severity="watch",
    judge=judge,
    reads=(_DEFRAG, _ENABLED),
    leads_to="Some steps take longer than others: a rank that allocates memory waits until the kernel has made a "
    "huge page.",
    fix="Set the kernel's default: `echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/defrag`.",
    lab="kit lab fault HOST thp",
)
