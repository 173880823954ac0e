"""Huge pages that other hosts have reserved and this one has not."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Files, Sight
from kit.plan.doctor.kernel import leaf, number
from kit.plan.doctor.majority import odd

_RESERVED = Files(pattern="/sys/kernel/mm/hugepages/hugepages-*/nr_hugepages")
_SIZE = re.compile(r"hugepages-([0-9]{1,9})kB", re.ASCII)
_NAMES = {"2048": "2 MiB", "1048576": "1 GiB"}


def judge(examined: Examined) -> Iterator[Sight]:
    pages: dict[str, dict[str, str]] = defaultdict(dict)
    for host in examined.hosts:
        for folder, text in leaf(host.glob(_RESERVED.pattern)).items():
            match, count = _SIZE.fullmatch(folder), number(text)
            if match and count is not None:
                pages[match[1]][host.name] = str(count)
    for size, counts in pages.items():
        for name, reserved, usual in odd(counts):
            seen = f"{reserved} huge pages of {_NAMES.get(size, size + ' KiB')}, usual {usual}"
            yield Sight(hosts=(name,), seen=seen)


CHECK = Check(
    id="huge-pages",
    title="Reserved huge pages differ between hosts",
    area="host",
    severity="watch",
    judge=judge,
    reads=(_RESERVED,),
    leads_to="A program that asks for huge pages fails on a host without them. A host that reserved more has less "
    "memory for everything else.",
    fix="Reserve the same number on all hosts: `kit setup --only hugepages`, or by hand `sudo sysctl -w "
    "vm.nr_hugepages=NUMBER`.",
    lab="kit lab fault HOST huge-pages",
)
