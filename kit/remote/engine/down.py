"""Knows what Docker's client prints if its engine does not answer, or restarts during a `docker exec`."""

from __future__ import annotations

import re

from kit.errors import EngineDownError

# What an engine says of a command from before its restart, and of one whose container was stopped or removed meanwhile.
_LOST = "No such exec instance"
# Clients before 29 and since, an engine that hangs up in the middle of an answer, one that lost the command because it
# restarted, and one whose containerd is down.
_DOWN = re.compile(
    r"^(?:Cannot connect to the Docker daemon at"
    r"|failed to connect to the docker API at"
    r"|error during connect: "
    rf"|Error(?: response from daemon)?: {_LOST}"
    r"|Error response from daemon: .*containerd\.sock).*",
    re.MULTILINE,
)


def is_down(errors: str) -> bool:
    """Return whether `errors` say that an engine is down, or that it restarted."""
    return bool(_DOWN.search(errors))


def engine_down(errors: str, host: str) -> EngineDownError | None:
    """Return the error of an engine that is down, if `errors`, which `docker exec` printed, say so."""
    match = _DOWN.search(errors)
    if match is None:
        return None
    lost = "the Docker Engine restarted, or the container was stopped or removed"
    what = lost if _LOST in match[0] else "no Docker Engine answers"
    return EngineDownError(f"{what}: {match[0].strip()}", host=host)
