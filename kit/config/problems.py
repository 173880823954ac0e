"""Limits how many problems of one file kit prints. A hostile or wrong file may have a problem on each of its lines."""

from __future__ import annotations

from collections.abc import Iterable

from kit.errors import InputError

MOST_PROBLEMS = 50


def limited(problems: Iterable[InputError], *, more: int = 0) -> list[InputError]:
    """Return the first problems of one file in the order of their lines, and how many follow.

    `more` counts problems that nobody wrote as an error, because they follow more than MOST_PROBLEMS others.
    """
    ordered = sorted(problems, key=lambda problem: problem.line or 0)
    more += len(ordered) - MOST_PROBLEMS
    if more <= 0:
        return ordered
    next_one = ordered[MOST_PROBLEMS]
    count = f"{more} more problems" if more > 1 else "1 more problem"
    note = InputError(
        f"{count} from this line on",
        hint="correct the problems above first",
        file=next_one.file,
        line=next_one.line,
    )
    return [*ordered[:MOST_PROBLEMS], note]
