"""Faults of an engine in which nothing began, so that a second try is safe and usually works.

runc starts a process through a child, `runc init`. On a busy host that child can die before it has read its input. runc
then reports that its socket was reset, and neither the command nor the container has started.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from kit.remote.scripts import in_node
from kit.remote.ssh.login_text import without_warnings
from kit.remote.ssh.transport import Completed, Transport

T = TypeVar("T")

# All tries, the first one included.
ATTEMPTS = 3
# The pause before the second try. Later pauses are longer.
PAUSE_S = 0.5
# Must match the engine's whole answer, because a command may print such a line too.
_EXEC = re.compile(r"OCI runtime exec failed: [^\n]*read init-p: connection reset by peer[^\n]*")
_EITHER = re.compile(r"OCI runtime (?:exec|create) failed: .*read init-p: connection reset by peer")


def no_exec(done: Completed) -> bool:
    """Return whether the command of a `docker exec` never began. Engines report that on either stream."""
    answer = without_warnings(done.error_text) or done.text.strip()
    return done.code != 0 and bool(_EXEC.fullmatch(answer))


def no_container(done: Completed) -> bool:
    """Return whether `docker compose up` or `docker run` failed before its container started."""
    return done.code != 0 and nothing_began(done.error_text)


def nothing_began(answer: str) -> bool:
    """Return whether the engine's own words report such a fault. Never pass a command's output."""
    return bool(_EITHER.search(answer))


def persistently(ask: Callable[[], T], in_vain: Callable[[T], bool]) -> T:
    """Return the result of `ask`. Repeat it, a few times, only while `in_vain` proves that nothing began."""
    done = ask()
    for attempt in range(1, ATTEMPTS):
        if not in_vain(done):
            break
        time.sleep(PAUSE_S * attempt)
        done = ask()
    return done


def insist(act: Callable[[], T]) -> T:
    """Return the result of `act`, which calls the SDK. Repeat it only if the error proves that nothing began."""
    from docker.errors import APIError  # noqa: PLC0415  (half a second, and only verbs with an engine need it)

    for attempt in range(1, ATTEMPTS):
        try:
            return act()
        except APIError as error:
            if not nothing_began(str(error.explanation or error)):
                raise
        time.sleep(PAUSE_S * attempt)
    return act()


def run_in_node(
    transport: Transport, name: str, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0
) -> Completed:
    """Run `argv` in the VM's node. `timeout_s` limits each try."""
    command = in_node(name, argv, interactive=bool(stdin))
    return persistently(lambda: transport.run(command, stdin=stdin, timeout_s=timeout_s), no_exec)
