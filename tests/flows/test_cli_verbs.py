"""Every verb from its words to its flow and back: what the flow is given, what is printed, the exit code."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest

from kit.cli.main import main
from kit.cli.screen.hosts import HostsOutput
from kit.cli.screen.terminal import Terminal
from kit.cli.session import Session
from kit.config.validate import spec_from
from kit.errors import ArrayMeant, UnreachableError
from kit.events import HostDone, OutputLine, Phase
from kit.flows.context import Context
from kit.flows.image.push import PushResult
from kit.model.changes import HostChange
from kit.model.host import Host, Inventory
from kit.model.image import ImageContent
from kit.model.lab import LabSpec
from kit.model.launch import LaunchPlan, Node, Placement, RunPolicy, RunRequest
from kit.model.lock import AuditEntry, AuditResult, Holder, LockStatus
from kit.model.plan import HostPlan, Plan, Round, Ship
from kit.model.registry import RegistryLogin
from kit.model.result import (
    DeployResult,
    DownPreview,
    DownResult,
    ExecResult,
    FileResult,
    HostResult,
    LocalResult,
    NodeStatus,
    OutputGroup,
    PsResult,
    RunResult,
    RunsResult,
)
from kit.model.results import Copied, Pulled, PullResult, RemoveRunsResult, RunSize, Survey
from kit.model.run import Failure, Member, Place, RunRecord, ShownRun
from kit.model.secret import Secret
from kit.model.spec import ClusterSpec
from kit.model.values import asdict, replace

INVENTORY = Inventory(
    hosts=(Host(name="gpu1", address="10.0.0.1"), Host(name="gpu2", address="10.0.0.2")), source="hosts"
)
SHIP = Ship(image="i", image_id="s", size=1, address="a", why="w")
PLAN = Plan(cluster="kit", hosts=("gpu1",), rounds=(Round(name="ship", hosts=(HostPlan(host="gpu1", steps=(SHIP,)),)),))
LAUNCH = LaunchPlan(
    run_id="r1",
    placement=Placement(nodes=(Node(name="gpu1", address="10.0.0.1", slots=2),), counts=(2,)),
    hostfile="10.0.0.1 slots=2\n",
    argv=("mpirun", "ls"),
)

HOLDER = Holder(who="ann@pc", what="kit deploy", since="2026-03-01T09:30:00Z", age_s=130, pid=7)
KEPT = RunSize(id="20261121-101500-3fa2", hosts=("gpu1",), output=2, checkpoints=0, work=0, log=1)
AUDIT = AuditEntry(time="2026-03-01T09:30:00Z", who="ann@pc", verb="deploy", what="w", outcome="done", seconds=1.0)


RECORD = RunRecord(
    id="20261121-101500-3fa2", cluster="kit", image="i", command=("ls",), state="ended", ended=5.0, exit_code=9,
    places=(Place(node="gpu1", address="10.0.0.1", ranks=2, slots=(0, 1)),),
    failure=Failure(kind="mpirun", host="gpu1"),
)  # fmt: skip
BOTH = replace(RECORD, places=(*RECORD.places, Place(node="gpu2", address="10.0.0.2", ranks=2, slots=(0, 1))))


@dataclass(frozen=True, kw_only=True)
class FakeImageResult:
    tag: str = "kit:cpu-0123"
    image_id: str = "sha256:ab"
    size_bytes: int = 1_870_000_000
    built: bool = True
    seconds: float = 9.0


PUSHED = PushResult(
    image="r.example.com/kit:cpu-0123", digest="sha256:ab", tag="kit:cpu-0123", size_bytes=1, built=False, seconds=1.0
)


@dataclass(frozen=True, kw_only=True)
class FakeInit:
    written: tuple[Path, ...] = (Path("hosts"), Path("kit.yaml"))
    takes_code: bool = True


@dataclass(frozen=True, kw_only=True)
class FakeLab:
    name: str = "lab"
    folder: Path = Path("/x")
    network: str = "10.9.0.0/24"
    shape: str = "2 hosts"
    hosts: tuple[object, ...] = ()
    containers: int = 2
    volumes: int = 2
    networks: int = 1
    kept: tuple[Path, ...] = ()
    empty: bool = False


SBOM = SimpleNamespace(
    tag="kit:cpu-0123",
    image_id="sha256:ab",
    document='{"bomFormat": "CycloneDX"}\n',
    debian=2,
    python=3,
    files=4,
    unreadable=("a/b",),
)

JOB_LINE = "from the job\n"


class Flows:
    """Replaces every flow: records its arguments, reports as flows do, and returns `answers[name]`."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self.answers: dict[str, Any] = {}

    def flow(self, name: str, answer: Any) -> Any:
        self.answers[name] = answer

        def called(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] = (args, kwargs)
            reporter = next((a.reporter for a in args if isinstance(a, Context)), None)
            if reporter is not None:
                reporter.report(Phase(name=name, hosts=("gpu1",)))
                reporter.report(OutputLine(text="from the job"))
                reporter.report(HostDone(host="gpu1"))
            return self.answers[name]

        return called


