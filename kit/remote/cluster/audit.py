"""The audit of a cluster: a line of JSON for each change, kept on the head's VM. kit down keeps it."""

from __future__ import annotations

import json

from kit.errors import StepError
from kit.model import names
from kit.model.answer import OddAnswer, decode
from kit.model.lock import AuditEntry
from kit.model.values import asdict
from kit.remote.scripts import script
from kit.remote.ssh.transport import Transport

# The longest line that can be an entry.
_LONGEST = 1 << 20


def append(transport: Transport, cluster: str, entry: AuditEntry) -> None:
    """Append a line. Write nothing if the cluster never was on this host."""
    line = json.dumps(asdict(entry), ensure_ascii=False) + "\n"
    done = transport.run(
        script("audit", names.folder(cluster), names.audit_file(cluster)),
        stdin=line.encode(errors="replace"),
        timeout_s=15,
    )
    if done.code != 0:
        raise StepError(done.error_text or f"exit {done.code}", host=transport.host.name)


def last(transport: Transport, file: str, count: int) -> tuple[AuditEntry, ...]:
    """Return the newest `count` entries of an audit's file, the oldest of them first. A missing file has none."""
    done = transport.run(script("tail", file, str(count)))
    if done.code != 0:
        raise StepError(
            f"the audit could not be read: {done.error_text or f'exit {done.code}'}",
            hint=f"look at {file} by hand",
            host=transport.host.name,
        )
    return tuple(entry for line in done.text.splitlines() if (entry := parse(line)) is not None)


def parse(line: str) -> AuditEntry | None:
    """Return the entry in a line. Return None if the line is incomplete or another version of kit wrote it."""
    try:
        entry: AuditEntry = decode(line, AuditEntry, most=_LONGEST)
    except OddAnswer:
        return None
    return entry
