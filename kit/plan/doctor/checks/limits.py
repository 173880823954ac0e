"""Limits that are too low for the ranks: locked memory, open files, processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kit.model.doctor import Check, Command, Examined, File, Links, Seen, Sight
from kit.plan.doctor.kernel import number

_PIDS = File(path="/proc/sys/kernel/pid_max")
_LIMITS = Command(argv=("cat", "/proc/self/limits"), node=True)
# Control groups of version 2 and 1.
_PIDS_MAX = tuple(
    Command(argv=("cat", path), node=True) for path in ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max")
)
_RDMA = Links(pattern="/sys/class/infiniband/*")
# 32768 is the kernel's default. A rank of TensorFlow on 64 cores has some 400 threads.
_LEAST_PIDS = 16384
_LEAST_NODE_PIDS = 4096
# What a rank opens besides its connections, and the connections to each of the others.
_FILES, _FILES_A_RANK = 256, 4


def _limit(text: str, name: str) -> str:
    """Return the soft limit in a text of /proc/PID/limits: a number, unlimited, or ''."""
    match = re.search(rf"^{name} {{1,40}}([0-9]{{1,20}}|unlimited) ", text[:8192], re.MULTILINE)
    return match[1] if match else ""


def _in_node(host: Seen, ranks: int) -> Iterator[str]:
    ran = host.ran(*_LIMITS.argv, node=True)
    text = ran.out if ran and ran.code == 0 else ""
    memory, files = _limit(text, "Max locked memory"), _limit(text, "Max open files")
    if host.link(_RDMA.pattern) and memory not in ("", "unlimited"):
        yield f"RDMA needs locked memory, and the node may lock {memory} bytes"
    needed = _FILES + _FILES_A_RANK * ranks
    if files.isdigit() and int(files) < needed:
        yield f"a rank may open {files} files, and {ranks} ranks need about {needed}"
    for command in _PIDS_MAX:
        ran = host.ran(*command.argv, node=True)
        most = number(ran.out) if ran and ran.code == 0 else None
        if most is not None and most < _LEAST_NODE_PIDS:
            yield f"the node may have {most} processes and threads"


def judge(examined: Examined) -> Iterator[Sight]:
    ranks = sum(host.node.slots if host.node else host.host.slots or 1 for host in examined.hosts)
    for host in examined.hosts:
        most = number(host.file(_PIDS.path))
        if most is not None and 0 < most < _LEAST_PIDS:
            yield Sight(hosts=(host.name,), seen=f"the kernel allows {most} processes and threads")
        for seen in _in_node(host, ranks):
            yield Sight(hosts=(host.name,), seen=seen)


CHECK = Check(
    id="limits",
    title="A limit is too low for the ranks",
    area="host",
    severity="breaks",
    judge=judge,
    reads=(_PIDS, _LIMITS, *_PIDS_MAX, _RDMA),
    leads_to="Ranks fail at the start: `Resource temporarily unavailable`, `Too many open files`, or `ibv_reg_mr "
    "failed: Cannot allocate memory`.",
    fix="Set `ulimits:` and `pids:` in kit.yaml and run `kit deploy`. For the kernel: `sudo sysctl -w "
    "kernel.pid_max=4194304`.",
    lab="kit lab fault HOST limits",
)
