"""mpirun as far as a run can tell: mpirun.py -np N COMMAND...

Each rank runs under kit-rank in a session of its own, with a pipe for its standard error that is read in pieces of
4,096 bytes and passed on, as mpirun's daemon does. The first bad end, or a TERM, ends all: TERM, and then KILL.
KIT_TEST_NODES, `gpu1 gpu1 gpu2`, names the node of each rank; KIT_TEST_PATIENCE is the seconds between TERM and KILL.
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
# Ranks have words to say at their end, however busy this machine is.
PATIENCE_S = float(os.environ.get("KIT_TEST_PATIENCE", "30"))


def start(rank: int, np: int, command: list[str]) -> subprocess.Popen[bytes]:
    nodes = os.environ.get("KIT_TEST_NODES", "gpu1").split()
    own = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(np)}
    return subprocess.Popen(
        [sys.executable, "-IS", str(KIT_RANK), *command],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **own, "KIT_NODE": nodes[min(rank, len(nodes) - 1)]},
        start_new_session=True,
    )


def tell(ranks: list[subprocess.Popen[bytes]], sign: signal.Signals) -> None:
    for rank in ranks:
        if rank.poll() is None:
            os.killpg(rank.pid, sign)


def main() -> int:
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
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
            code = (bad[0] if bad[0] > 0 else 128 - bad[0]) if bad else 143 if told else 0
            if code:
                tell(ranks, signal.SIGTERM)
                deadline = time.monotonic() + PATIENCE_S
        elif time.monotonic() > deadline:
            tell(ranks, signal.SIGKILL)
    for rank in ranks:
        rank.wait()
    if not code:
        return max((rank.returncode if rank.returncode >= 0 else 128 - rank.returncode) for rank in ranks)
    sys.stderr.write("mpirun: a rank ended badly\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
