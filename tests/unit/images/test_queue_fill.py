"""What the head fills in for a waiting run is what kit itself would have planned for the same hosts and slots."""

from __future__ import annotations

import json
import os
import time
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.config.validate import spec_from
from kit.model.launch import LaunchPlan, Node, Placement
from kit.model.run import Place
from kit.model.values import asdict
from kit.plan.run import cores
from kit.plan.run.mpi import launch_plan
from kit.plan.run.records import start_request
from tests.fakes import launcher

fill: Any = launcher.load("kitqueue.fill")
gate: Any = launcher.load("kitqueue.gate")
guard: Any = launcher.load("kitrun.guard")
keeper: Any = launcher.load("kitqueue.keeper")
leases: Any = launcher.load("kitrun.leases")
line: Any = launcher.load("kitqueue.line")
nodes: Any = launcher.load("kitrun.nodes")

NODES = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 8), st.booleans()), min_size=1, max_size=4)


# Networks before a deploy and after it: (network, data_networks).
BEFORE, AFTER = ("10.0.0.0/24", ()), ("10.9.0.0/24", ("10.9.1.0/24", "10.9.2.0/24"))
# Arguments of the user's, which a deploy does not change.
ARGS = ["--mca", "btl_tcp_if_include", "eth5", "--mca", "oob_tcp_if_include", "eth6"]


def planned(
    places: list[Place],
    nodes: dict[str, Node],
    *,
    exclusive: bool,
    count: int | None,
    networks: tuple[str, tuple[str, ...]],
) -> LaunchPlan:
    placement = Placement(
        nodes=tuple(nodes[place.node] for place in places), counts=tuple(place.ranks for place in places)
    )
    settings = spec_from({"mpi": {"args": ARGS}})
    return launch_plan(
        run_id="20261123-101500-0001",
        spec=settings,
        placement=placement,
        network=networks[0],
        data=networks[1],
        command=("python", "train.py", "-x", cores.SLOTS_VARIABLE),
        env={"MINE": "yes"},
        places=places,
        devices=cores.variables(settings, placement, places, exclusive=exclusive, count=count),
    )


def placed(nodes: dict[str, Node], order: list[str], counts: list[int], first: int) -> list[Place]:
    """Return a place for each count, on slots from `first` on as far as a node has them."""
    places = []
    for name, ranks in zip(order, counts, strict=True):
        node = nodes[name]
        start = min(first, node.slots - ranks)
        slots = tuple(range(start, start + ranks))
        places.append(Place(node=name, address=node.address, ranks=ranks, slots=slots, of=node.slots))
    return places


def told_apart(request: dict[str, Any]) -> tuple[dict[str, Any], set[tuple[str, str]], list[str]]:
    """Return the request without mpirun's words, the variables that mpirun passes on, and its other words in order."""
    argv = request["argv"]
    end = argv.index("python3")
    passed = {pair for pair in pairwise(argv[:end]) if pair[0] == "-x"}
    words = {name for _, name in passed}
    others = [word for word in argv[:end] if word != "-x" and word not in words]
    return {name: value for name, value in request.items() if name != "argv"}, passed, [*others, *argv[end:]]


@given(NODES, st.data(), st.booleans(), st.sampled_from([None, 2]), st.permutations([BEFORE, AFTER]))
def test_it_is_what_kit_would_have_planned(
    made: list[tuple[int, int, bool]],
    data: st.DataObject,
    exclusive: bool,
    count: int | None,
    networks: list[tuple[str, tuple[str, ...]]],
) -> None:
    nodes = {
        f"gpu{number}": Node(
            name=f"gpu{number}", address=f"10.0.0.{number}", slots=slots, gpus=gpus, mig=mig and gpus > 0
        )
        for number, (slots, gpus, mig) in enumerate(made)
    }
    names = list(nodes)
    hosts = data.draw(st.integers(1, len(names)))
    # The line gives a shape to any hosts that are large enough for it.
    before, after = (data.draw(st.permutations(names))[:hosts] for _ in range(2))
    least = [min(nodes[one].slots, nodes[other].slots) for one, other in zip(before, after, strict=True)]
    counts = [data.draw(st.integers(1, most)) for most in least]
    facts = {name: {**asdict(node), "cores": 0} for name, node in nodes.items()}

    def request(order: list[str], first: int, networks: tuple[str, tuple[str, ...]]) -> dict[str, Any]:
        places = placed(nodes, order, counts, first)
        plan = planned(places, nodes, exclusive=exclusive, count=count, networks=networks)
        return start_request(plan, cluster="lab", image="i", head="gpu0", by="me", wait=True, exclusive=exclusive)

    first = data.draw(st.integers(0, 3))
    wanted = request(after, first, networks[1])
    entry = {"request": request(before, 0, networks[0]), "nodes": facts, "exclusive": exclusive, "cpus": count}
    deployed = {"network": networks[1][0], "data_networks": [*networks[1][1]]}
    chosen = [(place["node"], place["slots"]) for place in wanted["places"]]
    filled, passed, words = told_apart(fill.filled(entry, chosen, fill.networks_now(entry, deployed, 1.0)))
    expected, expected_passed, expected_words = told_apart(wanted)
    as_lists = [{**place, "slots": list(place["slots"])} for place in expected["places"]]
    assert filled == {**expected, "places": as_lists}
    assert passed == expected_passed
    assert words == expected_words


