"""Results as text and as JSON, from the same values. No secret in either."""

from __future__ import annotations

import ipaddress
import json
import math
from pathlib import PurePosixPath
from typing import Any

import pytest
from msgspec import Struct

from kit.cli.screen import jsonout
from kit.cli.screen.jsonout import encode, line
from kit.cli.text import cluster as render
from kit.cli.text import launch, ps, table
from kit.cli.text import plan as plantext
from kit.events import OutputLine
from kit.model.launch import LaunchPlan, Node, Placement
from kit.model.observed import Interface
from kit.model.plan import (
    ComposeUp,
    DeleteFile,
    HostPlan,
    Plan,
    RemoveCluster,
    Round,
    Ship,
    Step,
    VerifyPeers,
    WaitSshd,
    WriteFile,
)
from kit.model.queue import Line
from kit.model.result import (
    DeployResult,
    DownPreview,
    DownResult,
    ExecResult,
    HostResult,
    LocalResult,
    NodeStatus,
    OutputGroup,
    PsResult,
    RunsResult,
)
from kit.model.run import Place, RunRecord
from kit.model.secret import Secret
from kit.model.swarm import StackRemove, SwarmInit
from kit.model.text import size
from kit.model.values import replace

PRIVATE = b"-----BEGIN OPENSSH PRIVATE KEY-----"


def host_plan(number: int) -> HostPlan:
    steps: tuple[Step, ...] = (
        WriteFile(path="compose.yaml", content=b"name: kit\nservices: {}\n", mode="0644", why="it is missing"),
        WriteFile(path="ssh/host_key", content=Secret(PRIVATE), mode="0600", why="it is missing"),
        DeleteFile(path="ssh/old", why="it does not belong there"),
        ComposeUp(folder="/opt/kit/kit", project="kit-kit", recreate=number == 9, why="no container runs"),
        WaitSshd(
            container="kit-kit-mpinode", address=f"10.0.0.{number}", port=33, timeout_s=60.0, why="it was started"
        ),
    )
    return HostPlan(host=f"gpu{number}", steps=steps)


VERIFY = HostPlan(
    host="gpu1",
    steps=(
        VerifyPeers(container="kit-kit-mpihead", peers=(("gpu1", "10.0.0.1"), ("gpu2", "10.0.0.2")), why="new keys"),
    ),
)
SHIP = Ship(image="kit:cpu-0123", image_id="sha256:ab", size=1_870_000_000, address="10.0.0.1", why="it is not there")
PLAN = Plan(
    cluster="kit",
    hosts=("gpu1", "gpu2", "gpu3", "gpu4"),
    rounds=(
        Round(name="ship", hosts=tuple(HostPlan(host=f"gpu{n}", steps=(SHIP,)) for n in (1, 2, 3)), together=True),
        Round(name="set up", hosts=tuple(host_plan(n) for n in (1, 2, 3)), needs="host"),
        Round(name="verify", hosts=(VERIFY,)),
    ),
)
LAUNCH = LaunchPlan(
    run_id="r1",
    placement=Placement(
        nodes=tuple(Node(name=f"gpu{n}", address=f"10.0.0.{n}", slots=2) for n in (1, 2, 3)), counts=(2, 2, 1)
    ),
    hostfile="10.0.0.1 slots=2\n10.0.0.2 slots=2\n10.0.0.3 slots=1\n",
    argv=("mpirun", "-np", "5", "sh", "-c", "echo $HOME 'x'"),
    env={"A": "b c"},
)


def test_a_plan_folds_equal_hosts() -> None:
    assert plantext.plan(PLAN) == (
        "Plan for cluster kit\n"
        "First, ship:\n"
        "gpu[1-3]  (3 hosts)\n"
        "  ship  kit:cpu-0123 (1.87 GB)  because it is not there\n"
        "Then, set up:\n"
        "gpu[1-3]  (3 hosts)\n"
        "  write   compose.yaml 0644                  because it is missing\n"
        "  write   ssh/host_key 0600 (secret)         because it is missing\n"
        "  delete  ssh/old                            because it does not belong there\n"
        "  start   docker compose up in /opt/kit/kit  because no container runs\n"
        "  wait    for sshd on port 33                because it was started\n"
        "Then, when every host is done, verify:\n"
        "gpu1\n"
        "  verify  ssh from kit-kit-mpihead to gpu[1-2]  because new keys\n"
        "Nothing to change on 1 host: gpu4."
    )


def test_a_plan_in_full_shows_files_and_addresses_but_no_secret() -> None:
    text = plantext.plan(PLAN, verbose=True)
    assert "  │ services: {}" in text
    assert "for sshd on 10.0.0.3:33" in text
    assert "PRIVATE" not in text


