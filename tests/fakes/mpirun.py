"""Replaces mpirun: mpirun.py -np N COMMAND...

Each rank runs under kit-rank in its own session. This program reads the rank's standard error in pieces of 4,096 bytes
and forwards them, as mpirun's daemon does. The first failure, or a TERM, ends all ranks: TERM, and then KILL.
KIT_TEST_NODES, `gpu1 gpu1 gpu2`, names the node of each rank. KIT_TEST_PATIENCE is the number of seconds before KILL.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

KIT_RANK = Path(__file__).resolve().parents[2] / "images" / "bin" / "kit-rank"
# Only tests of ranks that ignore TERM shorten this. Other ranks get all the time that a busy machine needs.
PATIENCE_S = float(os.environ.get("KIT_TEST_PATIENCE", "60"))


def start(rank: int, np: int, command: list[str]) -> subprocess.Popen[bytes]:
    nodes = os.environ.get("KIT_TEST_NODES", "gpu1").split()
    own = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(np)}
    return subprocess.Popen(
        [sys.executable, "-IS", str(KIT_RANK), *command],
        # mpirun gives its own to rank 0.
        stdin=subprocess.DEVNULL if rank else None,
        stderr=subprocess.PIPE,
        env={**os.environ, **own, "KIT_NODE": nodes[min(rank, len(nodes) - 1)]},
        start_new_session=True,
    )


def send(ranks: list[subprocess.Popen[bytes]], sign: signal.Signals) -> None:
    for rank in ranks:
        if rank.poll() is None:
            os.killpg(rank.pid, sign)


def main() -> int:
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    np = int(sys.argv[2])
    ranks = [start(rank, np, sys.argv[3:]) for rank in range(np)]
    pipes = {rank.stderr.fileno(): rank for rank in ranks if rank.stderr}
    code, deadline = 0, 0.0
    while pipes:
        for fd in select.select(list(pipes), [], [], 0.02)[0]:
            data = os.read(fd, 4096)
            if data:
                os.write(2, data)
            else:
                del pipes[fd]
        if not code:
            bad = [rank.returncode for rank in ranks if rank.poll()]
            code = (bad[0] if bad[0] > 0 else 128 - bad[0]) if bad else 143 if signals else 0
            if code:
                send(ranks, signal.SIGTERM)
                deadline = time.monotonic() + PATIENCE_S
        elif time.monotonic() > deadline:
            send(ranks, signal.SIGKILL)
    for rank in ranks:
        rank.wait()
    if not code:
        return max((rank.returncode if rank.returncode >= 0 else 128 - rank.returncode) for rank in ranks)
    sys.stderr.write("mpirun: a rank ended badly\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
