"""What prevents a deploy is a finding of the doctor, in the same words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kit.config.validate import spec_from
from kit.model.doctor import Examined, Finding, Ran, Room, Seen
from kit.model.launch import ClusterRecord
from kit.model.observed import Container, GpuEngine, HostFacts
from kit.model.swarm import SwarmFacts
from kit.model.values import replace
from kit.plan.cluster.deploy import problems_of
from kit.plan.cluster.nodes import nodes_of
from kit.plan.cluster.record import to_text
from kit.plan.cluster.supply import Image
from kit.plan.doctor.checks import CHECKS
from kit.plan.doctor.gpus import STATE
from kit.plan.doctor.judge import judge
from tests.fakes.facts import GPU_ENGINE, facts, gpus, host, interfaces

CUDA = "kit:cuda-mxnet-0123456789ab"
CAPTURES = Path(__file__).parents[3] / "captures" / "nvidia-smi"

RUNNING = Container(
    name="kit-lab-mpihead", service="mpihead", cluster="lab", image="kit:1", spec="1", running=True, status="Up"
)


def examined(observed: list[HostFacts], **spec: Any) -> Examined:
    settings = spec_from({"name": "lab", **spec})
    nodes = {node.name: node for node in nodes_of(observed, settings)[0]}
    return Examined(
        spec=settings,
        hosts=tuple(Seen(host=one.host, facts=one, node=nodes.get(one.host.name)) for one in observed),
        head="gpu1",
    )


def findings(observed: list[HostFacts], **spec: Any) -> Mapping[str, Finding]:
    found, failed = judge(examined(observed, **spec), CHECKS)
    assert not failed
    return {one.id: one for one in found}


BROKEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "engine": ({"engine": ""}, {}),
    "compose": ({"compose": None}, {}),
    "python": ({"python": None}, {}),
    "port-taken": ({"listening": frozenset({"10.0.0.3:33"})}, {}),
    "arch": ({"arch": "aarch64"}, {}),
    "no-address": ({"interfaces": interfaces(lo="127.0.0.1/8")}, {}),
    "one-machine": ({"interfaces": interfaces(eth0="10.0.0.1/24")}, {}),
    "gpu-hook": ({"gpus": gpus(2), "gpu_engine": replace(GPU_ENGINE, hook_newer=True)}, {"image": {"flavour": "cpu"}}),
    "gpu-snap": ({"gpus": gpus(2), "gpu_engine": GpuEngine(snap=True)}, {"image": {"flavour": "cpu"}}),
    "resources": ({"cores": 2}, {"cpus": 4}),
    "infiniband": ({}, {"rdma": "require"}),
    "swarm": ({"engine": "19.03.1"}, {"orchestrator": "swarm"}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_prevents_a_deploy_is_a_finding_with_the_same_text_and_hint(name: str) -> None:
    broken, spec = BROKEN[name]
    observed = [facts(1), facts(2), facts(3, **broken)]
    settings = spec_from({"name": "lab", **spec})
    nodes, lost = nodes_of(observed, settings)
    refused = [*lost, *problems_of(observed, settings, nodes, Image(tag="kit:1"))]
    finding = findings(observed, **spec)[name]
    assert finding.severity == "breaks"
    assert [(one.hosts, one.seen, one.fix) for one in finding.seen] == [
        ((problem.host,), problem.message, problem.hint) for problem in refused
    ]


def test_ordinary_hosts_have_no_finding() -> None:
    assert findings([facts(n) for n in (1, 2, 3)]) == {}
    on_gpus = [
        facts(n, gpus=gpus(2), driver="570.86.15", gpu_engine=replace(GPU_ENGINE, cgroup_driver="")) for n in (1, 2)
    ]
    assert findings(on_gpus) == {}


def test_a_host_without_an_engine_has_no_further_finding_of_its_engine() -> None:
    assert set(findings([facts(1, engine="", compose=None)])) == {"engine"}


@pytest.mark.parametrize(("python", "text"), [("2.7.18", "has Python 2.7.18"), (None, "has no python3")])
@pytest.mark.parametrize(("image", "spec"), [("sha256:1", {}), (None, {"registry": "registry.example/team"})])
def test_a_python_that_no_image_needs_is_only_to_watch(
    python: str | None, text: str, image: str | None, spec: dict[str, str]
) -> None:
    finding = findings([facts(1, python=python, image_id=image)], **spec)["python"]
    assert finding.severity == "watch"
    assert text in finding.seen[0].seen


def test_what_another_orchestrator_or_a_missing_engine_does_not_need_is_no_finding() -> None:
    on_gpus = {"gpus": gpus(2), "driver": "570.86.15", "gpu_engine": replace(GPU_ENGINE, hook_newer=True)}
    assert "gpu-hook" in findings([facts(1, **on_gpus)])
    assert set(findings([facts(1, **on_gpus, engine="", compose=None)])) == {"engine"}
    assert set(findings([facts(1, engine="", compose=None, cores=2)], cpus=4)) == {"engine"}
    assert "compose" not in findings([facts(1, compose=None)], orchestrator="swarm")
    # A snap has its own finding.
    snap = facts(1, gpus=gpus(2), driver="570.86.15", gpu_engine=GpuEngine(snap=True))
    assert {"gpu-snap", "gpu-hook"} & set(findings([snap])) == {"gpu-snap"}


def test_the_own_node_does_not_take_its_port() -> None:
    mine = facts(1, listening=frozenset({"10.0.0.1:33"}), containers=(RUNNING,))
    assert findings([mine]) == {}


def test_a_new_port_for_the_node_that_another_program_has() -> None:
    record = ClusterRecord(
        name="lab", image="kit:1", network="10.0.0.0/24", ssh_port=33, nodes=(), head_runs_ranks=True, settings={}
    )
    mine = facts(1, listening=frozenset({"10.0.0.1:33", "0.0.0.0:22"}), containers=(RUNNING,), record=to_text(record))
    assert findings([mine]) == {}
    assert set(findings([mine], ssh_port=22)) == {"port-taken"}


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        (GPU_ENGINE, True),
        (replace(GPU_ENGINE, cdi=("0",)), True),
        (replace(GPU_ENGINE, cdi_enabled=True), True),
        (replace(GPU_ENGINE, cgroup_driver="cgroupfs"), False),
        (replace(GPU_ENGINE, cdi_enabled=True, cdi=("all",)), False),
    ],
)
def test_the_hook_below_systemd(engine: GpuEngine, found: bool) -> None:
    one = facts(1, gpus=gpus(1), driver="570.86.15", gpu_engine=engine)
    assert ("gpu-cgroup" in findings([one])) == found
    # There is no file to write again.
    assert not found or "write it again" not in findings([one])["gpu-cgroup"].seen[0].fix
    assert "gpu-cgroup" not in findings([one], orchestrator="swarm")


def test_a_cdi_file_that_does_not_fit_is_written_again_where_it_counts() -> None:
    """The engine would still take the device `all` of /run/cdi."""
    old = replace(GPU_ENGINE, cdi_enabled=True, cdi=("0", "all"), cdi_folder="/run/cdi")
    one = facts(1, gpus=gpus(2), driver="570.86.15", gpu_engine=old)
    assert "--output=/run/cdi/nvidia.yaml" in findings([one])["gpu-cgroup"].seen[0].fix


@pytest.mark.parametrize(
    ("links", "seen"),
    [
        (("/var/snap/docker/current",), True),
        # Somebody tried the snap and took a package.
        (("/var/snap/docker/current", "/usr/bin/dockerd"), False),
        (("/usr/bin/dockerd",), False),
    ],
)
def test_a_snap_runs_no_nodes_without_gpus_either(links: tuple[str, ...], seen: bool) -> None:
    state = examined([facts(1)])
    patterns = {"/var/snap/docker/current": "/var/snap/docker/current", "/usr/bin/dockerd": "/usr/*bin/dockerd"}
    there = {pattern: {path: ""} for path, pattern in patterns.items() if path in links}
    judged = judge(replace(state, hosts=(replace(state.hosts[0], links=there),)), CHECKS)
    snaps = [one for one in judged.findings if one.id == "gpu-snap"]
    assert [one.severity for one in snaps] == (["breaks"] if seen else [])
    assert all("sudo snap remove docker" in one.seen[0].fix for one in snaps)


def test_lost_gpus() -> None:
    node = facts(
        1,
        gpus=gpus(2),
        driver="570.86.15",
        node_gpus=frozenset(),
        node_gpu_fault="Unknown Error",
        containers=(RUNNING,),
    )
    finding = findings([node], image={"flavour": "cuda-tensorflow"})["gpu-lost"]
    assert finding.seen[0].seen == "the node sees 0 of the host's 2 GPUs: Unknown Error"
    broken = facts(2, gpu_fault="Driver/library version mismatch")
    assert "reports no GPUs" in findings([broken])["gpu-lost"].seen[0].seen
    assert not findings([broken])["gpu-lost"].seen[0].seen.startswith("gpu2")


@pytest.mark.parametrize(("runs_ranks", "severity"), [(True, "breaks"), (False, "watch")])
def test_a_head_without_ranks_may_have_lost_its_gpus(runs_ranks: bool, severity: str) -> None:
    head = facts(
        1,
        gpus=gpus(2),
        driver="570.86.15",
        node_gpus=frozenset(),
        node_gpu_fault="Unknown Error",
        containers=(RUNNING,),
    )
    other = facts(2, gpus=gpus(2), driver="570.86.15", gpu_engine=GPU_ENGINE)
    spec = {"image": {"flavour": "cuda-tensorflow"}, "head_runs_ranks": runs_ranks}
    finding = findings([head, other], **spec)["gpu-lost"]
    assert ([sight.hosts for sight in finding.seen], finding.severity) == ([("gpu1",)], severity)


@pytest.mark.parametrize(
    ("deployed", "flavour", "lost"),
    [
        (CUDA, "auto", True),
        (CUDA, "cpu", False),
        (CUDA, "cuda-mxnet", False),
        ("kit:cpu-1", "auto", False),
        (None, "auto", False),
    ],
)
def test_a_cluster_with_an_image_for_gpus_that_has_none_any_more(
    deployed: str | None, flavour: str, lost: bool
) -> None:
    """Otherwise kit deploy would build an image without CUDA. Any host may have the record."""
    record = ClusterRecord(
        name="lab", image=deployed or "", network="10.0.0.0/24", ssh_port=33, nodes=(), head_runs_ranks=True
    )
    fault = "NVIDIA-SMI has failed because it couldn't communicate"
    bare = [facts(1, gpu_fault=fault), facts(2, gpu_fault=fault, record=to_text(record) if deployed else None)]
    seen = findings(bare, image={"flavour": flavour})["gpu-lost"].seen
    assert any("the cluster has a CUDA image, and now" in sight.seen for sight in seen) is lost


def test_a_warning_of_nvidia_smi_loses_no_gpu() -> None:
    """A GPU with a damaged infoROM works, and kit doctor --cordon must not take its host away."""
    warning = "WARNING: infoROM is corrupted at gpu 0000:17:00.0"
    one = facts(1, gpus=gpus(2), driver="570.86.15", gpu_engine=GPU_ENGINE, gpu_fault=warning)
    finding = findings([one])["gpu-lost"]
    assert (finding.severity, warning in finding.seen[0].seen) == ("watch", True)
    assert findings([replace(one, gpus=())])["gpu-lost"].severity == "breaks"


@pytest.mark.parametrize(
    ("ran", "fault", "text"),
    [
        (Ran(code=None, out=""), "", "nvidia-smi -q did not answer within 30 s, so"),
        (
            Ran(code=0, out="<?xml version='1.0'?><nvidia_smi_log><gpu>"),
            "",
            "kit cannot read what nvidia-smi -q -x prints, so",
        ),
        (Ran(code=0, out="<?xml version='1.0'?><nvidia_smi_log/>"), "", ""),
        # The host has a finding that breaks runs already.
        (Ran(code=None, out=""), "nvidia-smi did not answer within 20 s", "nvidia-smi did not answer within 20 s"),
    ],
)
def test_gpus_that_the_doctor_cannot_judge(ran: Ran, fault: str, text: str) -> None:
    state = examined([facts(1, gpus=gpus(2), driver="570.86.15", gpu_engine=GPU_ENGINE, gpu_fault=fault)])
    unjudged = replace(state, hosts=(replace(state.hosts[0], commands={STATE: ran}),))
    result = judge(unjudged, CHECKS)
    assert not result.failed
    lost = [one for one in result.findings if one.id == "gpu-lost"]
    assert [one.severity for one in lost] == (["breaks"] if fault else ["watch"] if text else [])
    assert all(len(one.seen) == 1 and text in one.seen[0].seen for one in lost)


@pytest.mark.parametrize(
    "ran", [Ran(code=None, out=""), Ran(code=14, out="<?xml version='1.0'?><nvidia_smi_log><gpu>")]
)
def test_a_warning_does_not_hide_that_the_doctor_cannot_judge(ran: Ran) -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:17:00.0"
    state = examined([facts(1, gpus=gpus(2), driver="570.86.15", gpu_engine=GPU_ENGINE, gpu_fault=warning)])
    unjudged = replace(state, hosts=(replace(state.hosts[0], commands={STATE: ran}),))
    (lost,) = (one for one in judge(unjudged, CHECKS).findings if one.id == "gpu-lost")
    assert (lost.severity, len(lost.seen)) == ("watch", 2)
    assert "so the doctor judges little of its GPUs" in lost.seen[1].seen


def test_a_slow_nvidia_smi_that_lists_the_gpus_to_the_doctor_loses_none() -> None:
    """Without persistence mode, 20 s are too short for eight GPUs. kit doctor --cordon must not take the host away."""
    record = ClusterRecord(
        name="lab", image=CUDA, network="10.0.0.0/24", ssh_port=33, nodes=(), head_runs_ranks=True, settings={}
    )
    late = facts(1, gpu_fault="nvidia-smi did not answer within 20 s", record=to_text(record))
    state, whole = examined([late]), (CAPTURES / "h200x2-570" / "state.xml").read_text()
    for ran, severity in ((Ran(code=0, out=whole), "watch"), (Ran(code=None, out=""), "breaks")):
        slow = replace(state, hosts=(replace(state.hosts[0], commands={STATE: ran}),))
        (lost,) = (one for one in judge(slow, CHECKS).findings if one.id == "gpu-lost")
        assert lost.severity == severity


@pytest.mark.parametrize(
    ("flavour", "severity"), [("cpu", "watch"), ("pytorch", "watch"), ("cuda-mxnet", "breaks"), ("auto", "breaks")]
)
def test_an_image_that_uses_no_gpu_needs_no_driver(flavour: str, severity: str) -> None:
    """Images of VMs without GPUs may have the driver's programs."""
    bare = [facts(number, gpu_fault="NVIDIA-SMI has failed because it couldn't communicate") for number in (1, 2)]
    assert findings(bare, image={"flavour": flavour})["gpu-lost"].severity == severity


