"""Results of the verbs that act on a cluster, as text: tables of hosts, and equal output once."""

from __future__ import annotations

from kit.cli.text.results import counted, run_sizes, word
from kit.cli.text.table import hosts
from kit.model.result import DeployResult, DownPreview, DownResult, ExecResult
from kit.model.text import fold, hanging, size


def deploy(value: DeployResult) -> str:
    where = hosts([result.host for result in value.hosts])
    if not value.changed:
        return f"Nothing to do: cluster {value.plan.cluster} is as it should be on {where}."
    return f"Cluster {value.plan.cluster} is ready on {where} ({value.seconds:.1f} s)."


def down(value: DownResult) -> str:
    cleaned = [host for host, removed in value.removed.items() if removed]
    text = f"Removed cluster {value.cluster} from {hosts(cleaned)}."
    if not cleaned:
        text = f"Nothing to do: cluster {value.cluster} is not on {hosts(list(value.removed))}."
    if value.kept:
        text += f"\nThe results of {counted(value.kept)} stay there; delete them: kit down --purge"
    if value.homes:
        text += f"\nWhat jobs wrote to HOME stays on {hosts(value.homes)}; delete it: kit down --purge"
    if value.data:
        text += (
            f"\nThe staged data of {', '.join(value.data)} stays there; delete it: kit data rm {' '.join(value.data)}"
        )
    return text


def down_preview(value: DownPreview, *, width: int | None = None) -> str:
    """Return which runs kit down deletes and keeps, with their sizes."""
    lines = []
    if value.keeps:
        lines += [f"kit down keeps the results of {counted(value.keeps)}:", run_sizes(value.keeps, width=width)]
    results = [run for run in value.deletes if run.hosts]
    if results:
        lines += [f"kit down deletes the results of {counted(results)}:", run_sizes(results, width=width)]
    if others := len(value.deletes) - len(results):
        logs = sum(run.size for run in value.deletes if not run.hosts)
        lines.append(
            f"kit down deletes the records and logs of {others} {word(others)} without results ({size(logs)})."
        )
    if value.unknown:
        lines.append(f"kit does not know which runs are on {hosts(value.unknown)}.")
    if not lines:
        lines.append(f"Cluster {value.cluster} has no runs.")
    lines.append(f"kit down {'keeps' if value.keeps_homes else 'deletes'} what jobs wrote to HOME.")
    return "\n".join(lines)


def groups(value: ExecResult) -> str:
    """Return each output once, under the hosts that printed it."""
    parts = []
    for group in value.groups:
        code = f"  (exit code {group.exit_code})" if group.exit_code else ""
        parts.append(f"── {hosts(group.hosts)}{code}")
        parts += [group.output.rstrip("\n")] if group.output.strip("\n") else []
    return "\n".join(parts)


def _hanging(text: str) -> str:
    """Return the text of errors, whose further lines are hints, or are indented (kit.model.text.hanging)."""
    return "\n".join(
        line if line.startswith("  → ") else hanging(f"\n{line}")[1:] for line in text.split("\n")
    ).lstrip()


def exits(value: ExecResult) -> str:
    """Return the hosts on which the command failed or did not run; '' if it ran everywhere."""
    lines = []
    for group in value.groups:
        if group.failed:
            lines.append(f"kit: error: {fold(group.hosts)}: {_hanging(group.output.rstrip())}")
        elif group.exit_code:
            lines.append(f"kit: exit code {group.exit_code} on {fold(group.hosts)}")
    return "\n".join(lines)
