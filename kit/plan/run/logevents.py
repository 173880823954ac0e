"""What the supervisor's events in a run's log mean: the roles of its ranks, and what each did at a limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from kit.model.answer import convert, within
from kit.model.text import one_line
from kit.plan.run.diagnose import headline
from kit.plan.run.records import failure_of

# The possible tags of the first rank's lines, with and without a parameter server.
FIRST_RANK = ("", "0", "worker 0")
# More ranks than any cluster has.
MOST_RANKS = 2**20


class Attempt(Struct, frozen=True, kw_only=True):
    """An attempt to run the command begins. `np` counts its ranks without `roles`: servers and the scheduler."""

    np: int = 0
    roles: tuple[str, ...] = ()


class Lost(Struct, frozen=True, kw_only=True):
    host: str
    elastic: bool = False


class Again(Struct, frozen=True, kw_only=True):
    """The next attempt, its `number`, starts in `wait` seconds, without the hosts `dropped`.

    `failure` is how the last one failed; empty from an older launcher.
    `checkpoint`: the seconds since a file in the head's checkpoint folder was last changed, if one is there.
    """

    number: int
    wait: float = 0.0
    dropped: tuple[str, ...] = ()
    failure: dict[str, Any] = field(default_factory=dict)
    checkpoint: float | None = None


class Restart(Struct, frozen=True, kw_only=True):
    """torchrun has started all ranks again, for the `number`-th time. `failure`, as in Again, may be empty."""

    number: int
    failure: dict[str, Any] = field(default_factory=dict)


class Rank(Struct, frozen=True, kw_only=True):
    """What a rank was doing at a limit. `state` and `wchan` are the kernel's words (proc(5)); no `pid`: not known."""

    rank: int
    host: str
    role: str | None = ""
    last: str | None = ""
    stack: str | None = ""
    ended: bool = False
    waiting: bool = False
    pid: int | None = None
    state: str | None = ""
    wchan: str | None = ""
    command: str | None = ""


class Hang(Struct, frozen=True, kw_only=True):
    why: str
    ranks: tuple[Rank, ...] = ()


def roles_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the role of each rank from the event of an attempt: workers first, then the roles that it names.

    Raises OddAnswer.
    """
    attempt = convert(fields, Attempt)
    if not attempt.roles:
        return {}
    within(attempt.np, 0, MOST_RANKS, "the number of ranks")
    names = [f"worker {number}" for number in range(attempt.np)]
    for role in attempt.roles:
        names.append(f"server {len(names) - attempt.np}" if role == "server" else role)
    return {str(rank): name for rank, name in enumerate(names)}


def lost_host(fields: Mapping[str, Any]) -> str:
    """Return the sentence about a host that does not answer any more. Raises OddAnswer."""
    lost = convert(fields, Lost)
    return f"{lost.host} does not answer any more: kit {'goes on without it' if lost.elastic else 'ends the run'}"


def next_attempt(fields: Mapping[str, Any]) -> str:
    """Return the sentence that announces the next attempt. Raises OddAnswer."""
    again = convert(fields, Again)
    without = f", without {', '.join(again.dropped)}" if again.dropped else ""
    age = again.checkpoint
    last = f"; the newest file in the head's KIT_CHECKPOINT_DIR is {_span(age)} old" if age is not None else ""
    why = f"{one_line(headline(failure_of(again.failure)))}; " if again.failure else ""
    return f"{why}attempt {again.number} starts in {again.wait:.0f} s{without}{last}"


def restarted(fields: Mapping[str, Any]) -> str:
    """Return the sentence about torchrun's restart. Raises OddAnswer."""
    restart = convert(fields, Restart)
    why = one_line(headline(failure_of(restart.failure))) if restart.failure else "a rank failed"
    return f"{why}; torchrun has started all ranks again (restart {restart.number})"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def hang_report(fields: Mapping[str, Any]) -> list[str]:
    """Return lines that show what each rank was doing when a limit was reached. Raises OddAnswer."""
    hang = convert(fields, Hang)
    lines = [f"── {hang.why}; what each rank was doing"]
    for rank in hang.ranks:
        last = f"; last line: {rank.last}" if rank.last else ""
        role = f" ({rank.role})" if rank.role else ""
        lines.append(f"rank {rank.rank}{role} on {rank.host}: {_doing(rank)}{last}")
        lines += [f"  {line}" for line in (rank.stack or "").splitlines() if line.strip()]
    lines.append("──")
    return lines


def _doing(rank: Rank) -> str:
    if rank.ended:
        return "has ended"
    if rank.waiting:
        return "has not started"
    if rank.pid is None:
        return "unknown: its node did not answer"
    words = {"R": "computes", "S": "waits", "D": "waits for a disk or device", "T": "is stopped", "Z": "has ended"}
    where = f" in {rank.wchan}" if rank.wchan not in (None, "", "0") else ""
    return f"{words.get(rank.state or '', 'runs')}{where} (pid {rank.pid}: {rank.command or ''})"
