"""Whose runs they are: kit names their owners, and stops no run of another person that nobody named."""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import NotReadyError
from kit.model.run import RunRecord


def latest_of(living: Sequence[RunRecord], by: str) -> RunRecord:
    """Return the last of these active runs, of which there is at least one, the latest last.

    Raises NotReadyError if somebody other than `by` (user@machine) started it. A run whose record names nobody is
    anybody's.
    """
    latest = living[-1]
    if latest.by in ("", by):
        return latest
    yours = next((f"; your latest run: kit stop {run.id}" for run in reversed(living) if run.by == by), "")
    raise NotReadyError(
        f"{latest.by} started the latest run, {latest.id}, and you are {by}; nothing was stopped",
        hint=f"to stop it, name it: kit stop {latest.id}{yours}",
    )


def named(run: str, by: str) -> str:
    """Return `20261121-101500-3fa2 of anna@laptop`, or the id alone if nobody knows whose run it is."""
    return f"{run} of {by}" if by else run


def active(runs: Sequence[str]) -> str:
    """Return `the run … is active` or `the runs …, … are active`. `runs` are ids, or ids with their owners (named)."""
    return f"the run {runs[0]} is active" if len(runs) == 1 else f"the runs {', '.join(runs)} are active"
