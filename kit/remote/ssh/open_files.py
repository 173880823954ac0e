"""How many files kit may have open: a command over ssh takes several, and the usual limit of 1,024 serves few hosts."""

from __future__ import annotations

import contextlib
import errno
import resource
import select
from collections.abc import Sequence

from kit.errors import StepError

# Open files for one command: its pipes, what waits for them, and what the start of its process needs for a moment.
_FILES = 8
# For everything else.
_OTHER_FILES = 256
# The errors of a process that has as many open files as it may have, and of a system.
EXHAUSTED = (errno.EMFILE, errno.ENFILE)
# `allow` has raised the limit as far as the system permits.
FILES_HINT = (
    "raise the limit of open files: ulimit -n 8192; if that is refused, set nofile in /etc/security/limits.conf"
)


def allow(commands: int) -> None:
    """Let this process run that many commands over ssh at a time, if the system permits it. Lower no limit."""
    count = _FILES * commands + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def ready(descriptors: Sequence[int], seconds: float | None) -> Sequence[int]:
    """Wait that long at most, or without end, and return the readable descriptors, also those that ended.

    Unlike select, poll knows descriptors over 1023.
    """
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poller.poll(None if seconds is None else seconds * 1000)]


def hung_up(descriptor: int, seconds: float) -> bool:
    """Wait that long at most, and return whether nobody writes to this pipe any more. Bytes in it are not read."""
    poller = select.poll()
    # poll reports the end of a pipe for every mask.
    poller.register(descriptor, 0)
    return bool(poller.poll(seconds * 1000))


def no_connection(error: OSError, host: str) -> StepError:
    """Return the error for a command over ssh that this machine could not start."""
    return StepError(
        f"this machine cannot open another connection: {error.strerror or error}",
        hint=FILES_HINT if error.errno == errno.EMFILE else "end other processes here, then run the same again",
        host=host,
    )