def test_a_gpu_that_failed_has_one_finding() -> None:
    one = facts(1, gpus=gpus(1), driver="580.159.04", gpu_engine=GPU_ENGINE, gpu_fault="GPU 0: GPU requires reset")
    assert findings([one])["gpu-lost"].severity == "breaks"
    whole = (CAPTURES / "h200x1-580" / "state.xml").read_text()
    state, failed = examined([one]), re.sub("<(total|gpu_temp)>[^<]*<", r"<\1>GPU requires reset<", whole)
    for xml, check in ((whole, "gpu-lost"), (failed, "gpu-ecc")):
        listed = replace(state, hosts=(replace(state.hosts[0], commands={STATE: Ran(code=0, out=xml)}),))
        seen = {one.id: one.severity for one in judge(listed, CHECKS).findings if one.id in ("gpu-lost", "gpu-ecc")}
        assert seen == {check: "breaks"}
    # Another fault of its driver is another finding.
    broken = replace(one, gpu_fault="Driver/library version mismatch", gpus=())
    state = examined([broken])
    listed = replace(state, hosts=(replace(state.hosts[0], commands={STATE: Ran(code=0, out=failed)}),))
    assert {"gpu-lost", "gpu-ecc"} <= {one.id for one in judge(listed, CHECKS).findings}


