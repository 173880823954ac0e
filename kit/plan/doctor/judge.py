"""Runs the checks over what kit read from the hosts, and folds what they saw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kit.model.doctor import Check, Examined, FailedCheck, Finding, Read, Severity, Sight

# The worst first.
SEVERITIES: tuple[Severity, ...] = ("breaks", "slows", "watch")


class Judged(NamedTuple):
    """The findings, the worst first, and the checks that a bug in kit ended."""

    findings: tuple[Finding, ...]
    failed: tuple[FailedCheck, ...]


def reads_of(checks: Iterable[Check]) -> tuple[Read, ...]:
    """Return what the checks read, each once."""
    return tuple(dict.fromkeys(read for check in checks for read in check.reads))


def judge(examined: Examined, checks: Sequence[Check]) -> Judged:
    """Return what the checks find. One that raises does not hide the others."""
    findings: list[Finding] = []
    failed: list[FailedCheck] = []
    for check in checks:
        try:
            sights = tuple(check.judge(examined))
        except Exception as error:
            failed.append(FailedCheck(id=check.id, error=f"{type(error).__name__}: {error}"))
            continue
        if sights:
            findings.append(finding(check, sights))
    # The order of the checks remains within a severity.
    findings.sort(key=lambda one: SEVERITIES.index(one.severity))
    return Judged(tuple(findings), tuple(failed))


def finding(check: Check, sights: Sequence[Sight]) -> Finding:
    """Return the finding of a check that saw something."""
    severities = {sight.severity or check.severity for sight in sights}
    return Finding(
        id=check.id,
        title=check.title,
        severity=min(severities, key=SEVERITIES.index),
        area=check.area,
        seen=tuple(dict.fromkeys(sights)) if check.area == "pair" else folded(sights),
        leads_to=check.leads_to,
        fix=check.fix,
    )


def folded(sights: Iterable[Sight]) -> tuple[Sight, ...]:
    """Return sights that differ only in their hosts as one, in the order of the first."""
    hosts: dict[tuple[str, str, Severity | None], dict[str, None]] = {}
    for sight in sights:
        hosts.setdefault((sight.seen, sight.fix, sight.severity), {}).update(dict.fromkeys(sight.hosts))
    return tuple(
        Sight(hosts=tuple(names), seen=seen, fix=fix, severity=severity)
        for (seen, fix, severity), names in hosts.items()
    )
