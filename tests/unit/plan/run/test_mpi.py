"""Tests the mpirun command."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from kit.model.launch import LaunchPlan, Placement, RunPolicy
from kit.model.run import Place
from kit.model.spec import ClusterSpec, MpiSpec
from kit.model.values import replace
from kit.plan.run.mpi import hostfile, launch_plan
from tests.fakes.facts import node
from tests.fakes.golden import check_golden

FOLDERS = ("KIT_OUTPUT_DIR", "KIT_CHECKPOINT_DIR")
SET_ON_THE_HEAD = ("KIT_ATTEMPT", *FOLDERS, "KIT_PLACES", "MASTER_ADDR", "MASTER_PORT")
TWO = Placement(nodes=(node(1), node(2)), counts=(2, 1))


def plan(**more: Any) -> LaunchPlan:
    values: dict[str, Any] = {
        "run_id": "20260102-030405-ab12",
        "spec": ClusterSpec(),
        "placement": TWO,
        "network": "10.0.0.0/30",
        "command": ("python3", "train.py", "--name", "a b"),
        "env": {},
    }
    return launch_plan(**{**values, **more})


def after(argv: tuple[str, ...], flag: str) -> list[str]:
    """Return the word after each `flag`."""
    return [argv[i + 1] for i, word in enumerate(argv) if word == flag]


def mca(argv: tuple[str, ...]) -> dict[str, str]:
    return {argv[i + 1]: argv[i + 2] for i, word in enumerate(argv) if word == "--mca"}


def test_the_hostfile_has_as_many_slots_as_ranks() -> None:
    assert hostfile(TWO) == "10.0.0.1 slots=2\n10.0.0.2 slots=1\n"


def test_the_whole_line() -> None:
    launch = plan(
        spec=ClusterSpec(mpi=MpiSpec(bind_to="core", args=("--mca", "coll", "^ml"))),
        env={"A": "1 2"},
        forward=("HOME",),
    )
    check_golden("mpirun.txt", "\n".join(launch.argv) + "\n")


def test_several_networks_for_the_data_leave_the_launch_on_its_own() -> None:
    parameters = mca(plan(data=("10.1.0.0/24", "10.2.0.0/24")).argv)
    assert parameters["btl_tcp_if_include"] == "10.1.0.0/24,10.2.0.0/24"
    assert parameters["oob_tcp_if_include"] == "10.0.0.0/30"
    unknown = mca(plan(network=None, data=("10.1.0.0/24",)).argv)
    assert unknown["btl_tcp_if_include"] == "10.1.0.0/24"
    assert "oob_tcp_if_include" not in unknown


def test_both_channels_are_given_the_network() -> None:
    parameters = mca(plan().argv)
    assert parameters["btl_tcp_if_include"] == parameters["oob_tcp_if_include"] == "10.0.0.0/30"
    assert not {"btl_tcp_if_include", "oob_tcp_if_include"} & set(mca(plan(network=None).argv))


def test_the_hostfile_is_where_the_launcher_puts_it() -> None:
    assert after(plan().argv, "--hostfile") == ["/var/lib/kit/runs/20260102-030405-ab12/hostfile"]


def test_the_command_is_last_and_whole() -> None:
    assert plan().argv[-7:] == ("python3", "-IS", "/opt/kit/bin/kit-rank", "python3", "train.py", "--name", "a b")


def test_a_colon_does_not_end_the_command() -> None:
    """mpirun would start what follows the word as another program."""
    command = ("echo", "a b", ":", "$HOME")
    launch = plan(command=command)
    *_, program, shell, flag, line = launch.argv
    assert (program, shell, flag, ":" in launch.argv) == ("/opt/kit/bin/kit-rank", "sh", "-c", False)
    assert launch.command == command
    assert subprocess.run([shell, flag, line], stdout=subprocess.PIPE, check=True).stdout == b"a b : $HOME\n"
    # An elastic run has no mpirun, and kit-elastic gets the words.
    assert plan(command=command, elastic=True).argv[-4:] == command


def test_variables_are_named_once_and_values_stay_off_the_line() -> None:
    launch = plan(env={"TOKEN": "s3cret", "A": "1"}, forward=("A", "PATH"))
    assert after(launch.argv, "-x") == ["KIT_RUN", "TOKEN", "A", *SET_ON_THE_HEAD, "PATH"]
    assert launch.env == {"KIT_RUN": launch.run_id, "TOKEN": "s3cret", "A": "1"}
    assert not any("s3cret" in word for word in launch.argv)


def test_a_run_that_leaves_slots_to_others_says_which_are_its_own() -> None:
    places = (Place(node="gpu1", address="10.0.0.1", ranks=2, slots=(0, 1)),
              Place(node="gpu2", address="10.0.0.2", ranks=1, slots=(1,)))  # fmt: skip
    launch = plan(places=places)
    assert launch.env["KIT_HELD_SLOTS"] == "gpu2=1"
    assert "KIT_HELD_SLOTS" in after(launch.argv, "-x")
    assert launch.places == places
    whole = tuple(replace(place, slots=(0, 1)) for place in places)
    assert "KIT_HELD_SLOTS" not in plan(places=whole).env


def test_nobody_takes_other_slots_than_the_runs_own() -> None:
    place = Place(node="gpu1", address="10.0.0.1", ranks=1, slots=(1,))
    assert plan(places=(place,), env={"KIT_HELD_SLOTS": "gpu1=0"}).env["KIT_HELD_SLOTS"] == "gpu1=1"


@pytest.mark.parametrize("clean", [True, False])
def test_what_may_stay_in_the_background(clean: bool) -> None:
    launch = plan(policy=RunPolicy(clean=clean))
    assert ("KIT_LEAVE" in launch.env) is ("KIT_LEAVE" in after(launch.argv, "-x")) is not clean


def test_the_daemons_on_the_nodes_carry_the_mark() -> None:
    assert mca(plan().argv)["orte_launch_agent"] == "env KIT_RUN=20260102-030405-ab12 orted"


def test_nobody_gives_a_run_another_mark() -> None:
    assert plan(env={"KIT_RUN": "another"}).env["KIT_RUN"] == "20260102-030405-ab12"


@pytest.mark.parametrize(
    ("setting", "cores", "expected"),
    [("auto", 8, False), ("auto", 1, True), ("auto", 2, False), ("auto", 0, False), (True, 8, True), (False, 1, False)],
)
def test_yielding(setting: Any, cores: int, expected: bool) -> None:
    placement = Placement(nodes=(node(1, cores=cores),), counts=(2,))
    launch = plan(spec=ClusterSpec(mpi=MpiSpec(yield_when_idle=setting)), placement=placement)
    assert ("mpi_yield_when_idle" in mca(launch.argv)) is expected


@pytest.mark.parametrize("flag", ["oversubscribe"])
def test_flags_are_passed_on(flag: str) -> None:
    word = f"--{flag.replace('_', '-')}"
    assert word in plan(**{flag: True}).argv
    assert word not in plan().argv