def test_slots_of_another_division_of_a_host_hold_all_of_it() -> None:
    hosts = {"gpu1": frozenset(range(4)), "gpu2": frozenset(range(2))}
    view = keeper.View(entries={}, nodes={}, hosts=hosts, out={}, why_out={}, waiting=[], broken={})
    places = [{"node": name, "slots": [0], "of": 2} for name in hosts]
    holder = keeper.holder_of({"id": "r1", "started": 0.0, "places": places}, view)
    assert holder.slots == {"gpu1": frozenset(range(4)), "gpu2": frozenset([0])}


def test_ranks_that_have_several_slots_are_fewer_than_these() -> None:
    nodes = {"gpu1": {"address": "10.0.0.1", "slots": 8}, "gpu2": {"address": "10.0.0.2", "slots": 4}}
    places = fill.places_of([("gpu1", (0, 1, 2, 5, 6, 7)), ("gpu2", (2, 3))], nodes, 2)
    assert [(place["ranks"], place["slots"]) for place in places] == [(3, [0, 1, 2, 5, 6, 7]), (1, [2, 3])]


def test_gpus_of_slots_are_in_order_and_those_of_the_host() -> None:
    assert fill.gpus_of({"gpus": 16, "slots": 16}, (1, 8)) == [1, 8]
    # The host has fewer slots since.
    assert fill.gpus_of({"gpus": 4, "slots": 4}, (3, 4, 5)) == [3]


@pytest.mark.parametrize(
    "damage",
    [
        {"id": "r2"},
        {"place": None},
        {"place": "1"},
        {"request": None},
        {"request": ["mpirun"]},
    ],
)
def test_a_damaged_entry_is_not_in_line_and_hides_no_other(tmp_path: Path, damage: dict[str, Any]) -> None:
    (tmp_path / ".queue").mkdir()
    line.add([{"id": name, "request": {}} for name in ("r1", "r3")], str(tmp_path))
    file = tmp_path / ".queue" / "r1.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
    for cache in (None, dict[str, Any]()):
        assert [entry["id"] for entry in line.entries(str(tmp_path), cache)] == ["r3"]
    assert line.read("r1", str(tmp_path)) is None


def test_the_keeper_sees_each_change_of_an_entry(tmp_path: Path) -> None:
    (tmp_path / ".queue").mkdir()
    line.add([{"id": name, "request": {}} for name in ("r1", "r2")], str(tmp_path))
    cache: dict[str, Any] = {}
    assert [entry.get("held") for entry in line.entries(str(tmp_path), cache)] == [None, None]
    line.write({**line.read("r1", str(tmp_path)), "held": True}, str(tmp_path))
    assert [entry.get("held") for entry in line.entries(str(tmp_path), cache)] == [True, None]
    line.remove("r1", str(tmp_path))
    assert [entry["id"] for entry in line.entries(str(tmp_path), cache)] == ["r2"]
    assert list(cache) == ["r2"]


