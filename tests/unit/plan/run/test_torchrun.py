"""The launcher torchrun: what it starts, and which options conflict with it."""

from __future__ import annotations

import pytest

from kit.errors import InputError
from kit.model.launch import Placement, RunRequest
from kit.model.spec import Binding, ClusterSpec, MpiSpec
from kit.model.values import replace
from kit.plan.run import torchrun
from kit.plan.run.mpi import launch_plan
from kit.plan.run.records import start_request
from tests.fakes.facts import node

COMMAND = ("python", "train.py")
TORCHRUN = RunRequest(launcher="torchrun")


def test_mpirun_starts_one_torchrun_on_each_host() -> None:
    placement = Placement(nodes=(node(1), node(2)), counts=(2, 1))
    plan = launch_plan(
        run_id="r", spec=ClusterSpec(), placement=placement, network=None, command=COMMAND, env={}, torchrun=True
    )
    assert plan.argv[:10] == (
        "mpirun", "--allow-run-as-root", "-np", "2", "--stdin", "0", "--hostfile", "/var/lib/kit/runs/r/hostfile",
        "--map-by", "ppr:1:node",
    )  # fmt: skip
    assert plan.argv[-5:] == ("python3", "-IS", "/opt/kit/bin/kit-torchrun", *COMMAND)
    assert plan.placement.np == 3
    assert plan.env["KIT_AGENT"] == "torchrun"
    assert plan.argv[plan.argv.index("KIT_AGENT") - 1] == "-x"
    assert start_request(plan, cluster="c", image="i", head="gpu1", by="me", wait=False)["torchrun"] is True


@pytest.mark.parametrize(("bind_to", "of_ranks"), [("socket", "socket"), ("auto", None), ("none", None)])
def test_each_rank_is_bound_and_not_the_torchrun_of_all(bind_to: Binding, of_ranks: str | None) -> None:
    """The ranks would inherit the one socket to which mpirun binds their torchrun."""
    plan = launch_plan(
        run_id="r",
        spec=ClusterSpec(mpi=MpiSpec(bind_to=bind_to)),
        placement=Placement(nodes=(node(1),), counts=(2,)),
        network=None,
        command=COMMAND,
        env={},
        torchrun=True,
    )
    assert plan.argv[plan.argv.index("--bind-to") + 1] == "none"
    assert plan.env.get("KIT_BIND_TO") == of_ranks
    assert ("KIT_BIND_TO" in plan.argv) is (of_ranks is not None)


@pytest.mark.parametrize(
    ("request_", "command", "says"),
    [
        (RunRequest(max_restarts=2), COMMAND, "--max-restarts 2 has no effect without torchrun"),
        (RunRequest(launcher="ps", max_restarts=0), COMMAND, "--max-restarts 0 has no effect"),
        (TORCHRUN, ("torchrun", "train.py"), "the command starts another one"),
        (TORCHRUN, ("/opt/venv/bin/torchrun", "train.py"), "the command starts another one"),
        (RunRequest(launcher="torchrun", env=(("RANK", "0"),)), COMMAND, "-x RANK: torchrun sets this variable"),
    ],
)
def test_what_does_not_go_together(request_: RunRequest, command: tuple[str, ...], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        torchrun.check(request_, command)
    assert caught.value.hint


def test_standard_input_goes_to_the_host_of_rank_0() -> None:
    """torchrun numbers hosts by their addresses as text, so rank 0 is on 10.0.0.10, and not on 10.0.0.9."""
    nodes = (replace(node(1), address="10.0.0.9"), replace(node(2), address="10.0.0.10"))
    plan = launch_plan(
        run_id="r", spec=ClusterSpec(), placement=Placement(nodes=nodes, counts=(2, 2)), network=None,
        command=COMMAND, env={}, torchrun=True,
    )  # fmt: skip
    assert plan.argv[2:6] == ("-np", "2", "--stdin", "1")


@pytest.mark.parametrize("good", [RunRequest(), TORCHRUN, RunRequest(launcher="torchrun", max_restarts=3)])
def test_what_does(good: RunRequest) -> None:
    torchrun.check(good, COMMAND)


def test_restarts_are_an_option_of_torchrun() -> None:
    assert torchrun.variables(RunRequest(launcher="torchrun", max_restarts=3)) == {"PET_MAX_RESTARTS": "3"}
    assert torchrun.variables(TORCHRUN) == {}
