"""The launcher elastic: which options conflict, how many ranks start, what kit-elastic gets, what its events say."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from kit.errors import InputError, NotReadyError
from kit.events import Warned
from kit.model.answer import OddAnswer
from kit.model.launch import Node, Placement, RunPolicy, RunRequest
from kit.model.run import Place, RunRecord
from kit.model.spec import ClusterSpec, ImageSpec, MpiSpec
from kit.model.values import replace
from kit.plan.run import elastic, gpus, leases
from kit.plan.run.elasticevents import elastic_event
from kit.plan.run.mpi import launch_plan
from kit.plan.run.records import record_of, start_request
from tests.fakes.facts import node

COMMAND = ("python", "train.py")
ELASTIC = RunRequest(launcher="elastic")
IMAGE = ImageSpec()


def with_policy(**given: Any) -> RunRequest:
    return replace(ELASTIC, policy=RunPolicy(**given))


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (RunRequest(policy=RunPolicy(max_np=4)), "--max-np 4 has no effect without --elastic"),
        (replace(ELASTIC, np=4), "--np has no meaning with --elastic"),
        (replace(ELASTIC, npernode=1), "--npernode has no meaning"),
        (replace(ELASTIC, oversubscribe=True), "--oversubscribe has no meaning"),
        (replace(ELASTIC, terminal=True), "-it has no meaning"),
        (with_policy(retries=1), "--retries has no meaning"),
        (replace(ELASTIC, given=frozenset({"retry_on"})), "--retry-on has no meaning"),
        (replace(ELASTIC, env=(("HOROVOD_CONTROLLER", "mpi"),)), "-x HOROVOD_CONTROLLER: --elastic sets this variable"),
        (with_policy(min_np=5, max_np=4), "--min-np 5 is more than --max-np 4"),
    ],
)
def test_what_does_not_go_together(request_: RunRequest, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        elastic.check(request_, IMAGE)
    assert caught.value.hint


def test_an_image_without_horovod_is_refused() -> None:
    with pytest.raises(InputError, match="needs Horovod, and the image"):
        elastic.check(ELASTIC, replace(IMAGE, flavour="pytorch"))


def test_a_base_image_of_yours_may_have_horovod() -> None:
    elastic.check(ELASTIC, replace(IMAGE, flavour="pytorch", base="me/horovod-torch:1"))


@pytest.mark.parametrize(
    "good",
    [
        RunRequest(),
        ELASTIC,
        with_policy(min_np=4, max_np=4),
        with_policy(min_np=2),
        replace(ELASTIC, env=(("LR", "0.1"), ("HOROVOD_TIMELINE", "/tmp/t.json"))),
    ],
)
def test_what_does(good: RunRequest) -> None:
    elastic.check(good, IMAGE)


def holder(number: int, *slots: int) -> RunRecord:
    place = {"node": f"gpu{number}", "address": "10.0.0.1", "ranks": len(slots), "slots": slots}
    return record_of({"id": f"2026112{number}-101500-0001", "places": [place], "by": "eve@home"})


@pytest.mark.parametrize(
    ("given", "living", "ranks"),
    [
        ({}, [], (4, 1, None)),
        ({"max_np": 3}, [], (3, 1, 3)),
        ({"min_np": 2, "max_np": 8}, [], (4, 2, 8)),
        ({"min_np": 2}, [holder(1, 0, 1)], (2, 2, None)),
        # They do not fit now: place_free says who holds the slots, or waits.
        ({"min_np": 3}, [holder(1, 0, 1)], (3, 3, None)),
        ({"min_np": 4}, [holder(1, 0, 1)], (4, 4, None)),
    ],
)
def test_how_many_ranks_start(
    given: dict[str, int], living: list[RunRecord], ranks: tuple[int, int, int | None]
) -> None:
    assert elastic.ranks(with_policy(**given), [node(1), node(2)], living) == ranks


@pytest.mark.parametrize(
    ("hosts", "share", "text", "hint"),
    [
        (2, 0, "the 4 ranks that fit", "use --min-np 4, add hosts, or raise slots= in the"),
        (2, 2, "the 2 ranks that fit", "use --min-np 2, or add hosts in the hosts file"),
        (1, 2, "the only rank that fits", "use --min-np 1, or add hosts in the hosts file"),
    ],
)
def test_more_ranks_at_least_than_fit_are_refused_with_the_option(hosts: int, share: int, text: str, hint: str) -> None:
    """Whatever runs there now. --np has no meaning with --elastic."""
    nodes = [replace(node(number), gpus=2) for number in range(1, hosts + 1)]
    with pytest.raises(InputError, match=f"^--min-np 8 is more than {text} on these hosts$") as caught:
        elastic.ranks(with_policy(min_np=8), nodes, [holder(1, 0, 1)], share=share)
    assert str(caught.value.hint).startswith(hint)


def test_kit_elastic_gets_names_and_never_values() -> None:
    placement = Placement(nodes=(node(1), node(2)), counts=(2, 1))
    plan = launch_plan(
        run_id="r", spec=ClusterSpec(), placement=placement, network=None, command=COMMAND, env={"TOKEN": "secret"},
        code="c" * 64,
    )  # fmt: skip
    made = elastic.as_elastic(plan, node(1), 2, 8)
    assert made.argv[:5] == ("kit-elastic", "--min-np", "2", "--max-np", "8")
    assert made.argv[made.argv.index("--wdir") + 1] == "/var/lib/kit/runs/r/work"
    assert made.argv[-3:] == ("--", *COMMAND)
    assert "TOKEN" in made.argv
    assert "KIT_ATTEMPT" in made.argv
    assert "MASTER_ADDR" not in made.argv
    assert not [word for word in made.argv if "secret" in word or "mca" in word]
    request = start_request(made, cluster="c", image="i", head="gpu1", by="me", wait=False)
    assert request["elastic"] == {"address": node(1).address, "min_np": 2, "max_np": 8}
    assert request["info"]["elastic"] == request["elastic"]
    assert start_request(plan, cluster="c", image="i", head="gpu1", by="me", wait=False)["elastic"] == {}


def test_ranks_without_mpirun_are_bound_as_kit_yaml_says() -> None:
    spec = ClusterSpec(mpi=MpiSpec(bind_to="core"))
    placement = Placement(nodes=(node(1),), counts=(2,))
    plan = launch_plan(
        run_id="r", spec=spec, placement=placement, network=None, command=COMMAND, env={}, elastic=True
    )  # fmt: skip
    assert plan.env["KIT_BIND_TO"] == "core"
    assert "KIT_BIND_TO" in elastic.as_elastic(plan, node(1), 1, None).argv


def test_settings_that_only_mpirun_has_are_named() -> None:
    assert elastic.ignored(ClusterSpec()) is None
    assert "mpi.args" in str(elastic.ignored(ClusterSpec(mpi=MpiSpec(args=("--mca", "btl", "tcp")))))


def test_they_have_no_effect_as_kit_says() -> None:
    """Ranks started in the folder that mpi.args named for mpirun, and got the variables that it named."""
    spec = ClusterSpec(mpi=MpiSpec(args=("--wdir", "/data", "-x", "NCCL_DEBUG")))
    placement = Placement(nodes=(node(1),), counts=(1,))
    plan = launch_plan(
        run_id="r", spec=spec, placement=placement, network=None, command=COMMAND, env={}, elastic=True
    )  # fmt: skip
    assert not {"--wdir", "/data", "NCCL_DEBUG"} & {*elastic.as_elastic(plan, node(1), 1, None).argv}


def test_ranks_cannot_meet_at_an_ipv6_address() -> None:
    placement = Placement(nodes=(node(1),), counts=(1,))
    plan = launch_plan(run_id="r", spec=ClusterSpec(), placement=placement, network=None, command=COMMAND, env={})
    with pytest.raises(InputError, match="supports IPv4 only, but gpu2 has fd00::2"):
        elastic.as_elastic(plan, replace(node(2), address="fd00::2"), 1, None)


def test_words_of_the_command_are_no_options_of_kit_elastic() -> None:
    """Ranks started in the folder that the script's own --wdir names, and a last -x was a bug of kit."""
    placement = Placement(nodes=(node(1),), counts=(1,))
    command = (*COMMAND, "--wdir", "/data", "-x")
    plan = launch_plan(
        run_id="r", spec=ClusterSpec(), placement=placement, network=None, command=command,
        env={"MASTER_ADDR": "10.0.0.9"},
    )  # fmt: skip
    made = elastic.as_elastic(plan, node(1), 1, None)
    assert made.argv[-6:] == ("--", *command)
    assert "--wdir" not in made.argv[:-5]
    # The user's own value reaches the ranks.
    assert "MASTER_ADDR" in made.argv