@pytest.fixture
def flows(monkeypatch: pytest.MonkeyPatch) -> Flows:
    fakes = Flows()
    group = ExecResult(groups=(OutputGroup(hosts=("gpu1",), exit_code=3, output="no\n"),))
    modules: dict[str, dict[str, Any]] = {
        "kit.flows.cluster.init": {"init": FakeInit()},
        "kit.flows.cluster.schema": {"schema": '{"type": "object"}\n'},
        "kit.flows.image.build": {"build_image": FakeImageResult(), "build_on_head": FakeImageResult()},
        "kit.flows.image.push": {"push_image": PUSHED, "push_from_head": PUSHED},
        "kit.flows.image.sbom": {"sbom": SBOM, "sbom_on_head": SBOM, "save": None},
        "kit.flows.image.content": {
            "content": ImageContent(repository="kit", flavour="cpu", files={"Dockerfile": b"FROM scratch\n"})
        },
        "kit.flows.cluster.deploy": {
            "deploy": DeployResult(
                plan=PLAN, dry_run=False, changed=True, hosts=(HostResult(host="gpu1", status="ok"),), seconds=1.0
            )
        },
        "kit.flows.cluster.before": {"left_behind": ("gpu9",)},
        "kit.flows.cluster.down": {
            "down": DownResult(cluster="kit", removed={"gpu1": ("c",)}),
            "plan_down": PLAN,
            "preview": DownPreview(cluster="kit", keeps=(KEPT,), deletes=(), keeps_homes=True),
            "spare_runs": None,
            "spare_unknown": None,
        },
        "kit.flows.run.pull": {
            "pull": PullResult(run="r", folder="home", hosts=(Pulled(host="gpu1", files=2, size=3),))
        },
        "kit.flows.cluster.copy": {"copy": Copied(path="/b", hosts=("gpu1", "gpu2"), files=1, size=3)},
        "kit.flows.run.folders": {
            "survey": Survey(folders={}, failures={}, stacks=("gpu2",)),
            "remove_runs": RemoveRunsResult(cluster="kit", runs=(KEPT,)),
        },
        "kit.flows.cluster.lock": {
            "lock_status": LockStatus(cluster="kit", state="held", holder=HOLDER),
            "lock_release": None,
        },
        "kit.flows.cluster.audit": {"read_audit": AuditResult(cluster="kit", entries=(AUDIT,))},
        "kit.flows.run.run": {"run": RunResult(plan=LAUNCH, exit_code=7, seconds=1.0)},
        "kit.flows.run.planning": {"dry_run": LAUNCH},
        "kit.flows.run.listing": {
            "listing": RunsResult(cluster="kit", runs=(RECORD,)),
            "show": ShownRun(record=RECORD, head="gpu1", log="/l", work=""),
        },
        "kit.flows.run.attach": {"attach": RECORD, "wait": RECORD, "run_logs": RECORD},
        "kit.flows.run.stop": {"stop_all": (RECORD,)},
        "kit.flows.run.hosts": {"add_hosts": BOTH, "drop_hosts": BOTH},
        "kit.flows.run.local": {"local": LocalResult(image="i", argv=("mpirun", "ls"), exit_code=7, seconds=1.0)},
        "kit.flows.cluster.compose": {"compose_file": FileResult(host="gpu1", text="services: {}\n")},
        "kit.flows.cluster.stack": {"stack_file": FileResult(host="gpu1", text="version: 3\n")},
        "kit.flows.cluster.ps": {"ps": PsResult(cluster="kit", nodes=())},
        "kit.flows.cluster.exec": {"exec_hosts": group, "folded": group},
        "kit.flows.cluster.ssh": {"ssh": None},
        "kit.flows.cluster.logs": {"logs": 4},
        "kit.flows.lab.lab": {
            "lab_up": FakeLab(),
            "lab_status": FakeLab(),
            "lab_down": FakeLab(),
            "lab_link_rate": FakeLab(),
        },
    }
    for module, functions in modules.items():
        monkeypatch.setitem(
            sys.modules, module, SimpleNamespace(**{name: fakes.flow(name, out) for name, out in functions.items()})
        )

    sys.modules["kit.flows.cluster.before"].at_head = lambda context, _failures: context  # type: ignore[attr-defined]
    dial = SimpleNamespace(dialled=lambda context: nullcontext())
    monkeypatch.setitem(sys.modules, "kit.flows.run.dial", dial)
    monkeypatch.setitem(sys.modules, "kit.flows.cluster.look", SimpleNamespace(Look=lambda context: None))

    def context(session: Session, fixed: Mapping[str, Any] | None = None) -> Context:
        return Context(
            inventory=INVENTORY,
            spec=replace(ClusterSpec(), **(fixed or {})),
            folder=session.folder,
            reporter=session.reporter,
            connect=lambda host: pytest.fail("no connection is made here"),
        )

    monkeypatch.setattr(Session, "context", context)
    monkeypatch.setattr(Session, "spec", lambda session: spec_from(session.overrides()))
    return fakes


