"""mpirun in a shell of the head: its mark, its lease on slots, and its end with the shell."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.head import Head, place, until

by_hand = launcher.load("kitrun.by_hand")
NODES = [
    {"name": "gpu1", "address": "10.0.0.1", "slots": 2, "cores": 4},
    {"name": "gpu2", "address": "10.0.0.2", "slots": 4, "cores": 4},
]
# As Open MPI 4.1 prints it.
MAP = """ Data for JOB [14472,1] offset 0 Total slots allocated 9

 ========================   JOB MAP   ========================

 Data for node: 4d01f9a55f1f\tNum slots: 2\tMax slots: 0\tNum procs: 2
 \tProcess OMPI jobid: [14472,1] App: 0 Process rank: 0 Bound: N/A
 \tProcess OMPI jobid: [14472,1] App: 0 Process rank: 1 Bound: N/A

 Data for node: 10.0.0.2\tNum slots: 4\tMax slots: 0\tNum procs: 1
 \tProcess OMPI jobid: [14472,1] App: 0 Process rank: 2 Bound: N/A

 =============================================================
"""


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (MAP, {"gpu1": 2, "gpu2": 1}),
        (MAP.replace("4d01f9a55f1f", "localhost").replace("10.0.0.2", "gpu2"), {"gpu1": 2, "gpu2": 1}),
        # Not a node of the cluster.
        (MAP.replace("10.0.0.2", "10.0.0.9"), {"gpu1": 2}),
        # --version, --help, or a command line that Open MPI refuses.
        ("mpirun (Open MPI) 4.1.4\n", {}),
        # The node of rank 0 comes first, wherever Open MPI names it.
        (MAP.replace("rank: 0", "rank: 3").replace("rank: 2", "rank: 0"), {"gpu2": 1, "gpu1": 2}),
    ],
)
def test_which_node_gets_how_many_ranks(text: str, ranks: dict[str, int]) -> None:
    assert list(by_hand.mapped(text, NODES, "4d01f9a55f1f").items()) == list(ranks.items())
    assert by_hand.mapped(text, [], "4d01f9a55f1f") == {}


@pytest.mark.parametrize(
    ("ranks", "held", "slots"),
    [
        ({"gpu1": 2, "gpu2": 1}, set(), [[0, 1], [0]]),
        # Free slots first. The person decides: slots that others hold are used as well.
        ({"gpu2": 2}, {("gpu2", 0), ("gpu1", 1)}, [[1, 2]]),
        ({"gpu1": 2}, {("gpu1", 0)}, [[1, 0]]),
        ({"gpu1": 5}, set(), [[0, 1]]),
        ({}, set(), []),
    ],
)
def test_which_slots_they_hold(ranks: dict[str, int], held: set[tuple[str, int]], slots: list[list[int]]) -> None:
    assert [found["slots"] for found in by_hand.places(ranks, NODES, held)] == slots


class Shell:
    """A shell that starts kit-mpirun in the background, in front of a stand-in for Open MPI's."""

    def __init__(self, head: Head, tmp_path: Path) -> None:
        self.head, self.out = head, tmp_path / "out"
        head.record.write_text(json.dumps({"nodes": NODES}))
        program = head.folder / "bin" / "mpirun"
        (tmp_path / "map").write_text(MAP.replace("4d01f9a55f1f", os.uname().nodename))
        program.write_text(
            f'#!/bin/sh\n[ "$1" != --do-not-launch ] || exec cat {tmp_path}/map\n'
            f'env >{self.out}.env; echo "$0 $*" >{self.out}; exec sleep 303\n'
        )
        program.chmod(0o755)
        self.process: subprocess.Popen[bytes] | None = None
        self.mpirun = 0

    def start(self, words: str = "-np 3 train", *, nohup: str = "", **environ: str) -> int:
        """Return the process of mpirun, which runs."""
        folder = self.head.folder / "first"
        folder.mkdir()
        # The program in the image has no folders to choose; everything else is the same.
        (folder / "kit-mpirun").write_text(
            f"#!{sys.executable} -IS\nimport sys\nsys.dont_write_bytecode = True\n"
            f"sys.path.insert(0, {str(launcher.LIB)!r})\nfrom kitrun import by_hand, store\n"
            f"by_hand.RECORD, store.ROOT = {str(self.head.record)!r}, {str(self.head.runs)!r}\nby_hand.main(sys.argv)\n"
        )
        (folder / "kit-mpirun").chmod(0o755)
        (folder / "mpirun").symlink_to("kit-mpirun")
        self.process = subprocess.Popen(
            ["sh", "-c", f"{nohup} mpirun {words} & echo $!; read line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PATH": f"{folder}:{self.head.path}", **environ},
        )
        assert self.process.stdout
        self.mpirun = int(self.process.stdout.readline())
        until(lambda: self.out.exists() and self.out.read_text())
        return self.mpirun

    def close(self) -> None:
        if self.process:
            with contextlib.suppress(OSError):
                os.kill(self.mpirun, signal.SIGKILL)
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def shell(head: Head, tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(head, tmp_path)
    yield shell
    shell.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def start(head: Head, *places: dict[str, Any]) -> dict[str, Any]:
    _, answer = head.run("true", places=list(places))
    return answer


def test_it_is_marked_holds_its_slots_and_ends_with_the_shell(head: Head, shell: Shell) -> None:
    pid = shell.start()
    mark = f"by-hand-{pid}"
    # mpirun's arguments and the path of its program are those of the person.
    assert shell.out.read_text() == f"{head.folder}/bin/mpirun -np 3 train\n"
    variables = Path(f"{shell.out}.env").read_text().splitlines()
    assert f"KIT_RUN={mark}" in variables
    (port,) = [line for line in variables if line.startswith("MASTER_PORT=")]
    agent = f"env KIT_RUN={mark} 'KIT_PLACES=gpu1=2 gpu2=1' MASTER_ADDR=10.0.0.1 {port} orted"
    assert f"OMPI_MCA_orte_launch_agent={agent}" in variables

    (record,) = head.door().hello["runs"]
    assert (record["id"], record["by"], record["command"]) == (mark, by_hand.BY, ["mpirun", "-np", "3", "train"])
    assert [(found["node"], found["ranks"], found["slots"]) for found in record["places"]] == [
        ("gpu1", 2, [0, 1]),
        ("gpu2", 1, [0]),
    ]
    assert [held["id"] for held in start(head, place("gpu2", 1, 0))["held"]] == [mark]
    assert "started" in start(head, place("gpu2", 1, 1))

    assert shell.process
    shell.process.kill()
    until(lambda: not alive(pid))
    until(lambda: [run for run in head.door().hello["runs"] if run["id"] == mark] == [])
    assert "started" in start(head, place("gpu2", 1, 0))


RANK = """#!/bin/sh
echo "${RANK-no} of ${WORLD_SIZE-}, $LOCAL_RANK of $LOCAL_WORLD_SIZE on $NODE_RANK: ${MASTER_ADDR-nowhere}" \
  "$MASTER_PORT $GLOO_SOCKET_IFNAME $JAX_COORDINATOR_ADDRESS"
"""
# What Open MPI does with both agents: ranks 0 and 1 on the head, 2 on gpu2, where a shell starts its daemon.
OPEN_MPI = """
export OMPI_COMM_WORLD_SIZE=3 KIT_NODE=gpu1 HOROVOD_GLOO_IFACE=ens3
{{
  for rank in 0 1; do
    env OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_LOCAL_RANK=$rank OMPI_COMM_WORLD_LOCAL_SIZE=2 \
      $OMPI_MCA_orte_fork_agent {out}.rank
  done
  env -i PATH="$PATH" KIT_NODE=gpu2 HOROVOD_GLOO_IFACE=ens9 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 \
    sh -c "${{OMPI_MCA_orte_launch_agent% orted}} $OMPI_MCA_orte_fork_agent {out}.rank"
}} >{out}.part 2>&1
mv {out}.part {out}
exec sleep 304
"""


def ranks_of(shell: Shell, **environ: str) -> list[list[str]]:
    """Return what each rank sees: the words before and after the colon."""
    program = shell.head.folder / "bin" / "mpirun"
    program.write_text(program.read_text().partition("env >")[0] + OPEN_MPI.format(out=shell.out))
    Path(f"{shell.out}.rank").write_text(RANK)
    Path(f"{shell.out}.rank").chmod(0o755)
    shell.start(**environ)
    return [line.split(": ") for line in shell.out.read_text().splitlines()]


def held(port: str) -> bool:
    """Return whether some process holds the port for its ranks."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(f"\0kit-port-{port}")
        except OSError:
            return True
    return False


def test_its_ranks_see_the_variables_of_a_run(shell: Shell) -> None:
    lines = ranks_of(shell)
    port = lines[0][1].split()[1]
    assert lines == [
        ["0 of 3, 0 of 2 on 0", f"10.0.0.1 {port} ens3 10.0.0.1:{port}"],
        ["1 of 3, 1 of 2 on 0", f"10.0.0.1 {port} ens3 10.0.0.1:{port}"],
        ["2 of 3, 0 of 1 on 1", f"10.0.0.1 {port} ens9 10.0.0.1:{port}"],
    ]
    # Nobody else gets the port while mpirun runs.
    assert held(port)
    os.kill(shell.mpirun, signal.SIGKILL)
    until(lambda: not held(port))


def test_a_persons_own_port_goes_to_all_ranks(shell: Shell) -> None:
    lines = ranks_of(shell, MASTER_PORT="4711")
    assert [line[1].split()[1] for line in lines] == ["4711"] * 3


def test_with_another_launch_agent_far_ranks_get_no_wrong_address(shell: Shell) -> None:
    lines = ranks_of(shell, OMPI_MCA_orte_launch_agent="env MINE=1 orted")
    assert lines[1][0] == "1 of 3, 1 of 2 on 0"
    assert lines[2] == ["no of ,  of  on ", "nowhere   "]


def test_words_that_a_shell_would_read_are_not_passed_on() -> None:
    environ = {"KIT_RUN": "by-hand-7", "MASTER_ADDR": "$(id)", "MASTER_PORT": "47'11", "KIT_PLACES": "gpu1=2 gpu2=1"}
    assert by_hand.agent(environ) == "env KIT_RUN=by-hand-7 'KIT_PLACES=gpu1=2 gpu2=1' orted"


def test_under_nohup_it_goes_on(head: Head, shell: Shell) -> None:
    pid = shell.start(nohup="nohup")
    assert shell.process
    shell.process.kill()
    shell.process.wait()
    # A signal at the parent's death would have come before the parent was gone.
    assert alive(pid)
    assert head.door().hello["runs"][0]["id"] == f"by-hand-{pid}"


def test_a_run_of_kit_is_left_alone(head: Head, shell: Shell) -> None:
    shell.start(KIT_RUN="20261122-101500-3fa2")
    assert "KIT_RUN=20261122-101500-3fa2" in Path(f"{shell.out}.env").read_text().splitlines()
    assert "orte_launch_agent" not in Path(f"{shell.out}.env").read_text()
    assert head.door().hello["runs"] == []


def test_a_node_that_is_not_the_head_is_left_alone(head: Head, shell: Shell) -> None:
    head.record.unlink()
    shell.start()
    assert "KIT_RUN=" not in Path(f"{shell.out}.env").read_text()


def test_without_open_mpi_it_says_so(head: Head) -> None:
    done = subprocess.run(
        [sys.executable, "-IS", launcher.BIN / "kit-mpirun"],
        env={"PATH": str(head.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "kit-mpirun: not found\n")
