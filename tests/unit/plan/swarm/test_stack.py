"""The stack for Swarm as data and as text, and the skeleton in compose/ that people read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit.model.names import LABEL_SPEC
from kit.model.observed import HostFacts
from kit.model.spec import ClusterSpec, UlimitSpec
from kit.model.swarm import Role, SwarmFacts
from kit.model.values import replace
from kit.plan.cluster import stack
from kit.plan.swarm import stack as swarm
from tests.fakes.datasets import DATA
from tests.fakes.facts import facts, gpus, keys, node
from tests.fakes.golden import check_golden

COMPOSE = Path(__file__).resolve().parents[4] / "compose"
SPEC = ClusterSpec(name="lab")
TAG = "kit:cpu-0123456789ab"
NAMES: dict[Role, str] = {"client": "kit-lab-client-1", "head": "kit-lab-head-1", "node": "kit-lab-node-1"}


def wanted(spec: ClusterSpec = SPEC, observed: Sequence[HostFacts] = (), **more: Any) -> swarm.Wanted:
    hosts = observed or [facts(1), facts(2), facts(3)]
    nodes = [node(index + 1) for index in range(len(hosts))]
    values: dict[str, Any] = {"image": "sha256:1f", "tag": TAG, "interface": "eth0", "secrets": NAMES, **more}
    return swarm.wanted(spec, hosts, nodes, **values)


def read(spec: ClusterSpec, *args: Any, **more: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(swarm.stack_text(spec, wanted(spec, *args, **more)))
    return document


def test_the_stack_file() -> None:
    check_golden("swarm/stack.yaml", swarm.stack_text(SPEC, wanted()))


def test_the_stack_file_of_a_rich_spec() -> None:
    spec = replace(
        SPEC,
        env={"COST": "5$", "PATTERN": "${HOME}", "YES": "yes", "LINES": "a\nb", "TEMPLATE": "{{.Node.ID}}"},
        volumes=("/data/imagenet:/data:ro", "scratch:/scratch:nocopy", "/mnt/fs:/fs:rslave", "other:/other"),
        shm_size="8gb",
        cpus=12.0,
        memory="64gb",
        hugepages="4gb",
        ulimits=UlimitSpec(memlock="default", nofile=1048576, stack=None),
    )
    check_golden("swarm/rich.yaml", swarm.stack_text(spec, wanted(spec)))


def test_the_stack_file_with_data_sets() -> None:
    spec = replace(SPEC, data=DATA)
    check_golden("swarm/data.yaml", swarm.stack_text(spec, wanted(spec)))


def test_the_stack_file_with_gpus() -> None:
    card = SwarmFacts(resources={"NVIDIA-GPU": 2})
    hosts = [facts(1), facts(2, gpus=gpus(2), swarm=card), facts(3, gpus=gpus(2), swarm=card)]
    check_golden("swarm/gpus.yaml", swarm.stack_text(SPEC, wanted(observed=hosts)))


def test_one_host_has_a_head_and_no_nodes() -> None:
    assert set(read(SPEC, [facts(1)])["services"]) == {"mpihead"}


@pytest.mark.parametrize(
    ("advertised", "counts", "expected"),
    [
        ([2, 2], [2, 2], ("NVIDIA-GPU", 2)),
        # Each node has to have what is reserved: otherwise none is, and the runtime gives all.
        ([2, 4], [2, 4], None),
        ([2, 0], [2, 2], None),
        ([0, 0], [2, 2], None),
        ([2, 2], [4, 4], None),
        ([0, 0], [0, 0], None),
    ],
)
def test_gpus_are_reserved_where_all_advertise_the_same(
    advertised: list[int], counts: list[int], expected: tuple[str, int] | None
) -> None:
    hosts = [
        facts(n + 1, gpus=gpus(count), swarm=SwarmFacts(resources={"NVIDIA-GPU": generic} if generic else {}))
        for n, (generic, count) in enumerate(zip(advertised, counts, strict=True))
    ]
    assert swarm.gpu_reservation(hosts) == expected


def test_a_person_may_choose_the_gpus() -> None:
    spec = replace(SPEC, env={"NVIDIA_VISIBLE_DEVICES": "0"})
    hosts = [facts(1, gpus=gpus(2)), facts(2)]
    services = wanted(spec, hosts).services
    assert services["mpihead"]["environment"]["NVIDIA_VISIBLE_DEVICES"] == "0"
    assert "NVIDIA_DRIVER_CAPABILITIES" in services["mpihead"]["environment"]
    assert "NVIDIA_DRIVER_CAPABILITIES" not in services["mpinode"]["environment"]


def test_what_a_node_has_of_its_own_is_not_in_the_definition_of_all() -> None:
    own = stack.own_environment(SPEC, node(2), "ens3")
    assert own == {
        "KIT_NODE": "gpu2",
        "KIT_ADDRESS": "10.0.0.2",
        "NCCL_SOCKET_IFNAME": "=ens3",
        "HOROVOD_GLOO_IFACE": "ens3",
    }
    assert not own.keys() & wanted().services["mpinode"]["environment"].keys()
    assert own.keys() <= wanted().services["mpihead"]["environment"].keys()
    spec = replace(SPEC, env={"NCCL_SOCKET_IFNAME": "ib"})
    assert stack.own_environment(spec, node(2), "ens3")["NCCL_SOCKET_IFNAME"] == "ib"
    assert stack.own_environment(SPEC, node(2), "ens3", {"NCCL_IB_HCA": "mlx5_0"}) == {**own, "NCCL_IB_HCA": "mlx5_0"}


@pytest.mark.parametrize(
    ("ids", "local", "expected"),
    [
        (["sha256:1", "sha256:1"], "", "sha256:1"),
        ([None, "sha256:1"], "sha256:1", "sha256:1"),
        # Engines with another image store have other ids for the same image.
        (["sha256:1", "sha256:2"], "", TAG),
        ([None, None], "", TAG),
        ([None, "sha256:1"], "sha256:2", TAG),
    ],
)
def test_the_image_is_named_by_its_id_which_is_never_pulled(ids: list[str | None], local: str, expected: str) -> None:
    hosts = [facts(n + 1, image_id=one_id) for n, one_id in enumerate(ids)]
    assert swarm.image_of(hosts, tag=TAG, image_id=local) == expected


def test_limits_of_a_task() -> None:
    limited = read(replace(SPEC, cpus=2.5, memory="64gb", pids=4096))["services"]["mpinode"]["deploy"]["resources"]
    assert limited["limits"] == {"cpus": "2.5", "memory": "64gb", "pids": 4096}
    exclusive = read(replace(SPEC, cpus="exclusive"))["services"]["mpinode"]["deploy"]["resources"]
    assert exclusive["limits"] == {"pids": 32768}


def test_a_key_is_a_secret_by_its_content() -> None:
    nodes = [node(1), node(2)]
    names = swarm.secret_names(SPEC, nodes, keys("gpu1", "gpu2"))
    assert len(set(names.values())) == 3
    assert all(name.startswith("kit-lab-") and len(name) <= 64 for name in names.values())
    assert swarm.secret_names(SPEC, nodes, keys("gpu1", "gpu3", "gpu2"))["head"] == names["head"]
    assert set(swarm.secret_names(SPEC, nodes[:1], keys("gpu1"))) == {"client", "head"}
    longest = ClusterSpec(name="a" * 40)
    assert all(len(name) <= 64 for name in swarm.secret_names(longest, nodes, keys("gpu1", "gpu2")).values())


@pytest.mark.parametrize(
    "change",
    [
        {"image": "sha256:2f"},
        {"interface": "eth1"},
        {"secrets": {**NAMES, "client": "kit-lab-client-2"}},
        {"spec": replace(SPEC, shm_size="2gb")},
        {"spec": replace(SPEC, env={"A": "1"})},
        {"spec": replace(SPEC, volumes=("/a:/b",))},
        {"spec": replace(SPEC, ssh_port=34)},
        {"spec": replace(SPEC, cpus=2.0)},
        {"spec": replace(SPEC, memory="2gb")},
        {"spec": replace(SPEC, pids=100)},
    ],
)
def test_the_digest_distinguishes_definitions(change: dict[str, Any]) -> None:
    assert wanted(**change).digest("mpihead") != wanted().digest("mpihead")


def test_another_host_leaves_the_definition_unchanged() -> None:
    more = wanted(observed=[facts(1), facts(2), facts(3), facts(4)])
    assert more.digest("mpinode") == wanted().digest("mpinode")
    assert more.digest("mpihead") == wanted().digest("mpihead")


def test_the_skeleton_is_what_kit_writes() -> None:
    spec = ClusterSpec(name="example")
    names: dict[Role, str] = {role: f"kit-example-{role}-by-hand" for role in ("client", "head", "node")}
    card = SwarmFacts(resources={"NVIDIA-GPU": 2})
    hosts = [facts(1), facts(2, gpus=gpus(2), swarm=card)]
    nodes = [node(1, address="10.0.0.4"), node(2, address="10.0.0.5")]
    wanted_stack = swarm.wanted(spec, hosts, nodes, image=TAG, tag=TAG, interface="eth0", secrets=names)
    written = yaml.safe_load(swarm.stack_text(spec, wanted_stack))
    for body in written["services"].values():
        # What only kit computes, and a person need not.
        del body["labels"][LABEL_SPEC], body["deploy"]["labels"][LABEL_SPEC]
    assert yaml.safe_load((COMPOSE / "mpi.stack.yaml").read_text(encoding="utf-8")) == written


def test_the_page_names_what_the_skeleton_mounts() -> None:
    """Swarm fails a task if a source is missing. Each VM has a service with all of them."""
    stack = yaml.safe_load((COMPOSE / "mpi.stack.yaml").read_text(encoding="utf-8"))
    mounts = [mount for body in stack["services"].values() for mount in body["volumes"] if mount["type"] == "bind"]
    folder = "/opt/kit/example/"
    needed = {mount["source"].removeprefix(folder) for mount in mounts if mount["source"].startswith(folder)}
    page = (COMPOSE / "README.md").read_text(encoding="utf-8")
    files = re.findall(r"^ *\| `(\S+)` \| every VM \|", page, re.MULTILINE)
    (step,) = re.findall(r"^\d\. Create the folders (.*) on every VM\.", page, re.MULTILINE)
    assert needed <= {*files, *re.findall(r"`(\w+)`", step)}


def test_the_page_names_what_only_vms_with_gpus_can_start() -> None:
    """Swarm starts no mpinode where the engine does not advertise what the skeleton reserves."""
    stack = yaml.safe_load((COMPOSE / "mpi.stack.yaml").read_text(encoding="utf-8"))
    page = (COMPOSE / "README.md").read_text(encoding="utf-8")
    (step,) = re.findall(r"^1\. Copy the image to both VMs, and (.*?)^2\.", page, re.MULTILINE | re.DOTALL)
    assert "reservations" in stack["services"]["mpinode"]["deploy"]["resources"]
    assert "Remove `reservations:`" in step
