"""Results of the verbs that act on a cluster, as text: tables of hosts, and equal output once."""

from __future__ import annotations

from kit.cli.text.table import hosts
from kit.model.result import DeployResult, DownResult, ExecResult


def deploy(value: DeployResult) -> str:
    where = hosts([result.host for result in value.hosts])
    if not value.changed:
        return f"Nothing to do: cluster {value.plan.cluster} is as it should be on {where}."
    return f"Cluster {value.plan.cluster} is ready on {where} ({value.seconds:.1f} s)."


def down(value: DownResult) -> str:
    cleaned = [host for host, removed in value.removed.items() if removed]
    if not cleaned:
        return f"Nothing to do: cluster {value.cluster} is not on {hosts(list(value.removed))}."
    return f"Removed cluster {value.cluster} from {hosts(cleaned)}."


def groups(value: ExecResult) -> str:
    """Return each output once, under the hosts that printed it."""
    parts = []
    for group in value.groups:
        code = f"  (exit code {group.exit_code})" if group.exit_code else ""
        parts.append(f"── {hosts(group.hosts)}{code}")
        parts += [group.output.rstrip("\n")] if group.output.strip("\n") else []
    return "\n".join(parts)
