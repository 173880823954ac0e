"""Plans and what became of a cluster, as text: each step with its reason, tables of hosts, equal output once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kit.cli.text.fold import fold
from kit.cli.text.table import hosts, size, table
from kit.model.plan import (
    ComposeUp,
    DeleteFile,
    HostPlan,
    Plan,
    Pull,
    RemoveCluster,
    Ship,
    Step,
    VerifyPeers,
    WaitSshd,
    WriteFile,
)
from kit.model.result import DeployResult, DownResult, ExecResult, PsResult
from kit.model.secret import Secret


def plan(value: Plan, *, verbose: bool = False) -> str:
    """Hosts with the same steps are told of together. `verbose` adds addresses and the content of files."""
    names = [each.host for each in value.hosts]
    if value.empty:
        return f"Nothing to do: cluster {value.cluster} is as it should be on {hosts(names)}."
    parts = [f"Plan for cluster {value.cluster}"]
    if any(each.steps for each in value.before):
        parts += ["First:", *_sections(value.before, verbose=verbose), "Then:"]
    parts += _sections(value.hosts, verbose=verbose)
    for each in value.rounds:
        parts += [f"Then, {each.name}:", *_sections([p for p in each.hosts if p.steps], verbose=verbose)]
    if any(each.steps for each in value.after):
        parts += ["Then, when every host is done:", *_sections(value.after, verbose=verbose)]
    return "\n".join(parts)


def _sections(plans: Iterable[HostPlan], *, verbose: bool) -> list[str]:
    alike: dict[str, list[str]] = {}
    for each in plans:
        alike.setdefault(_steps(each.steps, verbose=verbose), []).append(each.host)
    return [f"{fold(names)}\n{steps}" for steps, names in alike.items()]


def _steps(steps: Sequence[Step], *, verbose: bool) -> str:
    if not steps:
        return "  nothing to do"
    rows = [(*_step(step, verbose=verbose), f"because {step.why}") for step in steps]
    text = table(rows, indent="  ")
    if not verbose:
        return text
    parts = []
    for row, step in zip(text.split("\n"), steps, strict=True):
        parts.append(row)
        if isinstance(step, WriteFile) and not isinstance(step.content, Secret):
            parts += [f"  │ {each}" for each in step.content.decode(errors="replace").splitlines()]
    return "\n".join(parts)


def _step(step: Step, *, verbose: bool) -> tuple[str, str]:
    told: tuple[str, str]
    match step:
        case Ship():
            how_much = f" ({size(step.size)})" if step.size else ""
            told = "ship", f"{step.image}{how_much}{f' from {step.source[0]}' if step.source else ''}"
        case Pull():
            told = "pull", f"{step.source}{f'@{step.digest}' if verbose else ''}"
        case WriteFile():
            told = "write", f"{step.path} {step.mode}" + (" (secret)" if isinstance(step.content, Secret) else "")
        case DeleteFile():
            told = "delete", step.path
        case ComposeUp():
            told = "start", f"docker compose up in {step.folder}" + (", made anew" if step.recreate else "")
        case WaitSshd():
            told = "wait", f"for sshd on {f'{step.address}:' if verbose else 'port '}{step.port}"
        case VerifyPeers():
            told = "verify", f"ssh from {step.container} to {fold(name for name, _ in step.peers)}"
        case RemoveCluster():
            also = f" and {len(step.images)} images" if step.images else ""
            told = "remove", f"containers of {step.cluster}, {step.folder}{also}"
        case _:
            from kit.cli.text import swarm as swarmtext  # noqa: PLC0415  (most verbs show no plan, and few plans have such steps)

            told = swarmtext.step(step)
    return told


def deploy(value: DeployResult) -> str:
    told = hosts([each.host for each in value.hosts])
    if not value.changed:
        return f"Nothing to do: cluster {value.plan.cluster} is as it should be on {told}."
    return f"Cluster {value.plan.cluster} is ready on {told} ({value.seconds:.1f} s)."


def down(value: DownResult) -> str:
    found = [host for host, removed in value.removed.items() if removed]
    if not found:
        return f"Nothing to do: there is nothing of cluster {value.cluster} on {hosts(list(value.removed))}."
    return f"Cluster {value.cluster} is gone from {hosts(found)}."


def ps(value: PsResult) -> str:
    rows = [
        (
            node.host,
            node.address,
            node.service,
            node.problem or node.state,
            node.image,
            node.slots,
            node.gpus,
            sum(len(ranks) for ranks in node.ranks.values()),
        )
        for node in value.nodes
    ]
    runs = sorted({run for node in value.nodes for run in node.ranks})
    head = f"Cluster {value.cluster}, {hosts([node.host for node in value.nodes])}"
    tail = f"\nRunning: {', '.join(runs)}" if runs else ""
    return f"{head}\n{table(rows, ('HOST', 'ADDRESS', 'SERVICE', 'STATE', 'IMAGE', 'SLOTS', 'GPUS', 'RANKS'))}{tail}"


def groups(value: ExecResult) -> str:
    """Each output once, under the hosts that gave it."""
    parts = []
    for group in value.groups:
        code = f"  (exit code {group.exit_code})" if group.exit_code else ""
        parts.append(f"── {hosts(group.hosts)}{code}")
        parts += [group.output.rstrip("\n")] if group.output.strip("\n") else []
    return "\n".join(parts)
