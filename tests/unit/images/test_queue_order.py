"""Who starts when: the order of the line, and a simulation against the rule that nobody delays the first in line."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import launcher

order: Any = launcher.load("kitqueue.order")
ANY, FAILED, OK = order.ANY, order.FAILED, order.OK
decide, fit, Holder, Need, Reservation, Waiting = (
    order.decide, order.fit, order.Holder, order.Need, order.Reservation, order.Waiting,
)  # fmt: skip
Reason = order.Reason

HOSTS = {"gpu1": frozenset(range(4)), "gpu2": frozenset(range(4)), "gpu3": frozenset(range(2))}
NAMES = tuple(HOSTS)


def waiting(name: str, *counts: int, **fields: object) -> Any:
    place = fields.pop("place", ord(name[0]))
    return Waiting(name, place, Need(counts, NAMES), **fields)


def holder(name: str, ends: float | None = None, **slots: tuple[int, ...]) -> Any:
    return Holder(name, {host: frozenset(numbers) for host, numbers in slots.items()}, ends)


def decision(
    *line: Any,
    living: tuple[Any, ...] = (),
    ended: Mapping[str, bool] | None = None,
    reserved: Any = None,
) -> Any:
    return decide(100.0, HOSTS, living, line, ended=ended or {}, reserved=reserved)


def started(made: Any) -> list[str]:
    return [start.id for start in made.starts]


# The shape.


def test_a_shape_takes_whole_hosts_where_it_can_and_leaves_others_free() -> None:
    assert fit(Need((2,), NAMES), HOSTS) == (("gpu3", (0, 1)),)
    assert fit(Need((4, 4), NAMES), HOSTS) == (("gpu1", (0, 1, 2, 3)), ("gpu2", (0, 1, 2, 3)))
    assert fit(Need((2, 4, 2), NAMES), HOSTS) == (("gpu1", (0, 1, 2, 3)), ("gpu2", (0, 1)), ("gpu3", (0, 1)))


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    free=st.dictionaries(st.sampled_from(NAMES), st.sets(st.integers(0, 3)), max_size=4),
    hosts=st.permutations(NAMES),
)
def test_the_host_that_just_suffices_is_the_first_one_of_the_smallest(
    counts: list[int], free: dict[str, set[int]], hosts: list[str]
) -> None:
    left, taken = [host for host in hosts if host in free], {}
    for count in sorted(counts, reverse=True):
        smallest = min((len(free[host]) for host in left if len(free[host]) >= count), default=None)
        if smallest is None:
            break
        host = next(host for host in left if len(free[host]) == smallest)
        left.remove(host)
        taken[host] = tuple(sorted(free[host])[:count])
    expected = tuple((host, taken[host]) for host in hosts if host in taken) if len(taken) == len(counts) else None
    slots = {host: frozenset(numbers) for host, numbers in free.items()}
    assert fit(Need(tuple(counts), tuple(hosts)), slots) == expected


def test_the_first_free_slots_are_taken() -> None:
    assert fit(Need((2,), ("gpu1",)), {"gpu1": frozenset((16, 8, 1, 3))}) == (("gpu1", (1, 3)),)


def test_a_shape_that_needs_more_hosts_or_larger_ones_does_not_fit() -> None:
    assert fit(Need((4, 4, 4), NAMES), HOSTS) is None
    assert fit(Need((1, 1, 1, 1), NAMES), HOSTS) is None
    assert fit(Need((1,), ("gpu9",)), HOSTS) is None


def test_slots_of_living_runs_are_not_given_again() -> None:
    made = decision(waiting("a", 2), living=(holder("x", gpu3=(0,), gpu1=(0, 2)),))
    assert made.starts[0].chosen == (("gpu1", (1, 3)),)


# Turns.


def test_first_in_first_out_within_a_priority() -> None:
    made = decision(waiting("c", 1), waiting("a", 1), waiting("b", 1, priority=5))
    assert started(made) == ["b", "a", "c"]


def test_a_small_run_does_not_take_what_the_first_in_line_waits_for() -> None:
    made = decision(waiting("a", 4, 4), waiting("b", 4), living=(holder("x", gpu2=(0,)),))
    assert started(made) == []
    assert made.reasons == {"a": Reason("slots", ("x",)), "b": Reason("turn", ("a",))}


def test_a_small_run_goes_ahead_on_slots_that_the_first_does_not_need() -> None:
    made = decision(waiting("a", 4, 4), waiting("b", 2), living=(holder("x", gpu2=(0,)),))
    assert [(start.id, start.chosen) for start in made.starts] == [("b", (("gpu3", (0, 1)),))]


@pytest.mark.parametrize(("limit", "goes"), [(50.0, True), (51.0, False), (None, False)])
def test_a_small_run_goes_ahead_if_its_limit_ends_in_time(limit: float | None, goes: bool) -> None:
    made = decision(waiting("a", 4, 4), waiting("b", 4, limit=limit), living=(holder("x", 150.0, gpu2=(0,)),))
    assert started(made) == (["b"] if goes else [])
    assert made.reasons["a"] == Reason("slots", ("x",), 150.0)


def test_a_small_run_that_ends_in_time_leaves_reserved_slots_free_if_it_can() -> None:
    """The holder may end early, and then the first in line starts at once."""
    living = (holder("x", 150.0, gpu2=(0, 1)),)
    made = decision(waiting("a", 4, 4, limit=9.0), waiting("b", 2, limit=1.0), living=living)
    assert [(start.id, start.chosen) for start in made.starts] == [("b", (("gpu3", (0, 1)),))]


@pytest.mark.parametrize("more", [(), (holder("y", 150.0, gpu1=(0,)),), (holder("y", gpu1=(0,)),)])
def test_nobody_goes_ahead_on_the_word_of_a_run_without_a_limit(more: tuple[Any, ...]) -> None:
    living = (holder("x", gpu2=(0,)), *more)
    made = decision(waiting("a", 4, 4), waiting("b", 3, limit=1.0), living=living)
    assert started(made) == []
    assert made.reasons["a"] == Reason("slots", tuple(one.id for one in living))


@pytest.mark.parametrize(
    ("slots", "limit", "late"),
    [
        ({"gpu1": (0,)}, None, True),
        ({"gpu1": (0,)}, 51.0, True),
        ({"gpu1": (0,)}, 50.0, False),
        ({"gpu1": (2,), "gpu2": (0,)}, None, False),
    ],
)
def test_a_run_past_the_line_delays_the_first_only_on_its_slots(
    slots: dict[str, tuple[int, ...]], limit: float | None, *, late: bool
) -> None:
    first = Reservation("a", {"gpu1": frozenset((0, 1))}, 150.0, ("x",))
    taken = holder("b", None, **slots).slots
    assert order.delays(taken, limit, first, 100.0) is late
    assert order.delays(taken, limit, first._replace(at=None), 100.0) is ("gpu2" not in slots)


def test_a_reservation_takes_the_holders_that_end_first_and_those_without_a_limit_last() -> None:
    living = (holder("x", gpu1=(0,)), holder("y", 300.0, gpu2=(0,)))
    made = decision(waiting("a", 4), living=living)
    assert made.reservation == Reservation("a", {"gpu2": frozenset(range(4))}, 300.0, ("y",))


@pytest.mark.parametrize("count", range(1, 8))
def test_a_reservation_waits_for_no_more_holders_than_it_must(count: int) -> None:
    ends = [300.0, 700.0, 200.0, 600.0, 400.0, 800.0, 500.0]
    living = [holder(f"x{number}", end, gpu1=(number,)) for number, end in enumerate(ends)]
    hosts = {"gpu1": frozenset(range(len(ends)))}
    first = order.reserve(Waiting("a", 1, Need((count,), ("gpu1",))), hosts, living)
    assert (first.at, len(first.slots["gpu1"])) == (sorted(ends)[count - 1], count)


@pytest.mark.parametrize(("limit", "at"), [(50.0, 150.0), (None, None)])
def test_a_reservation_counts_on_the_runs_that_start_now(limit: float | None, at: float | None) -> None:
    made = decision(waiting("a", 4, limit=limit), waiting("b", 4, 4), waiting("c", 2, limit=51.0))
    assert started(made) == ["a", "c"]
    assert made.reasons["b"] == Reason("slots", ("a",), at)


def test_a_reservation_stays_when_a_better_one_appears() -> None:
    reserved = Reservation("a", {"gpu1": frozenset(range(4))}, None, ("x",))
    living = (holder("x", gpu1=(0,)), holder("y", 300.0, gpu2=(0,)))
    made = decision(waiting("a", 4), living=living, reserved=reserved)
    assert made.reservation == reserved


@pytest.mark.parametrize(
    "reserved",
    [
        Reservation("b", {"gpu1": frozenset(range(4))}, None, ("x",)),
        Reservation("a", {"gpu9": frozenset(range(4))}, None, ("x",)),
        Reservation("a", {"gpu1": frozenset(range(4)), "gpu9": frozenset(range(4))}, None, ("x",)),
        Reservation("a", {"gpu1": frozenset(range(8))}, None, ("x",)),
    ],
    ids=["of another run", "on a host that is out", "also on a host that is out", "on slots that are gone"],
)
def test_a_reservation_is_made_anew(reserved: Any) -> None:
    living = (holder("x", gpu1=(0,)), holder("y", 300.0, gpu2=(0,)))
    made = decision(waiting("a", 4), living=living, reserved=reserved)
    assert made.reservation is not None
    assert set(made.reservation.slots) == {"gpu2"}


# What else keeps a run waiting.


def test_a_held_run_lets_the_others_pass() -> None:
    made = decision(waiting("a", 4, held=True), waiting("b", 4, 4))
    assert (started(made), made.reasons) == (["b"], {"a": Reason("held")})


@pytest.mark.parametrize(
    ("how", "well", "reason"),
    [
        (OK, None, Reason("after", ("z",))),
        (OK, True, None),
        (OK, False, Reason("never", ("z",))),
        (FAILED, True, Reason("never", ("z",))),
        (FAILED, False, None),
        (ANY, True, None),
        (ANY, False, None),
    ],
)
def test_a_run_waits_for_others(how: str, well: bool | None, reason: Any) -> None:
    ended = {} if well is None else {"z": well}
    living = (holder("z", gpu3=(0,)),) if well is None else ()
    made = decision(waiting("a", 1, after=((("z",), how),)), living=living, ended=ended)
    assert made.reasons.get("a") == reason
    assert started(made) == ([] if reason else ["a"])


def test_a_run_that_waits_for_one_that_nobody_knows_never_starts() -> None:
    assert decision(waiting("a", 1, after=((("z",), ANY),))).reasons == {"a": Reason("never", ("z",))}


def test_a_run_waits_for_another_that_is_in_line() -> None:
    made = decision(waiting("a", 4, 4, 4, held=True), waiting("b", 1, after=((("a",), ANY),)))
    assert made.reasons["b"] == Reason("after", ("a",))


@pytest.mark.parametrize(
    ("how", "well", "reason"),
    [
        (OK, (True, None, None), Reason("after", ("y", "z"))),
        (OK, (True, True, True), None),
        (OK, (True, None, False), Reason("never", ("z",))),
        # Whether one failed is known early, but the run waits until all of them have ended.
        (FAILED, (False, True, None), Reason("after", ("z",))),
        (FAILED, (False, True, True), None),
        (FAILED, (True, True, True), Reason("never", ("x", "y", "z"))),
        (ANY, (None, False, True), Reason("after", ("x",))),
        (ANY, (True, False, True), None),
    ],
)
def test_a_run_waits_for_all_of_a_group(how: str, well: tuple[bool | None, ...], reason: Any) -> None:
    group = ("x", "y", "z")
    ended = {name: good for name, good in zip(group, well, strict=True) if good is not None}
    living = tuple(holder(name) for name in group if name not in ended)
    made = decision(waiting("a", 1, after=((group, how),)), living=living, ended=ended)
    assert made.reasons.get("a") == reason


def test_a_run_waits_for_several_groups() -> None:
    after = ((("x",), OK), (("y", "z"), ANY))
    living = (holder("y"), holder("z"))
    run = waiting("a", 1, after=after)
    assert decision(run, living=living, ended={"x": True}).reasons["a"] == Reason("after", ("y", "z"))
    assert decision(run, living=living, ended={"x": False}).reasons["a"] == Reason("never", ("x",))
    assert started(decision(run, ended={"x": True, "y": False, "z": True})) == ["a"]


def test_a_run_that_does_not_fit_on_the_hosts_that_are_left_stops_nobody() -> None:
    large = waiting("a", 4, 4, 4)
    made = decision(large, waiting("b", 4))
    assert (started(made), made.reasons) == (["b"], {"a": Reason("gone")})
    # With a host that somebody cordoned, it would fit.
    hosts = {**HOSTS, "gpu4": frozenset(range(4))}
    large = waiting("a", 4, 4, 4)._replace(need=Need((4, 4, 4), tuple(hosts)))
    out = {"gpu4": hosts["gpu4"]}
    made = decide(100.0, HOSTS, (), [large, waiting("b", 4)], ended={}, out=out)
    assert ([start.id for start in made.starts], made.reasons) == (["b"], {"a": Reason("hosts")})


# The simulation.


@dataclass
class Trace:
    """Runs that come in time, each with a length and maybe a limit that is not shorter. And what is made of them.

    Somebody holds runs and cordons hosts for some time: `held` and `out` have the first moment and that after the last.
    `good` says of each run whether it ends well.
    """

    hosts: Mapping[str, frozenset[int]]
    runs: dict[str, Any]
    comes: dict[str, float]
    lengths: dict[str, float]
    starts: dict[str, float] = field(default_factory=dict)
    # For each run that was first in line: its first reservation.
    promised: dict[str, Any] = field(default_factory=dict)
    held: dict[str, tuple[float, float]] = field(default_factory=dict)
    out: dict[str, tuple[float, float]] = field(default_factory=dict)
    good: dict[str, bool] = field(default_factory=dict)
    # Runs whose promise ended: somebody held them, hosts went or came, or a run before them could go on.
    released: set[str] = field(default_factory=set)
    # Why those wait that never start.
    reasons: Mapping[str, Any] = field(default_factory=dict)

    def without(self, now: float) -> frozenset[str]:
        """Return the hosts that are cordoned."""
        return frozenset(host for host, (first, last) in self.out.items() if first <= now < last)


def random_trace(seed: int, *, whole: bool = False) -> Trace:
    """`whole`: each run has a limit and uses all of it."""
    dice = random.Random(seed)  # noqa: S311  (no secret)
    hosts = {f"h{number}": frozenset(range(dice.choice((1, 2, 4)))) for number in range(dice.randint(1, 4))}
    trace = Trace(hosts=hosts, runs={}, comes={}, lengths={})
    comes = sorted(float(dice.randint(0, 12)) for _ in range(dice.randint(2, 9)))
    for number, moment in enumerate(comes):
        name = f"r{number}"
        # Any shape that fits on its hosts if they are empty. Some runs may have any hosts, and some have -H.
        mine = [host for host in hosts if dice.random() < 0.5] if dice.random() < 0.5 else list(hosts)
        mine = mine or list(hosts)
        sizes = sorted((len(hosts[host]) for host in mine), reverse=True)
        counts = tuple(dice.randint(1, size) for size in sizes[: dice.randint(1, len(sizes))])
        limit = float(dice.randint(1, 12)) if whole or dice.random() < 0.7 else None
        trace.comes[name] = moment
        length = float(dice.randint(1, 12))
        trace.lengths[name] = length if limit is None else limit if whole else min(length, limit)
        need = Need(tuple(sorted(counts, reverse=True)), tuple(mine))
        trace.runs[name] = Waiting(name, number, need, dice.choice((0, 0, 0, 1)), limit)
    return trace


def eventful_trace(seed: int) -> Trace:
    """Runs that come as arrays and after others, runs that are held and let go, and hosts that are cordoned."""
    trace = random_trace(seed)
    dice = random.Random(seed)  # noqa: S311  (no secret)

    def span() -> tuple[float, float]:
        first = float(dice.randint(0, 15))
        return first, first + dice.randint(1, 10)

    for host in trace.hosts:
        if dice.random() < 0.3:
            trace.out[host] = span()
    names = list(trace.runs)
    for number, name in enumerate(names):
        run = trace.runs[name]
        if number and dice.random() < 0.2:
            # The next one of an array: it comes with the one before, with the same shape and limit.
            before = trace.runs[names[number - 1]]
            run = run._replace(need=before.need, limit=before.limit, priority=before.priority, after=before.after)
            trace.comes[name] = trace.comes[before.id]
            trace.lengths[name] = trace.lengths[before.id]
        elif number and dice.random() < 0.3:
            group = tuple(dice.sample(names[:number], dice.randint(1, min(3, number))))
            run = run._replace(after=((group, dice.choice((OK, FAILED, ANY))),))
        trace.runs[name] = run
        trace.good[name] = dice.random() < 0.7
        if dice.random() < 0.2:
            trace.held[name] = span()
    return trace


def end(trace: Trace, name: str) -> float:
    return trace.starts[name] + trace.lengths[name]


def simulate(trace: Trace, *, ahead: bool = True, kept: bool = True) -> Trace:
    """Let the queue decide at each moment at which something changes. Without `ahead`, the first in line stops all.

    Without `kept`, each decision forgets the reservation of the one before.
    """
    slots: dict[str, Mapping[str, frozenset[int]]] = {}
    reserved: Any = None
    moments = {moment for span in (*trace.held.values(), *trace.out.values()) for moment in span}
    moments |= set(trace.comes.values())
    now, out = min(moments), trace.without(min(moments))
    while len(trace.starts) < len(trace.runs):
        living = [
            Holder(name, slots[name], None if (limit := trace.runs[name].limit) is None else trace.starts[name] + limit)
            for name in trace.starts
            if end(trace, name) > now
        ]
        line = [run for run in trace.runs.values() if run.id not in trace.starts and trace.comes[run.id] <= now]
        line = [run._replace(held=held_at(trace, run.id, now)) for run in line]
        before, out = out, trace.without(now)
        made = decide(
            now,
            {host: numbers for host, numbers in trace.hosts.items() if host not in out},
            living,
            line,
            ended={name: trace.good.get(name, True) for name in trace.starts if end(trace, name) <= now},
            out={host: trace.hosts[host] for host in out},
            reserved=reserved,
        )
        release(trace, line, made, changed=out != before)
        starts = list(made.starts)
        if not ahead and made.reservation is not None:
            order = sorted(line, key=lambda run: (-run.priority, run.place))
            first = [run.id for run in order].index(made.reservation.id)
            starts = [start for start in starts if start.id in {run.id for run in order[:first]}]
        for start in starts:
            trace.starts[start.id] = now
            slots[start.id] = {host: frozenset(numbers) for host, numbers in start.chosen}
        held = [
            (host, slot)
            for name in trace.starts
            if end(trace, name) > now
            for host in slots[name]
            for slot in slots[name][host]
        ]
        assert len(held) == len(set(held)), "two runs have one slot"
        if made.reservation is not None:
            trace.promised.setdefault(made.reservation.id, made.reservation)
        reserved = made.reservation if kept else None
        assert all(not out & slots[start.id].keys() for start in starts), "a run starts on a cordoned host"
        trace.reasons = made.reasons
        later = [moment for moment in moments if moment > now]
        later += [end(trace, name) for name in trace.starts if end(trace, name) > now]
        if not later:
            break
        now = min(later)
    return trace


def held_at(trace: Trace, name: str, now: float) -> bool:
    first, last = trace.held.get(name, (0.0, 0.0))
    return first <= now < last


def release(trace: Trace, line: Sequence[Any], made: Any, *, changed: bool) -> None:
    """Note the runs that were promised something and are not first in line any more, for a good reason."""
    kept_back = {name for name, reason in made.reasons.items() if reason.kind not in ("slots", "turn")}
    by_turn = [run.id for run in order.by_turn(line)]
    for name in trace.promised.keys() - trace.starts.keys():
        before = by_turn[: by_turn.index(name)]
        if changed or name in kept_back or any(other not in kept_back for other in before):
            trace.released.add(name)


def latest_end(trace: Trace, name: str) -> float:
    """Return when a run ends by its limit; one without a limit, when it has ended."""
    limit = trace.runs[name].limit
    return end(trace, name) if limit is None else trace.starts[name] + limit


def came_before(trace: Trace, name: str) -> bool:
    """Return whether a run with more priority came while this one was first in line, so that it lost its turn."""
    mine = trace.runs[name].priority
    return any(
        run.priority > mine and trace.comes[name] <= trace.comes[run.id] <= trace.starts[name]
        for run in trace.runs.values()
    )


def test_a_reservation_is_kept_because_another_one_would_break_its_promise() -> None:
    """The first in line waits for `x`, whose end nobody knows. Then `z` ends, and others are known to be free later.

    If it reserved these instead, `c` would take the slots of `x`. Random traces hardly find this.
    """
    # When it comes, its slots, on which hosts, its limit, how long it takes.
    runs: dict[str, tuple[float, int, tuple[str, ...], float | None, float]] = {
        "x": (0.0, 1, ("h1",), None, 5.0),
        "z": (0.0, 1, ("h2",), None, 3.0),
        "a": (1.0, 2, ("h1", "h2"), None, 10.0),
        "b": (2.0, 1, ("h2",), 100.0, 100.0),
        "c": (4.0, 1, ("h1",), None, 200.0),
    }

    def simulated(*, kept: bool) -> Trace:
        trace = Trace(
            hosts={"h1": frozenset((0, 1)), "h2": frozenset((0, 1))},
            runs={name: Waiting(name, ord(name), Need((run[1],), run[2]), 0, run[3]) for name, run in runs.items()},
            comes={name: run[0] for name, run in runs.items()},
            lengths={name: run[4] for name, run in runs.items()},
        )
        return simulate(trace, kept=kept)

    trace = simulated(kept=True)
    assert trace.promised["a"].holders == ("x",)
    assert trace.starts["a"] == end(trace, "x") == 5.0
    assert simulated(kept=False).starts["a"] == 102.0


def test_a_long_line_of_runs_that_are_alike_looks_at_the_hosts_only_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The head decides once a second. With 1,000 runs and 256 hosts, that took a quarter of a core."""
    looks = []
    fit = order.fit
    monkeypatch.setattr(order, "fit", lambda need, free: looks.append(need) or fit(need, free))
    hosts = {f"gpu{n}": frozenset(range(8)) for n in range(256)}
    holders = [order.Holder(f"r{n}", {f"gpu{n}": frozenset(range(8))}, 100.0 + n) for n in range(255)]
    # Each has its own copy of the names, as they come from files.
    line = [
        order.Waiting(f"a{n}", n, order.Need((8,), tuple(json.loads(json.dumps(list(hosts))))), limit=float(n % 500))
        for n in range(1000)
    ]
    made = order.decide(0.0, hosts, holders, line, ended={})
    assert [start.id for start in made.starts] == ["a0"]
    assert made.reservation is not None
    assert made.reservation.id == "a1"
    assert {reason.kind for name, reason in made.reasons.items() if name != "a1"} == {"turn"}
    assert len(looks) < 20