PULLED = ClusterSpec(registry="r.example.com/t")
RUN = ["run", "-np", "4", "-npernode", "2", "-x", "A=1", "-x", "B", "-H", "gpu1", "--oversubscribe", "--tag-output"]

WHOLE_LOG = {"rank": None, "since_s": None, "tail": None, "tagged": False, "door": None}

# Words → the flow, what it is given after the context (and by name), how stdout begins, exit code.
Row = tuple[list[str], str, tuple[Any, ...], dict[str, Any], str, int]
VERBS: list[Row] = [
    (["hosts", "add", "gpu2"], "add_hosts", (None, "gpu2"), {},
     f"{JOB_LINE}run {BOTH.id}: slots: 2 on gpu1, 2 on gpu2\n", 0),
    (["hosts", "drop", "gpu2"], "drop_hosts", (None, "gpu2"), {},
     f"{JOB_LINE}run {BOTH.id}: slots: 2 on gpu1; until its next commit: 2 on gpu2\n", 0),
    (["init", "-f"], "init", (Path(),), {"force": True}, "Wrote hosts and kit.yaml. Put your VMs", 0),
    (["-C", "/a", "init"], "init", (Path("/a"),), {"force": False}, "Wrote", 0),
    (["schema"], "schema", (), {}, '{"type": "object"}\n', 0),
    (["image", "tag"], "content", (ClusterSpec(),), {}, "kit:cpu-", 0),
    (["image", "render"], "content", (ClusterSpec(),), {}, "FROM scratch\n", 0),
    (["image", "build"], "build_image", (ClusterSpec(),), {"force": False, "consent": ANY},
     "kit:cpu-0123  1.87 GB  built in", 0),
    (["image", "build", "-f"], "build_image", (ClusterSpec(),), {"force": True, "consent": ANY},
     "kit:cpu-0123  1.87 GB", 0),
    (["image", "sbom"], "sbom", (ClusterSpec(),), {"environ": {}}, '{"bomFormat": "CycloneDX"}\n', 0),
    (["-C", "sub", "image", "sbom", "-o", "a.json"], "save", (SBOM, Path("a.json")), {},
     "a.json: 2 Debian packages, 3 Python packages, 4 files of kit\nnot listed, because it is not readable: a/b\n", 0),
    (["image", "sbom", "--builder", "head"], "sbom_on_head", (), {"environ": {}}, "from the job\n{", 0),
    (["deploy"], "deploy", (), {"dry_run": False, "force": False, "look": None},
     "from the job\nCluster kit is ready on 1 host", 0),
    (["deploy", "--dry-run"], "deploy", (), {"dry_run": True, "force": False, "look": None},
     "from the job\nPlan for cluster", 0),
    (["deploy", "--force"], "deploy", (), {"dry_run": False, "force": True, "look": None},
     "from the job\nCluster kit is ready", 0),
    (["image", "push", "r.example.com/t"], "push_image", (PULLED, "r.example.com/t"), {"login": None},
     "r.example.com/kit:cpu-0123  1 B  sha256:ab", 0),
    (["image", "push", "r.example.com/t", "--builder", "head"], "push_from_head", ("r.example.com/t",), {"login": None},
     "from the job\nr.example.com/kit:cpu-0123", 0),
    (["image", "build", "--builder", "head"], "build_on_head", (), {"force": False}, "from the job\nkit:cpu-0123", 0),
    (["down", "--dry-run", "--images"], "plan_down", (), {"images": True, "purge": False, "stacks": ("gpu2",)},
     f"{3 * JOB_LINE}Plan for cluster kit", 0),
    (["down", "--images", "--yes"], "down", (),
     {"images": True, "purge": False, "force": False, "kept": (KEPT,), "left": ("gpu9",),
      "stacks": ("gpu2",)},
     f"{4 * JOB_LINE}Removed cluster kit from 1 host: gpu1.\n", 0),
    (["down", "--purge", "--force", "--yes"], "down", (),
     {"images": False, "purge": True, "force": True, "kept": (KEPT,), "left": ("gpu9",),
      "stacks": ("gpu2",)},
     f"{3 * JOB_LINE}Removed", 0),
    (["runs", "rm", "2026", "2027", "--older-than", "7d", "--yes"], "remove_runs", (("2026", "2027"),),
     {"older_s": 604800.0, "dry_run": False, "confirm": ANY}, "from the job\nDeleted 1 run (3 B).\n", 0),
    (["pull"], "pull", ((),), {"here": Path(), "all_checkpoints": False},
     "from the job\nPulled run r from gpu1 into home: 2 files, 3 B.\n", 0),
    (["pull", "2026", "output", "home"], "pull", (("2026", "output", "home"),),
     {"here": Path(), "all_checkpoints": False}, "from the job\nPulled run r", 0),
    (["pull", "latest", "--all-checkpoints"], "pull", (("latest",),),
     {"here": Path(), "all_checkpoints": True}, "from the job\nPulled run r", 0),
    (["cp", "a", "gpu1:/b"], "copy", ("a", "gpu1:/b"), {"vm": False, "here": Path()},
     "from the job\nCopied 1 file, 3 B, to gpu[1-2]:/b.\n", 0),
    (["cp", "--vm", "gpu1:/b", "a"], "copy", ("gpu1:/b", "a"), {"vm": True, "here": Path()}, "from the job\nCopied", 0),
    (["runs", "rm", "2026", "--dry-run"], "remove_runs", (("2026",),),
     {"older_s": None, "dry_run": True, "confirm": ANY}, "from the job\nDeleted 1 run (3 B).\n", 0),
    (["lock", "status"], "lock_status", (), {}, "from the job\nann@pc holds the lock of cluster kit since 2026", 0),
    (
        ["lock", "release", "-y"],
        "lock_release",
        (LockStatus(cluster="kit", state="held", holder=HOLDER),),
        {},
        "from the job\nfrom the job\nThe lock of cluster kit is free: ann@pc held it",
        0,
    ),
    (["audit"], "read_audit", (20,), {}, "from the job\nTIME  ", 0),
    (["audit", "-n", "3"], "read_audit", (3,), {}, "from the job\nTIME  ", 0),
    (
        [*RUN, "ls", "-l"],
        "run",
        (
            RunRequest(
                np=4, npernode=2, env=(("A", "1"), ("B", None)), hosts="gpu1", oversubscribe=True, tag_output=True,
                command=("ls", "-l"), policy=RunPolicy(share=True),
            ),
        ),
        {"door": None},
        "from the job\n",
        7,
    ),
    (["run"], "run", (RunRequest(),), {"door": None}, "from the job\n", 7),
    (["run", "--gpu-per-rank", "--ignore-busy-gpus"], "run", (RunRequest(gpus_per_rank=1, ignore_busy_gpus=True),),
     {"door": None}, "from the job\n", 7),
    (["run", "--code", "sub"], "run", (RunRequest(code="sub"),), {"door": None}, "from the job\n", 7),
    (["run", "--code", "sub", "--workdir", "./a/../b/"], "run", (RunRequest(code="sub", workdir="b"),), {"door": None},
     "from the job\n", 7),
    (["run", "--again", "2026"], "run", (RunRequest(again="2026"),), {"door": None}, "from the job\n", 7),
    (
        ["run", "--again", "latest", "-np", "2", "--retries", "0", "--launcher", "mpi", "--checkpoint-dir", "/c"],
        "run",
        (
            RunRequest(
                np=2, again="latest", policy=RunPolicy(retries=0, checkpoints="/c"),
                given=frozenset(["np", "retries", "launcher", "checkpoints"]),
            ),
        ),
        {"door": None}, "from the job\n", 7,
    ),
    (
        ["run", "--dry-run"],
        "dry_run",
        (RunRequest(dry_run=True),),
        {"waits": False},
        "from the job\n# 2 ranks: 2 on gpu1\n",
        0,
    ),
    (["run", "--queue", "--dry-run"], "dry_run", (RunRequest(dry_run=True),), {"waits": True},
     "from the job\n# 2 ranks: 2 on gpu1\n", 0),
    (["run", "-d"], "run", (RunRequest(detach=True, policy=RunPolicy(operator=None)),), {"door": None},
     "from the job\nr1\n", 0),
    (
        ["run", "--keep", "--wait", "--start-timeout", "2m", "--timeout", "8h", "--stall-timeout", "90s",
         "--retries", "3", "--retry-on", "lost-host", "--min-np", "2", "--checkpoint-dir", "/data/c", "--", "ls"],
        "run",
        (
            RunRequest(
                wait=True, command=("ls",),
                policy=RunPolicy(
                    operator="keep", start_timeout=120, timeout=28800, stall_timeout=90, retries=3,
                    retry_on="lost-host", min_np=2, checkpoints="/data/c",
                ),
                given=frozenset(
                    ["start_timeout", "timeout", "stall_timeout", "retries", "retry_on", "min_np", "checkpoints"]
                ),
            ),
        ),
        {"door": None}, "from the job\n", 7,
    ),
    (["runs"], "listing", (), {}, "from the job\nRUN ", 0),
    (["runs", "list"], "listing", (), {}, "from the job\nRUN ", 0),
    (["runs", "show"], "show", (None,), {}, f"from the job\nRun      {RECORD.id}\n", 0),
    (["runs", "show", "2026"], "show", ("2026",), {}, f"from the job\nRun      {RECORD.id}\n", 0),
    (["runs", "show", "latest", "--diff"], "show", (None,), {}, "from the job\n", 0),
    (["wait", "latest"], "wait", (None,), {"door": None}, "from the job\n", 9),
    (["attach", "--tag-output"], "attach", (None,), {**WHOLE_LOG, "tagged": True}, "from the job\n", 9),
    (["attach", "2026"], "attach", ("2026",), WHOLE_LOG, "from the job\n", 9),
    (["attach", "--rank", "1", "--tail", "5", "--since", "90s"], "attach", (None,),
     {**WHOLE_LOG, "rank": 1, "tail": 5, "since_s": 90}, "from the job\n", 9),
    (["wait", "2026"], "wait", ("2026",), {"door": None}, "from the job\n", 9),
    (["stop"], "stop_all", (None,), {"grace_s": None, "door": None}, "from the job\nNothing to do: run 20261121", 0),
    (["stop", "2026", "--grace", "2m"], "stop_all", ("2026",), {"grace_s": 120, "door": None}, "from the job\n", 0),
    (["logs", "20261121-101500-3fa2", "--rank", "3", "--since", "10m"], "run_logs", ("20261121-101500-3fa2",),
     {**WHOLE_LOG, "rank": 3, "since_s": 600, "follow": False}, "from the job\n", 0),
    (["logs", "20261121-10"], "run_logs", ("20261121-10",), {**WHOLE_LOG, "follow": False}, "from the job\n", 0),
    (["logs", "latest"], "run_logs", (None,), {**WHOLE_LOG, "follow": False}, "from the job\n", 0),
    (["logs"], "run_logs", (None,), {**WHOLE_LOG, "follow": False}, "from the job\n", 0),
    (["logs", "-f", "--tail", "3"], "run_logs", (None,), {**WHOLE_LOG, "tail": 3, "follow": True}, "from the job\n", 0),
    (["logs", "gpu2"], "logs", ("gpu2",), {"tail": None, "since_s": None, "live": False}, "from the job\n", 4),
    (["logs", "--nodes", "gpu[1-2]"], "logs", ("gpu[1-2]",), {"tail": None, "since_s": None, "live": False},
     "from the job\n", 4),
    (["local", "-np", "2", "ls"], "local", (ClusterSpec(), Path(), RunRequest(np=2, command=("ls",))), {}, "", 7),
    (["local", "--dry-run"], "local", (ClusterSpec(), Path(), RunRequest(dry_run=True)), {}, "# in a new", 0),
    (["compose"], "compose_file", (None,), {}, "from the job\nservices: {}\n", 0),
    (["compose", "gpu2"], "compose_file", ("gpu2",), {}, "from the job\nservices: {}\n", 0),
    (["stack"], "stack_file", (), {}, "from the job\nversion: 3\n", 0),
    (["ps"], "ps", (), {}, "from the job\nCluster kit", 0),
    (["exec", "gpu1", "--", "ls"], "exec_hosts", ("gpu1", ("ls",)), {}, "from the job\n", 3),
    (["logs", "--nodes", "-f", "--tail", "3", "--since", "1h"], "logs", (None,),
     {"tail": 3, "since_s": 3600, "live": True}, "from the job\n", 4),
    (["ssh", "gpu1", "--", "ls"], "ssh", ("gpu1", ("ls",)), {"tty": False}, "from the job\n", 0),
    (["lab", "status"], "lab_status", ("lab",), {"folder": Path()}, "There is no lab.", 0),
    (["lab", "link-rate", "200mbit", "--name", "b"], "lab_link_rate", ("200mbit", "b"), {"folder": Path()},
     "The links of lab b now carry 200mbit in each direction.", 0),
    (["lab", "link-rate", "none"], "lab_link_rate", ("none", "lab"), {"folder": Path()},
     "The links of lab lab have no limit now.", 0),
    (["lab", "down", "--name", "b"], "lab_down", ("b",), {"folder": Path()}, "Removed lab lab: 2 containers", 0),
]  # fmt: skip


