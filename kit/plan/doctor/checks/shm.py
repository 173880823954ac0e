"""Shared memory of a node that is full, or smaller than kit.yaml says."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kit.model.doctor import Check, Command, Examined, Sight
from kit.model.text import size

_DF = Command(argv=("df", "-P", "-k", "/dev/shm"), node=True)  # noqa: S108  (only read)
_ROW = re.compile(r"^\S{1,80} +([0-9]{1,15}) +([0-9]{1,15}) +[0-9]{1,15} +[0-9]{1,3}% +/dev/shm$", re.MULTILINE)
# NCCL needs some MB for each pair of ranks, and PyTorch's loaders some hundreds.
_FULL = 0.9
# What Docker gives a container that asks for nothing, in KiB.
_DEFAULT = 65536


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        ran = host.ran(*_DF.argv, node=True)
        match = _ROW.search(ran.out[:4096]) if ran and ran.code == 0 else None
        if match is None or not int(match[1]):
            continue
        total, used = int(match[1]), int(match[2])
        if used >= _FULL * total:
            yield Sight(hosts=(host.name,), seen=f"{size(used * 1024)} of {size(total * 1024)} are used")
        elif total <= _DEFAULT:
            yield Sight(hosts=(host.name,), seen=f"only {size(total * 1024)}", severity="watch")


CHECK = Check(
    id="shm",
    title="A node's shared memory is full or small",
    area="host",
    severity="breaks",
    judge=judge,
    reads=(_DF,),
    leads_to="Ranks end with `Bus error`, or NCCL reports `No space left on device`.",
    fix="See what is in it: `kit exec HOST -- ls -l /dev/shm`. Remove what dead programs left there, or set "
    "`shm_size:` in kit.yaml and run `kit deploy`.",
    lab="kit lab fault HOST shm",
)
