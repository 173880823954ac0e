"""Huge pages that other hosts have reserved, or kit.yaml asks for, and this host has not."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Files, Sight
from kit.plan.doctor.kernel import leaf, number
from kit.plan.doctor.majority import odd

_RESERVED = Files(pattern="/sys/kernel/mm/hugepages/hugepages-*/nr_hugepages")
_SIZE = re.compile(r"hugepages-([0-9]{1,9})kB", re.ASCII)
_GIB = "1048576"
_NAMES = {"2048": "2 MiB", _GIB: "1 GiB"}


def judge(examined: Examined) -> Iterator[Sight]:
    pages: dict[str, dict[str, str]] = defaultdict(dict)
    for one in examined.hosts:
        for folder, text in leaf(one.glob(_RESERVED.pattern)).items():
            match, reserved_now = _SIZE.fullmatch(folder), number(text)
            if match and reserved_now is not None:
                pages[match[1]][one.name] = str(reserved_now)
    wanted = examined.spec.setup.hugepages
    for size, counts in pages.items():
        name = _NAMES.get(size, f"{size} KiB")
        lacking = {host: count for host, count in counts.items() if size == _GIB and int(count) < wanted}
        for host, reserved in lacking.items():
            yield Sight(hosts=(host,), seen=f"{reserved} huge pages of {name}, {wanted} in kit.yaml (setup.hugepages)")
        for host, reserved, usual in odd(counts):
            if host not in lacking:
                yield Sight(hosts=(host,), seen=f"{reserved} huge pages of {name}, usual {usual}")


CHECK = Check(
    id="huge-pages",
    title="Huge pages are missing or differ",
    area="host",
    severity="watch",
    judge=judge,
    reads=(_RESERVED,),
    leads_to="A program that asks for huge pages fails on a host without them. A host that reserved more has less "
    "memory for everything else.",
    fix="Reserve the same number on all hosts. For 4 pages of 1 GiB: `kit setup --only hugepages --hugepages 4`. Pages "
    "of the default size by hand: `sudo sysctl -w vm.nr_hugepages=NUMBER`.",
    lab="kit lab fault HOST huge-pages",
)
