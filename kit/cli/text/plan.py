"""Plans as text: rounds in order, and in each round the steps of its hosts with their reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kit.cli.text.table import hosts, table
from kit.model.plan import VERIFY, HostPlan, Plan, Round, Step
from kit.model.text import fold


def plan(value: Plan, *, verbose: bool = False, width: int | None = None) -> str:
    """Return the plan, with equal hosts folded. `verbose` adds addresses and the content of files, and cuts no line."""
    if value.empty:
        return f"Nothing to do: cluster {value.cluster} is as it should be on {hosts(value.hosts)}."
    return _text(value, f"Plan for cluster {value.cluster}", verbose=verbose, width=width)


def setup_plan(value: Plan, *, undo: bool = False, verbose: bool = False, width: int | None = None) -> str:
    """Return the plan of kit setup, or of its way back."""
    if value.empty:
        return f"Nothing to {'un' if undo else ''}do on {hosts(value.hosts)}."
    return _text(value, f"Plan of kit setup{' --undo' if undo else ''}", verbose=verbose, width=width)


def _text(value: Plan, title: str, *, verbose: bool, width: int | None) -> str:
    parts = [title]
    for number, part in enumerate(value.rounds):
        parts += [_heading(part, first=number == 0), *_sections(part.hosts, verbose=verbose, width=width)]
    busy = {host for host, _ in value.steps(without=VERIFY)}
    idle = [host for host in value.hosts if host not in busy]
    if idle:
        parts.append(f"Nothing to change on {hosts(idle)}.")
    return "\n".join(parts)


def _heading(part: Round, *, first: bool) -> str:
    if first:
        return f"First, {part.name}:"
    return f"Then, {part.name}:" if part.needs == "host" else f"Then, when every host is done, {part.name}:"


def _sections(plans: Iterable[HostPlan], *, verbose: bool, width: int | None) -> list[str]:
    names_by_text: dict[str, list[str]] = {}
    for host in plans:
        names_by_text.setdefault(_steps(host.steps, verbose=verbose, width=width), []).append(host.host)
    return [f"{_named(names)}\n{text}" for text, names in names_by_text.items()]


def _named(names: Sequence[str]) -> str:
    return fold(names) if len(names) == 1 else f"{fold(names)}  ({len(names)} hosts)"


def _steps(steps: Sequence[Step], *, verbose: bool, width: int | None) -> str:
    rows = [(*(step.full_line() if verbose else step.line()), f"because {step.why}") for step in steps]
    # The reason is cut first, then the object of the step, which is the column before it.
    text = table(rows, indent="  ", width=None if verbose else width, flexible=(-1, -2))
    if not verbose:
        return text
    parts = []
    for row, step in zip(text.split("\n"), steps, strict=True):
        parts += [row, *(f"  │ {line}" for line in step.detail().splitlines())]
    return "\n".join(parts)