def test_runs_join_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".queue").mkdir()
    write = line.write

    def full(entry: dict[str, Any], root: str) -> None:
        if entry["id"] == "r3":
            raise OSError(28, "No space left on device")
        write(entry, root)

    monkeypatch.setattr(line, "write", full)
    line.add([{"id": "r1", "request": {}}], str(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        line.add([{"id": name, "request": {}} for name in ("r2", "r3", "r4")], str(tmp_path))
    assert [entry["id"] for entry in line.entries(str(tmp_path))] == ["r1"]


def test_a_run_from_another_head_keeps_the_time_since_which_it_waits(tmp_path: Path) -> None:
    (tmp_path / ".queue").mkdir()
    before = time.time()
    line.add([{"id": "r1", "request": {}, "queued": 100.0}, {"id": "r2", "request": {}}], str(tmp_path))
    old, new = line.entries(str(tmp_path))
    assert old["queued"] == 100.0
    assert before <= new["queued"] <= time.time()


@pytest.mark.parametrize(
    ("place", "holds"),
    [
        ({"slots": [1], "of": 4}, True),
        ({"slots": [2, 3], "of": 4}, False),
        ({"slots": [3], "of": 8}, True),
        # An older launcher did not note how many slots the host had.
        ({"slots": [3]}, False),
        ({"slots": [0]}, True),
        # The ranks of an elastic run have left the host.
        ({"slots": [], "of": 8}, False),
    ],
)
def test_who_holds_slots_that_a_run_needs(
    monkeypatch: pytest.MonkeyPatch, place: dict[str, Any], *, holds: bool
) -> None:
    record = {"id": "r1", "places": [{"node": "gpu1", **place}, {"node": "gpu2", "slots": [0, 1], "of": 2}]}
    monkeypatch.setattr(leases, "held", lambda _: [record])
    wanted = [{"node": "gpu1", "slots": [0, 1], "of": 4}]
    assert leases.holders(wanted) == ([record] if holds else [])


def test_the_line_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "MOST", 3)
    (tmp_path / ".queue").mkdir()

    def join(*names: str) -> int:
        before: int = line.add([{"id": name, "request": {}} for name in names], str(tmp_path))
        return before

    assert join("r9") == 0
    with pytest.raises(line.Full, match="there are 1 runs in line, and the most is 3"):
        join("r1", "r2", "r3")
    assert join("r1", "r2") == 1
    with pytest.raises(line.Full):
        join("r3")
    assert [(entry["id"], entry["place"]) for entry in line.entries(str(tmp_path))] == [("r9", 1), ("r1", 2), ("r2", 3)]
    # Who joins later comes last, also if the first has left.
    line.remove("r9", str(tmp_path))
    assert join("r3") == 2
    assert [(entry["id"], entry["place"]) for entry in line.entries(str(tmp_path))] == [("r1", 2), ("r2", 3), ("r3", 4)]


@pytest.mark.parametrize("step", [0.0, 0.3, 7200.0, -7200.0])
def test_the_end_of_a_run_moves_with_a_clock_that_is_set(step: float) -> None:
    """The supervisor ends it 3,600 s after its start, whatever the clock says then."""
    record = {"started": 1_000_000.0, "monotonic": 500.0, "limit": 3600.0}
    now = 1_000_000.0 + 600 + step
    assert keeper.end_of(record, now, 1100.0) == 1_003_600.0 + round(step)
    # A short run goes ahead only if the slots are needed later, by this same clock.
    ends = keeper.end_of(record, now, 1100.0)
    first = keeper.order.Reservation("first", {"gpu1": frozenset([0])}, ends, ("holder",))
    assert [keeper.order.in_time(limit, first, now) for limit in (2999.0, 3001.0)] == [True, False]


def test_the_end_of_a_run_without_a_limit_or_of_an_older_image() -> None:
    assert keeper.end_of({"started": 100.0, "monotonic": 5.0}, 200.0, 105.0) is None
    assert keeper.end_of({"started": 100.0, "limit": 60}, 9999.0, 105.0) == 160.0


def test_a_record_has_both_clocks() -> None:
    before = time.monotonic()
    record = keeper.begin.record_of("r1", {"info": {}, "places": [], "helpers": [], "policy": {"timeout": 60}})
    assert before <= record["monotonic"] <= time.monotonic()
    assert record["started"] > 1e9


@pytest.fixture(autouse=True)
def _no_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide how old the container is in which the tests run."""
    monkeypatch.setattr(leases, "FIRST", str(tmp_path / "no/stat"))


@pytest.mark.parametrize(("up_s", "starts"), [(30.0, []), (61.0, ["r1"])])
def test_slots_of_a_lost_run_are_free_when_its_ranks_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up_s: float, starts: list[str]
) -> None:
    """The head's VM lost its power, and started again before the other nodes noticed. `up_s`: since it started."""
    places = [{"node": "gpu1", "slots": [0, 1], "of": 2}]
    for number, ending in enumerate(({"exit_code": 0}, None)):
        run = keeper.store.Run(f"lost{number}", str(tmp_path))
        os.close(run.create({"id": run.id, "started": 1.0, "places": places}))
        if ending:
            run.finish(ending)
    view = view_of(tmp_path, {"slots": 2, "gpus": 0}, waiting(2), waiting(2))
    assert leases.RANKS_S > nodes.LOST_S
    assert leases.CONTAINER_RANKS_S > guard.ENDED_S + 5
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: up_s, time=time.time))
    mine = keeper.Keeper(str(tmp_path), str(tmp_path / "cluster.json"))
    made = mine._decided(view, leases.held(str(tmp_path)))
    assert [start.id for start in made.starts] == starts
    # Nobody holds slots of a run that has ended.
    assert starts or made.reasons["r1"].ids == ("lost1",)


