"""Describe the fault matrix as data: each fault, its moment, what the user sees, and which pairs are left out and why.

test_fault_matrix.py does each cell on the lab. `python -m tests.integration.faults` writes docs/fault-matrix.md from
here, and a test of the documentation checks that the page is current.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.integration import data_faults, elastic_faults

PAGE = Path(__file__).resolve().parents[2] / "docs/fault-matrix.md"

RANK_KILLED = "one rank killed"
RANK_OOM = "one rank out of memory"
RANK_SLEEPS = "one rank sleeps forever"
MPIRUN_KILLED = "mpirun killed"
HEAD_KILLED = "head container killed"
NODE_KILLED = "node container killed"
ENGINE_STOPPED = "a host's engine stopped"
ENGINE_RESTARTED = "an engine with live-restore restarted"
SSHD_STOPPED = "a host's sshd stopped"
HOST_GONE = "a host gone"
LINK_BLINKS = "a link cut for 20 s and healed"
LINK_CUT = "a link cut for good"
DISK_FULL = "a disk full"
WORK_FULL = "no room for the working folder"
CODE_LOST = "stored code removed from a host"
OPERATOR_KILLED = "the operator killed"
CTRL_C = "Ctrl-C once"
CTRL_C_TWICE = "Ctrl-C twice"
FAULTS = (
    RANK_KILLED,
    RANK_OOM,
    RANK_SLEEPS,
    MPIRUN_KILLED,
    HEAD_KILLED,
    NODE_KILLED,
    ENGINE_STOPPED,
    ENGINE_RESTARTED,
    SSHD_STOPPED,
    HOST_GONE,
    LINK_BLINKS,
    LINK_CUT,
    DISK_FULL,
    WORK_FULL,
    CODE_LOST,
    OPERATOR_KILLED,
    CTRL_C,
    CTRL_C_TWICE,
)

SHIP, UP, CODE, LAUNCH, MID_RUN, STOP, PULL = "ship", "up", "code", "launch", "mid-run", "stop", "pull"
MOMENTS = (SHIP, UP, CODE, LAUNCH, MID_RUN, STOP, PULL)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What the test does and expects.

    `how`: how the fault happens on the lab. `code`: kit's exit code; negative for the signal that ended it. `sees`:
    words of its standard error (or of `kit stop`'s result). `then`: what happens to the run or the cluster.
    """

    how: str
    code: int
    sees: tuple[str, ...] = ()
    then: str


