"""Faults of an engine in which nothing began, and that the next try does not see.

runc starts a process by way of a child of its own, `runc init`. On a busy host that child may die before it has read
what it was given; runc then tells that its socket was reset, and neither the command nor the container has begun.
Since nothing ran, the same can be asked again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from kit.remote.scripts import in_node
from kit.remote.ssh.transport import Completed, Transport

T = TypeVar("T")

# The first try and the others together.
ATTEMPTS = 3
# Longer before each of them.
PAUSE_S = 0.5
# The engine's whole answer, and not what a command happened to print.
_EXEC = re.compile(r"OCI runtime exec failed: [^\n]*read init-p: connection reset by peer[^\n]*")
_EITHER = re.compile(r"OCI runtime (?:exec|create) failed: .*read init-p: connection reset by peer")


def no_exec(done: Completed) -> bool:
    """Whether `docker exec` ended so, and its command never began. Engines tell that on one stream or the other."""
    said = done.error_text or done.text.strip()
    return done.code != 0 and bool(_EXEC.fullmatch(said))


def no_container(done: Completed) -> bool:
    """Whether `docker compose up` or `docker run` failed so: its container was not started."""
    return done.code != 0 and nothing_began(done.error_text)


def nothing_began(said: str) -> bool:
    """Whether these words, which are the engine's and nobody else's, tell of such a fault."""
    return bool(_EITHER.search(said))


def persistently(ask: Callable[[], T], in_vain: Callable[[T], bool]) -> T:
    """What was answered at last. Asks again only where nothing had begun."""
    done = ask()
    for attempt in range(1, ATTEMPTS):
        if not in_vain(done):
            break
        time.sleep(PAUSE_S * attempt)
        done = ask()
    return done


def insist(act: Callable[[], T]) -> T:
    """What `act` gives, by the SDK, which raises what the engine says. Acts again only where nothing had begun."""
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
    """`argv` in the VM's node, with `stdin` where there is any. `timeout_s` is each try's own."""
    command = in_node(name, argv, interactive=bool(stdin))
    return persistently(lambda: transport.run(command, stdin=stdin, timeout_s=timeout_s), no_exec)