@pytest.mark.parametrize("row", VERBS, ids=[" ".join(row[0]) for row in VERBS])
def test_verb(row: Row, flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    words, flow, given, named, out, code = row
    assert main(words, environ={}) == code
    args, kwargs = flows.calls[flow]
    assert tuple(a for a in args if not isinstance(a, Context)) == given
    assert {name: value for name, value in kwargs.items() if name not in ("reporter", "output", "stdin")} == named
    assert capsys.readouterr().out.startswith(out)


@pytest.mark.parametrize("words", [words for words, *_ in VERBS], ids=[" ".join(words) for words, *_ in VERBS])
def test_verb_as_json(words: list[str], flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--output", "json", *words], environ={})
    for text in capsys.readouterr().out.splitlines():
        printed = json.loads(text)
        assert printed["kit"] == 1
        assert printed["kind"] != "error", printed


def test_a_dry_run_as_json_has_what_the_hosts_file_changes(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    change = HostChange(
        kind="head", host="gpu2", before="gpu1", after="gpu2", text="the head moves", hint="kit pull RUN"
    )
    flows.answers["deploy"] = replace(flows.answers["deploy"], changes=(change,))
    assert main(["deploy", "--dry-run", "--json"], environ={}) == 0
    first, plan = map(json.loads, capsys.readouterr().out.splitlines()[-2:])
    assert (first["kind"], plan["kind"]) == ("host-changes", "plan")
    assert first["changes"] == [asdict(change)]


def test_a_held_lock_is_released_only_after_a_yes(flows: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []
    monkeypatch.setattr(Terminal, "agrees", lambda _, question: questions.append(question))
    assert main(["lock", "release"], environ={}) == 0
    assert "lock_release" not in flows.calls
    assert questions[0].startswith("ann@pc holds the lock of cluster kit since 2026-03-01T09:30:00Z (2 min ago)")


def test_a_patch_that_is_cut_is_called_so(flows: Flows, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    patch = b"+caf\xe9".decode("utf-8", "surrogateescape")
    flows.answers["show"] = ShownRun(record=RECORD, head="gpu1", log="/l", work="", diff=patch, diff_cut=True)
    assert main(["runs", "show", "--diff"], environ={}) == 0
    printed = capfdbinary.readouterr()
    assert printed.out.endswith(b"+caf\xe9\n")
    assert b"git apply cannot restore all of it" in printed.err


def test_a_patch_that_git_could_not_make_is_called_so(flows: Flows, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    flows.answers["show"] = ShownRun(record=RECORD, head="gpu1", log="/l", work="", diff="", diff_cut=True)
    assert main(["runs", "show", "--diff"], environ={}) == 0
    printed = capfdbinary.readouterr()
    assert b"git could not compare the code with its commit" in printed.err


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["python", "x.py", "--np", "2"], "--np"),
        (["--np", "4", "python", "x.py", "--npernode=2"], "--npernode"),
        (["python", "x.py", "--hosts", "others"], "--hosts"),
        # A program may well have such a flag. Then people write -- before it, or give kit the flag, too.
        (["--np", "4", "python", "x.py", "--np", "2"], None),
        (["--", "python", "x.py", "--np", "2"], None),
        (["python", "x.py", "-n", "2", "-H", "x"], None),
    ],
)
def test_a_flag_of_kit_after_the_program_is_named(
    words: list[str], flag: str | None, flows: Flows, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words], environ={}) == 7
    err = capsys.readouterr().err
    hint = f"{flag} goes to your program, because it follows python; kit's own flags go before that"
    assert hint in err if flag else "your program" not in err
    request = flows.calls["run"][0][-1]
    assert request.command[:2] == ("python", "x.py")


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["python", "x.py", "--np", "2"], "--np"),
        (["python", "x.py", "--gpus-per-rank=1"], "--gpus-per-rank"),
        (["python", "x.py", "--gpus", "2"], None),
        (["--", "python", "x.py", "--np", "2"], None),
    ],
)
def test_kit_local_names_a_flag_after_the_program_too(
    words: list[str], flag: str | None, flows: Flows, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["local", *words], environ={}) == 7
    err = capsys.readouterr().err
    assert f"{flag} goes to your program" in err if flag else "your program" not in err


