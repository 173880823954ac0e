"""The plans of kit bench: cases from facts and flags, and which names are refused."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.cli.text import bench as benchtext
from kit.errors import InputError
from kit.flows.bench.launch import spec_of, with_settings
from kit.flows.bench.measure import BenchPlan
from kit.model.bench import META, Session
from kit.model.launch import Node
from kit.model.spec import ClusterSpec, MpiSpec, NcclSpec
from kit.model.values import replace
from kit.plan.bench.cases import LADDER, PRESETS, BenchFacts, BenchOptions, Planned, rank_counts, usable_gpus
from kit.plan.bench.models import GLUON, MXNET_TRAIN, PACED
from kit.plan.bench.order import seconds_left, turns
from kit.plan.bench.presets.plan import check, plan
from kit.plan.bench.record import session_of, session_text
from tests.fakes.golden import check_golden

IMAGES = Path(__file__).resolve().parents[4] / "images"


def facts(hosts: int = 4, slots: int = 2, **more: Any) -> BenchFacts:
    gpus = more.get("gpus", 0) // hosts
    nodes = tuple(
        Node(name=f"gpu{n}", address=f"10.0.0.{n}", slots=slots, cores=4, gpus=gpus) for n in range(1, hosts + 1)
    )
    given = {"frameworks": ("tensorflow", "mxnet"), "pythons": frozenset({"gpu1", "gpu2"}), **more}
    return BenchFacts(nodes=nodes, **given)


def plan_text(facts: BenchFacts, options: BenchOptions) -> str:
    planned = plan(facts, options)
    left = turns(planned.cases)
    shown = BenchPlan(preset=options.preset, cases=planned.cases, launches=len(left), seconds=seconds_left(left),
                      skipped=planned.skipped)  # fmt: skip
    cases = "".join(f"{case.id}: {case.title}; {case.series} at {case.x}\n" for case in planned.cases)
    return f"{benchtext.plan(shown)}\n\n{cases}"


@pytest.mark.parametrize("preset", [LADDER, *PRESETS])
def test_the_plan_on_cpus(preset: str) -> None:
    check_golden(f"bench/cpu-{preset}.txt", plan_text(facts(), BenchOptions(preset=preset)))


@pytest.mark.parametrize("preset", [LADDER, "egs", "kvstore", "compression"])
def test_the_plan_on_gpus(preset: str) -> None:
    check_golden(f"bench/gpu-{preset}.txt", plan_text(facts(gpus=8), BenchOptions(preset=preset)))


@pytest.mark.parametrize(
    ("node", "gpus"), [({"slots": 8}, 8), ({"slots": 1}, 8), ({"slots": 16}, 8), ({"slots": 8, "mig": True}, 1)]
)
def test_one_process_gets_all_gpus_of_a_host_and_as_many_images_for_each(node: dict[str, Any], gpus: int) -> None:
    whole = Node(name="gpu1", address="10.0.0.1", **{"cores": 64, "gpus": 8, **node})
    cases = plan(replace(facts(gpus=8), nodes=(whole,)), BenchOptions(preset="kvstore", batch_size=32)).cases
    for case in cases:
        one = case.x in ("local", "device", "nccl")
        assert case.gpus_per_rank == (gpus if one else 0)
        assert case.command[case.command.index("--batch-size") + 1] == str(32 * gpus if one else 32)
        assert (f"--gpus {','.join(map(str, range(gpus)))} " in " ".join(case.command)) is one


@pytest.mark.parametrize("preset", [LADDER, "egs"])
def test_the_plan_of_an_image_with_pytorch(preset: str) -> None:
    check_golden(f"bench/torch-{preset}.txt", plan_text(facts(frameworks=("pytorch",)), BenchOptions(preset=preset)))


def test_pytorch_on_gpus_trains_what_the_tables_have() -> None:
    (*_, last) = plan(facts(gpus=8, frameworks=("pytorch",)), BenchOptions(preset="egs")).cases
    assert last.command[:5] == ("torch_benchmark", "--model", "resnet50", "--batch-size", "64")


def test_an_image_without_horovod_measures_what_it_can() -> None:
    torch = facts(frameworks=("pytorch",))
    assert "Horovod" in plan(torch, BenchOptions()).skipped["hello"]
    tuned = plan(torch, BenchOptions(preset="tuning"))
    assert {case.command[0] for case in tuned.cases} == {"mpi_perf"}
    assert "Horovod" in tuned.skipped["paced"]
    assert plan(torch, BenchOptions(preset="egs", model="any_of_torchvision")).cases
    for preset in ("egs", "compression"):
        with pytest.raises(InputError, match="measures Horovod, which the cluster's image does not have"):
            plan(torch, BenchOptions(preset=preset, paced="resnet50"))
    with pytest.raises(InputError, match="has no tensorflow") as refused:
        plan(torch, BenchOptions(preset="compression"))
    assert "--paced" not in (refused.value.hint or "")


def test_an_image_without_mxnet_paces_no_ranks() -> None:
    """paced_benchmark exchanges arrays of MXNet: the default image on GPUs, cuda-tensorflow, has none."""
    tensorflow = facts(gpus=8, frameworks=("tensorflow",))
    tuned = plan(tensorflow, BenchOptions(preset="tuning"))
    assert {case.command[:2] for case in tuned.cases} == {("mpi_perf", "allreduce")}
    assert len(tuned.cases) == 7
    assert tuned.skipped == {"paced": "it needs MXNet, which this image does not have"}
    for preset in (LADDER, "egs", "compression", "tuning"):
        with pytest.raises(InputError, match="--paced vgg16 needs MXNet, which the cluster's image does not have"):
            plan(tensorflow, BenchOptions(preset=preset, paced="vgg16"))
    with pytest.raises(InputError, match="--step-ms is for paced_benchmark: it needs MXNet"):
        plan(tensorflow, BenchOptions(preset="tuning", step_ms=50))
    assert plan(facts(frameworks=()), BenchOptions(preset="egs", paced="vgg16")).cases
    with pytest.raises(InputError, match="has no tensorflow") as refused:
        plan(facts(frameworks=("mxnet",)), BenchOptions(preset="compression"))
    assert "or add --paced MODEL" in (refused.value.hint or "")


def test_gpus_without_horovod_exchange_through_mpi() -> None:
    """mpi_perf --through nccl is Horovod's NCCL: an image such as cuda-pytorch has none."""
    torch = facts(gpus=8, frameworks=("pytorch",))
    for preset, rung in ((LADDER, "collectives"), ("networks", "networks/allreduce/mpi")):
        planned = plan(torch, BenchOptions(preset=preset))
        (case,) = [case for case in planned.cases if case.id == rung]
        assert "allreduce" in case.command
        assert [case.id for case in planned.cases if "nccl" in case.command] == []
        assert planned.skipped["nccl"] == "kit measures it through Horovod, which this image does not have"
    assert "latency" in next(case for case in plan(torch, BenchOptions()).cases if case.id == "collectives").command


