"""What kit puts in line is what the head takes, and what the head answers is what kit reads."""

from __future__ import annotations

from typing import Any

import pytest

from kit.errors import InputError, NotReadyError
from kit.model.answer import OddAnswer
from kit.model.host import Host
from kit.model.launch import Node, RunPolicy
from kit.model.queue import After, Cordon, Line, Reason, Turn
from kit.model.run import Member
from kit.model.spec import ClusterSpec
from kit.plan.queue import answers, cordons
from kit.plan.queue.entry import array_variables, check_nodes, entry
from kit.plan.run.leases import place_free
from kit.plan.run.mpi import launch_plan
from kit.plan.run.records import start_request
from tests.fakes import launcher

keeper: Any = launcher.load("kitqueue.keeper")
desk: Any = launcher.load("kitqueue.desk")

ID = "20261121-101500-3fa2"
NODES = tuple(Node(name=f"gpu{n}", address=f"10.0.0.{n}", slots=4, gpus=4) for n in (1, 2, 3))


def made(np: int = 6, share: int = 0, **turn: Any) -> dict[str, Any]:
    placement, places = place_free(NODES, (), np=np, share=share)
    plan = launch_plan(
        run_id=ID,
        spec=ClusterSpec(),
        placement=placement,
        network="10.0.0.0/24",
        command=("python", "train.py"),
        env={"A": "b"},
        places=places,
        policy=RunPolicy(operator=None, timeout=60.0),
    )
    options = {"data": ["images"]}
    start = start_request(plan, cluster="lab", image="i", head="gpu1", by="me@here", wait=False, options=options)
    return entry(plan, start, Turn(**turn), NODES, share=share, exclusive=False, cpus=None)


@pytest.mark.parametrize(("np", "share", "counts"), [(6, 0, [4, 2]), (12, 0, [4, 4, 4]), (3, 2, [4, 2])])
def test_the_head_takes_it(np: int, share: int, counts: list[int]) -> None:
    waiting = made(np, share)
    assert waiting["need"] == {"counts": counts, "hosts": ["gpu1", "gpu2", "gpu3"]}
    keeper.check(waiting, "/nowhere")


def test_what_the_head_shows_is_what_kit_reads() -> None:
    after = (After(run=ID[:-1] + "0", how="failed"),)
    waiting = {**made(priority=3, after=after), "place": 5, "queued": 9.0}
    state = {"reasons": {ID: {"kind": "slots", "ids": ["x"], "at": 70.0}}}
    answer = {"line": [desk.shown(waiting)], "state": state, "living": [], "cordons": {}}
    line, odd = answers.line("lab", answer)
    (run,) = line.runs
    assert odd == ()
    assert (run.id, run.np, run.counts, run.hosts) == (ID, 6, (4, 2), ("gpu1", "gpu2", "gpu3"))
    assert (run.priority, run.after, run.limit, run.by, run.queued) == (3, after, 60.0, "me@here", 9.0)
    assert run.reason == Reason(kind="slots", runs=("x",), at=70.0)
    assert run.data == ("images",)
    assert "request" not in desk.shown(waiting)


def test_the_time_of_the_head_and_heads_that_do_not_send_it() -> None:
    answer: dict[str, Any] = {"line": [], "state": {}, "living": [], "cordons": {}}
    assert answers.line("lab", answer)[0].now is None
    assert answers.line("lab", answer | {"now": 9.5})[0].now == 9.5
    with pytest.raises(OddAnswer):
        answers.line("lab", answer | {"now": 1e30})


def shown(**more: Any) -> dict[str, Any]:
    return {**desk.shown({**made(), "place": 1, "queued": 9.0}), **more}


