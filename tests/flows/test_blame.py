"""kit blame from its words to what it prints: a stored run, and readings of simulated hosts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from kit.cli.text import blame as text
from kit.errors import InputError, NotReadyError, StepError
from kit.events import HostFailed, Note, Warned
from kit.flows import blame as flow
from kit.flows.blame import blame
from kit.model import watch
from kit.model.blame import HostInterval, Watched
from kit.model.run import Place, RunRecord
from kit.model.values import replace
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering
from tests.unit.plan.blame.world import SETUP, Fault, Setup, World, watched

RUN = "20261121-101500-3fa2"


def seen(fault: Fault | None, *, setup: Setup = SETUP, looks: int = 10) -> Watched:
    chance = random.Random(1)  # noqa: S311  (the same run again, no secret)
    return watched(World(chance, setup, fault, looks + 4), looks=looks)


def readings(seen: Watched) -> dict[str, list[watch.SuspectReading]]:
    """Return what the hosts would print, so that kit sees the same again."""
    return {host: list(_readings(row)) for host, row in seen.hosts.items()}


def _readings(row: Sequence[HostInterval]) -> Iterable[watch.SuspectReading]:
    at, throttled = 0.0, dict.fromkeys((rank.rank for rank in row[0].ranks), 0.0)
    for one in row:
        at += one.seconds
        for rank in one.ranks:
            throttled[rank.rank] += rank.throttled * one.seconds
        ranks = [
            watch.RankReading(
                run=RUN, rank=rank.rank, pid=rank.pid, allowed=rank.cores, throttled_s=throttled[rank.rank]
            )
            for rank in one.ranks
        ]
        suspects = [
            watch.Suspect(
                rank=rank.rank,
                looked=one.seconds,
                readiness=rank.readiness,
                **{name: getattr(rank, name) for name in ("cpu", "delay", "disk", "asleep", "workers")},
            )
            for rank in one.ranks
        ]
        yield watch.SuspectReading(
            at=at,
            heard=at,
            seconds=one.seconds or None,
            cores=one.cores,
            cpu=100 * (one.busy + one.steal),
            steal=100 * one.steal,
            iowait=100 * one.iowait,
            ranks=tuple(ranks),
            others=tuple(watch.Other(pid=o.pid, comm=o.name, cpu=100 * o.cpu, core=o.core) for o in one.others),
            suspects=watch.Suspects(ranks=tuple(suspects), peers=one.peers),
        )


class Watching:
    """In the place of kit.remote.watch: readings that are there already."""

    def __init__(
        self,
        history: Mapping[str, Sequence[watch.SuspectReading]],
        failed: Mapping[str, StepError],
        later: Mapping[str, Sequence[watch.SuspectReading]],
    ) -> None:
        self._history, self._failed = history, failed
        # What is there after the first look.
        self._later = later
        self.waits: list[float] = []
        self.wanted: dict[str, Any] = {}
        # By host: the seconds since its last reading, and why there is no newer one.
        self.ages: dict[str, float] = {}
        self.errors: dict[str, StepError] = {}

    def __call__(self, hosts: Sequence[Any], _connect: object, **wanted: Any) -> Watching:
        self.wanted = {"hosts": [host.name for host in hosts], **wanted}
        return self

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def of(self, history: Mapping[str, Sequence[watch.SuspectReading]]) -> None:
        """Have these readings in place of those that a simulation showed."""
        self._history = history

    def wait(self, done: Callable[[Sequence[watch.Seen]], bool], within_s: float) -> bool:
        self.waits.append(within_s)
        if len(self.waits) > 2 and self._later:
            self._history = self._later
        return done(self.now())

    def now(self) -> tuple[watch.Seen, ...]:
        there = [
            watch.Seen(host=host, number=len(rows), reading=rows[-1], age=self.ages.get(host, 0.0))
            for host, rows in self._history.items()
        ]
        there = [replace(one, error=self.errors.get(one.host)) for one in there]
        return (*there, *(watch.Seen(host=host, error=error) for host, error in self._failed.items()))

    def history(self) -> Mapping[str, Sequence[watch.Reading]]:
        return self._history


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watching]:
    def begin(
        history: Watched,
        *,
        state: str = "running",
        failed: Mapping[str, StepError] | None = None,
        np: int = 3,
        later: Watched | None = None,
    ) -> Watching:
        places = tuple(Place(node=f"gpu{n}", address=f"10.0.0.{n}", ranks=np // 3, slots=()) for n in (1, 2, 3))
        record = RunRecord(
            id=RUN, cluster="lab", image="kit:x", command=("train",), places=places, state=state  # type: ignore[arg-type]
        )  # fmt: skip
        monkeypatch.setattr(flow, "stored_run", lambda *_: (record, {}))
        made = Watching(readings(history), failed or {}, readings(later) if later else {})
        monkeypatch.setattr(flow, "Watchers", made)
        return made

    return begin


BURNED = Fault(kind="busy-core", host=1, rank=1, strength=2)


def test_a_burned_core_is_named_with_its_process_and_what_it_costs(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    made = watching(seen(BURNED))
    result = blame(fleet.context(reporter), None, for_s=10)
    assert made.wanted["hosts"] == ["gpu1", "gpu2", "gpu3"]
    assert made.wanted["run"] == RUN
    assert result.verdict == "blamed"
    shown = text.text(result, width=80)
    assert "rank 1 on gpu2 slows all (busy-core): other processes use its cores" in shown
    assert "python3 (pid 900)" in shown
    assert "by kit predict's model" in shown
    assert "→ end or move that process: kit ssh gpu2" in shown
    assert result.culprit is not None
    assert result.culprit.gain is not None
    # Two burners: the rank computes three times as long, so the step may become up to three times as fast.
    assert 2.0 < result.culprit.gain.speedup < 3.2


def test_nobody_is_blamed_for_a_healthy_run(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    watching(seen(None))
    result = blame(fleet.context(reporter), None, for_s=10)
    assert (result.verdict, result.culprit) == ("nobody", None)
    assert text.text(result).count("Nobody to blame: no rank is late in most of 10 samples") == 1
    assert [row.rank for row in result.ranks] == [0, 1, 2]


def test_it_watches_for_longer_while_the_steps_are_too_few(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    made = watching(seen(None, looks=3))
    result = blame(fleet.context(reporter), None)
    assert result.verdict == "too-few-steps"
    assert "No answer: the ranks ended steps together in 3 of the samples of 3 s, and kit needs 6." in text.text(result)
    # The start, then once for each ten seconds of the minute.
    assert len(made.waits) == 7
    assert made.waits[-1] > made.waits[1]


LITTLE = Fault(kind="cgroup-throttle", host=1, rank=1, strength=0.88)


def two_looks(*, stays: bool) -> tuple[Watched, Watched]:
    """Return ten seconds of a run that a small fault slows, and twenty: it stays, or is over by then."""
    world = World(random.Random(1), SETUP, LITTLE, 12)  # noqa: S311  (the same run again, no secret)
    world.fault = LITTLE if stays else None
    world.play(24)
    both = watched(world, looks=20)
    return replace(both, hosts={host: row[:11] for host, row in both.hosts.items()}), both


def test_who_costs_little_is_named_if_a_second_look_names_the_same_host(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    first, both = two_looks(stays=True)
    made = watching(first, later=both)
    result = blame(fleet.context(reporter), None)
    assert result.culprit is not None
    assert (result.culprit.host, result.culprit.share < 0.15) == ("gpu2", True)
    assert result.seconds == pytest.approx(20, abs=1)
    # The start, ten seconds, and ten more.
    assert len(made.waits) == 3
    assert "gpu2 costs the others little: looking again" in [e.text for e in reporter.events if isinstance(e, Note)]
    # A time that the user gave is not exceeded.
    made = watching(first)
    assert blame(fleet.context(reporter), None, for_s=10).culprit is not None
    assert len(made.waits) == 2


def test_who_costs_little_for_some_seconds_only_is_not_blamed(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    first, both = two_looks(stays=False)
    watching(first, later=both)
    result = blame(fleet.context(reporter), None)
    assert (result.verdict, result.culprit) == ("nobody", None)
    shown = text.text(result)
    assert "Nobody to blame: gpu2 cost the others" in shown
    assert "of their time for 10 s, and not in the 10 s after that." in shown


@pytest.mark.parametrize("ends_in", [1, 2])
def test_who_costs_little_is_not_named_if_the_run_ends_before_the_second_look(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching], ends_in: int
) -> None:
    first, both = two_looks(stays=True)
    last = first if ends_in == 1 else replace(both, hosts={host: row[:13] for host, row in both.hosts.items()})
    ended = replace(last, hosts={host: (*row, replace(row[-1], ranks=())) for host, row in last.hosts.items()})
    watching(*([ended] if ends_in == 1 else [first]), later=ended)
    result = blame(fleet.context(reporter), None)
    assert (result.verdict, result.culprit) == ("too-few-steps", None)
    shown = text.text(result)
    assert "No answer: gpu2 cost the others" in shown
    assert "too few steps after that to confirm it" in shown
    assert "Note: the run ended meanwhile" in shown


def test_a_run_without_horovod_is_compared_by_its_hosts_and_this_is_said(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    def deaf(history: Watched) -> Watched:
        hosts = {
            host: tuple(replace(one, ranks=tuple(replace(r, readiness=None) for r in one.ranks)) for one in row)
            for host, row in history.hosts.items()
        }
        return replace(history, hosts=hosts)

    watching(deaf(seen(BURNED)))
    result = blame(fleet.context(reporter), None, for_s=10)
    assert result.culprit is not None
    assert (result.culprit.host, result.culprit.reason, result.culprit.gain) == ("gpu2", "busy-core", None)
    shown = text.text(result)
    assert "cannot see which one is late, and compared hosts alone" in shown
    assert "3 ranks watched for" in shown
    assert "WAITS MS" not in shown
    watching(deaf(seen(None)))
    result = blame(fleet.context(reporter), None, for_s=10)
    assert (result.verdict, result.culprit) == ("hosts-only", None)
    assert [(row.rank, row.host, row.wait, row.operation) for row in result.ranks] == [
        (rank, f"gpu{rank + 1}", None, None) for rank in range(3)
    ]
    assert all(row.cpu > 0 for row in result.ranks)


def test_ranks_that_do_not_count_are_in_the_table_without_their_waits(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    watching(seen(None))
    result = blame(fleet.context(reporter), None, for_s=10)
    first = result.ranks[0]
    many = (replace(first, wait=None, operation=None), *(replace(first, rank=rank, wait=rank) for rank in range(1, 20)))
    shown = text.text(replace(result, ranks=many))
    assert "20 ranks watched" in shown
    # The ones that wait least, and how many are left out.
    assert [int(line.split()[0]) for line in shown.splitlines() if line[:4].strip().isdigit()] == list(range(1, 17))
    assert "… and 4 ranks that wait longer" in shown
    shown = text.text(replace(result, ranks=tuple(replace(row, wait=None, operation=None) for row in many)))
    assert "… and 4 more ranks" in shown
    assert text.text(replace(result, ranks=many[:1])).startswith(f"Run {RUN}: 1 rank watched")


def test_a_host_that_cannot_be_watched_hides_no_other(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    history = seen(BURNED)
    gone = StepError("its readings ended: killed")
    two = replace(history, hosts={host: row for host, row in history.hosts.items() if host != "gpu3"})
    watching(two, failed={"gpu3": gone})
    result = blame(fleet.context(reporter), None, for_s=10)
    assert result.culprit is not None
    assert result.culprit.host == "gpu2"
    assert result.notes == ("gpu3 was not watched: its readings ended: killed",)
    assert [event.host for event in reporter.events if isinstance(event, HostFailed)] == ["gpu3"]
    watching(replace(history, hosts={}), failed={"gpu3": gone})
    with pytest.raises(StepError, match="its readings ended"):
        blame(fleet.context(reporter), None, for_s=10)


def broken(rows: Sequence[watch.SuspectReading], first: int, last: int) -> list[watch.SuspectReading]:
    """Return what kit has of a host whose connection breaks at one reading, and that prints again from another on."""
    again = [replace(one, stream=1) for one in rows[last:]]
    return [*rows[:first], replace(again[0], seconds=0.5), *again[1:]]


@pytest.mark.parametrize("host", ["gpu2", "gpu3"])
def test_a_broken_connection_clears_nobody(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching], host: str
) -> None:
    """The counters of Horovod go on meanwhile, and the other hosts read on."""
    whole = seen(BURNED, looks=24)
    watching(whole)
    healthy = blame(fleet.context(reporter), None, for_s=10)
    made = watching(whole)
    rows = readings(whole)
    # A host's time of day says nothing: it may be set meanwhile.
    rows["gpu1"] = [*rows["gpu1"][:5], *(replace(one, at=one.at + 3600) for one in rows["gpu1"][5:])]
    made.of({**rows, host: broken(rows[host], 6, 11)})
    result = blame(fleet.context(reporter), None, for_s=10)
    assert result.culprit is not None
    assert result.culprit.host == "gpu2"
    assert result.seconds == pytest.approx(13, abs=0.6)
    assert result.step == pytest.approx(healthy.step, rel=0.1)


@pytest.mark.parametrize(
    "stopped",
    [
        (7.0, StepError("its readings ended"), "gpu3 stopped answering 7 s before the end: its readings ended. kit"),
        (8.0, None, "gpu3 stopped answering 8 s before the end. kit judged only the time in which all hosts answered"),
        (2.0, None, ""),
    ],
    ids=["broken", "silent", "just now"],
)
def test_a_host_that_stops_answering_is_named(
    fleet: Fleet,
    reporter: Remembering,
    watching: Callable[..., Watching],
    stopped: tuple[float, StepError | None, str],
) -> None:
    age, error, note = stopped
    whole = seen(BURNED, looks=20)
    made = watching(whole)
    rows = readings(whole)
    made.of({**rows, "gpu3": rows["gpu3"][:12]})
    made.ages["gpu3"] = age
    if error:
        made.errors["gpu3"] = error
    result = blame(fleet.context(reporter), None, for_s=10)
    assert result.culprit is not None
    assert result.culprit.host == "gpu2"
    assert result.seconds == pytest.approx(11, abs=0.5)
    assert bool(result.notes) == bool(note)
    assert note in text.text(result, width=400)


def test_the_end_of_a_run_is_seen_without_a_host_that_stopped_answering(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    whole = seen(BURNED)
    made = watching(whole)
    rows = readings(whole)
    none = watch.Suspects()
    gone = {host: [*row, replace(row[-1], suspects=none, ranks=())] for host, row in rows.items()}
    made.of({**gone, "gpu3": rows["gpu3"][:9]})
    made.errors["gpu3"] = StepError("its readings ended")
    result = blame(fleet.context(reporter), None)
    assert len(made.waits) == 2
    assert [note.split(maxsplit=2)[:2] for note in result.notes] == [["the", "run"], ["gpu3", "stopped"]]


def test_hosts_that_were_never_watched_at_once_are_not_compared(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    whole = seen(BURNED)
    made = watching(whole)
    rows = readings(whole)
    made.of({**rows, "gpu1": rows["gpu1"][:4], "gpu2": rows["gpu2"][6:]})
    result = blame(fleet.context(reporter), None, for_s=10)
    assert (result.verdict, result.culprit) == ("too-few-steps", None)
    assert "a connection broke meanwhile" in result.why


def test_one_rank_of_several_is_no_run_of_one_rank(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    history = seen(BURNED)
    alone = replace(history, hosts={"gpu1": history.hosts["gpu1"]})
    gone = StepError("no SSH connection")
    watching(alone, failed={"gpu2": gone, "gpu3": gone})
    result = blame(fleet.context(reporter), None, for_s=10)
    assert result.verdict == "too-few-steps"
    shown = text.text(result)
    assert "No answer: kit sees one of the run's 3 ranks, and must compare at least two." in shown
    assert "gpu2 was not watched: no SSH connection" in shown


def test_a_run_of_one_rank_waits_for_nobody(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also an elastic run that has lost its other hosts."""
    history = seen(BURNED)
    watching(replace(history, hosts={"gpu1": history.hosts["gpu1"]}))
    record, _ = vars(flow)["stored_run"](fleet.context(reporter), None)
    places = [{"node": place.node, "out": place.node != "gpu1"} for place in record.places]
    monkeypatch.setattr(flow, "stored_run", lambda *_: (record, {"places": places}))
    result = blame(fleet.context(reporter), None, for_s=10)
    assert (result.verdict, result.why) == ("nobody", "the run has one rank, which waits for nobody")


