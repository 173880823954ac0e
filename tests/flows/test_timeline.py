"""kit timeline on hosts whose kit-timeline is the image's own, with ranks that write what Horovod writes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.errors import HostsFailed, InputError, NotReadyError, SlowError
from kit.flows import timeline as flow
from kit.flows.context import Context
from kit.flows.timeline import timeline
from kit.model.host import Host
from kit.model.timeline import Clock
from kit.model.values import replace
from kit.plan.timeline import clocks
from kit.remote.ssh.transport import Live
from tests.fakes import horovod
from tests.fakes.fleet import FakeTransport, Fleet
from tests.fakes.horovod import Rank
from tests.fakes.launcher import LIB
from tests.fakes.reporter import Remembering
from tests.fakes.vm import listed

RUN = "20261121-101500-3fa2"
PLACES: list[dict[str, Any]] = [
    {"node": "gpu1", "address": "10.0.0.1", "ranks": 2},
    {"node": "gpu2", "address": "10.0.0.2", "ranks": 1},
]
RECORD = {"id": RUN, "image": "kit:cpu-0123456789ab", "started": 9.0, "places": PLACES}
# The clock of gpu2 is ahead by this much, in µs.
AHEAD = 700_000
# Rank 1 is late by 8 ms in each step of 20 ms: the others wait for it.
LATE = 8_000

PROGRAM = """
import sys
from kitwatch import readiness, timeline
folder, ahead = sys.argv[1], int(sys.argv[2])
readiness.folder_of = lambda run: folder + "/counters"
readiness.timeline_folder_of = lambda run: folder + "/timelines"
real = timeline.clock
timeline.clock = lambda: real() + ahead * 1000
sys.exit(timeline.main(sys.argv[3:]))
"""


class Far(FakeTransport):
    """A host with the image's kit-timeline. `before` runs first, and may end it."""

    folder: Path
    ahead: int
    before: Callable[[], int | None]

    def stream(self, argv: Sequence[str], live: Live) -> int:
        if not argv[-2].endswith("kit-timeline"):
            return super().stream(argv, live)
        assert argv[-1] == RUN
        code = self.before()
        if code is not None:
            live.err(b"sh: python3: can't open file '/opt/kit/bin/kit-timeline'\n")
            return code
        words = [sys.executable, "-c", PROGRAM, str(self.folder), str(self.ahead), RUN]
        assert live.stdin is not None
        reader = live.stdin()
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": str(LIB)}
        ) as process:
            assert process.stdin
            assert process.stdout
            stdin, stdout = process.stdin, process.stdout

            def feed() -> None:
                with stdin:
                    while data := reader.read(1 << 16):
                        stdin.write(data)
                        stdin.flush()

            threading.Thread(target=feed, daemon=True).start()
            while data := os.read(stdout.fileno(), 1 << 16):
                live.out(data)
        return process.returncode


def steps(epoch_us: int, rank: int, *, ahead: int = 0) -> bytes:
    """Return 20 steps with two tensors that one operation fuses. All ranks begin when rank 1 has given them."""
    operations = []
    for step in range(20):
        at = step * 20_000
        begun = at + LATE + 100
        operations += [
            (name, at + (LATE if rank == 1 else 0) + n, begun, begun + 1000) for n, name in enumerate(("a", "b"))
        ]
    return horovod.written(epoch_us + ahead, operations)


@pytest.fixture
def hosts(tmp_path: Path) -> dict[str, Path]:
    folders = {name: tmp_path / name for name in ("gpu1", "gpu2")}
    for folder in folders.values():
        (folder / "counters").mkdir(parents=True)
    return folders


@pytest.fixture
def context(
    fleet: Fleet, reporter: Remembering, hosts: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Context]:
    monkeypatch.setattr(flow, "EVERY_S", 0.02)

    def connect(host: Host) -> Far:
        transport = Far(fleet.vms[host.name])
        transport.folder, transport.ahead = hosts[host.name], AHEAD if host.name == "gpu2" else 0
        transport.before = lambda: None
        return transport

    fleet["gpu1"].runs = listed((RECORD, None), live=True)
    yield replace(fleet.context(reporter, names=["gpu1", "gpu2"]), connect=connect)
    for folder in hosts.values():
        assert sorted(path.name for path in folder.iterdir()) == ["counters"]
        assert not (folder / "counters" / "control").exists()


