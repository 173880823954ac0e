"""A clock that differs from those of the other hosts."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight

# Less does no harm, and hosts with a clock service are within milliseconds.
OFF_S = 0.5


def judge(examined: Examined) -> Iterator[Sight]:
    """The clock of a host is compared with the median of those that kit measured it against; a tie is the head's."""
    ahead: dict[str, list[float]] = {}
    error: dict[str, float] = {}
    for pair in examined.pairs:
        if pair.clock_s is not None and pair.clock_error_s is not None:
            ahead.setdefault(pair.target, []).append(pair.clock_s)
            ahead.setdefault(pair.source, []).append(-pair.clock_s)
            for host in (pair.source, pair.target):
                error[host] = max(error.get(host, 0.0), pair.clock_error_s)
    if len(ahead) == 2:
        # Of two hosts, either may be wrong. The head's clock counts.
        ahead.pop(examined.hosts[0].name if examined.hosts else next(iter(ahead)), None)
    for host, offsets in ahead.items():
        offset = _middle(offsets)
        if abs(offset) > OFF_S + error[host]:
            how = "ahead of" if offset > 0 else "behind"
            yield Sight(hosts=(host,), seen=f"its clock is {_seconds(abs(offset))} {how} the others")


def _middle(offsets: list[float]) -> float:
    """Return the median. Of two in the middle, it is the one that is closer to no offset."""
    ordered = sorted(offsets)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return min(low, high, key=abs)


def _seconds(offset: float) -> str:
    return f"{offset:.1f} s" if offset < 100 else f"{offset:.0f} s"


CHECK = Check(
    id="clock-offset",
    title="The hosts' clocks differ",
    area="pair",
    severity="watch",
    judge=judge,
    measures=True,
    leads_to="Certificates are refused as not yet valid, logs cannot be compared, and what expires does so at the "
    "wrong time.",
    fix="Install a clock service on each host: `sudo apt-get install chrony`, then `chronyc tracking`.",
    lab="kit lab fault HOST clock-offset",
)
