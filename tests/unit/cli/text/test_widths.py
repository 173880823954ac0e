"""Every table on terminals of 60, 80 and 200 columns: no line is wider, and hosts and states are never left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.cli.text import (
    bench,
    bench_summary,
    blame,
    cluster,
    data,
    lab,
    lock,
    plan,
    predict,
    ps,
    queue,
    results,
    run,
    timeline,
    top,
    tune,
)
from kit.cli.text import table as tabletext
from kit.cli.text.top_cells import text_of
from kit.flows.bench.listing import SessionRow
from kit.flows.bench.measure import BenchPlan
from kit.flows.predict import PredictRequest
from kit.flows.predict import predict as prediction
from kit.model.blame import BlameResult, RankRow
from kit.model.datasets import DataListing, DataRow, RemoveDataResult, RemovedData
from kit.model.lab import LabGpu, LabGpus, LabHost, LabStatus
from kit.model.lock import AuditEntry, AuditResult
from kit.model.plan import HostPlan, Plan, Round, Ship
from kit.model.queue import Cordon, HostRow, HostRows, Line, Reason, WaitingRun
from kit.model.result import DownPreview, NodeStatus, PsResult, RunsResult
from kit.model.results import RemoveRunsResult, RunSize
from kit.model.run import Member, Place, RunRecord
from kit.model.timeline import RankTime, TimelineResult
from kit.model.tune import Machine, Timing, Tried, TuneResult
from kit.plan.bench.report.compare import compare
from kit.plan.bench.report.stats import summarise
from kit.plan.watch.rows import tables
from tests import benchdata
from tests.fakes.readings import LAST, RUN
from tests.fakes.readings import cluster as watched

WIDTHS = (60, 80, 200)
NOW = time.time()
ID = "20261124-101500-3fa2"
WHO = "ada.lovelace@workstation-of-ada"
COMMAND = ("python", "train.py", "--data", "/data/imagenet", "--epochs", "90", "--batch-size", "256")
WHY = "the driver of its GPUs was replaced, and the host waits for a reboot"


def node(number: int, state: str = "Up 2 hours (healthy)", problem: str | None = None) -> NodeStatus:
    return NodeStatus(
        host=f"gpu{number}", address=f"172.30.14.{number}", service="mpinode", state=state,
        problem=problem, image="registry.example.org/team/kit:cpu-0123456789ab", slots=8, gpus=8, gpus_free=6,
        gpu_models=("NVIDIA A100-SXM4-80GB",), ranks={ID: tuple(range(8))}, ssh=f"192.0.2.{number}",
    )  # fmt: skip


def waiting(number: int) -> WaitingRun:
    reason = Reason(kind="slots", runs=(f"20261124-101500-000{number}",), more=3, about=NOW + 90000)
    return WaitingRun(
        id=f"20261124-10150{number}-3fa2", np=16, counts=(8, 8), hosts=("gpu1", "gpu2"), command=COMMAND, by=WHO,
        queued=NOW - 4000, priority=5, array=Member(of=ID, index=number, size=9), reason=reason,
    )  # fmt: skip


def record(number: int, **given: object) -> RunRecord:
    places = tuple(Place(node=f"gpu{n}", address=f"10.0.0.{n}", ranks=8, slots=tuple(range(8))) for n in range(1, 5))
    values = {"id": f"20261124-10150{number}-3fa2", "cluster": "kit", "image": "kit:cpu", "command": COMMAND}
    return RunRecord(**{**values, "places": places, "started": NOW - 7500.0, **given})  # type: ignore[arg-type]


SIZES = (RunSize(id=ID, hosts=("gpu1", "gpu3", "gpu7"), output=10**9, checkpoints=10**10, work=10**6, log=10**5),)
MACHINE = Machine(
    name="gpu1", slots=8, threads=64, cores=32, sockets=2, numa=2, gpus=("V100",) * 8,
    gpu_links=("NV2", "PHB"), nic="eth0", nic_mbit=10000, mtu=9000, congestion="cubic",
)  # fmt: skip
TIMING = Timing(bytes=64 << 20, ranks=8, seconds=(0.1, 0.11, 0.12))
BEFORE = summarise(*benchdata.compression())
BLAMED = tuple(RankRow(rank=n, host="gpu1", wait=0.01, operation=0.5, cpu=1, delay=0, asleep=0.5) for n in range(4))
TIMES = tuple(RankTime(rank=n, host="gpu1", operations=123456, waited=0.5, operated=0.25) for n in range(4))
DATA = DataRow(
    name="imagenet-train-shards", source="s3:bucket/imagenet/train/shards", stage="disk", state="changed",
    hosts=("gpu1", "gpu2"), of=4, files=1281167, bytes=10**11, at=NOW - 9000,
)  # fmt: skip


def shipment() -> Plan:
    ship = Ship(
        image="registry.example.org/team/kit:cpu-0123456789ab", why="the host has another image", size=10**9,
        image_id="sha256:0", address="10.0.0.1",
    )  # fmt: skip
    rounds = (Round(name="ship", hosts=(HostPlan(host="gpu1", steps=(ship,)),)),)
    return Plan(cluster="kit", hosts=("gpu1",), rounds=rounds)


def tuned(part: int) -> Callable[..., str]:
    tried = Tried(name="btl_tcp_links 4", parameters=(), timing=TIMING)
    failed = Tried(name="ring", parameters=(), failure="mpirun ended with exit code 1 on gpu3")
    value = TuneResult(
        machines=(MACHINE,), wire=1e9, before=tried, after=tried, tried=(failed,), small_s=None, changed=(), kept=(),
        advice=(), diff="", written=False, file="kit.yaml", seconds=1.0,
    )  # fmt: skip
    return lambda **kw: tune.text(value, **kw).split("\n\n")[part]


def watching(width: int | None = None) -> str:
    seen, history = watched()
    head = top.Head(cluster="train", clock="10:15:42", note=f"run {RUN}: 4 ranks")
    return text_of(top.whole(head, tables(seen, history, run=RUN, last=LAST), width or 300))


# Each table, without the sentences around it, and words that must be there at any width.
TABLES: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {
    "ps": (
        lambda **kw: ps.ps(PsResult(cluster="kit", nodes=(node(1), node(2, problem="its engine is gone"))), **kw),
        ("gpu1", "gpu2", "Up 2 hours (healthy)", "its engine is gone"),
    ),
    "ps of many hosts": (
        lambda **kw: ps.ps(PsResult(cluster="kit", nodes=tuple(node(n) for n in range(1, 41))), **kw),
        ("gpu[1-40]", "Up 2 hours"),
    ),
    "runs": (
        lambda **kw: run.runs(
            RunsResult(
                cluster="kit",
                runs=(record(1), record(2, state="ended", exit_code=137, ended=NOW)),
                waiting=(waiting(3),),
            ),
            **kw,
        ),
        ("20261124-101501-3fa2", "running", "failed (137)", "waiting", "4 hosts"),
    ),
    "queue": (
        lambda **kw: queue.line(Line(cluster="kit", runs=(waiting(1), waiting(2))), **kw),
        ("20261124-101501-3fa2", "WAITS"),
    ),
    "hosts": (
        lambda **kw: queue.hosts(
            HostRows(
                cluster="kit",
                hosts=(
                    HostRow(name="gpu1", address="172.30.14.100"),
                    HostRow(
                        name="gpu2", address="172.30.14.101", cordon=Cordon(host="gpu2", why=WHY, by=WHO, at=NOW - 9)
                    ),
                ),
            ),
            **kw,
        ),
        ("gpu1", "gpu2", "no: cordoned"),
    ),
    "audit": (
        lambda **kw: lock.audit(
            AuditResult(
                cluster="kit",
                entries=(
                    AuditEntry(
                        time="2026-11-24T10:15:00Z", who=WHO, verb="hosts cordon", what=WHY, outcome="failed",
                        seconds=12.0,
                    ),
                ),
            ),
            **kw,
        ),
        ("hosts cordon", "failed", "ada"),
    ),
    "data ls": (lambda **kw: data.listing(DataListing(cluster="kit", sets=(DATA,)), **kw), ("imagenet", "changed in")),
    "data rm": (
        lambda **kw: data.removed(
            RemoveDataResult(
                cluster="kit", dry_run=True,
                sets=(RemovedData(name=DATA.name * 2, hosts=("gpu1", "gpu7", "gpu9", "gpu11"), folders=(), bytes=9),),
            ),
            **kw,
        ),
        ("imagenet", "gpu[1,7,9"),
    ),
    "runs rm": (
        lambda **kw: results.removed(RemoveRunsResult(cluster="kit", runs=SIZES, dry_run=True), **kw),
        (ID, "gpu[1,3,7]", "1.00 GB", "10.00 GB"),
    ),
    "down": (
        lambda **kw: cluster.down_preview(DownPreview(cluster="kit", deletes=(), keeps=SIZES, keeps_homes=True), **kw),
        (ID, "gpu[1,3,7]", "10.00 GB"),
    ),
    "plan": (lambda **kw: plan.plan(shipment(), **kw), ("gpu1", "registry")),
    "bench plan": (
        # Below the table is a sentence.
        lambda **kw: bench.plan(
            BenchPlan(
                preset="egs", cases=(benchdata.case("egs/mxnet/resnet152/16", command=COMMAND),), launches=3, seconds=9
            ),
            **kw,
        ).rpartition("\n")[0],
        ("egs/mxnet/",),
    ),
    "bench list": (
        lambda **kw: bench.sessions(
            [
                SessionRow(
                    id="20260101-101500-networks", folder="20260101-101500-networks", preset="networks",
                    cluster="a-cluster-with-a-long-name", started="", cases=123, samples=456, left=78,
                )
            ],
            **kw,
        ),
        ("20260101-101500-networks", "78 launches"),
    ),
    "bench report": (lambda **kw: bench_summary.bench_table(BEFORE, **kw), ("CASE", "FIGURE")),
    "bench compare": (
        lambda **kw: bench_summary.comparison(
            compare(BEFORE, summarise(*benchdata.compression())), verbose=True, **kw
        ).split("\n\n")[1],
        ("within the noise", "CHANGE"),
    ),
    "lab": (
        lambda **kw: lab.lab(
            LabStatus(name="lab", folder=Path("/l"), hosts=(LabHost(name="gpu1", address="10.0.0.1", state=WHY),)), **kw
        ).partition("\n")[2],
        ("gpu1", "the driver"),
    ),
    "lab gpus": (
        lambda **kw: lab.gpus(
            LabGpus(
                host="gpu1", name="A100", driver="1",
                gpus=(LabGpu(number=1, uuid="GPU-f0f0f0f0-aaaa-bbbb-cccc-0123456789ab", faults=("xid:79", WHY)),),
            ),
            **kw,
        ),
        ("GPU-f0f0", "xid:79"),
    ),
    "predict": (
        lambda **kw: predict.text(
            prediction(
                PredictRequest(model="resnet50", gpus=64, per_host=8, step_ms=290, link="8gbit", batch_size=64),
                folder=Path(),
            ),
            **kw,
        ).partition("\n\nRANKS")[2],
        ("EFFICIENCY", "ASSUMED"),
    ),
    "tune, hosts": (tuned(0), ("gpu1",)),
    "tune, tried": (
        tuned(2),
        ("btl_tcp_links", "failed"),
    ),
    "timeline": (
        lambda **kw: timeline.timeline(
            TimelineResult(run=ID, file="t.json", size=9, seconds=1, ranks=TIMES, clock_error_us=1, missed={}), **kw
        ).rsplit("\n", 2)[0],
        ("gpu1", "WAITED FOR RANKS"),
    ),
    "blame": (
        lambda **kw: blame.text(
            BlameResult(
                run=ID, verdict="nobody", why="x", seconds=10, steps=None, step=None, culprit=None, ranks=BLAMED
            ),
            **kw,
        ).rpartition("\n\n")[2],
        ("gpu1", "WAITS MS"),
    ),
    "top --once": (watching, ("gpu1", "CPU", "MEM%")),
}  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    text, words = TABLES[name]
    shown = text(width=width)
    assert [line for line in shown.split("\n") if len(line) > width] == []
    for word in words:
        assert word in shown
    # What is cut there is whole in a file.
    assert len(text().split("\n")) == len(shown.split("\n"))


def test_the_least_important_column_goes_first_and_only_if_it_must() -> None:
    header, rows = ("HOST", "SIZE", "STATE", "NOTE"), [("gpu1", 123456, "ready", "a note of many words")]

    def shown(width: int) -> list[str]:
        text = tabletext.table(rows, header, width=width, flexible=("NOTE",), drop=("SIZE", "NOTE"), least=8)
        return text.split("\n")

    assert shown(41) == ["HOST    SIZE  STATE  NOTE", "gpu1  123456  ready  a note of many words"]
    assert shown(30) == ["HOST    SIZE  STATE  NOTE", "gpu1  123456  ready  a note o…"]
    # What is left gets the room.
    assert shown(28) == ["HOST  STATE  NOTE", "gpu1  ready  a note of many…"]
    assert shown(20) == ["HOST  STATE", "gpu1  ready"]
    # A terminal that is too narrow even for these.
    assert shown(8) == ["HOST  S…", "gpu1  r…"]
