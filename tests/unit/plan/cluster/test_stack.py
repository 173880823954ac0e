"""The services as data, the Compose file as text, and the skeletons in compose/ that people read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit.model.spec import ClusterSpec, UlimitSpec
from kit.model.values import replace
from kit.plan.cluster import stack
from tests.fakes.datasets import DATA
from tests.fakes.facts import node
from tests.fakes.golden import check_golden

COMPOSE = Path(__file__).resolve().parents[4] / "compose"
SPEC = ClusterSpec(name="lab")
KEY = "ssh-ed25519 AAAA kit-gpu1"


IMAGE = "kit:cpu-0123456789ab"


def file(spec: ClusterSpec = SPEC, *, name: str = "mpinode", image: str = IMAGE, **more: Any) -> stack.ComposeFile:
    values: dict[str, Any] = {"node": node(1), "interface": "eth0", "gpus": "", "host_key": KEY}
    return stack.ComposeFiles(spec, image).file(name, **{**values, **more})


def service(spec: ClusterSpec = SPEC, *, name: str = "mpinode", **more: Any) -> dict[str, Any]:
    body = yaml.safe_load(file(spec, name=name, **more).text)["services"][name]
    assert isinstance(body, dict)
    return body


@pytest.mark.parametrize("name", ["mpihead", "mpinode"])
@pytest.mark.parametrize(("driver", "suffix"), [("", ""), ("nvidia", "-gpus"), ("cdi", "-cdi")])
def test_compose_files(name: str, driver: str, suffix: str) -> None:
    check_golden(f"compose/{name}{suffix}.yaml", file(name=name, gpus=driver).text)


def test_a_compose_file_of_a_rich_spec() -> None:
    spec = replace(
        SPEC,
        env={"COST": "5$", "PATTERN": "${HOME}", "YES": "yes", "LINES": "a\nb"},
        volumes=("/data/imagenet:/data:ro", "scratch:/scratch"),
        shm_size="8gb",
        cpus=12.0,
        memory="64gb",
        pids=0,
        devices=("/dev/gdrdrv", "/dev/fuse:/dev/fuse:rw"),
        hugepages="4gb",
        ulimits=UlimitSpec(memlock="default", nofile=1048576, stack=None),
    )
    check_golden("compose/rich.yaml", file(spec).text)


def test_a_compose_file_with_data_sets() -> None:
    check_golden("compose/data.yaml", file(replace(SPEC, data=DATA)).text)


def test_values_come_through_compose_as_they_were() -> None:
    """Compose reads `$$` as `$`; YAML must not take 33 or yes for anything but text."""
    values = {"A": "5$ ${B} $$", "B": "yes", "C": "033", "D": "x: y # z", "E": " lead", "F": "ü\t\n", "G": "a" * 300}
    spec = replace(SPEC, env=values)
    read = yaml.safe_load(file(spec).text)
    environment = read["services"]["mpinode"]["environment"]
    assert {name: environment[name].replace("$$", "$") for name in values} == values
    assert environment["SSH_PORT"] == "33"


def test_volumes_without_a_path_are_declared() -> None:
    spec = replace(SPEC, volumes=("scratch:/scratch", "/data:/data"))
    read = yaml.safe_load(file(spec).text)
    assert read["volumes"] == {"scratch": {}}
    assert "volumes" not in yaml.safe_load(file().text)


def test_the_person_may_choose_the_interface_of_nccl_but_not_the_port() -> None:
    spec = replace(SPEC, env={"NCCL_SOCKET_IFNAME": "ib", "SSH_PORT": "22", "KIT_CLUSTER": "x"})
    environment = service(spec)["environment"]
    assert environment["NCCL_SOCKET_IFNAME"] == "ib"
    assert environment["SSH_PORT"] == "33"
    assert environment["KIT_CLUSTER"] == "lab"


def test_each_host_has_its_own_infiniband_adapters() -> None:
    spec = replace(SPEC, env={"NCCL_IB_HCA": "mlx5"})
    assert service(spec, more={"NCCL_IB_HCA": "mlx5_0:1,mlx5_2"})["environment"]["NCCL_IB_HCA"] == "mlx5_0:1,mlx5_2"
    assert service(spec)["environment"]["NCCL_IB_HCA"] == "mlx5"
    assert "NCCL_IB_HCA" not in service()["environment"]
    files = stack.ComposeFiles(SPEC, IMAGE)
    names = [
        files.file("mpinode", node=node(1), interface="ib0", gpus="", host_key=KEY, more={"NCCL_IB_HCA": hca})
        for hca in "ab"
    ]
    assert [f"NCCL_IB_HCA: {name}\n" in text.text for name, text in zip("ab", names, strict=True)] == [True, True]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "mpihead"},
        {"image": "kit:cpu-ba9876543210"},
        {"node": node(1, address="10.0.0.9")},
        {"node": node(1, name="other")},
        {"interface": "eth1"},
        {"more": {"NCCL_IB_HCA": "mlx5_0"}},
        {"rdma": True},
        {"spec": replace(SPEC, devices=("/dev/gdrdrv",))},
        {"spec": replace(SPEC, hugepages="1gb")},
        {"gpus": "nvidia"},
        {"host_key": "ssh-ed25519 BBBB kit-gpu1"},
        {"spec": replace(SPEC, shm_size="2gb")},
        {"spec": replace(SPEC, env={"A": "1"})},
        {"spec": replace(SPEC, volumes=("/a:/b",))},
        {"spec": replace(SPEC, ssh_port=34)},
        {"spec": replace(SPEC, data=DATA[:1])},
        {"spec": replace(SPEC, cpus=2.0)},
        {"spec": replace(SPEC, memory="2gb")},
        {"spec": replace(SPEC, pids=100)},
    ],
)
def test_the_digest_distinguishes_definitions(change: dict[str, Any]) -> None:
    assert service(**change)["labels"]["kit.spec"] != service()["labels"]["kit.spec"]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"node": node(1, slots=8, cores=64)},
        # These limits are those of a run, not of a container.
        {"spec": replace(SPEC, cpus="exclusive")},
        {"spec": replace(SPEC, pids=SPEC.security.pids)},
    ],
)
def test_the_digest_stays_where_the_container_would_be_the_same(change: dict[str, Any]) -> None:
    assert service(**change)["labels"]["kit.spec"] == service()["labels"]["kit.spec"]


@pytest.mark.parametrize("name", ["mpihead", "mpinode"])
@pytest.mark.parametrize("text", ["gap", "gap_KIT_NODE_gap_", '"gapkeygap"', "a\nb: $x ü 𝄞", "yes", "007"])
def test_a_file_that_is_filled_in_is_the_one_that_is_written_at_once(name: str, text: str) -> None:
    """Whatever a value says: in the settings, which are in the form, and in what differs from host to host."""
    spec = replace(SPEC, env={"A": text, "gap": "gap"})
    own = stack.own_environment(spec, node(1, name=text), text)
    body = stack.definition(spec, name=name, image=IMAGE, gpus="", own=own, key=stack.short(KEY))
    digest = stack.short(json.dumps(body, sort_keys=True))
    body["labels"]["kit.spec"] = digest
    filled = file(spec, name=name, node=node(1, name=text), interface=text)
    assert filled == stack.ComposeFile(text=stack.compose_text(spec, name, body), digest=digest)


def test_without_gpus_nothing_is_reserved() -> None:
    assert "deploy" not in service(gpus="")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mpihead", {"node": node(1, address="10.0.0.4"), "interface": "eth0", "gpus": ""}),
        ("mpinode", {"node": node(2, address="10.0.0.5"), "interface": "ens3", "gpus": "nvidia"}),
    ],
)
def test_the_skeletons_are_what_kit_writes(name: str, options: dict[str, Any]) -> None:
    spec = ClusterSpec(name="example")
    written = yaml.safe_load(file(spec, name=name, **options).text)
    read = yaml.safe_load((COMPOSE / f"{name}.compose.yaml").read_text(encoding="utf-8"))
    labels = written["services"][name]["labels"]
    # What only kit computes, and a person need not.
    assert set(labels) - set(read["services"][name]["labels"]) == {"kit.spec", "kit.host-key"}
    del labels["kit.spec"], labels["kit.host-key"]
    assert read == written
