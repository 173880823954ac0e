"""What the supervisor's events in a run's log mean: the roles of its ranks, and what each did at a limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The possible tags of the first rank's lines, with and without a parameter server.
FIRST_RANK = ("", "0", "worker 0")


def roles_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the role of each rank from the event of an attempt: workers first, then the roles that it names."""
    behind = [str(role) for role in fields.get("roles", ())]
    if not behind:
        return {}
    np = int(fields.get("np", 0))
    names = [f"worker {number}" for number in range(np)]
    for role in behind:
        names.append(f"server {len(names) - np}" if role == "server" else role)
    return {str(rank): name for rank, name in enumerate(names)}


def hang_report(fields: Mapping[str, Any]) -> list[str]:
    """Return lines that show what each rank was doing when a limit was reached."""
    lines = [f"── {fields.get('why')}; what each rank was doing"]
    for rank in fields.get("ranks", ()):
        what = _doing(rank)
        last = f"; last line: {rank['last']}" if rank.get("last") else ""
        role = f" ({rank['role']})" if rank.get("role") else ""
        lines.append(f"rank {rank.get('rank')}{role} on {rank.get('host')}: {what}{last}")
        lines += [f"  {line}" for line in str(rank.get("stack", "")).splitlines() if line.strip()]
    lines.append("──")
    return lines


def _doing(rank: Mapping[str, Any]) -> str:
    if rank.get("ended"):
        return "has ended"
    if rank.get("waiting"):
        return "has not started"
    if "pid" not in rank:
        return "unknown: its node did not answer"
    words = {"R": "computes", "S": "waits", "D": "waits for a disk or device", "T": "is stopped", "Z": "has ended"}
    wchan = rank.get("wchan") or ""
    where = f" in {wchan}" if wchan not in ("", "0") else ""
    return f"{words.get(rank.get('state', ''), 'runs')}{where} (pid {rank['pid']}: {rank.get('command', '')})"
