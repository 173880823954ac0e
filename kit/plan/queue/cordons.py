"""Leaves cordoned hosts out of new runs, refuses them by name, and decides which hosts kit doctor cordons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kit.errors import NotReadyError
from kit.model.doctor import Finding
from kit.model.host import Host
from kit.model.queue import Cordon
from kit.model.text import fold


def usable(
    hosts: Sequence[Host], cordons: Sequence[Cordon], *, named: bool, waits: bool = False
) -> tuple[Sequence[Host], tuple[Cordon, ...]]:
    """Return the hosts on which a new run may be placed, and the cordons of the others.

    `named`: the command line names the hosts. Raises NotReadyError if one of those is cordoned, or if none is left.
    `waits`: the run joins the line, where it can wait for cordoned hosts, so none must be left.
    """
    by_host = {cordon.host: cordon for cordon in cordons}
    out = tuple(by_host[host.name] for host in hosts if host.name in by_host)
    left = [host for host in hosts if host.name not in by_host]
    if out and (named or not (left or waits)):
        raise refusal(out)
    return left, out


def refusal(cordons: Sequence[Cordon]) -> NotReadyError:
    """Return the error for hosts that are cordoned."""
    first = cordons[0]
    more = f"; so are {fold(cordon.host for cordon in cordons[1:])}" if len(cordons) > 1 else ""
    return NotReadyError(
        f"{text(first)}{more}", hint=f"choose other hosts with -H, or end that: kit hosts uncordon {first.host}"
    )


def alike(cordons: Iterable[Cordon]) -> tuple[tuple[Cordon, ...], ...]:
    """Return the cordons of one person for one reason together, in the order of their first hosts."""
    groups: dict[tuple[str, str], list[Cordon]] = {}
    for cordon in cordons:
        groups.setdefault((cordon.why, cordon.by), []).append(cordon)
    return tuple(map(tuple, groups.values()))


def text(cordon: Cordon, *others: Cordon) -> str:
    """Return a sentence about a cordoned host, and `others` that are alike."""
    by = f", by {cordon.by}" if cordon.by else ""
    verb = "are" if others else "is"
    return f"{fold(one.host for one in (cordon, *others))} {verb} cordoned: {cordon.why}{by}"


def of_findings(findings: Iterable[Finding], known: Sequence[str]) -> dict[str, str]:
    """Return why each host should be cordoned: its findings that break runs, by host in the order of `known`.

    A finding about two hosts, or about the cluster as a whole, blames no host.
    """
    reasons: dict[str, list[str]] = {}
    for finding in findings:
        for sight in finding.seen:
            if finding.area in ("pair", "cluster") or (sight.severity or finding.severity) != "breaks":
                continue
            for host in sight.hosts:
                words = reasons.setdefault(host, [])
                words += [finding.id] if finding.id not in words else []
    return {host: f"kit doctor: {', '.join(reasons[host])}" for host in known if host in reasons}
