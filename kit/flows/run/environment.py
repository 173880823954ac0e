"""The variables of a run: which values travel from this shell, and which names mpirun forwards."""

from __future__ import annotations

import os
from collections.abc import Iterable


def variables(env: Iterable[tuple[str, str | None]]) -> tuple[dict[str, str], list[str]]:
    """Split a request's variables into values to set and names to forward.

    As with mpirun: NAME=VALUE sets a variable. NAME alone forwards it, from this shell if it is set here, else from
    where mpirun runs.
    """
    values: dict[str, str] = {}
    forward: list[str] = []
    for name, given in env:
        value = given if given is not None else os.environ.get(name)
        if value is None:
            forward.append(name)
        else:
            values[name] = value
    return values, forward


def sources(env: Iterable[tuple[str, str | None]]) -> dict[str, list[str]]:
    """Return the names in a request's variables by where their values come from.

    `typed` on the command line, `copied` from this shell, or `forwarded` from where mpirun runs.
    """
    names: dict[str, list[str]] = {"typed": [], "copied": [], "forwarded": []}
    for name, given in dict(env).items():
        kind = "typed" if given is not None else "copied" if name in os.environ else "forwarded"
        names[kind].append(name)
    return names