def test_without_a_limit_ranks_start_on_every_host_that_comes() -> None:
    placement = Placement(nodes=(node(1),), counts=(2,))
    plan = launch_plan(run_id="r", spec=ClusterSpec(), placement=placement, network=None, command=COMMAND, env={})
    made = elastic.as_elastic(plan, node(1), 2, None)
    assert made.argv[:3] == ("kit-elastic", "--min-np", "2")
    assert "--max-np" not in made.argv


@pytest.mark.parametrize(
    ("record", "most"),
    [
        ({"elastic": {"max_np": 4}, "places": [{"ranks": 2}, {"ranks": 2}]}, 4),
        ({"elastic": {"max_np": 4}, "places": [{"ranks": 2}, {"ranks": 2, "out": True}]}, None),
        ({"elastic": {"max_np": None}, "places": [{"ranks": 2}]}, None),
        ({"elastic": {"max_np": 4}, "places": [{"ranks": "4"}, 4]}, None),
        ({"elastic": [4], "places": {}}, None),
        ({}, None),
    ],
)
def test_a_run_at_its_limit_gets_no_ranks_on_more_hosts(record: dict[str, object], most: int | None) -> None:
    assert elastic.limit_reached(record) == most


def test_more_hosts_give_all_their_free_slots() -> None:
    assert leases.places_on([node(1), node(2)], [holder(1, 0)]) == (
        Place(node="gpu1", address=node(1).address, ranks=1, slots=(1,), of=2),
        Place(node="gpu2", address=node(2).address, ranks=2, slots=(0, 1), of=2),
    )
    with pytest.raises(NotReadyError, match="20261121-101500-0001 of eve@home"):
        leases.places_on([node(1)], [holder(1, 0, 1)])
    # One of several without a free slot is enough.
    with pytest.raises(NotReadyError, match="20261121-101500-0001 of eve@home"):
        leases.places_on([node(2), node(1)], [holder(1, 0, 1)])


