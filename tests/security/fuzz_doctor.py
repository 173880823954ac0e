"""Answers to kit doctor: what the reader on a VM prints, and what the checks make of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kit.config.validate import spec_from
from kit.model.doctor import Command, Disk, Examined, Files, Links, Lookup, Read
from kit.model.host import Host
from kit.plan.doctor.checks import CHECKS
from kit.plan.doctor.judge import reads_of
from kit.remote.doctor.read import answered
from kit.remote.ssh.transport import Completed

MARK = "5f1c"
HOST = Host(name="gpu4", address="192.0.2.4")
SPEC = spec_from({"name": "lab"})
READS: Sequence[Read] = reads_of(CHECKS)


def value(read: Read) -> Any:
    match read:
        case Files() | Links():
            return {read.pattern.replace("*", "eth0"): "1500\n"}
        case Command():
            return [0, "one 1\n", ""]
        case Disk():
            return [100 * 2**30, 50 * 2**30, 6_000_000, 5_000_000]
        case Lookup():
            return ["10.0.0.4"]
    return "4096 16384 4194304\n"


def answer(values: Sequence[Any], missing: Sequence[int] = ()) -> bytes:
    line = json.dumps({"reads": list(values), "missing": list(missing), "look": None})
    return f"@@ {MARK} {line}\n".encode()


SAMPLES = (answer([value(read) for read in READS]), answer([None] * len(READS), range(len(READS))))


def read(text: bytes) -> None:
    """Read it as kit doctor does, and judge it. A check that raises is a fault here; kit itself goes on."""
    seen = answered(HOST, READS, Completed(code=0, stdout=text, stderr=b""), mark=MARK).seen
    examined = Examined(spec=SPEC, hosts=(seen,))
    for check in CHECKS:
        for sight in check.judge(examined):
            assert isinstance(sight.seen, str)
