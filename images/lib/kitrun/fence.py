"""What a node's processes may do: no new privileges, and ranks that are not root (`user:` in kit.yaml).

kit.plan.cluster.fence sets the variables. The engine and start.sh do the rest (docs/nodes.md).
"""

import contextlib
import os
from typing import Iterator, Optional, Tuple

NEW_PRIVILEGES, USER = "KIT_NEW_PRIVILEGES", "KIT_USER"
PR_SET_NO_NEW_PRIVS = 38


def user() -> Optional[Tuple[int, int]]:
    """Return UID and GID of the ranks, or None if they are root."""
    words = os.environ.get(USER, "").split(":")
    return (int(words[0]), int(words[-1])) if all(word.isdigit() for word in words) else None


def close() -> None:
    """Let this process and its children gain no privileges, by no set-user-ID file.

    Compose and start.sh have done so for most processes, but Swarm has not for those of `docker exec`.
    """
    if os.environ.get(NEW_PRIVILEGES):
        return
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        if "NoNewPrivs:\t1\n" in file.read():
            return
    # Imported only here: it is slow to import.
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot set no_new_privs")


def become_user() -> None:
    """Become the user of the ranks for good, if they are not root."""
    ids = user()
    if ids is not None and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(ids[1])
        os.setuid(ids[0])


@contextlib.contextmanager
def as_user() -> Iterator[None]:
    """Read as the user of the ranks: root without SYS_PTRACE cannot look into processes of others."""
    ids = user()
    if ids is None or os.geteuid():
        yield
        return
    os.setegid(ids[1])
    os.seteuid(ids[0])
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