@pytest.mark.parametrize(
    ("flavour", "gpus"),
    [("cpu", 0), ("pytorch", 0), ("cuda-tensorflow", 8), ("cuda-mxnet", 8), ("cuda-pytorch", 8), ("ssh-layer", 8)],
)
def test_an_image_for_cpus_uses_no_gpu(flavour: str, gpus: int) -> None:
    assert usable_gpus(flavour, 8) == gpus


def test_paced_plans_are_marked_as_simulated() -> None:
    options = BenchOptions(preset="compression", paced="resnet50", step_ms=290, batch_size=64)
    check_golden("bench/paced-compression.txt", plan_text(facts(), options))
    for preset in (LADDER, "egs", "compression", "tuning"):
        for case in plan(facts(), BenchOptions(preset=preset, paced="vgg16")).cases:
            assert case.simulated == (case.command[0] == "paced_benchmark")
            assert ("SIMULATED" in case.series) == case.simulated


def test_real_images_are_beside_synthetic_ones() -> None:
    """In turn, so that a machine that becomes slower affects both alike."""
    shown = plan_text(facts(data=("imagenet",)), BenchOptions(preset="egs", data="imagenet"))
    check_golden("bench/data-egs.txt", shown)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"data": "imgnet"}, "--data imgnet: kit.yaml has no data set of that name", "choose one of: imagenet"),
        ({"data": "imagenet", "preset": "tuning"}, "--data does not apply to --preset tuning", "it is for the ladder"),
        ({"data": "imagenet", "paced": "resnet50"}, "--paced reads no images", "remove --data"),
    ],
)
def test_real_images_that_cannot_be_read_are_refused(options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        plan(facts(data=("imagenet",)), BenchOptions(**options))
    assert hint in (refused.value.hint or "")


def test_a_cluster_without_data_sets_gets_told_how_to_add_one() -> None:
    with pytest.raises(InputError) as refused:
        plan(facts(), BenchOptions(data="imagenet"))
    assert refused.value.hint == "add it to data: in kit.yaml, and run kit deploy"


@pytest.mark.parametrize(
    ("hosts", "slots", "counts"),
    [(1, 1, (1,)), (1, 2, (1, 2)), (4, 2, (1, 2, 4, 8)), (3, 2, (1, 2, 4, 6)), (5, 4, (1, 2, 4, 8, 16, 20))],
)
def test_numbers_of_ranks(hosts: int, slots: int, counts: tuple[int, ...]) -> None:
    assert rank_counts(facts(hosts, slots)) == counts


def test_numbers_of_ranks_as_options() -> None:
    assert rank_counts(facts(), (8, 2, 2)) == (2, 8)
    with pytest.raises(InputError, match="--ranks 9 is more than the 8 slots"):
        rank_counts(facts(), (9,))


def test_no_id_is_given_twice() -> None:
    for preset in (LADDER, *PRESETS):
        for bench_facts in (facts(), facts(1, 1), facts(gpus=8, members=frozenset({"gpu1", "gpu2"}))):
            if preset in ("networks", "tuning") and bench_facts.slots == 1:
                continue
            ids = [case.id for case in plan(bench_facts, BenchOptions(preset=preset)).cases]
            assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"preset": "eggs"}, "unknown value 'eggs'", "did you mean egs? choose one of: ladder, egs, networks, kvstore"),
        ({"preset": "egs", "model": "resnet50"}, "unknown value 'resnet50'", "choose one of: alexnet, densenet121"),
        (
            {"preset": "egs", "workload": "tf", "model": "resnet18_v1"},
            "unknown value 'resnet18v1'",
            "choose one of: convnextbase",
        ),
        ({"preset": "egs", "workload": "pytorch"}, "unknown value 'pytorch'", "choose one of: mxnet, tf, torch"),
        ({"preset": "egs", "workload": "torch"}, "the cluster's image has no pytorch", "write --workload mxnet"),
        (
            {"preset": "networks", "networks": ("hots",)},
            "unknown value 'hots'",
            "did you mean host? choose one of: bare, host",
        ),
        (
            {"preset": "kvstore", "stores": ("dist",)},
            "unknown value 'dist'",
            "choose one of: local, device, nccl, dist_sync",
        ),
        (
            {"preset": "kvstore", "model": "resnet18_v1"},
            "unknown value 'resnet18_v1'",
            "choose one of: alexnet, densenet-121",
        ),
        (
            {"preset": "egs", "paced": "resnet51"},
            "unknown value 'resnet51'",
            "did you mean resnet50? choose one of: alexnet, bertbase",
        ),
        (
            {"preset": "egs", "networks": ("host",)},
            "--networks does not apply to --preset egs",
            "for --preset networks",
        ),
        ({"preset": "egs", "step_ms": 20.0}, "--step-ms", "--paced"),
        (
            {"preset": "networks", "num_iters": 50},
            "--num-iters does not apply to --preset networks",
            "it is for the ladder or --preset egs or --preset kvstore or --preset compression or --preset tuning",
        ),
        ({"preset": "tuning", "image_size": 224}, "--image-size does not apply to --preset tuning", "--preset egs"),
        (
            {"paced": "resnet50", "num_batches": 9},
            "--num-batches-per-iter does not apply to --paced",
            "remove --num-batches-per-iter, or --paced",
        ),
        ({"preset": "egs", "paced": "resnet50", "model": "resnet18_v1"}, "--paced already names the model", "remove"),
    ],
)
def test_names_that_are_wrong(options: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(facts(), BenchOptions(**options))
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def planned_or_refused(facts: BenchFacts, options: BenchOptions) -> tuple[Planned | None, str]:
    """Return the plan, or None and why kit refuses it."""
    try:
        return plan(facts, options), ""
    except InputError as error:
        return None, error.message


SIZES = {"batch_size": 3, "image_size": 33, "num_warmup": 3, "num_iters": 7, "num_batches": 3}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("paced", [None, "resnet50"])
@pytest.mark.parametrize("frameworks", [("tensorflow", "mxnet"), ("tensorflow",)])
@pytest.mark.parametrize("preset", [LADDER, *PRESETS])
def test_a_size_changes_the_plan_or_is_refused(
    preset: str, frameworks: tuple[str, ...], paced: str | None, size: str
) -> None:
    """A preset that ignored a size would measure something else than its user thinks."""
    own = facts(frameworks=frameworks)
    without = BenchOptions(preset=preset, paced=paced)
    plain, _ = planned_or_refused(own, without)
    if plain is None:
        # Neither this preset nor paced ranks are for this image.
        return
    sized, why = planned_or_refused(own, replace(without, **{size: SIZES[size]}))
    flag = "--num-batches-per-iter" if size == "num_batches" else f"--{size.replace('_', '-')}"
    assert why.startswith(f"{flag} ") if sized is None else sized.cases != plain.cases
    ignored = (
        preset == "networks"
        or (size in ("image_size", "num_batches") if paced or preset == "tuning" else False)
        or (preset == "tuning" and "mxnet" not in frameworks)
    )
    assert (sized is None) == ignored


@pytest.mark.parametrize(("preset", "warmups"), [("egs", 1), ("networks", 0)])
def test_a_session_of_as_many_repeats_as_the_option_allows_can_be_read(preset: str, warmups: int) -> None:
    cases = plan(facts(), BenchOptions(preset=preset, repeats=1000)).cases
    assert (cases[-1].repeats, cases[-1].warmup) == (1000, warmups)
    session = Session(id="a", preset=preset, cluster="lab", started="", cases=cases)
    assert [case.id for case in session_of(session_text(session), META).cases] == [case.id for case in cases]
    with pytest.raises(InputError, match="--repeats 1001 is too many") as caught:
        check(BenchOptions(preset=preset, repeats=1001))
    assert caught.value.hint == "write a number from 1 to 1000"


def test_a_framework_that_the_image_lacks() -> None:
    only = facts(frameworks=("tensorflow",))
    assert plan(only, BenchOptions(preset="egs")).cases[0].command[0] == "tf_benchmark"
    with pytest.raises(InputError, match="no mxnet"):
        plan(only, BenchOptions(preset="egs", workload="mxnet"))


def test_the_models_of_a_strange_image_are_its_own() -> None:
    assert plan(facts(frameworks=()), BenchOptions(preset="egs", model="my_net")).cases[0].command[2] == "my_net"


def test_what_cannot_be_tried_is_left_out_with_its_reason() -> None:
    one = plan(facts(1, 1), BenchOptions())
    assert [case.id for case in one.cases][:2] == ["reach", "hello"]
    assert set(one.skipped) == {"ring", "collectives"}
    nets = plan(facts(pythons=frozenset()), BenchOptions(preset="networks"))
    assert [case.network for case in nets.cases if case.command == ("tcp_probe",)] == ["host", "bridge"]
    assert "no python3 on gpu1 and gpu2" in nets.skipped["bare"]
    both = plan(facts(members=frozenset({"gpu1", "gpu2"})), BenchOptions(preset="networks"))
    probes = [case.network for case in both.cases if case.command == ("tcp_probe",)]
    assert probes == ["bare", "host", "bridge", "overlay"]
    with pytest.raises(InputError, match="nothing of it can be measured here"):
        plan(facts(1, 2), BenchOptions(preset="networks"))


@pytest.mark.parametrize(
    ("gpus", "plugin", "names", "skipped"),
    [
        (0, False, ["mpi-plain", "mpi"], "nccl"),
        (0, True, ["mpi-plain", "mpi"], "nccl"),
        (8, False, ["mpi-plain", "mpi", "nccl-socket", "nccl-built-in"], "nccl-plugin"),
        (8, True, ["mpi-plain", "mpi", "nccl-socket", "nccl-built-in", "nccl-plugin"], None),
    ],
)
def test_plain_and_tuned_stacks_are_rows_of_one_session(
    gpus: int, plugin: bool, names: list[str], skipped: str | None
) -> None:
    planned = plan(facts(gpus=gpus, plugin=plugin), BenchOptions(preset="networks"))
    rows = {case.x: case for case in planned.cases if case.command[0] == "mpi_perf"}
    assert list(rows) == names
    assert [name for name in planned.skipped if name.startswith("nccl")] == ([skipped] if skipped else [])
    tuned = ClusterSpec(
        mpi=MpiSpec(args=("--mca", "btl_tcp_links", "2")), nccl=NcclSpec(plugin="/opt/x", require="PLUGIN")
    )
    plain = with_settings(tuned, rows["mpi-plain"].settings)
    assert plain.mpi == MpiSpec(allreduce="openmpi")
    assert with_settings(tuned, rows["mpi"].settings) == tuned
    for name in names[2:4]:
        assert with_settings(tuned, rows[name].settings).nccl == NcclSpec()
    only = plan(facts(gpus=gpus), BenchOptions(preset="networks", networks=("host",)))
    assert [case.command for case in only.cases] == [("tcp_probe",)]


RULES = ("--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_dynamic_rules_filename", "/ring.conf")


def test_no_ring_of_kit_tune_is_under_the_algorithms() -> None:
    """Open MPI reads a file of rules first, so each case would measure the same ring."""
    own = ("--mca", "btl_tcp_links", "2", "-x", "TOKEN=secret")
    tuned = ClusterSpec(mpi=MpiSpec(args=(*own, *RULES), allreduce="openmpi", bind_to="core"))
    cases = plan(facts(mpi=tuned.mpi), BenchOptions(preset="tuning")).cases
    assert {spec_of(tuned, case).mpi for case in cases} == {MpiSpec(args=own, bind_to="core")}
    # A session keeps its cases on the disk.
    assert "secret" not in str(cases)
    untuned = ClusterSpec(mpi=MpiSpec(args=own))
    cases = plan(facts(mpi=untuned.mpi), BenchOptions(preset="tuning")).cases
    assert all(spec_of(untuned, case) == untuned for case in cases)
    assert {(case.own_algorithm, len(case.settings)) for case in cases} == {(False, 0)}


def test_ranks_of_cpus_have_their_share_of_cores_on_every_count() -> None:
    commands = {case.command for case in plan(facts(), BenchOptions(preset="egs")).cases}
    assert len(commands) == 1
    (command,) = commands
    assert command[command.index("--intra-op") + 1] == "2"


def test_the_names_are_those_of_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing beside the sources: they go into images.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = importlib.util.spec_from_file_location("networks", IMAGES / "bin" / "_mxnet_networks.py")
    assert spec is not None
    assert spec.loader is not None
    networks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(networks)
    assert sorted(networks.names()) == sorted(MXNET_TRAIN)
    # Each is one of the zoo's or the program's own.
    assert set(networks.ZOO.values()) <= set(GLUON)
    assert sorted(json.loads((IMAGES / "lib" / "models.json").read_text())) == sorted(PACED)


def test_a_plan_of_the_same_facts_is_the_same() -> None:
    assert plan(facts(), BenchOptions()) == plan(replace(facts()), BenchOptions())