def test_an_empty_plan_says_so() -> None:
    plan = Plan(cluster="kit", hosts=("gpu1", "gpu2"))
    assert plantext.plan(plan) == "Nothing to do: cluster kit is as it should be on 2 hosts: gpu[1-2]."


def test_a_teardown_step_has_a_line() -> None:
    step = RemoveCluster(folder="/opt/kit/kit", cluster="kit", images=("kit:cpu-0123",), keep=True, why="kit down")
    text = plantext.plan(
        Plan(
            cluster="kit", hosts=("gpu1",), rounds=(Round(name="down", hosts=(HostPlan(host="gpu1", steps=(step,)),)),)
        )
    )
    assert "remove  containers of kit, /opt/kit/kit (keep what runs made) and kit's images" in text


def test_a_launch_can_be_pasted() -> None:
    assert launch.launch(LAUNCH) == (
        "# 5 ranks: 2 on each of gpu[1-2], 1 on gpu3\n"
        "# hostfile\n10.0.0.1 slots=2\n10.0.0.2 slots=2\n10.0.0.3 slots=1\n"
        "# command\nenv 'A=b c' mpirun -np 5 sh -c 'echo $HOME '\"'\"'x'\"'\"''"
    )


def test_a_launch_says_which_slots_it_assumes() -> None:
    assert launch.launch(replace(LAUNCH, assumed=("gpu1", "gpu2"))).splitlines()[:3] == [
        "# 5 ranks: 2 on each of gpu[1-2], 1 on gpu3",
        "# slots: 2 assumed on gpu[1-2]; kit deploy counts their GPUs",
        "# hostfile",
    ]
    (line,) = launch.assumed(replace(LAUNCH, assumed=("gpu3",)))
    assert line == "slots: 2 assumed on gpu3; kit deploy counts its GPUs"


def test_a_launch_shows_which_rank_gets_which_gpu() -> None:
    nodes = tuple(Node(name=f"gpu{n}", address=f"10.0.0.{n}", slots=4, gpus=4) for n in (1, 2))
    places = tuple(Place(node=node.name, address=node.address, ranks=2, slots=(0, 1, 2, 3)) for node in nodes)
    plan = LaunchPlan(
        run_id="r", placement=Placement(nodes=nodes, counts=(2, 2)), hostfile="h\n", argv=("mpirun",), places=places,
        env={"KIT_GPUS_PER_RANK": "2"},
    )  # fmt: skip
    assert launch.launch(plan).splitlines()[:6] == [
        "# 4 ranks: 2 on each of gpu[1-2]",
        "# GPUs, if each host has one for each slot and no other run holds any:",
        "# rank 0 on gpu1: GPUs 0, 1",
        "# rank 1 on gpu1: GPUs 2, 3",
        "# rank 2 on gpu2: GPUs 0, 1",
        "# rank 3 on gpu2: GPUs 2, 3",
    ]
    many = replace(plan, placement=Placement(nodes=nodes, counts=(20, 20)), env={"KIT_GPUS_PER_RANK": "1"})
    assert "# … and 24 more ranks" in launch.launch(many)
    assert "GPU" not in launch.launch(replace(plan, env={}))


def test_tables_align_and_put_numbers_right() -> None:
    assert table.table([("a", 1), ("bcd", 100)], ("NAME", "N")) == "NAME    N\na       1\nbcd   100"
    assert table.table([], ("NAME", "N")) == "NAME  N"
    assert table.table([]) == ""