CELLS: dict[tuple[str, str], Cell] = {
    (RANK_KILLED, MID_RUN): Cell(
        how="KILL to rank 5 of 8", code=137, sees=("rank 5 on gpu3 was killed by SIGKILL",), then="the others are ended"
    ),
    (RANK_OOM, MID_RUN): Cell(
        how="400 MB for gpu2's container, rank 2 takes 600",
        code=137,
        sees=("rank 2 on gpu2", "out of memory"),
        then="the others are ended",
    ),
    (RANK_SLEEPS, LAUNCH): Cell(
        how="gpu3's container is frozen; --start-timeout 5s",
        code=124,
        sees=("ranks were up after 5 s", "rank 1 on gpu3: has not started"),
        then="the run is ended; a frozen node has no rank, or ends its rank when it thaws",
    ),
    (RANK_SLEEPS, MID_RUN): Cell(
        how="ranks sleep; --stall-timeout 3s",
        code=124,
        sees=("no rank had said anything for 3 s", "what each rank was doing", "rank 1 on gpu2"),
        then="kit prints where each rank is, then ends the run",
    ),
    (RANK_SLEEPS, STOP): Cell(
        how="ranks ignore TERM; kit stop --grace 1s",
        code=0,
        sees=("processes left: 0",),
        then="ended by KILL after the grace",
    ),
    (MPIRUN_KILLED, LAUNCH): Cell(
        how="KILL as soon as there is an mpirun",
        code=137,
        sees=("mpirun",),
        then="kit ends what had started on the nodes",
    ),
    (MPIRUN_KILLED, MID_RUN): Cell(how="KILL to mpirun", code=137, sees=("mpirun",), then="all ranks are ended"),
    (MPIRUN_KILLED, STOP): Cell(
        how="ranks ignore TERM, kit stop --grace 60s, KILL to mpirun",
        code=0,
        sees=("processes left: 0",),
        then="all ranks are ended immediately",
    ),
    (HEAD_KILLED, UP): Cell(how="kit deploy finds it dead", code=0, then="started again"),
    (HEAD_KILLED, LAUNCH): Cell(
        how="kit run finds it dead", code=5, sees=("gpu1", "kit deploy"), then="nothing starts"
    ),
    (HEAD_KILLED, MID_RUN): Cell(
        how="docker kill on its host",
        code=5,
        sees=("gpu1", "is lost", "kit deploy"),
        then="kit ends the ranks; the run is lost",
    ),
    (HEAD_KILLED, STOP): Cell(
        how="ranks ignore TERM, kit stop --grace 60s, docker kill",
        code=5,
        sees=("gpu1", "is lost", "kit deploy"),
        then="the nodes end their own ranks; the run is lost",
    ),
    (NODE_KILLED, UP): Cell(how="kit deploy finds it dead", code=0, then="started again"),
    (NODE_KILLED, LAUNCH): Cell(
        how="kit run finds it dead", code=3, sees=("{gpu3}", "container is down"), then="no rank is left anywhere"
    ),
    (NODE_KILLED, MID_RUN): Cell(
        how="docker kill on its host", code=3, sees=("gpu3 went away",), then="the other ranks are ended"
    ),
    (NODE_KILLED, STOP): Cell(
        how="ranks ignore TERM, kit stop --grace 60s, docker kill",
        code=0,
        sees=("processes left: 0",),
        then="the other ranks are ended immediately",
    ),
    (ENGINE_STOPPED, UP): Cell(
        how="kit deploy finds no engine", code=4, sees=("gpu3", "no Docker Engine answers"), then="nothing is changed"
    ),
    (ENGINE_STOPPED, LAUNCH): Cell(
        how="kit run finds no engine", code=3, sees=("{gpu3}", "container is down"), then="no rank is left anywhere"
    ),
    (ENGINE_STOPPED, MID_RUN): Cell(
        how="TERM to dockerd, which does not restart: its containers end",
        code=3,
        sees=("gpu3 went away",),
        then="the other ranks are ended",
    ),
    (ENGINE_RESTARTED, LAUNCH): Cell(
        how="kit run while gpu3's engine is down",
        code=0,
        then="the run is not affected: nodes have their own sshd",
    ),
    (ENGINE_RESTARTED, MID_RUN): Cell(
        how="TERM to dockerd of the head and of gpu3, and a new start",
        code=0,
        sees=("the run continues if the engine has live-restore",),
        then="kit waits for the head's engine; the run continues to its end",
    ),
    (ENGINE_RESTARTED, STOP): Cell(
        how="ranks ignore TERM; kit stop --grace 1s while gpu3's engine is down",
        code=0,
        sees=("processes left: 0",),
        then="all ranks are ended, also on gpu3",
    ),
    (SSHD_STOPPED, UP): Cell(
        how="kit deploy finds no sshd", code=3, sees=("gpu3", "no SSH connection to"), then="nothing is changed"
    ),
    (SSHD_STOPPED, LAUNCH): Cell(
        how="kit run needs only the head's sshd", code=0, then="the run is not affected: nodes have their own sshd"
    ),
    (SSHD_STOPPED, MID_RUN): Cell(
        how="the head's and gpu3's sshd end, open sessions stay", code=0, then="the run continues to its end"
    ),
    (SSHD_STOPPED, STOP): Cell(
        how="kit stop while gpu3's sshd is down",
        code=0,
        sees=("processes left: 0",),
        then="all ranks are ended, also on gpu3",
    ),
    (HOST_GONE, UP): Cell(how="kit deploy finds it gone", code=3, sees=("gpu4", "{gpu4}"), then="nothing is changed"),
    (HOST_GONE, LAUNCH): Cell(
        how="kit run finds it gone", code=3, sees=("{gpu4}",), then="no rank is left on the others"
    ),
    (HOST_GONE, MID_RUN): Cell(
        how="the VM is switched off", code=3, sees=("gpu4 went away",), then="the other ranks are ended"
    ),
    (HOST_GONE, PULL): Cell(
        how="kit pull finds it gone",
        code=4,
        sees=("not everything came from gpu4", "{gpu4}"),
        then="what the other hosts have comes home; the next pull fetches the rest",
    ),
    (LINK_BLINKS, MID_RUN): Cell(
        how="the interface of gpu2 goes down and up", code=0, then="the run continues to its end"
    ),
    (LINK_CUT, SHIP): Cell(
        how="gpu4's interface goes down in the middle of the image",
        code=3,
        sees=("gpu4", "it sent nothing for 15 s"),
        then="the next deploy continues where it stopped",
    ),
    (LINK_CUT, CODE): Cell(
        how="gpu4's interface goes down in the middle of the code of a run",
        code=3,
        sees=("gpu4", "it sent nothing for 15 s"),
        then="no rank starts; the next run sends what is missing",
    ),
    (LINK_CUT, UP): Cell(how="kit deploy finds it cut", code=3, sees=("gpu[3-4]", "{gpu3}"), then="nothing is changed"),
    (LINK_CUT, LAUNCH): Cell(
        how="kit run finds it cut", code=3, sees=("{gpu3}",), then="no rank is left on the others"
    ),
    (LINK_CUT, MID_RUN): Cell(
        how="the interface of gpu3 goes down",
        code=3,
        sees=("gpu3 went away",),
        then="the other ranks are ended; the host that is cut off ends its own",
    ),
    (DISK_FULL, SHIP): Cell(
        how="64 MB for the image's layers on gpu4",
        code=4,
        sees=("gpu4", "no space left"),
        then="the next deploy ships it again",
    ),
    (DISK_FULL, CODE): Cell(
        how="1 MB for the code on gpu2",
        code=4,
        sees=("gpu2", "the code did not arrive: no space left on its disk", "free space"),
        then="no rank starts; the next run sends it again",
    ),
    (DISK_FULL, UP): Cell(
        how="gpu2's folder of keys is full",
        code=4,
        sees=("gpu2", "could not be written", "df -h"),
        then="the next deploy completes it",
    ),
    (DISK_FULL, LAUNCH): Cell(
        how="the head's folder of runs is full",
        code=5,
        sees=("could not start the run", "df -h"),
        then="nothing starts",
    ),
    (DISK_FULL, MID_RUN): Cell(
        how="the ranks print more than the head has room for",
        code=0,
        sees=("bytes of the run's output are lost",),
        then="the run continues to its end",
    ),
    (DISK_FULL, STOP): Cell(
        how="Ctrl-C when the folder of runs is full", code=130, sees=("ranks left: 0",), then="all ranks are ended"
    ),
    (WORK_FULL, LAUNCH): Cell(
        how="1 MB for the runs on gpu1, and a folder of 3 MB",
        code=4,
        sees=("the code is not ready on gpu1: no space left for the working folder", "df -h"),
        then="no rank starts",
    ),
    (CODE_LOST, LAUNCH): Cell(
        how="the objects and the spare of gpu3 are removed",
        code=4,
        sees=("the code is not ready on gpu3: a file of the code is not here", "run the command again"),
        then="no rank starts; the next run sends the code again",
    ),
    (LINK_CUT, PULL): Cell(
        how="gpu4's interface goes down in the middle of a file",
        code=4,
        sees=("not everything came from gpu4", "gpu4: the connection broke", "run the same again"),
        then="no file looks whole that is not; the next pull continues",
    ),
    (DISK_FULL, PULL): Cell(
        how="kit may write at most 100 kB into a file at home",
        code=4,
        sees=("cannot be written",),
        then="no file looks whole that is not; the next pull continues",
    ),
    (OPERATOR_KILLED, SHIP): Cell(
        how="KILL to kit deploy in the middle of the image", code=-9, then="the next deploy continues where it stopped"
    ),
    (OPERATOR_KILLED, UP): Cell(
        how="KILL to kit deploy while containers start", code=-9, then="the next deploy completes it"
    ),
    (OPERATOR_KILLED, CODE): Cell(
        how="KILL to kit run in the middle of its code",
        code=-9,
        then="no rank starts; the next run sends what is missing",
    ),
    (OPERATOR_KILLED, LAUNCH): Cell(
        how="KILL to kit run as soon as there is an mpirun", code=-9, then="the head ends the run"
    ),
    (OPERATOR_KILLED, MID_RUN): Cell(
        how="KILL to kit run", code=-9, then="the head ends the run within 20 s (with --keep it continues)"
    ),
    (OPERATOR_KILLED, STOP): Cell(
        how="ranks ignore TERM, KILL to kit stop --grace 10s", code=-9, then="the run is stopped anyway"
    ),
    (OPERATOR_KILLED, PULL): Cell(
        how="KILL to kit pull in the middle of a file",
        code=-9,
        then="no file looks whole that is not; the next pull continues",
    ),
    (CTRL_C, SHIP): Cell(
        how="INT in the middle of the image",
        code=130,
        sees=("interrupted",),
        then="the next deploy continues where it stopped",
    ),
    (CTRL_C, UP): Cell(
        how="INT while containers start", code=130, sees=("not done:",), then="the next deploy completes it"
    ),
    (CTRL_C, CODE): Cell(
        how="INT in the middle of the code of a run",
        code=130,
        sees=("interrupted",),
        then="no rank starts; the next run sends what is missing",
    ),
    (CTRL_C, LAUNCH): Cell(
        how="INT as soon as there is an mpirun", code=130, sees=("ranks left: 0",), then="all ranks are ended"
    ),
    (CTRL_C, MID_RUN): Cell(
        how="INT to kit run", code=130, sees=("its ranks have 5 s", "ranks left: 0"), then="all ranks are ended"
    ),
    (CTRL_C, STOP): Cell(how="ranks ignore TERM, INT to kit stop --grace 3s", code=0, then="the run is stopped anyway"),
    (CTRL_C, PULL): Cell(
        how="INT in the middle of a file",
        code=130,
        sees=("interrupted",),
        then="no file looks whole that is not; the next pull continues",
    ),
    (CTRL_C_TWICE, LAUNCH): Cell(
        how="INT twice as soon as there is an mpirun", code=130, sees=("ranks left: 0",), then="all ranks are ended"
    ),
    (CTRL_C_TWICE, MID_RUN): Cell(
        how="ranks ignore TERM, INT twice",
        code=130,
        sees=("ranks left: 0",),
        then="all ranks are ended, without the 5 s",
    ),
}

