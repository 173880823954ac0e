"""Whose runs they are: kit names their owners, and stops or changes no run of another person that nobody named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kit.errors import NotReadyError
from kit.model.run import BY_HAND, RunRecord

# A warning names at most this many runs of other people.
_MOST_NAMED = 5


def latest_of(runs: Sequence[RunRecord], by: str, *, command: str, verb: str, done: str) -> RunRecord | None:
    """Return the last of these runs that is active, the latest last, or None. One started by hand is never meant.

    Raises NotReadyError if somebody other than `by` started it. A run whose record names nobody is anybody's. The error
    says how to `verb` a run, with the `command` that an id completes, and that nothing was `done`.
    """
    living = [run for run in runs if run.state == "running" and not BY_HAND.fullmatch(run.id)]
    if not living:
        return None
    latest = living[-1]
    if latest.by in ("", by):
        return latest
    yours = next((f"; your latest run: {command} {run.id}" for run in reversed(living) if run.by == by), "")
    raise NotReadyError(
        f"{latest.by} started the latest run, {latest.id}, and you are {by}; nothing was {done}",
        hint=f"to {verb} it, name it: {command} {latest.id}{yours}",
    )


def named(run: str, by: str) -> str:
    """Return `20261121-101500-3fa2 of anna@laptop`, or the id alone if nobody knows whose run it is."""
    return f"{run} of {by}" if by else run


def of_others(owners: Mapping[str, str], by: str) -> dict[str, str]:
    """Return the runs that somebody other than `by` started. `owners` has user@machine by run, '' for nobody's."""
    return {run: owner for run, owner in owners.items() if owner not in ("", by)}


def removing(owners: Mapping[str, str], by: str) -> str:
    """Return the warning before these runs are deleted, which names the runs of others, or '' without any."""
    others = sorted(of_others(owners, by).items())
    more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    text = ", ".join(named(run, owner) for run, owner in others[:_MOST_NAMED]) + more
    return f"you are {by}, and other people started {text}" if others else ""


def active(runs: Sequence[str]) -> str:
    """Return `the run … is active` or `the runs …, … are active`. `runs` are ids, or ids with their owners (named)."""
    return f"the run {runs[0]} is active" if len(runs) == 1 else f"the runs {', '.join(runs)} are active"
