"""What kit doctor finds, and the page of one check, as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kit.cli.screen.terminal import Style
from kit.cli.text.table import hosts as counted
from kit.model.doctor import Check, DoctorResult, Finding, Severity, Sight
from kit.model.pretended import gpus_word
from kit.model.text import fold, one_line, plural

Paint = Callable[[str, Style], str]

STYLES: Mapping[Severity, Style] = {"breaks": "red", "slows": "yellow", "watch": "dim"}
# How many lines of a finding are shown without --verbose, and how many ranges of hosts a line names.
_LINES = 8
_HOSTS = 16
# The fields of a check that --explain --json prints.
EXPLAINED = ("id", "title", "area", "severity", "leads_to", "fix", "lab", "untested", "deploy")
# Between the hosts of a pair.
_TO = " → "


def findings(value: DoctorResult, *, verbose: bool = False, paint: Paint | None = None) -> str:
    """Return each finding with its hosts, what it leads to and what to type, and a last line that counts."""
    parts = [_finding(one, verbose=verbose, paint=paint or _plain) for one in value.findings]
    parts += [f"The check {one.id} failed, which is a bug in kit: {one_line(one.error)}" for one in value.failed]
    parts += [_unsure(value.unsure, most=None if verbose else _LINES)] if value.unsure else []
    return "\n\n".join([*parts, _summary(value)])


def _unsure(links: Sequence[tuple[str, str]], *, most: int | None) -> str:
    """Return the links that looked slow, and that kit does not judge."""
    by_host: dict[str, list[str]] = {}
    for one, other in links:
        by_host.setdefault(one, []).append(other)
    rows = [f"  {one} and {_names(others)}" for one, others in by_host.items()]
    shown = rows[:most]
    more = [f"  … and {len(rows) - len(shown)} more lines, which -v and --json show"] if len(rows) > len(shown) else []
    count = "1 link" if len(links) == 1 else f"{len(links)} links"
    first = f"Not judged: {count} looked slow, but the hosts were busy, or kit had no time to measure again."
    return "\n".join([first, *shown, *more, "  → run kit doctor again when the hosts are idle"])


def _plain(text: str, _style: Style) -> str:
    return text


def _finding(value: Finding, *, verbose: bool, paint: Paint) -> str:
    lines = [f"{paint(value.severity, STYLES[value.severity])}  {paint(value.id, 'bold')}  {value.title}"]
    rows = _pairs(value.seen) if value.area == "pair" else [(_names(one.hosts), one) for one in value.seen]
    shown = rows if verbose else rows[:_LINES]
    for names, sight in shown:
        other = f" ({sight.severity})" if sight.severity not in (None, value.severity) else ""
        lines.append(f"  {names}: {one_line(sight.seen)}{other}")
        lines += [f"    → {one_line(sight.fix)}"] if sight.fix else []
    if len(rows) > len(shown):
        lines.append(f"  … and {len(rows) - len(shown)} more lines, which -v and --json show")
    lines.append(f"  leads to: {value.leads_to}")
    if value.fix not in {sight.fix for _, sight in rows}:
        lines.append(f"  → {value.fix}")
    return "\n".join(lines)


def _names(hosts: Sequence[str]) -> str:
    return fold(hosts, most=_HOSTS)


def _pairs(sights: Sequence[Sight]) -> list[tuple[str, Sight]]:
    """Return the lines of a finding about pairs.

    Pairs from one host with the same text share a line, and so do hosts that are named alone.
    """
    lines: dict[tuple[str, str, str, Severity | None], list[Sight]] = {}
    for sight in sights:
        source = sight.hosts[0] if len(sight.hosts) > 1 else ""
        lines.setdefault((source, sight.seen, sight.fix, sight.severity), []).append(sight)
    return [
        (source + (_TO if source else "") + _names([sight.hosts[-1] for sight in group]), group[0])
        for (source, _, _, _), group in lines.items()
    ]


def _summary(value: DoctorResult) -> str:
    did = f"{value.checks} checks on {counted(value.hosts)}"
    did += f", {value.pairs} pair{'' if value.pairs == 1 else 's'}" if value.pairs else ""
    did += f", in {value.seconds:.1f} s{gpus_word(value.gpu_models)}"
    if not value.findings:
        failed = f", but {plural(len(value.failed), 'check')} failed" if value.failed else ""
        return f"No finding{failed}: {did}."
    counts = [(sum(one.severity == severity for one in value.findings), severity) for severity in STYLES]
    worst = ", ".join(f"{count} {severity}" for count, severity in counts if count)
    return f"{len(value.findings)} finding{'' if len(value.findings) == 1 else 's'} ({worst}): {did}."


def page(check: Check) -> str:
    """Return what the doctor knows about one check, for --explain."""
    lines = [f"{check.id}  {check.title} ({check.severity})", "", f"Leads to: {check.leads_to}", f"Fix: {check.fix}"]
    lines.append(f"In the lab: {check.lab}" if check.lab else f"Not tested in the lab: {check.untested}")
    return "\n".join(lines)