@pytest.mark.parametrize(
    "odd",
    [
        {"id": "x"}, {"id": f"{ID}\n"}, {"np": 2**40}, {"np": "6"}, {"queued": -1.0}, {"queued": 1e30}, {"limit": -1.0},
        {"after": [[ID, "never"]]}, {"need": {"counts": [2**40], "hosts": []}}, {"need": []}, {"place": None},
        {"array": {"of": "x", "index": 1, "size": 2}}, {"array": {"of": ID, "index": 2**40, "size": 2}},
    ],
)  # fmt: skip
def test_an_odd_entry_hides_no_other(odd: dict[str, Any]) -> None:
    runs, problems = answers.in_turn([(shown(**odd), None), (shown(), None)])
    assert ([run.id for run in runs], len(problems)) == ([ID], 1)
    with pytest.raises(OddAnswer):
        answers.waiting(shown(**odd), None)


@pytest.mark.parametrize(
    "reason",
    [
        {"kind": "quota"}, {"kind": "hosts", "out": {"gpu1": "draining"}}, {"kind": "slots", "at": -1.0},
        {"kind": "slots", "more": 2**40}, 3,
    ],
)  # fmt: skip
def test_a_reason_that_kit_cannot_read_hides_no_run(reason: object) -> None:
    """The head may be newer than this kit."""
    runs, odd = answers.in_turn([(shown(), reason), (shown(held=True), reason)])
    assert [run.reason for run in runs] == [Reason(kind="unknown"), Reason(kind="held")]
    assert odd == ()
    assert answers.waiting(shown(), reason) in runs


def test_turns_and_holds() -> None:
    ids = [f"20261121-101500-000{n}" for n in range(4)]
    entries = [
        shown(id=ids[0], place=2),
        shown(id=ids[1], place=1),
        shown(id=ids[2], place=3, priority=1),
        shown(id=ids[3], place=4, held=True),
    ]
    # What the keeper saw before a release is out of date.
    runs, _ = answers.in_turn((one, {"kind": "held"}) for one in entries)
    assert [(run.id, run.reason.kind) for run in runs] == [
        (ids[2], "new"), (ids[1], "new"), (ids[0], "new"), (ids[3], "held")
    ]  # fmt: skip


def test_gpus_and_slots() -> None:
    check_nodes(NODES, 2)
    uneven = (*NODES, Node(name="gpu9", address="10.0.0.9", slots=2, gpus=4))
    check_nodes(uneven, 0)
    with pytest.raises(InputError, match="gpu9 has 2 slots and 4 GPUs") as caught:
        check_nodes(uneven, 1)
    assert "slots=4" in str(caught.value.hint)


def test_the_variables_of_an_array() -> None:
    assert dict(array_variables(Member(of=ID, index=4, size=9))) == {
        "KIT_ARRAY_INDEX": "4", "KIT_ARRAY_SIZE": "9", "KIT_ARRAY_ID": ID
    }  # fmt: skip


HOSTS = tuple(Host(name=name, address=name) for name in ("gpu1", "gpu2"))
OUT = Cordon(host="gpu2", why="its fan is loud", by="ann@pc")


def test_cordoned_hosts_are_left_out_and_refused_by_name() -> None:
    assert cordons.usable(HOSTS, (OUT, Cordon(host="gone", why="w")), named=False) == ([HOSTS[0]], (OUT,))
    for hosts, named in ((HOSTS, True), (HOSTS[1:], False)):
        with pytest.raises(NotReadyError, match="gpu2 is cordoned: its fan is loud, by ann@pc") as caught:
            cordons.usable(hosts, (OUT,), named=named)
        assert "kit hosts uncordon gpu2" in str(caught.value.hint)


def test_cordons_are_read() -> None:
    assert answers.cordons({"gpu2": {"why": "w", "by": "b", "at": 3.0}}) == (
        Cordon(host="gpu2", why="w", by="b", at=3.0),
    )
    odds: tuple[object, ...] = ({"gpu2": {"why": 3}}, {"gpu2": {"at": -1.0}}, {"gpu2": []}, [])
    for odd in odds:
        with pytest.raises(OddAnswer):
            answers.cordons(odd)


def test_an_empty_line() -> None:
    answer: dict[str, Any] = {"line": [], "state": {}, "living": [], "cordons": {}}
    assert answers.line("lab", answer) == (Line(cluster="lab"), ())