@pytest.fixture
def ranks(hosts: dict[str, Path]) -> Iterator[Callable[..., None]]:
    """Start the ranks of a world of `size`. `others` replaces the data or the end of some."""
    epoch = int(time.time() * 1e6)
    places = {0: "gpu1", 1: "gpu1", 2: "gpu2"}
    with ExitStack() as stack:

        def start(size: int = 3, **others: dict[str, Any]) -> None:
            for rank, host in places.items():
                data = steps(epoch, rank, ahead=AHEAD if host == "gpu2" else 0)
                given = {"data": data, "size": size, **others.get(f"r{rank}", {})}
                stack.enter_context(Rank(hosts[host] / "counters", rank, **given))

        yield start


def record(context: Context, tmp_path: Path, **given: Any) -> Any:
    return timeline(context, None, here=tmp_path, **{"seconds": 0.05, "file": None, **given})


def test_of_many_clocks_the_two_worst_may_differ_most(
    context: Context, ranks: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = clocks.together
    more = {f"gpu{n}": Clock(offset_us=0.0, error_us=5000.0 * n) for n in (3, 4)}
    monkeypatch.setattr(clocks, "together", lambda *given: {**together(*given), **more})
    ranks()
    result = record(context, tmp_path)
    assert result.clock_error_us == 35_000
    assert "within 35000 us of each other" in Path(result.file).read_text()


def test_all_ranks_are_on_one_clock_in_one_file(
    context: Context, ranks: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[int] = []
    monkeypatch.setattr("kit.flows.timeline.open_files", SimpleNamespace(allow=allowed.append))
    ranks()
    result = record(context, tmp_path)
    assert result.run == RUN
    # All hosts stay connected.
    assert allowed == [2]
    assert [(rank.rank, rank.host, rank.operations) for rank in result.ranks] == [
        (0, "gpu1", 20),
        (1, "gpu1", 20),
        (2, "gpu2", 20),
    ]
    waited = {rank.rank: rank.waited for rank in result.ranks}
    assert waited[1] < 0.01
    assert waited[0] == pytest.approx(waited[2])
    assert waited[0] > 0.3
    assert result.missed == {}
    assert result.seconds == pytest.approx(0.3891, abs=0.001)
    assert result.clock_error_us <= 1000
    path = tmp_path / f"kit-timeline-{RUN}.json"
    assert result.file == str(path)
    events = json.loads(path.read_text())["traceEvents"]
    assert result.size == path.stat().st_size
    tracks = {event["pid"]: event["tid"] for event in events if event.get("args") == {"name": "all tensors"}}
    ends = {
        rank: [event["ts"] + event["dur"] for event in events if _whole(event, rank, track)]
        for rank, track in tracks.items()
    }
    # The all-reduces ended at the same moments. Each took 1 ms, so the clocks are this exact.
    assert all(abs(one - two) <= 1000 for one, two in zip(ends[0], ends[2], strict=True))
    assert len(ends[0]) == 20


def _whole(event: dict[str, Any], rank: int, track: int) -> bool:
    return (event["ph"], event["pid"], event.get("tid"), event["name"]) == ("X", rank, track, "ALLREDUCE")


def test_ranks_without_a_whole_timeline_are_named(context: Context, ranks: Callable[..., None], tmp_path: Path) -> None:
    ranks(r0={"ends": horovod.REFUSED}, r2={"data": None})
    result = record(context, tmp_path, file="other.json")
    assert [rank.rank for rank in result.ranks] == [1]
    assert result.missed == {
        "0": "the script writes a timeline of Horovod already",
        "2": "ended before the timeline was whole",
    }
    assert (tmp_path / "other.json").exists()


def test_a_rank_that_reached_its_limit_is_named(
    context: Context, ranks: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = steps(1_795_472_731_087_651, 2)
    # Rank 2 alone writes more than a third of this.
    monkeypatch.setattr(flow, "MOST_TOTAL", 3 * (len(whole) + 1000))
    ranks(r2={"data": whole + 1001 * b" "})
    result = record(context, tmp_path)
    assert [rank.rank for rank in result.ranks] == [0, 1, 2]
    assert result.missed == {"2": "reached the limit of bytes before the time was over, so the timeline is shorter"}


def test_ranks_that_do_not_count_are_named(
    fleet: Fleet, context: Context, ranks: Callable[..., None], tmp_path: Path
) -> None:
    """The run has four ranks, and three of them count. Hosts may say anything of the size of the world."""
    places = [{**PLACES[0], "ranks": 3}, PLACES[1]]
    fleet["gpu1"].runs = listed(({**RECORD, "places": places}, None), live=True)
    ranks(size=9)
    result = record(context, tmp_path)
    assert result.missed == {
        "3": "has ended, or could not make the file of counters: /dev/shm of the host may be full",
    }


@pytest.mark.parametrize("number", [1, 2])
def test_ranks_that_exchange_nothing_have_no_timeline(
    fleet: Fleet, context: Context, hosts: dict[str, Path], tmp_path: Path, number: int
) -> None:
    fleet["gpu1"].runs = listed(({**RECORD, "places": [{**PLACES[0], "ranks": number}]}, None), live=True)
    nothing = horovod.written(int(time.time() * 1e6), [])
    with ExitStack() as stack:
        for rank in range(number):
            stack.enter_context(Rank(hosts["gpu1"] / "counters", rank, data=nothing, size=number))
        with pytest.raises(NotReadyError, match="rank 0: did nothing together with other ranks") as caught:
            record(context, tmp_path)
    assert caught.value.hint == (flow._ALONE if number == 1 else flow._LONGER)


ELASTIC = {**RECORD, "elastic": {"min_np": 1}}


@pytest.fixture
def joins(fleet: Fleet, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let gpu2 join the elastic run while the others record."""
    fleet["gpu1"].runs = listed(({**ELASTIC, "places": [PLACES[0], {**PLACES[1], "out": True}]}, None), live=True)
    wait = flow._wait

    def meanwhile(*args: Any) -> Any:
        fleet["gpu1"].runs = listed((ELASTIC, None), live=True)
        return wait(*args)

    monkeypatch.setattr(flow, "_wait", meanwhile)


@pytest.mark.usefixtures("joins")
def test_ranks_that_join_an_elastic_run_meanwhile_are_named(
    context: Context, ranks: Callable[..., None], tmp_path: Path
) -> None:
    ranks(size=2, r2={"size": 3})
    result = record(context, tmp_path)
    late = "its host gpu2 joined the run after the recording had begun"
    assert [rank.rank for rank in result.ranks] == [0, 1]
    assert result.missed == {"2": late}
    assert json.loads(Path(result.file).read_text())["otherData"]["rank 2"] == late


@pytest.mark.usefixtures("joins")
def test_a_reset_meanwhile_is_the_reason_why_ranks_ended(
    context: Context, ranks: Callable[..., None], tmp_path: Path
) -> None:
    ranks(r1={"data": None})
    missed = record(context, tmp_path).missed
    assert missed["1"] == "hosts left or joined the run meanwhile, which ended the recording of its ranks"


@pytest.mark.usefixtures("joins")
def test_a_host_whose_ranks_do_not_count_yet_is_named(
    context: Context, ranks: Callable[..., None], hosts: dict[str, Path], reporter: Remembering, tmp_path: Path
) -> None:
    ranks(size=2)
    hosts["gpu2"] = tmp_path / "new"
    (hosts["gpu2"] / "counters").mkdir(parents=True)
    assert record(context, tmp_path).missed == {}
    assert "gpu2 joins the run just now; its ranks are not in the timeline" in [w.text for w in reporter.warnings]


def test_ranks_in_one_long_operation_do_not_begin(
    context: Context, ranks: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "BEGIN_S", 0.1)
    ranks(**{f"r{rank}": {"ends": horovod.NONE} for rank in range(3)})
    with pytest.raises(SlowError, match="no rank began its timeline"):
        record(context, tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image": "kit:pytorch-0123456789ab"}, "PyTorch's own data parallelism"),
        ({"image": "reg:5000/kit:cuda-pytorch-0123456789ab"}, "PyTorch's own data parallelism"),
        ({"helpers": [{"role": "server 0"}]}, "MXNet's parameter server"),
        ({"image": "kit:ssh-layer-0123456789ab"}, "lacks kit's patches"),
        ({}, "has called hvd.init"),
    ],
)
def test_a_run_of_which_no_rank_counts_is_refused_by_name(
    fleet: Fleet, context: Context, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    fleet["gpu1"].runs = listed(({**RECORD, **fields}, None), live=True)
    with pytest.raises(NotReadyError, match=message) as caught:
        record(context, tmp_path)
    assert caught.value.hint


def test_a_run_that_has_ended_is_refused(fleet: Fleet, context: Context, tmp_path: Path) -> None:
    fleet["gpu1"].runs = listed((RECORD, {"ended": 12.0, "exit_code": 0}))
    with pytest.raises(NotReadyError, match="has ended: a timeline needs a run that is running"):
        record(context, tmp_path)


def test_an_older_image_is_named(context: Context, tmp_path: Path) -> None:
    def connect(host: Host) -> Far:
        transport = context.connect(host)
        assert isinstance(transport, Far)
        transport.before = lambda: 2
        return transport

    with pytest.raises(HostsFailed) as caught:
        record(replace(context, connect=connect), tmp_path)
    assert {(error.host, error.message) for error in caught.value.failures} == {
        (host, "its image is older than kit timeline") for host in ("gpu1", "gpu2")
    }


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("no/folder/here.json", "there is no folder .*no/folder"),
        ("gpu1", "it is a folder"),
        ("plain/here.json", "plain is not a folder"),
        ("locked.json", "permission denied"),
        (None, "permission denied"),
    ],
)
@pytest.mark.usefixtures("hosts")
def test_a_file_that_cannot_be_written_is_named_before_anything_is_recorded(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None, why: str
) -> None:
    def connect(host: Host) -> Far:
        raise AssertionError(host)

    (tmp_path / "plain").touch()
    # Tests may run as root, who may write anywhere.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match=f"cannot be written: .*{why}"):
        record(replace(context, connect=connect), tmp_path, file=file)


def test_a_file_that_cannot_be_written_after_all_is_named(
    context: Context, ranks: Callable[..., None], tmp_path: Path
) -> None:
    ranks()
    with pytest.raises(InputError, match="/dev/full cannot be written: No space left"):
        record(context, tmp_path, file="/dev/full")


@pytest.mark.parametrize("earlier", [None, "earlier"])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("why", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_no_half_of_a_file_stays_and_the_earlier_one_does(
    tmp_path: Path, why: BaseException, *, replace: bool, earlier: str | None
) -> None:
    """A large one takes seconds to write."""
    if earlier:
        (tmp_path / "timeline.json").write_text(earlier)

    def pieces() -> Iterator[bytes]:
        yield b'{"traceEvents":['
        raise why

    with pytest.raises((KeyboardInterrupt, InputError)):
        vars(flow)["_save"](pieces(), tmp_path, "timeline.json", replace=replace)
    assert [path.read_text() for path in tmp_path.iterdir()] == ([earlier] if earlier else [])


NAMES = [f"kit-timeline-{RUN}{end}.json" for end in ("", "-2", "-3")]


@pytest.mark.parametrize(("file", "written"), [(None, NAMES[2]), (NAMES[0], NAMES[0])])
def test_a_later_timeline_replaces_no_earlier_one_unless_it_is_named(
    context: Context, ranks: Callable[..., None], tmp_path: Path, file: str | None, written: str
) -> None:
    for name in NAMES[:2]:
        (tmp_path / name).write_text("earlier")
    ranks()
    assert record(context, tmp_path, file=file).file == str(tmp_path / written)
    kept = [name for name in NAMES[:2] if (tmp_path / name).read_text() == "earlier"]
    assert kept == [name for name in NAMES[:2] if name != written]