def test_a_run_that_has_ended_is_refused_by_name(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]
) -> None:
    watching(seen(None), state="ended")
    with pytest.raises(NotReadyError, match=RUN):
        blame(fleet.context(reporter), None)


def test_hosts_that_you_do_not_have_are_left_out(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = watching(seen(None))
    record, _ = vars(flow)["stored_run"](fleet.context(reporter), None)
    far = Place(node="gpu9", address="10.0.0.9", ranks=1)
    monkeypatch.setattr(flow, "stored_run", lambda *_: (replace(record, places=(*record.places, far)), {}))
    blame(fleet.context(reporter), None, for_s=10)
    assert made.wanted["hosts"] == ["gpu1", "gpu2", "gpu3"]
    assert any("gpu9" in event.text for event in reporter.events if isinstance(event, Warned))


def test_a_hosts_file_of_another_cluster_is_an_error(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch
) -> None:
    watching(seen(None))
    record, _ = vars(flow)["stored_run"](fleet.context(reporter), None)
    far = (Place(node="gpu8", address="10.0.0.8", ranks=1), Place(node="gpu9", address="10.0.0.9", ranks=1))
    monkeypatch.setattr(flow, "stored_run", lambda *_: (replace(record, places=far), {}))
    with pytest.raises(InputError, match="its ranks are on gpu8, gpu9"):
        blame(fleet.context(reporter), None, for_s=10)


def test_a_host_that_an_elastic_run_has_lost_is_not_watched(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching], monkeypatch: pytest.MonkeyPatch
) -> None:
    """kit would wait for it for a minute."""
    made = watching(seen(None))
    record, _ = vars(flow)["stored_run"](fleet.context(reporter), None)
    places = [{"node": place.node, "out": place.node == "gpu2"} for place in record.places]
    monkeypatch.setattr(flow, "stored_run", lambda *_: (record, {"places": places}))
    blame(fleet.context(reporter), None, for_s=10)
    assert made.wanted["hosts"] == ["gpu1", "gpu3"]
    assert not reporter.warnings


@pytest.mark.parametrize("for_s", [None, 30.0])
def test_the_end_of_a_run_ends_the_watching(
    fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching], for_s: float | None
) -> None:
    history = seen(BURNED)
    made = watching(
        replace(history, hosts={host: (*row, replace(row[-1], ranks=())) for host, row in history.hosts.items()})
    )
    result = blame(fleet.context(reporter), None, for_s=for_s)
    assert result.culprit is not None
    assert (result.culprit.host, result.culprit.reason) == ("gpu2", "busy-core")
    assert len(made.waits) == 2
    assert "Note: the run ended meanwhile" in text.text(result)


def test_json_has_all_that_the_text_has(fleet: Fleet, reporter: Remembering, watching: Callable[..., Watching]) -> None:
    from kit.cli.screen.jsonout import line  # noqa: PLC0415  (as the command line imports it)

    watching(seen(BURNED))
    value = json.loads(line("blame", blame(fleet.context(reporter), None, for_s=10)))
    assert value["culprit"]["ranks"] == [1]
    assert value["culprit"]["gain"]["now"] > value["culprit"]["gain"]["then"]