def test_ranks_with_several_gpus_hold_the_slots_of_all_of_them() -> None:
    host = node(1, slots=4, gpus=4)
    (place,) = leases.places_on([host], [], 2)
    assert (place.ranks, place.slots) == (2, (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("host", "share", "says"),
    [
        (node(3), 0, ""),
        (replace(node(3), gpus=2, mig=True), 1, ""),
        (replace(node(3), gpus=2), 2, ""),
        (node(3), 1, "gpu3 has no GPU, and run 20261121-101500-0002 gives each rank 1"),
        (replace(node(3), gpus=2), 4, "gpu3 has 2 GPUs, and run"),
        (replace(node(3), gpus=2, mig=True), 2, "gpu3 has MIG devices"),
    ],
)
def test_hosts_that_have_the_gpus_of_a_rank(host: Node, share: int, says: str) -> None:
    run = RunRecord(id="20261121-101500-0002", cluster="lab", image="i", command=("true",), places=(), by="me")
    refused = pytest.raises(NotReadyError, match=says) if says else contextlib.nullcontext()
    with refused:
        elastic.check_added([host], run, share)


@pytest.mark.parametrize(
    ("record", "share"),
    [
        ({"elastic": {"gpus_per_rank": 2}}, 2),
        ({"elastic": {}}, 0),
        ({"elastic": {"gpus_per_rank": "2"}}, 0),
        ({"elastic": {"gpus_per_rank": -1}}, 0),
        ({"elastic": {"gpus_per_rank": 2**60}}, 0),
        ({}, 0),
    ],
)
def test_how_many_gpus_a_rank_has(record: dict[str, object], share: int) -> None:
    assert elastic.gpus_of_rank(record) == share


@pytest.mark.parametrize("share", [0, 2])
def test_the_record_says_how_many_gpus_a_rank_on_a_later_host_gets(share: int) -> None:
    spec, placement = ClusterSpec(), Placement(nodes=(node(1),), counts=(1,))
    plan = launch_plan(
        run_id="r", spec=spec, placement=placement, network=None, command=COMMAND, env={}, elastic=True,
        devices=gpus.variables(replace(ELASTIC, gpus_per_rank=share), spec),
    )  # fmt: skip
    made = elastic.as_elastic(plan, node(1), 1, None)
    request = start_request(made, cluster="c", image="i", head="gpu1", by="me", wait=False)
    assert elastic.gpus_of_rank(request["info"]) == share


@pytest.mark.parametrize(
    ("host", "living", "share", "exclusive", "ranks", "own"),
    [
        (replace(node(3), gpus=2), [], 0, False, 2, ("", "")),
        (replace(node(3), gpus=2), [holder(3, 0)], 0, False, 1, ("gpu3=1", "")),
        (replace(node(3), gpus=4), [holder(3, 0)], 1, False, 2, ("gpu3=2,3", "")),
        (replace(node(3), gpus=2, mig=True), [], 0, False, 2, ("gpu3=0,1", "")),
        (node(3), [holder(3, 0)], 0, True, 1, ("gpu3=1", "gpu3=1/2 exclusive")),
    ],
)
def test_each_host_that_comes_has_its_own_gpus_and_cpus(
    host: Node, living: list[RunRecord], share: int, ranks: int, own: tuple[str, str], *, exclusive: bool
) -> None:
    """The words of the hosts with which the run began name other slots, or none."""
    places = leases.places_on([host], living, share)
    (made,) = elastic.words(ClusterSpec(), [host], places, exclusive=exclusive, cpus=None)
    assert made["ranks"] == ranks
    assert made["env"] == dict(zip(("KIT_HELD_SLOTS", "KIT_CPU_SLOTS"), own, strict=True))


FAILED = {"rank": 1, "host": "gpu2"}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"event": "reset", "left": ["gpu3", "gpu4"], "np_before": 6, "np": 4, "seconds": 12.31},
            "reset: gpu[3-4] left; 6 → 4 ranks; 12.3 s lost",
        ),
        (
            {"event": "reset", "np_before": 2, "np": 2, "seconds": 3, "failed": FAILED | {"exit_code": 137}},
            "reset: 2 ranks; 3.0 s lost; rank 1 on gpu2 was killed by SIGKILL",
        ),
        (
            {"event": "reset", "np_before": 2, "np": 2, "seconds": 3, "failed": FAILED | {"exit_code": 7}},
            "reset: 2 ranks; 3.0 s lost; rank 1 on gpu2 ended with exit code 7",
        ),
        (
            {"event": "reset", "np_before": 2, "np": 2, "seconds": 3, "failed": FAILED | {"exit_code": 255}},
            "reset: 2 ranks; 3.0 s lost; the connection to gpu2 broke",
        ),
        (
            {"event": "reset", "np": 2, "np_before": 2, "failed": FAILED | {"exit_code": 255, "reported": True}},
            "reset: 2 ranks; 0.0 s lost; rank 1 on gpu2 ended with exit code 255",
        ),
        (
            {"event": "reset", "joined": ["gpu5"], "left": ["gpu1"], "np_before": 4, "np": 4, "seconds": 2},
            "reset: gpu1 left; gpu5 joined; 4 ranks; 2.0 s lost",
        ),
        (
            {"event": "short", "available": 1, "least": 4, "seconds": 600},
            "1 slots are left, and --min-np is 4: the run waits up to 600 s for hosts",
        ),
        ({"event": "over", "why": "no host is left"}, "the elastic run cannot go on: no host is left"),
    ],
)
def test_what_events_say(fields: dict[str, Any], says: str) -> None:
    assert elastic_event(fields).text == says


def test_a_script_without_state_gets_what_to_write() -> None:
    said = elastic_event({"event": "refused", "rank": 2, "host": "gpu3", "exit_code": 1})
    assert "rank 2 on gpu3 failed" in said.text
    assert isinstance(said, Warned)
    assert "state.commit()" in str(said.hint)


def test_an_odd_event_is_an_odd_answer() -> None:
    with pytest.raises(OddAnswer):
        elastic_event({"event": "reset", "np": -1})
    with pytest.raises(OddAnswer):
        elastic_event({"event": "reset", "joined": 3})
    with pytest.raises(OddAnswer):
        elastic_event({"event": "reset", "failed": {"rank": -1}})
    for fields in (
        {"event": "reset", "seconds": float("inf")},
        {"event": "short", "available": 10**400},
        {"event": "short", "seconds": float("nan")},
        {"event": "refused", "rank": -1},
        {"event": "over", "why": 7},
    ):
        with pytest.raises(OddAnswer):
            elastic_event(fields)
