"""hvd-distribute.sh passes variables of a shell in the head to the ranks of all nodes, and counts cores."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster import rdma, stack
from tests.fakes.facts import facts, node

PROGRAM = Path(__file__).parents[3] / "images/bin/hvd-distribute.sh"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return the script with two nodes, and an mpirun beside it that prints its arguments, one a line."""
    (tmp_path / "hosts").write_text("10.0.0.1 slots=2\n10.0.0.2 slots=2\n")
    mpirun, script = tmp_path / "mpirun", tmp_path / "hvd-distribute.sh"
    mpirun.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    script.write_text(PROGRAM.read_text().replace("/etc/kit/hosts", str(tmp_path / "hosts")))
    for file in (mpirun, script):
        file.chmod(0o755)
    return script


def passed(program: Path, **environ: str) -> list[str]:
    """Return the names of -x on the command line of mpirun, in the order of the alphabet."""
    env = {"PATH": f"{program.parent}:/usr/bin:/bin", "KIT_NETWORK": "10.0.0.0/24", **environ}
    words = [str(program), "4", "2", "python", "train.py"]
    argv = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout.split("\n")
    assert argv[-3:] == ["python", "train.py", ""]
    return sorted(argv[place + 1] for place, word in enumerate(argv) if word == "-x")


def test_settings_of_the_shell_go_to_every_rank(program: Path) -> None:
    names = ["HOROVOD_CYCLE_TIME", "MXNET_X", "NCCL_ALGO", "NCCL_DEBUG", "OMP_NUM_THREADS", "TF_X"]
    assert passed(program, **dict.fromkeys([*names, "HOME", "MY_NCCL_X"], "1")) == names


@pytest.mark.parametrize("variable", [{"OMP_NUM_THREADS": "1000"}, {"OMP_THREAD_LIMIT": "1"}])
@pytest.mark.parametrize("name", ["hvd-local.sh", "hvd-distribute.sh"])
def test_threads_of_a_rank_are_no_number_of_cores(program: Path, variable: dict[str, str], name: str) -> None:
    """nproc obeys both variables. More ranks than cores must not spin, and others should."""
    local = program.parent / "hvd-local.sh"
    local.write_text((PROGRAM.parent / local.name).read_text())
    local.chmod(0o755)
    cores = len(os.sched_getaffinity(0))
    for count, idle in ((cores, "0"), (cores + 1, "1")):
        ranks = [str(count)] if name == "hvd-local.sh" else [str(count), str(count)]
        env = {"PATH": f"{program.parent}:/usr/bin:/bin", "KIT_NETWORK": "10.0.0.0/24", **variable}
        words = [str(program.parent / name), *ranks, "true"]
        argv = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout.split("\n")
        assert argv[argv.index("mpi_yield_when_idle") + 1] == idle


def test_what_each_node_has_for_itself_does_not(program: Path) -> None:
    """With the head's name of an interface, NCCL on other hosts would find none."""
    spec, first = ClusterSpec(), facts(1)
    of_adapters = rdma.environment(replace(first, host=replace(first.host, hca="mlx5_0")), spec)
    own = stack.own_environment(spec, node(1), "eth0", {**of_adapters, **dict.fromkeys(rdma._INDEXES, "3")})
    assert {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"} < own.keys()
    assert passed(program, **own) == []