def test_ranks_are_not_of_a_nodes_log(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "--nodes", "--rank", "1"], environ={}) == 2
    assert "are for the log of a run" in capsys.readouterr().err


def test_a_word_that_is_neither_run_nor_host_is_called_so(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "zz"], environ={}) == 2
    assert "logs" not in flows.calls
    assert "'zz' is not in hosts, nor is it a run's id" in capsys.readouterr().err
    main(["logs", "gpu3"], environ={})
    assert "→ did you mean gpu2 or gpu1? Or list the runs: kit runs\n" in capsys.readouterr().err
    main(["logs", "--nodes", "zz"], environ={})
    assert "run's id" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["gpu1", "--", "A=1", "ls"], "kit exec gpu1 -- env A=…"),
        (["-H", "gpu[1-2]", "-b", "--", "A=1", "ls"], "kit exec -b 'gpu[1-2]' -- env A=…"),
        (["-it", "gpu1", "--", "A=1", "bash"], "kit exec -it gpu1 -- env A=…"),
        (["gpu1", "--", "rm -r /tmp/x"], "write: kit exec gpu1 -- rm -r /tmp/x"),
        (["--", "ls | wc"], "write: kit exec -- sh -c 'ls | wc'"),
    ],
)
def test_advice_for_exec_has_the_same_hosts(
    flows: Flows, capsys: pytest.CaptureFixture[str], words: list[str], hint: str
) -> None:
    assert main(["exec", *words], environ={}) == 2
    assert hint in capsys.readouterr().err
    assert flows.calls == {}