def test_one_of_two_gpus_that_failed_has_one_finding() -> None:
    one = facts(1, gpus=gpus(2), driver="570.86.15", gpu_engine=GPU_ENGINE, gpu_fault="GPU 0: GPU requires reset")
    whole = (CAPTURES / "h200x2-570" / "state.xml").read_text()
    first, second = whole.split("</gpu>", 1)
    failed = re.sub("<(total|gpu_temp)>[^<]*<", r"<\1>GPU requires reset<", first) + "</gpu>" + second
    state = examined([one])
    listed = replace(state, hosts=(replace(state.hosts[0], commands={STATE: Ran(code=0, out=failed)}),))
    assert {one.id for one in judge(listed, CHECKS).findings} & {"gpu-lost", "gpu-ecc"} == {"gpu-ecc"}


@pytest.mark.parametrize("deployed", ["", CUDA])
@pytest.mark.parametrize("head", [True, False])
def test_a_head_without_ranks_may_have_programs_of_the_driver_and_no_gpu(deployed: str, head: bool) -> None:
    """Images of VMs often have them everywhere."""
    record = ClusterRecord(
        name="lab", image=deployed, network="10.0.0.0/24", ssh_port=33, nodes=(), head_runs_ranks=False, settings={}
    )
    bare = facts(1 if head else 2, gpu_fault="No devices were found", record=to_text(record))
    others = [facts(n, gpus=gpus(2), driver="570.86.15", gpu_engine=GPU_ENGINE) for n in (3, 4)]
    finding = findings([bare, *others], head_runs_ranks=False)["gpu-lost"]
    assert finding.severity == ("watch" if head else "breaks")
    assert {host for sight in finding.seen for host in sight.hosts} == {bare.host.name}
    assert findings([bare, *others])["gpu-lost"].severity == "breaks"