_NO_RUN = "a deploy has no ranks"
_BEFORE_UP = "the same as a rank that ends by itself"
_STOPPING = "a stop kills ranks anyway"
_NO_RANKS = "without --checkpoint-dir, a pull reads only the VMs' disks: it needs neither ranks nor containers"
_AWAY = "the same as a host that is gone; what has arrived stays"
_LOOKED = "the same as in up: kit checks every host before it copies anything"
_NO_RANK = "no rank is started before every host has the code"
_TRANSFER = "the same as in ship: the same program copies both"
_NOT_READ = "kit deploy does not use it"
_HAS_IT = "the run has its folder by then"
LEFT_OUT: dict[tuple[str, str], str] = {
    (RANK_KILLED, SHIP): _NO_RUN,
    (RANK_KILLED, UP): _NO_RUN,
    (RANK_KILLED, LAUNCH): _BEFORE_UP,
    (RANK_KILLED, STOP): _STOPPING,
    (RANK_KILLED, PULL): _NO_RANKS,
    (RANK_OOM, PULL): _NO_RANKS,
    (RANK_SLEEPS, PULL): _NO_RANKS,
    (MPIRUN_KILLED, PULL): _NO_RANKS,
    (HEAD_KILLED, PULL): _NO_RANKS,
    (NODE_KILLED, PULL): _NO_RANKS,
    (ENGINE_STOPPED, PULL): _NO_RANKS,
    (ENGINE_RESTARTED, PULL): _NO_RANKS,
    (SSHD_STOPPED, PULL): _AWAY,
    (LINK_BLINKS, PULL): _AWAY,
    (CTRL_C_TWICE, PULL): "the first Ctrl-C has already ended kit",
    (WORK_FULL, PULL): "a pull writes nothing on the hosts",
    (CODE_LOST, PULL): "a pull does not use the stored code",
    (RANK_OOM, SHIP): _NO_RUN,
    (RANK_OOM, UP): _NO_RUN,
    (RANK_OOM, LAUNCH): _BEFORE_UP,
    (RANK_OOM, STOP): _STOPPING,
    (RANK_SLEEPS, SHIP): _NO_RUN,
    (RANK_SLEEPS, UP): _NO_RUN,
    (MPIRUN_KILLED, SHIP): _NO_RUN,
    (MPIRUN_KILLED, UP): _NO_RUN,
    (HEAD_KILLED, SHIP): "kit copies the image to the engine; containers do not matter",
    (NODE_KILLED, SHIP): "kit copies the image to the engine; containers do not matter",
    (ENGINE_STOPPED, SHIP): _LOOKED,
    (ENGINE_STOPPED, STOP): "its containers end, too: the same as the node container",
    (ENGINE_RESTARTED, SHIP): _LOOKED,
    (ENGINE_RESTARTED, UP): "for a deploy, the same as an engine that is stopped",
    (SSHD_STOPPED, SHIP): _LOOKED,
    (HOST_GONE, SHIP): "the same as a cut link",
    (HOST_GONE, STOP): "for the head, the same as a link that is cut mid-run",
    (LINK_BLINKS, SHIP): "the transfer gives up after 15 s of silence, and keeps what has arrived",
    (LINK_BLINKS, UP): "a new connection gives up after 15 s, so the link counts as cut for good",
    (LINK_BLINKS, LAUNCH): "a new connection gives up after 15 s, so the link counts as cut for good",
    (LINK_BLINKS, STOP): "the head does the stop; once it has the request, it needs no link",
    (LINK_CUT, STOP): "the same as mid-run: the head gives up the host",
    (CTRL_C_TWICE, SHIP): "the first Ctrl-C has already ended kit",
    (CTRL_C_TWICE, UP): "the first Ctrl-C has already ended kit",
    (CTRL_C_TWICE, STOP): "the first Ctrl-C has already ended kit",
    (RANK_KILLED, CODE): _NO_RANK,
    (RANK_OOM, CODE): _NO_RANK,
    (RANK_SLEEPS, CODE): _NO_RANK,
    (MPIRUN_KILLED, CODE): _NO_RANK,
    (HEAD_KILLED, CODE): "kit copies the code to the VM; containers do not matter",
    (NODE_KILLED, CODE): "kit copies the code to the VM; containers do not matter",
    (ENGINE_STOPPED, CODE): "kit copies the code to the VM; its engine does not matter",
    (ENGINE_RESTARTED, CODE): "kit copies the code to the VM; its engine does not matter",
    (SSHD_STOPPED, CODE): "the same as a cut link",
    (HOST_GONE, CODE): "the same as a cut link",
    (LINK_BLINKS, CODE): _TRANSFER,
    (CTRL_C_TWICE, CODE): "the first Ctrl-C has already ended kit",
    (WORK_FULL, SHIP): _NOT_READ,
    (WORK_FULL, UP): _NOT_READ,
    (WORK_FULL, CODE): "the code goes to another folder",
    (WORK_FULL, MID_RUN): _HAS_IT,
    (WORK_FULL, STOP): _HAS_IT,
    (CODE_LOST, SHIP): _NOT_READ,
    (CODE_LOST, UP): _NOT_READ,
    (CODE_LOST, CODE): "the same as at launch",
    (CODE_LOST, MID_RUN): _HAS_IT,
    (CODE_LOST, STOP): _HAS_IT,
}

