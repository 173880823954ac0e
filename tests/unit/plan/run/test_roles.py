"""Tests the places of the servers of a parameter server, and the variables of its ranks."""

from __future__ import annotations

from typing import Any

import pytest

from kit.errors import InputError
from kit.model.launch import Helper, Placement, RunPolicy, RunRequest
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.run import roles
from kit.plan.run.mpi import launch_plan
from kit.plan.run.records import record_of, start_request
from tests.fakes.facts import node
from tests.fakes.golden import check_golden

TWO = Placement(nodes=(node(2), node(3)), counts=(2, 1))
PS = RunRequest(launcher="ps", servers=3)


def test_servers_go_over_the_runs_hosts_and_the_scheduler_is_on_the_head() -> None:
    behind = roles.helpers(TWO, node(1), 3)
    assert [(helper.role, helper.node) for helper in behind] == [
        ("server", "gpu2"), ("server", "gpu3"), ("server", "gpu2"), ("scheduler", "gpu1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cores", "servers", "warning"),
    [
        # The documentation recommends one server on each host, beside one worker on each core.
        (2, 2, None),
        (8, 16, None),
        (8, 17, "17 servers on 2 hosts put 9 on gpu2, which has 8 cores for them and its workers"),
        # A host may have more slots than cores, and its cores are not known before a deploy.
        (1, 4, None),
        (0, 4, None),
        (0, 100, "100 servers on 2 hosts put 50 on gpu2, which has 2 slots for them and its workers"),
    ],
)
def test_more_servers_than_cores_give_a_warning(cores: int, servers: int, warning: str | None) -> None:
    two = replace(TWO, nodes=(node(2, cores=cores), node(3, cores=cores)))
    assert roles.crowded(two, roles.helpers(two, node(1), servers)) == warning


def test_the_crowded_host_is_the_one_that_is_named() -> None:
    small = replace(TWO, nodes=(node(2), node(3, slots=1, cores=1)))
    warning = roles.crowded(small, roles.helpers(small, node(1), 4))
    assert warning == "4 servers on 2 hosts put 2 on gpu3, which has 1 core for them and its workers"


def test_the_hostfile_has_a_line_for_each_rank_in_order() -> None:
    lines = roles.hostfile(TWO, roles.helpers(TWO, node(1), 1)).split()
    assert lines == ["10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.2", "10.0.0.1"]


def test_the_whole_line() -> None:
    launch = launch_plan(
        run_id="20260102-030405-ab12",
        spec=ClusterSpec(),
        placement=TWO,
        network="10.0.0.0/24",
        command=("mxnet_train", "--kv-store", "dist_sync"),
        env={"DMLC_NUM_WORKER": "99", "A": "1"},
        helpers=roles.helpers(TWO, node(1), 2),
        policy=RunPolicy(start_timeout=90.0),
    )
    variables = "".join(f"{name}={value}\n" for name, value in launch.env.items())
    check_golden(
        "mpirun-ps.txt", "\n".join(launch.argv) + "\n# hostfile\n" + launch.hostfile + "# variables\n" + variables
    )
    assert launch.placement == TWO, "helpers hold no slot"


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (RunRequest(servers=4), "--servers 4 has no effect"),
        (RunRequest(servers=0), "--servers 0 has no effect"),
        (RunRequest(launcher="ps"), "needs a number of servers"),
        (replace(PS, servers=0), "--servers 0 is not a number"),
        (replace(PS, policy=RunPolicy(min_np=2)), "--min-np"),
        (replace(PS, env=(("DMLC_ROLE", "worker"),)), "-x DMLC_ROLE"),
    ],
)
def test_what_does_not_go_together(request_: RunRequest, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        roles.check(request_)
    assert caught.value.hint


@pytest.mark.parametrize("good", [RunRequest(), PS, replace(PS, env=(("DMLC_PS_ROOT_PORT", "9091"),))])
def test_what_does(good: RunRequest) -> None:
    roles.check(good)


def test_ps_lite_knows_no_ipv6() -> None:
    six: Any = replace(node(2), address="fd00::2")
    with pytest.raises(InputError, match="IPv4 only, but gpu2"):
        roles.helpers(Placement(nodes=(six,), counts=(1,)), node(1), 1)


def test_the_head_learns_of_helpers() -> None:
    plan = launch_plan(
        run_id="r", spec=ClusterSpec(), placement=TWO, network=None, command=("a",), env={},
        helpers=roles.helpers(TWO, node(1), 1),
    )  # fmt: skip
    request = start_request(plan, cluster="c", image="i", head="gpu1", by="me", wait=False)
    assert request["helpers"][-1] == {"role": "scheduler", "node": "gpu1", "address": "10.0.0.1"}
    record = record_of({**request["info"], "id": "r", "places": request["places"], "helpers": request["helpers"]})
    assert record.roles == ("server", "scheduler")
    assert Helper(**request["helpers"][0]) == plan.helpers[0]