def test_exec_reports_failures_on_stderr_and_folds_on_request(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    failed = OutputGroup(hosts=("gpu2", "gpu3"), exit_code=5, output="no node\n  → run: kit deploy\n", failed=True)
    flows.answers["exec_hosts"] = ExecResult(groups=(OutputGroup(hosts=("gpu1",), exit_code=3, output=""), failed))
    assert main(["exec", "--", "ls"], environ={}) == 5
    printed = capsys.readouterr()
    assert printed.out == "from the job\n"
    _, _, failures = printed.err.partition("gpu1: done\n")
    assert failures == "kit: exit code 3 on gpu1\nkit: error: gpu[2-3]: no node\n  → run: kit deploy\n"

    def begun(*_args: Any, output: HostsOutput, **_: Any) -> ExecResult:
        output.begin(["gpu1"])
        return ExecResult(groups=())

    module: Any = sys.modules["kit.flows.cluster.exec"]
    module.exec_hosts = begun
    assert main(["exec", "--fold", "--", "ls"], environ={}) == 0
    printed = capsys.readouterr()
    assert printed.out == "── 1 host: gpu1  (exit code 3)\nno\n"
    assert printed.err == ""


def test_exec_as_json_keeps_the_output(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "exec", "--", "ls"], environ={}) == 3
    assert "output" not in flows.calls["exec_hosts"][1]
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["groups"][0]["output"] == "no\n"


