"""Options of a run that the cluster's launcher may not know. An older one would ignore them, and say nothing."""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import NotReadyError
from kit.model.launch import RunRequest

# What a launcher lists in its first line (OPTIONS in images/lib/kitrun/requests.py), and how you write it. A new option
# of RunPolicy belongs here and there. All launchers know the options that are not here.
FLAGS = {"cpus": "--cpus", "elastic": "--elastic", "idle_gpu": "--idle-gpu", "memory": "--memory"}
# What launchers know that have a line of waiting runs, but list nothing yet.
_UNLISTED = ("cpus", "elastic", "idle_gpu", "memory")


def check(request: RunRequest, listed: Sequence[str] | None, *, has_line: bool, host: str) -> None:
    """Raise NotReadyError if the run has an option that the launcher on `host` does not know.

    `listed` are the options in the launcher's first line; None if it lists none. `has_line`: runs can wait there.
    """
    known = listed if listed is not None else _UNLISTED if has_line else ()
    policy = request.policy
    given = {
        "cpus": request.cpus is not None,
        "elastic": request.launcher == "elastic",
        "idle_gpu": policy.idle_gpu is not None,
        "memory": policy.memory is not None,
    }
    if unknown := [FLAGS[name] for name, is_given in given.items() if is_given and name not in known]:
        raise NotReadyError(
            f"an older kit deployed the cluster, which would ignore {' and '.join(unknown)}",
            hint="run: kit deploy",
            host=host,
        )