@pytest.mark.parametrize(("up_s", "holders"), [(30.0, ["lost"]), (61.0, [])])
def test_a_run_that_does_not_wait_in_line_gets_no_slots_of_a_lost_run_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up_s: float, holders: list[str]
) -> None:
    lost = {"id": "lost", "started": 1.0, "by": "ann", "places": [{"node": "gpu1", "slots": [0, 1], "of": 4}]}
    os.close(keeper.store.Run("lost", str(tmp_path)).create(lost))
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: up_s, time=time.time))
    # kit gets them, and plans on others.
    assert [record["id"] for record in leases.held(str(tmp_path)) if record["by"] == "ann"] == holders
    for slots, held in (([1], holders), ([2, 3], [])):
        launch = {"places": [{"node": "gpu1", "slots": slots, "of": 4}], "helpers": [], "policy": {}}
        against = gate.against(launch, str(tmp_path), now=True)
        assert [record["id"] for record in against.held if against] == held if held else against is None


@pytest.mark.parametrize("left", [b"", bytes(80), b'{"id": "lost", "pla'])
def test_a_lost_run_whose_record_nobody_can_read_may_have_ranks_on_any_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes
) -> None:
    """The power was cut before the disk had the record. `left`: what the file system kept of it."""
    run = keeper.store.Run("lost", str(tmp_path))
    os.close(run.create({"id": "lost", "places": []}))
    Path(run.path("record.json")).write_bytes(left)
    assert run.cut
    view = view_of(tmp_path, {"slots": 2, "gpus": 0}, waiting(2, 1))
    launch = {"places": [{"node": "gpu1", "slots": [1], "of": 2}], "helpers": [], "policy": {}}
    for up_s, starts in ((30.0, []), (61.0, ["r1"])):
        monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda up_s=up_s: up_s, time=time.time))
        made = keeper.Keeper(str(tmp_path), "")._decided(view, leases.held(str(tmp_path)))
        assert [start.id for start in made.starts] == starts
        assert bool(gate.against(launch, str(tmp_path), now=True)) == (not starts)
        # To drop hosts of an elastic run needs no slot.
        assert gate.against({**launch, "places": []}, str(tmp_path), now=True) is None


@pytest.mark.parametrize(
    ("boots", "holders"),
    [
        # The last run of the boot that was lost, and those before it; `` is an older launcher, and `4` is now.
        (["3", "3"], [0, 1]),
        (["1", "2", "3", "3"], [2, 3]),
        (["1", "2", "3", "4"], [2, 3]),
        (["", "", "3", "4"], [0, 1, 2, 3]),
        (["", "2", "3", "4"], [2, 3]),
        # A record that nobody can read may be of the boot of the next one.
        ([None, "3", "4"], [0, 1, 2]),
        ([None, "2", "3"], [2]),
        ([["2"], "3"], [0, 1]),
        # The supervisor was killed in this boot.
        (["4", "4"], [0, 1]),
    ],
)
def test_a_run_that_was_lost_in_an_earlier_boot_holds_no_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boots: list[Any], holders: list[int]
) -> None:
    """Its record stays for days. Each start of the VM kept its slots from others for a minute."""
    for number, boot in enumerate(boots):
        run = keeper.store.Run(f"r{number}", str(tmp_path))
        os.close(run.create({"id": run.id, "places": [], "boot": boot}))
        file = Path(run.path("record.json"))
        if boot is None:
            file.write_bytes(b"")
        os.utime(file, (number, number))
    this = tmp_path / "boot_id"
    this.write_text("4\n")
    monkeypatch.setattr(leases, "BOOT", str(this))
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: 30.0, time=time.time))
    assert [record["id"] for record in leases.held(str(tmp_path))] == [f"r{number}" for number in holders]


