"""Answers to kit doctor: what the reader on a VM prints, and what the checks make of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kit.config.validate import spec_from
from kit.model.doctor import Command, Disk, Examined, Files, Links, Lookup, Mounts, Read, Seen
from kit.model.values import replace
from kit.plan.doctor.checks import CHECKS
from kit.plan.doctor.judge import reads_of
from kit.remote.doctor.read import answered
from kit.remote.ssh.transport import Completed
from tests.fakes.facts import GPU_ENGINE, facts, gpus, node

MARK = "5f1c"
DATA = {"crawl": {"from": "s3://bucket/crawl", "to": "/data/crawl", "stage": "none"}}
SPEC = spec_from({"name": "lab", "data": DATA})
READS: Sequence[Read] = reads_of(CHECKS)


# What files and programs may contain: numbers, words, a table, an object.
TEXTS = (
    "4096 16384 4194304\n",
    "always [madvise] never\nMax open files 1024 4096 files\nMemTotal: 65536000 kB\n",
    '{"features": {"cdi": true}, "mtu": 1500, "default-address-pools": [{"base": "10.0.0.0/8", "size": 24}]}\n',
    "840 812 0:61 / /data/crawl ro - fuse.rclone rclone ro\n",
    "NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU is lost.\n2: eth0: <UP> mtu 9001\n10.0.0.0/24 dev eth0\n",
)


def value(read: Read, text: str) -> Any:
    match read:
        case Files() | Links():
            return {read.pattern.replace("*", name): text for name in ("eth0", "0", "lo")}
        case Command():
            return [0, text, ""]
        case Disk():
            return [100 * 2**30, 50 * 2**30, 6_000_000, 5_000_000]
        case Lookup():
            return ["10.0.0.4"]
        case Mounts():
            return {"/opt/kit/.data/lab/crawl/mount": ["0:61", "ENOTCONN"], "/opt/kit/.data/b/c/mount": ["0:62", None]}
    return text


def answer(values: Sequence[Any], missing: Sequence[int] = ()) -> bytes:
    line = json.dumps({"reads": list(values), "missing": list(missing), "look": None})
    return f"@@ {MARK} {line}\n".encode()


SAMPLES = (
    *(answer([value(read, text) for read in READS]) for text in TEXTS),
    answer([None] * len(READS), range(len(READS))),
)


def seen(number: int, text: bytes) -> Seen:
    """Return a host that answers this, with what a deploy observes of it."""
    one = facts(number, gpus=gpus(2), gpu_engine=GPU_ENGINE, driver="570.86.15")
    done = Completed(code=0, stdout=text, stderr=b"")
    return replace(answered(one.host, READS, done, mark=MARK).seen, facts=one, node=node(number))


def read(text: bytes) -> None:
    """Read it as kit doctor does, and judge it. A check that raises is a fault here; kit itself goes on."""
    hosts = (seen(1, SAMPLES[0]), seen(2, SAMPLES[1]), seen(3, text))
    examined = Examined(spec=SPEC, hosts=hosts, deployed=True)
    for check in CHECKS:
        for sight in check.judge(examined):
            assert isinstance(sight.seen, str)