@pytest.mark.parametrize(("flavour", "text"), [("auto", "one image serves all hosts"), ("cuda", "but gpu2 has no GPU")])
def test_gpus_on_some_hosts(flavour: str, text: str) -> None:
    some = [facts(1, gpus=gpus(2), driver="570.86.15", gpu_engine=GPU_ENGINE), facts(2)]
    (sight,) = findings(some, image={"flavour": flavour})["gpu-cuda"].seen
    assert text in sight.seen
    # What to do is not what the check advises for drivers.
    assert sight.fix
    assert "NVIDIA driver and reboot" not in sight.fix


def test_the_driver_is_judged_on_the_hosts_that_have_gpus() -> None:
    """A head without ranks needs none, and decides nothing for the others."""
    old = facts(2, gpus=gpus(1), driver="470.57.02", gpu_engine=GPU_ENGINE)
    finding = findings([facts(1), old], head_runs_ranks=False)["gpu-cuda"]
    assert [(sight.hosts, "driver 470.57.02" in sight.seen) for sight in finding.seen] == [(("gpu2",), True)]
    assert (
        "driver 470.57.02" in findings([old, facts(3)], image={"flavour": "cuda-tensorflow"})["gpu-cuda"].seen[0].seen
    )


def test_an_idle_head_that_is_not_examined_leaves_out_no_other_host() -> None:
    some = [facts(2), facts(3, gpus=gpus(2), driver="570.86.15", gpu_engine=GPU_ENGINE)]
    sight = findings(some, head_runs_ranks=False)["gpu-cuda"].seen[0]
    assert sight.hosts == ("gpu2", "gpu3")
    assert "gpu3 has GPUs, and gpu2 has none" in sight.seen
    assert "gpu-cuda" not in findings([facts(1), some[1]], head_runs_ranks=False)