def test_a_record_says_in_which_boot_the_run_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "FIRST", "/proc/1/stat")
    assert 0 < leases.head_up_s() <= time.monotonic()
    record = keeper.begin.record_of("r1", {"info": {}, "places": [], "helpers": [], "policy": {}})
    boot, began = record["boot"].split("/")
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert int(began) == leases.container_began()


# What the kernel writes of a container's first process that started 5000 s after the VM.
FIRST = f"1 (docker) S (init) S 0 1 1 0 -1 {' '.join(['7'] * 13)} {5000 * os.sysconf('SC_CLK_TCK')} 9 9\n"


@pytest.mark.parametrize(
    ("vm_up_s", "first", "held"),
    [
        (5020.0, FIRST, True), (5031.0, FIRST, False),
        (20.0, None, True),
        (5030.0, None, False), (5030.0, "", False), (5030.0, "1 (init) S 0", False),
    ],
    ids=["container", "container for long", "VM", "VM for long", "empty", "cut"],
)  # fmt: skip
def test_slots_of_a_lost_run_are_held_when_only_the_heads_container_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vm_up_s: float, first: str | None, held: bool
) -> None:
    places = [{"node": "gpu1", "slots": [0, 1], "of": 2}]
    os.close(keeper.store.Run("r1", str(tmp_path / "runs")).create({"id": "r1", "places": places}))
    file = tmp_path / "stat"
    monkeypatch.setattr(leases, "FIRST", str(file))
    if first is not None:
        file.write_text(first)
    clocks = SimpleNamespace(monotonic=lambda: vm_up_s, clock_gettime=lambda _: vm_up_s, time=lambda: 1e9)
    monkeypatch.setattr(leases, "time", clocks)
    assert [(run["id"], run["started"]) for run in leases.held(str(tmp_path / "runs"))] == [("r1", 1e9 - 20)] * held


def test_a_run_lost_with_an_earlier_container_holds_no_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each deploy that recreates the head's container kept its slots from others for half a minute."""
    for number, boot in enumerate(("4/100", "4/100", "4/200", "4/300")):
        run = keeper.store.Run(f"r{number}", str(tmp_path))
        os.close(run.create({"id": run.id, "places": [], "boot": boot}))
        os.utime(run.path("record.json"), (number, number))
    this = tmp_path / "boot_id"
    this.write_text("4\n")
    monkeypatch.setattr(leases, "BOOT", str(this))
    monkeypatch.setattr(leases, "head_up_s", lambda: 20.0)
    monkeypatch.setattr(leases, "container_began", lambda: 300)
    assert leases.boot() == "4/300"
    assert [record["id"] for record in leases.held(str(tmp_path))] == ["r2", "r3"]