def test_the_stack_file_is_for_swarm(flows: Flows) -> None:
    assert main(["stack"], environ={}) == 0
    assert flows.calls["stack_file"][0][0].spec.orchestrator == "swarm"
    assert main(["compose"], environ={}) == 0
    assert flows.calls["compose_file"][0][0].spec.orchestrator == "compose"


def test_lab_up_takes_the_defaults_of_the_lab(flows: Flows) -> None:
    assert main(["lab", "up", "--hosts", "3", "--link-rate", "200mbit"], environ={}) == 0
    assert flows.calls["lab_up"][0] == (LabSpec(hosts=3, link_rate="200mbit"),)


def test_overrides_reach_the_settings() -> None:
    seen: list[dict[str, object]] = []
    words = [
        "deploy",
        "--name",
        "a",
        "--ssh-port",
        "44",
        "--ssh-user",
        "u",
        "--ssh-key",
        "k",
        "--network",
        "10.0.0.0/8",
        "--builder",
        "head",
        "--registry",
        "r.io",
    ]
    assert main(words, environ={}, handle=lambda verb, session: seen.append(session.overrides()) or 0) == 0
    assert seen == [
        {
            "name": "a",
            "network": "10.0.0.0/8",
            "ssh_port": 44,
            "ssh.user": "u",
            "ssh.key": "k",
            "builder": "head",
            "registry": "r.io",
        }
    ]


def test_a_login_for_the_registry(flows: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["image", "push", "r.example.com/t", "--username", "ann"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("from stdin\n"))
    assert main([*words, "--password-stdin"], environ={}) == 0
    assert flows.calls["push_image"][1]["login"] == RegistryLogin(user="ann", secret=Secret(b"from stdin"))
    environ = {"KIT_REGISTRY_PASSWORD": "of the environment"}
    assert main(words, environ={"KIT_REGISTRY": "r.example.com/t", **environ}) == 0
    assert flows.calls["push_image"][1]["login"] == RegistryLogin(user="ann", secret=Secret(b"of the environment"))


def test_a_password_that_is_not_utf_8_is_refused(
    flows: Flows, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), "utf-8", errors="strict"))
    assert main(["image", "push", "r.example.com/t", "--username", "ann", "--password-stdin"], environ={}) == 2
    err = capsys.readouterr().err
    assert err == "kit: error: the password in standard input is not UTF-8\n  → save or set it again as UTF-8\n"
    assert "push_image" not in flows.calls


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["r.example.com/t", "--username", "ann"], "--username needs a password"),
        (["r.example.com/t", "--username", "ann", "--password-stdin"], "standard input has no password"),
        (["r.example.com/t", "--password-stdin"], "--password-stdin needs --username"),
        ([], "no registry was given"),
    ],
)
def test_half_of_a_login_is_refused(
    flows: Flows, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main(["image", "push", *words], environ={}) == 2
    assert message in capsys.readouterr().err
    assert "push_image" not in flows.calls


def test_a_failed_job_is_reported_once_and_not_when_quiet(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run"], environ={}) == 7
    assert capsys.readouterr().err.endswith("kit: the job ended with exit code 7\n")
    assert main(["-q", "run"], environ={}) == 7
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("verb", "state", "code", "message"),
    [
        ("attach", "running", 0, "goes on; kit attach"), ("wait", "running", 130, "goes on; kit attach"),
        ("attach", "lost", 5, "was stopped or killed\n  → check the nodes with kit ps, then restore them: kit deploy"),
        ("wait", "lost", 5, "is lost: its supervisor"),
        ("wait", "ended", 0, ""),
    ],
)  # fmt: skip
def test_a_run_without_an_end_is_not_a_success(  # noqa: PLR0917
    flows: Flows, capsys: pytest.CaptureFixture[str], verb: str, state: Any, code: int, message: str
) -> None:
    exit_code = 0 if state == "ended" else None
    flows.answers[verb] = replace(RECORD, state=state, exit_code=exit_code, failure=None)
    assert main([verb], environ={}) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "missing", "exit_code"), [(0, False, 0), (0, True, 5), (3, True, 3)], ids=["all", "one", "and a failure"]
)
def test_an_array_of_which_nobody_knows_all_ends_is_not_a_success(
    flows: Flows, monkeypatch: pytest.MonkeyPatch, code: int, missing: bool, exit_code: int
) -> None:
    def meant(*_: object, **__: object) -> None:
        raise ArrayMeant("20261121-101500-ffff", ["20261121-101500-0000"])

    runs = [
        replace(RECORD, exit_code=end, failure=None, array=Member(of="20261121-101500-ffff", index=index, size=2))
        for index, end in enumerate((code, 0))
    ]
    monkeypatch.setattr(sys.modules["kit.flows.run.attach"], "wait", meant)
    arrays = SimpleNamespace(wait_for_all=lambda *_: runs[:1] if missing else runs)
    monkeypatch.setitem(sys.modules, "kit.flows.queue.arrays", arrays)
    assert main(["wait", "20261121-101500-ffff"], environ={}) == exit_code