_HEAD = """\
# The fault matrix

This page lists what can fail at each moment, and what kit does then. `tests/integration/test_fault_matrix.py` does each
row on four hosts with two slots each, with real engines, real sshd and real mpirun. gpu1 is the head. The test checks:

- kit's exit code, and what kit prints;
- that no process of a run is left on any live host, and that no slot stays reserved;
- that the next `kit deploy && kit run` works.

A negative exit code is the signal that ended kit itself. `{gpu3}` is the address of that host. This page is written
from `tests/integration/faults.py`.
"""


def page() -> str:
    """Return the text of docs/fault-matrix.md."""
    lines = [_HEAD]
    for moment in MOMENTS:
        lines += [f"## {moment}", "", "| fault | how | exit code | kit says | then |", "|---|---|---|---|---|"]
        for fault in FAULTS:
            cell = CELLS.get((fault, moment))
            if cell is not None:
                words_seen = ", ".join(f"`{words}`" for words in cell.sees)
                lines.append(f"| {fault} | {cell.how} | {cell.code} | {words_seen} | {cell.then} |")
        lines.append("")
    lines += [data_faults.section(), elastic_faults.section()]
    lines += ["## Left out", "", "| fault | moment | why |", "|---|---|---|"]
    reasons: dict[tuple[str, str], list[str]] = {}
    for (fault, moment), why in LEFT_OUT.items():
        reasons.setdefault((fault, why), []).append(moment)
    lines += [f"| {fault} | {', '.join(moments)} | {why} |" for (fault, why), moments in reasons.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
