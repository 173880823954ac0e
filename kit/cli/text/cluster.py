"""Results as text: aligned tables, plans with the reason for each step, launches that can be pasted into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kit.cli.text.fold import fold
from kit.model.launch import Helper, LaunchPlan, Placement
from kit.model.lock import AuditResult, LockStatus
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
from kit.model.result import DeployResult, DownResult, ExecResult, LocalResult, PsResult
from kit.model.secret import Secret

if TYPE_CHECKING:
    from kit.flows.image.build import ImageResult
    from kit.flows.image.push import PushResult
    from kit.model.lab import LabRemoved, LabStatus


def table(rows: Iterable[Sequence[object]], header: Sequence[str] = (), indent: str = "") -> str:
    """Columns as wide as their widest cell, two spaces apart; numbers to the right."""
    cells = [[str(cell) for cell in row] for row in ([header] if header else [])]
    body = [list(row) for row in rows]
    cells += [[str(cell) for cell in row] for row in body]
    if not cells:
        return ""
    right = [bool(body) and all(isinstance(row[i], int) for row in body) for i in range(len(cells[0]))]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join(
        indent
        + "  ".join(
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    )  # fmt: skip


def size(count: int) -> str:
    """Bytes as docker prints them: 1.87 GB (powers of 1000)."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def hosts(names: Sequence[str]) -> str:
    """`4 hosts: gpu[1-4]`."""
    return f"{len(names)} host{'' if len(names) == 1 else 's'}: {fold(names)}"


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


def launch(value: LaunchPlan) -> str:
    """The hostfile and mpirun's words, each ready to paste."""
    words = [*(["env", *(f"{k}={v}" for k, v in value.env.items())] if value.env else []), *value.argv]
    told = placement(value.placement)
    if value.helpers:
        told = f"{told.replace('rank', 'worker', 1)}\n# {helpers(value.helpers)}"
    return f"# {told}\n# hostfile\n{value.hostfile.rstrip()}\n# command\n{shlex.join(words)}"


def placement(value: Placement) -> str:
    """`8 ranks: 2 on each of gpu[1-4]`."""
    by_count: dict[int, list[str]] = {}
    for node, count in zip(value.nodes, value.counts, strict=True):
        by_count.setdefault(count, []).append(node.name)
    told = [f"{count} on {'each of ' if len(names) > 1 else ''}{fold(names)}" for count, names in by_count.items()]
    return f"{value.np} rank{'' if value.np == 1 else 's'}: {', '.join(told)}"


def helpers(value: Sequence[Helper]) -> str:
    """`4 servers: gpu1, gpu2, gpu3, gpu1; the scheduler: gpu1`."""
    servers = [helper.node for helper in value if helper.role == "server"]
    scheduler = next(helper.node for helper in value if helper.role == "scheduler")
    return f"{len(servers)} server{'' if len(servers) == 1 else 's'}: {', '.join(servers)}; the scheduler: {scheduler}"


def local(value: LocalResult) -> str:
    return f"# in a fresh container of {value.image}\n{shlex.join(value.argv)}"


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


def lock(value: LockStatus) -> str:
    holder = value.holder
    if value.state == "free":
        return f"Nobody holds the lock of cluster {value.cluster}."
    if value.state == "stale":
        of = f" of {holder.who}, for {holder.what}, since {holder.told()}" if holder else ""
        return f"A lock of cluster {value.cluster}{of}, is left over. It stops nobody: the next deploy takes it over."
    if holder is None:
        return f"Somebody is just taking the lock of cluster {value.cluster}."
    return f"{holder.who} holds the lock of cluster {value.cluster} since {holder.told()}, for {holder.what}."


def lock_released(value: LockStatus) -> str:
    """`value` is how the lock was before."""
    if value.state == "free":
        return f"Nothing to do: nobody holds the lock of cluster {value.cluster}."
    if value.state == "stale" or value.holder is None:
        return f"The lock of cluster {value.cluster} was left over, and is gone."
    who = f"{value.holder.who} had it since {value.holder.told()}, for {value.holder.what}"
    return f"The lock of cluster {value.cluster} is free: {who}, which stops before its next step."


def audit(value: AuditResult) -> str:
    if not value.entries:
        return f"Nothing is in the audit of cluster {value.cluster}."
    rows = [(e.time, e.who, e.verb, e.outcome, f"{e.seconds:.1f} s", e.what) for e in value.entries]
    return table(rows, ("TIME", "WHO", "VERB", "OUTCOME", "TOOK", "WHAT"))


def image(value: ImageResult) -> str:
    what = f"built in {value.seconds:.1f} s" if value.built else "already here"
    return f"{value.tag}  {size(value.size_bytes)}  {what}"


def push(value: PushResult) -> str:
    return f"{value.image}  {size(value.size_bytes)}  {value.digest}  in {value.seconds:.1f} s"


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


def lab(value: LabStatus) -> str:
    if not value.hosts:
        return "There is no lab. Make one: kit lab up"
    rows = [(host.name, host.address, host.state) for host in value.hosts]
    head = f"Lab {value.name}: {value.shape}; {value.state}; network {value.network}; files in {value.folder}"
    return f"{head}\n{table(rows, ('HOST', 'ADDRESS', 'STATE'))}"


def lab_removed(value: LabRemoved) -> str:
    if value.empty:
        return "Nothing to do: there is no lab."
    text = (
        f"Lab {value.name} is gone: {value.containers} containers, {value.volumes} volumes, {value.networks} networks."
    )
    return text + "".join(f"\nKept, for it was changed since: {path}" for path in value.kept)