def test_ps_shows_the_others_and_reports_the_lost_one(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    lost = NodeStatus(host="gpu2", address="", service="", state="", image="", slots=2, gpus=0, problem="no route")
    flows.answers["ps"] = PsResult(cluster="kit", nodes=(lost,))
    assert main(["ps"], environ={}) == 3
    assert "no route" in capsys.readouterr().out


@pytest.mark.parametrize(("broken", "code"), [({}, 0), ({"down": True}, 5), ({"problem": "x"}, 3)])
def test_ps_fails_when_a_node_is_down(flows: Flows, broken: dict[str, Any], code: int) -> None:
    row = NodeStatus(host="gpu1", address="", service="", state="", image="", slots=2, gpus=0)
    flows.answers["ps"] = PsResult(cluster="kit", nodes=(row, replace(row, host="gpu2", **broken)))
    assert main(["ps"], environ={}) == code


def test_ps_watch_looks_until_ctrl_c(
    flows: Flows, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("kit.cli.screen.watch.time.sleep", sleep)
    assert main(["ps", "--watch", "--json"], environ={}) == 130
    captured = capsys.readouterr()
    assert [kind for line in captured.out.splitlines() if (kind := json.loads(line)["kind"]) != "line"] == ["ps"] * 2
    assert "interrupted" not in captured.err
    pauses.clear()
    assert main(["ps", "-w"], environ={}) == 130
    assert capsys.readouterr().out.count("Cluster kit") == 2


@pytest.mark.parametrize("words", [["down"], ["--json", "down"], ["runs", "rm", "2026"]])
def test_nothing_is_removed_without_a_terminal_or_yes(
    flows: Flows, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(words, environ={}) == 2
    out, err = capsys.readouterr()
    assert "unless you add --yes" in out + err
    assert flows.calls == {}


def test_down_shows_what_it_keeps(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--yes"], environ={}) == 0
    err = capsys.readouterr().err
    assert "kit down keeps the results of 1 run (3 B):\nRUN                   HOSTS  OUTPUT  LOG\n" in err
    assert flows.calls["spare_runs"][0][1:] == ((), [])


def test_down_warns_once_of_hosts_that_are_down(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    away = {name: UnreachableError("no SSH connection", host=name) for name in ("gpu2", "gpu3")}
    flows.answers["survey"] = Survey(folders={}, failures=away)
    assert main(["down", "--dry-run"], environ={}) == 0
    assert capsys.readouterr().err.count("warning:") == 1


@pytest.mark.parametrize(("flag", "flow"), [("--yes", "down"), ("--dry-run", "plan_down")])
def test_down_is_led_by_the_head_of_the_last_deploy(
    flows: Flows, monkeypatch: pytest.MonkeyPatch, flag: str, flow: str
) -> None:
    led: list[Context] = []

    def at_head(context: Context, failures: object) -> Context:
        assert failures == {}
        led.append(replace(context))
        return led[0]

    monkeypatch.setattr(sys.modules["kit.flows.cluster.before"], "at_head", at_head)
    assert main(["down", flag], environ={}) == 0
    assert all(flows.calls[name][0][0] is led[0] for name in ("left_behind", flow))


def test_a_run_to_remove_must_be_named(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "rm", "--yes"], environ={}) == 2
    assert "the id of a run is missing" in capsys.readouterr().err


def test_a_pull_without_a_host_is_a_failure_that_names_it(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    came = Pulled(host="gpu1", files=1, size=3, changed=("output/a",), skipped={"output/b\n": "it is a pipe"})
    flows.answers["pull"] = PullResult(run="r", folder="home", hosts=(came,), missed={"gpu2": "away"}, live=True)
    assert main(["pull"], environ={}) == 4
    out, err = capsys.readouterr()
    assert "Pulled run r from gpu1" in out
    assert "output/a changed while kit read it" in err
    assert "left out gpu1:output/b\\n: it is a pipe" in err
    assert "run r is still running" in err
    assert "not everything came from gpu2" in err


def test_a_pull_without_a_file_is_a_failure_that_names_it(flows: Flows, capsys: pytest.CaptureFixture[str]) -> None:
    came = Pulled(host="gpu1", unchanged=2, failed={"output/a": "Input/output error", "work/b": "Input/output error"})
    flows.answers["pull"] = PullResult(run="r", folder="home", hosts=(came,))
    assert main(["pull"], environ={}) == 4
    out, err = capsys.readouterr()
    assert "No file of run r came; 2 were there." in out
    assert "error: gpu1:output/a, gpu1:work/b did not come: Input/output error\n  → mend that, then run" in err
    # What kit never brings is no failure.
    left_out = Pulled(host="gpu1", unchanged=2, skipped={"output/a": "it is a pipe"})
    flows.answers["pull"] = PullResult(run="r", folder="home", hosts=(left_out,))
    assert main(["pull"], environ={}) == 0