def test_a_narrow_terminal_cuts_what_may_be_cut() -> None:
    rows, header = [("gpu1", "kit:cpu-0123456789abcdef", 1)], ("HOST", "IMAGE", "N")
    assert table.table(rows, header, width=80, flexible=("IMAGE",)) == table.table(rows, header)
    assert table.table(rows, header, width=27, flexible=("IMAGE",)).splitlines()[1] == "gpu1  kit:cpu-012345678…  1"
    # A column keeps 14 characters. If the line is still too long, its end is cut.
    assert table.table(rows, header, width=23, flexible=("IMAGE",)).splitlines()[1] == "gpu1  kit:cpu-01234…  1"
    assert table.table(rows, header, width=10, flexible=("IMAGE",)).splitlines()[1] == "gpu1  kit…"
    assert table.table(rows, header, width=12).splitlines()[1] == "gpu1  kit:c…"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (25_000_000, "25 MB"), (1_870_000_000, "1.87 GB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


HOSTS = (HostResult(host="gpu1", status="ok"), HostResult(host="gpu2", status="unchanged"))
PS = PsResult(
    cluster="kit",
    nodes=(
        NodeStatus(
            host="gpu1", address="10.0.0.1", service="mpihead", state="running", image="kit:cpu-0123", slots=2, gpus=8,
            ranks={"r1": (0, 1)},
        ),
        NodeStatus(
            host="gpu2", address="10.0.0.2", service="", state="", image="", slots=2, gpus=0, problem="no route"
        ),
    ),
)  # fmt: skip
EXEC = ExecResult(
    groups=(
        OutputGroup(hosts=("gpu1", "gpu2"), exit_code=0, output="ok\n"),
        OutputGroup(hosts=("gpu3",), exit_code=3, output="no such file\n"),
    )
)


def test_results_as_text() -> None:
    deployed = DeployResult(plan=PLAN, dry_run=False, changed=True, hosts=HOSTS, seconds=12.34)
    assert render.deploy(deployed) == "Cluster kit is ready on 2 hosts: gpu[1-2] (12.3 s)."
    same = DeployResult(plan=PLAN, dry_run=False, changed=False, hosts=HOSTS, seconds=0.5)
    assert render.deploy(same) == "Nothing to do: cluster kit is as it should be on 2 hosts: gpu[1-2]."
    gone = DownResult(cluster="kit", removed={"gpu1": ("kit-kit-mpihead",), "gpu2": ()})
    assert render.down(gone) == "Removed cluster kit from 1 host: gpu1."
    staged = DownResult(cluster="kit", removed={"gpu1": ("kit-kit-mpihead",)}, data=("text", "web"))
    assert render.down(staged) == (
        "Removed cluster kit from 1 host: gpu1.\n"
        "The staged data of text, web stays there; delete it: kit data rm text web"
    )
    homes = DownResult(cluster="kit", removed={"gpu1": ("kit-kit-mpihead",), "gpu2": ()}, homes=("gpu1", "gpu2"))
    assert render.down(homes) == (
        "Removed cluster kit from 1 host: gpu1.\n"
        "What jobs wrote to HOME stays on 2 hosts: gpu[1-2]; delete it: kit down --purge"
    )
    before = DownPreview(cluster="kit", deletes=(), keeps=(), keeps_homes=True)
    assert render.down_preview(before) == "Cluster kit has no runs.\nkit down keeps what jobs wrote to HOME."
    unknown = replace(before, unknown=("gpu1", "gpu2"))
    assert render.down_preview(unknown).splitlines()[0] == "kit does not know which runs are on 2 hosts: gpu[1-2]."
    purge = DownPreview(cluster="kit", deletes=(), keeps=(), keeps_homes=False)
    assert render.down_preview(purge) == "Cluster kit has no runs.\nkit down deletes what jobs wrote to HOME."
    nothing = DownResult(cluster="kit", removed={"gpu1": ()})
    assert render.down(nothing) == "Nothing to do: cluster kit is not on 1 host: gpu1."
    assert render.groups(EXEC) == "── 2 hosts: gpu[1-2]\nok\n── 1 host: gpu3  (exit code 3)\nno such file"
    assert ps.ps(PS) == (
        "Cluster kit, 2 hosts: gpu[1-2]\n"
        "HOST  ADDRESS   SERVICE  STATE     IMAGE         SLOTS  GPUS  RANKS\n"
        "gpu1  10.0.0.1  mpihead  running   kit:cpu-0123      2     8      2\n"
        "gpu2  10.0.0.2           no route                    2     0      0\n"
        "Running: r1"
    )
    assert launch.local(LocalResult(image="kit:x", argv=("mpirun", "a b"), exit_code=None, seconds=0.1)) == (
        "# in a new container of kit:x\nmpirun 'a b'"
    )


def _fields(kind: str, value: object) -> dict[str, Any]:
    text = line(kind, value)
    assert "\n" not in text
    fields = json.loads(text)
    assert fields.pop("kit") == 1
    assert fields.pop("kind") == kind
    assert isinstance(fields, dict)
    return fields


def test_a_plan_as_json_holds_no_secret() -> None:
    text = line("plan", PLAN)
    assert "PRIVATE" not in text
    fields = json.loads(text)
    assert fields["empty"] is False
    steps = fields["hosts"][0]["steps"]
    assert [step["step"] for step in steps] == ["Ship", "WriteFile", "WriteFile", "DeleteFile", "ComposeUp", "WaitSshd"]
    assert steps[1]["content"] == "name: kit\nservices: {}\n"
    assert steps[2]["content"] == {"secret": True, "sha256": Secret(PRIVATE).digest(), "size": len(PRIVATE)}


def test_a_plan_as_json_keeps_the_shape_of_its_first_version() -> None:
    """`hosts` up to the set-up, `before`, `rounds` and `after`. Later: `order`, which has no steps, and `spares`."""
    gone = StackRemove(cluster="kit", why="Compose takes over")
    init = SwarmInit(address="10.0.0.1", why="no swarm yet")
    rounds = (
        Round(name="take off", hosts=(HostPlan(host="gpu1", steps=(gone,)),)),
        *PLAN.rounds[:2],
        Round(name="form the swarm", hosts=(HostPlan(host="gpu1", steps=(init,)),)),
        *PLAN.rounds[2:],
    )
    fields = _fields("plan", replace(PLAN, rounds=rounds))
    assert list(fields) == ["cluster", "hosts", "after", "before", "rounds", "order", "empty"]
    assert [host["host"] for host in fields["hosts"]] == ["gpu1", "gpu2", "gpu3", "gpu4"]
    assert fields["hosts"][3]["steps"] == []
    removed = {"step": "StackRemove", "cluster": "kit", "why": "Compose takes over", "spares": False}
    assert fields["before"] == [{"host": "gpu1", "steps": [removed]}]
    assert fields["rounds"] == [
        {
            "name": "form the swarm",
            "hosts": [{"host": "gpu1", "steps": [{"step": "SwarmInit", "address": "10.0.0.1", "why": "no swarm yet"}]}],
        }
    ]
    assert [step["step"] for host in fields["after"] for step in host["steps"]] == ["VerifyPeers"]
    assert fields["order"] == [
        {"name": "take off", "needs": "all", "hosts": ["gpu1"]},
        {"name": "ship", "needs": "all", "hosts": ["gpu1", "gpu2", "gpu3"]},
        {"name": "set up", "needs": "host", "hosts": ["gpu1", "gpu2", "gpu3"]},
        {"name": "form the swarm", "needs": "all", "hosts": ["gpu1"]},
        {"name": "verify", "needs": "all", "hosts": ["gpu1"]},
    ]


def test_times_as_json_are_rfc_3339() -> None:
    assert jsonout.moment(1_790_000_000.1239) == "2026-09-21T14:13:20.124Z"
    assert jsonout.moment(None) is jsonout.moment(0.0) is None
    record = _fields("run", RunRecord(id="r", cluster="", image="", command=(), places=(), started=1.5, ended=2.9999))
    assert (record["started"], record["ended"]) == ("1970-01-01T00:00:01.500Z", "1970-01-01T00:00:03.000Z")
    assert _fields("queue", Line(cluster="lab", now=1.5))["now"] == "1970-01-01T00:00:01.500Z"
    assert _fields("runs", RunsResult(cluster="lab", runs=()))["now"] is None


def test_results_as_json() -> None:
    assert _fields("exec", EXEC) == {
        "groups": [
            {"hosts": ["gpu1", "gpu2"], "exit_code": 0, "output": "ok\n", "failed": False},
            {"hosts": ["gpu3"], "exit_code": 3, "output": "no such file\n", "failed": False},
        ],
        "exit_code": 3,
    }
    assert _fields("ps", PS)["nodes"][0]["ranks"] == {"r1": [0, 1]}
    assert _fields("launch", LAUNCH)["placement"]["np"] == 5
    assert _fields("line", OutputLine(text="é\n?", source="2")) == {"text": "é\n?", "stream": "stdout", "source": "2"}


def test_numbers_that_json_does_not_have_are_null() -> None:
    """A benchmark may print NaN, and jq refuses a line with it."""

    class Half(Struct, frozen=True):
        of: float

        @property
        def half(self) -> float:
            return self.of / 2

    values = {"result": {"loss": math.nan, "iters": [1.5, math.inf]}, "half": Half(-math.inf)}
    assert line("sample", values) == (
        '{"kit": 1, "kind": "sample", "result": {"loss": null, "iters": [1.5, null]}, '
        '"half": {"of": null, "half": null}}'
    )


def test_values_that_json_does_not_know() -> None:
    interface = Interface(name="eth0", address=ipaddress.IPv4Interface("10.0.0.4/24"))
    assert encode(interface) == {"name": "eth0", "address": "10.0.0.4/24"}
    assert encode(PurePosixPath("/a/b")) == "/a/b"
    assert encode(frozenset({"b", "a"})) == ["a", "b"]
    assert encode({"k": (1, 2.5, None, True)}) == {"k": [1, 2.5, None, True]}
    assert encode(b"\xff") == {"sha256": "a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89", "size": 1}
    with pytest.raises(TypeError):
        encode(object())