def test_an_old_driver() -> None:
    old = [facts(n, gpus=gpus(1), driver="470.57.02", gpu_engine=GPU_ENGINE) for n in (1, 2)]
    assert "has the NVIDIA driver 470.57.02" in findings(old)["gpu-cuda"].seen[0].seen


def test_a_short_heartbeat_is_to_watch() -> None:
    head = facts(1, swarm=SwarmFacts(state="inactive", heartbeat_s=2.0))
    finding = findings([head], orchestrator="swarm")["swarm"]
    assert finding.severity == "watch"


WORKER = SwarmFacts(state="active", node_id="n2", managers=("10.0.0.1:2377",))


@pytest.mark.parametrize("engine", ["", "26.1.5"])
def test_no_host_leaves_the_swarm_of_a_head_that_kit_does_not_see(engine: str) -> None:
    """kit doctor -H without the head, a head that is down, and one whose engine is."""
    workers = [facts(2, swarm=WORKER), facts(3, swarm=replace(WORKER, node_id="n3"))]
    head = [] if engine else [facts(1, engine="", compose=None)]
    assert "swarm" not in findings([*head, *workers], orchestrator="swarm")
    # A host shows these alone.
    pending = facts(2, swarm=SwarmFacts(state="pending"))
    alone = [pending, facts(3, engine="19.03.1"), facts(4, udp=frozenset({"0.0.0.0:4789"}))]
    finding = findings([*head, *alone], orchestrator="swarm")["swarm"]
    assert [sight.hosts for sight in finding.seen] == [("gpu2",), ("gpu3",), ("gpu4",)]
    assert not any("swarm leave" in sight.fix for sight in finding.seen)
    # A head that kit sees, and that is in no swarm, is a reason to leave one.
    assert "swarm leave" in findings([facts(1), *workers], orchestrator="swarm")["swarm"].seen[0].fix


GB = 10**9


@pytest.mark.parametrize(
    ("total", "free", "severity"),
    [
        (500 * GB, 200 * GB, None),
        # 4 %, and room for several images.
        (500 * GB, 20 * GB, None),
        (500 * GB, 9 * GB, "watch"),
        (100 * GB, 9 * GB, None),
        (100 * GB, GB, "watch"),
        (100 * GB, GB - 1, "breaks"),
        (500 * GB, 0, "breaks"),
        # A small disk for /tmp alone, mostly empty.
        (GB // 2, GB // 2 - 1000, None),
        (GB // 2, 0, "breaks"),
        (0, 0, None),
    ],
)
def test_disks(total: int, free: int, severity: str | None) -> None:
    room = Room(total=total, free=free, inodes=0, inodes_free=0)
    one = Seen(host=host(1), rooms={"/": room, "/tmp": room})
    found, _ = judge(Examined(spec=spec_from({"name": "lab"}), hosts=(one,)), CHECKS)
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    # Both paths are on one disk.
    assert all(len(finding.seen) == 1 for finding in found)
