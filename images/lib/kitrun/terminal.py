"""A terminal in a run: `kit run -it --np 1 -- bash`.

mpirun gives a rank no terminal. So rank 0 of such a run is `kit-terminal hold`, which waits. kit then starts
`kit-terminal join RUN COMMAND…` through `docker exec --tty` in the same container. It starts the command there, with
the environment and the folder of rank 0. When the command ends, rank 0 ends with its exit code, and so the run does.
"""

import contextlib
import os
import signal
import socket
import struct
import sys
import time
from typing import Dict, Optional, Sequence

from kitrun import fence, procs

FOLDER = "/run/kit/terminals"
# From the terminal rather than from the rank: what the screen can show, and the mark by which `kit exec -it` ends it.
KEPT = (b"TERM", b"KIT_EXEC")
# Rank 0 may need a moment until it listens.
WAIT_S = 30.0
# And kit needs a login to start the terminal.
COME_S = 60.0
# As a shell reports a command whose terminal is gone.
HUNG_UP = 128 + signal.SIGHUP
PEER = struct.Struct("3i")


def main(words: Sequence[str]) -> int:
    if list(words) == ["hold"] and os.environ.get("KIT_RUN"):
        return hold(os.environ["KIT_RUN"])
    if len(words) > 2 and words[0] == "join":
        return join(words[1], words[2:])
    sys.stderr.write("usage: kit-terminal hold | join RUN COMMAND [ARGUMENT...]\n")
    return 2


def path_of(run: str) -> str:
    return os.path.join(FOLDER, run)


def hold(run: str) -> int:
    """Wait for the terminal and then for its end. Return the exit code of the command in it."""
    # TERM ends this process through the line below, so that the socket goes with it.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(OSError):
        os.unlink(path_of(run))
    listener.bind(path_of(run))
    listener.settimeout(COME_S)
    try:
        listener.listen(1)
        connection = listener.accept()[0]
        connection.settimeout(None)
        text = b""
        while True:
            data = connection.recv(64)
            if not data:
                break
            text += data
    except socket.timeout:
        sys.stderr.write("kit-terminal: kit's terminal did not come within %d s\n" % COME_S)
        return HUNG_UP
    finally:
        os.unlink(path_of(run))
    return int(text) if text.isdigit() else HUNG_UP


def join(run: str, command: Sequence[str]) -> int:
    """Run the command in this terminal as rank 0 of the run would run it. Return its exit code."""
    fence.close()
    fence.become_user()
    connection = connected(path_of(run))
    if connection is None:
        sys.stderr.write("kit-terminal: run %s has no rank here that waits for a terminal\n" % run)
        return 1
    rank = PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))[0]
    environment = joined(procs.environment(rank), dict(os.environb))
    with contextlib.suppress(OSError):
        os.chdir("/proc/%d/cwd" % rank)
    with contextlib.suppress(OSError):
        # kit-rank may have bound the rank to the cores near its GPU.
        os.sched_setaffinity(0, os.sched_getaffinity(rank))
    # The terminal's keys are for the command. Its end, by whatever signal, ends this process.
    for sign in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(sign, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        become(command, environment)
    status = os.waitpid(pid, 0)[1]
    code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    with contextlib.suppress(OSError):
        connection.sendall(b"%d" % code)
    return code


def connected(path: str) -> Optional[socket.socket]:
    """Return a connection to the rank, or None if it does not listen in time."""
    end = time.monotonic() + WAIT_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            if time.monotonic() > end:
                return None
            time.sleep(0.02)
        else:
            return connection


def joined(rank: Dict[bytes, bytes], own: Dict[bytes, bytes]) -> Dict[bytes, bytes]:
    """Return the environment of the command."""
    kept = {name: own[name] for name in KEPT if name in own}
    return {**rank, **kept}


def become(command: Sequence[str], environment: Dict[bytes, bytes]) -> None:
    """Run the command in this process. Never return."""
    for sign in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(sign, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environment)  # noqa: S606  (the command, as the user typed it)
    except OSError as error:
        os.write(2, ("kit-terminal: %s: %s\n" % (command[0], error.strerror)).encode())
        os._exit(126 if os.path.exists(command[0]) else 127)