def test_ten_thousand_traces_none_of_which_delays_the_first_in_line() -> None:
    promises = 0
    for seed in range(10_000):
        trace = simulate(random_trace(seed))
        for name, promise in trace.promised.items():
            if came_before(trace, name):
                continue
            promises += 1
            last = max(latest_end(trace, other) for other in promise.holders)
            assert trace.starts[name] <= last, f"seed {seed}: {name} waited longer than {promise}"
            assert promise.at in (None, last)
    assert promises > 3000


def test_ten_thousand_traces_with_arrays_holds_and_cordons() -> None:
    promises = waited = 0
    for seed in range(10_000):
        trace = simulate(eventful_trace(seed))
        for name, promise in trace.promised.items():
            if name in trace.released:
                continue
            promises += 1
            last = max(latest_end(trace, other) for other in promise.holders)
            assert trace.starts[name] <= last, f"seed {seed}: {name} waited longer than {promise}"
        left = trace.runs.keys() - trace.starts.keys()
        waited += len(left)
        assert {trace.reasons[name].kind for name in left} <= {"never", "after"}, f"seed {seed}: {trace.reasons}"
        for name, start in trace.starts.items():
            assert not held_at(trace, name, start), f"seed {seed}: {name} was held"
            for group, how in trace.runs[name].after:
                well = [trace.good[other] for other in group]
                assert all(end(trace, other) <= start for other in group), f"seed {seed}: {name} came too early"
                assert how == ANY or all(well) is (how == OK), f"seed {seed}: {name} was not to start"
    assert promises > 2000
    assert waited > 1000


def test_runs_that_use_their_whole_limit_start_no_later_than_without_anybody_going_ahead() -> None:
    gained = 0
    for seed in range(2000):
        trace, strict = simulate(random_trace(seed, whole=True)), simulate(random_trace(seed, whole=True), ahead=False)
        # The runs behind it may meet other runs than in the other world.
        first = next(iter(strict.promised), None)
        gained += sum(trace.starts.values()) < sum(strict.starts.values())
        if first is not None and not came_before(strict, first):
            assert trace.starts[first] <= strict.starts[first], f"seed {seed}"
    assert gained > 100