def test_no_run_goes_ahead_by_the_limit_of_a_lost_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The VM had been up for days when that run started, and its limit would have ended it as long after this start."""
    times = {"started": 1.0, "monotonic": 9e5, "limit": 3600.0}
    places = [{"node": "gpu1", "slots": [0, 1], "of": 4}]
    os.close(keeper.store.Run("lost", str(tmp_path)).create({"id": "lost", "places": places, **times}))
    view = view_of(tmp_path, {"slots": 4, "gpus": 0}, waiting(4, 4), waiting(4, 2, limit=7200.0))
    for module in (keeper, leases):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 30.0, time=lambda: 1e9))
    mine = keeper.Keeper(str(tmp_path), str(tmp_path / "cluster.json"))
    made = mine._decided(view, leases.held(str(tmp_path)))
    assert made.starts == ()
    # The first in line starts when the ranks have ended.
    assert made.reasons["r1"] == keeper.order.Reason("slots", ("lost",), 1e9 + 30.0)


def view_of(
    folder: Path, deployed: dict[str, Any], *entries: dict[str, Any], record: Any = MappingProxyType({})
) -> Any:
    """Return what a keeper sees of entries that joined at 100, 200, … after (or before) a deploy at 150."""
    file = folder / "cluster.json"
    file.write_text(json.dumps({"nodes": [{"name": "gpu1", **deployed}], **record}))
    os.utime(file, (150, 150))
    new = [
        {"id": f"r{number}", "queued": 100.0 * number, "request": {"env": {}}, **entry}
        for number, entry in enumerate(entries, 1)
    ]
    (folder / ".queue").mkdir()
    line.add(new, str(folder))
    return keeper.Keeper(str(folder), str(file))._view()


def waiting(slots: int, count: int = 2, **more: Any) -> dict[str, Any]:
    node = {"address": "10.0.0.1", "slots": slots, "gpus": 8, "cores": 4}
    return {"need": {"counts": [count], "hosts": ["gpu1"]}, "nodes": {"gpu1": node}, **more}


@pytest.mark.parametrize(("before", "after"), [(8, 4), (4, 8)])
def test_all_runs_count_the_slots_of_the_newest(tmp_path: Path, before: int, after: int) -> None:
    deployed = {"address": "10.9.9.9", "slots": before, "gpus": 8}
    view = view_of(tmp_path, deployed, waiting(before), waiting(after))
    assert view.hosts == {"gpu1": frozenset(range(after))}
    old, new = (
        fill.filled({**entry, "nodes": view.nodes, "request": {"env": {}, "argv": []}}, [("gpu1", slots)])
        for entry, slots in zip(view.entries.values(), ([0, 1], [after - 2, after - 1]), strict=True)
    )
    # Slots that differ are GPUs that differ, and the address is the one of the deploy.
    assert [old["places"][0][name] for name in ("address", "of")] == ["10.9.9.9", after]
    share = 8 // after
    assert old["env"][fill.HELD] == f"gpu1={','.join(map(str, range(2 * share)))}"
    assert new["env"][fill.HELD] == f"gpu1={','.join(map(str, range(8 - 2 * share, 8)))}"


def test_a_deploy_after_a_run_joined_says_its_slots(tmp_path: Path) -> None:
    view = view_of(tmp_path, {"slots": 4, "gpus": 4}, waiting(8))
    assert view.hosts == {"gpu1": frozenset(range(4))}
    assert (view.nodes["gpu1"]["gpus"], view.nodes["gpu1"]["cores"]) == (4, 4)


def test_only_a_deploy_after_a_run_joined_says_its_networks() -> None:
    entry = {"queued": 100.0}
    assert fill.networks_now(entry, {"network": "10.0.0.0/24"}, 150.0) == dict.fromkeys(
        (fill.DATA, fill.DAEMONS), "10.0.0.0/24"
    )
    assert fill.networks_now(entry, {"network": "10.0.0.0/24"}, 50.0) == {}
    assert fill.networks_now(entry, {}, 150.0) == {}


def test_a_run_that_waited_over_a_deploy_starts_with_its_networks_and_records_its_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(name="gpu1", address="10.0.0.1", slots=2)
    places = [Place(node="gpu1", address="10.0.0.1", ranks=2, slots=(0, 1), of=2)]
    plan = planned(places, {"gpu1": node}, exclusive=False, count=None, networks=BEFORE)
    request = start_request(plan, cluster="lab", image="kit:old", head="gpu1", by="me", wait=True)
    entry = {**waiting(2), "id": plan.run_id, "request": request}
    deployed = {"address": "10.9.0.1", "slots": 2}
    new = {"image": "kit:new", "network": AFTER[0], "data_networks": AFTER[1]}
    view = view_of(tmp_path, deployed, entry, record=new)
    begun: list[tuple[dict[str, Any], list[str]]] = []
    monkeypatch.setattr(keeper.begin, "begin", lambda _, record, launch: begun.append((record, launch["argv"])))
    run = keeper.store.Run(plan.run_id, str(tmp_path))
    keeper.Keeper(str(tmp_path))._begin(run, {**entry, "queued": 100.0, "nodes": view.nodes}, [("gpu1", [0, 1])], view)
    ((record, argv),) = begun
    assert (record["image"], record["places"][0]["address"]) == ("kit:new", "10.9.0.1")
    assert [argv[at + 1] for at, word in enumerate(argv) if word == fill.DAEMONS] == [AFTER[0], "eth6"]


def test_ranks_with_gpus_for_themselves_need_a_slot_for_each_gpu_also_later(tmp_path: Path) -> None:
    share: dict[str, Any] = {"request": {"env": {fill.SHARE: "2"}}}
    view = view_of(tmp_path, {"slots": 8, "gpus": 8}, waiting(8, **share), waiting(4), waiting(8, **share))
    needs = {run.id: run.need.hosts for run in view.waiting}
    assert needs == {"r1": ("gpu1",), "r2": ("gpu1",), "r3": ("gpu1",)}
    tmp_path.joinpath("later").mkdir()
    view = view_of(tmp_path / "later", {"slots": 8, "gpus": 8}, waiting(8, **share), waiting(4))
    assert {run.id: run.need.hosts for run in view.waiting} == {"r1": (), "r2": ("gpu1",)}
