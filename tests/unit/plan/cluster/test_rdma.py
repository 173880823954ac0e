"""RDMA: who gets devices, the index of the GID for NCCL and UCX, and which hosts are refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kit.config.validate import spec_from, validate
from kit.config.yaml import read
from kit.errors import InputError, InputErrors
from kit.model.observed import HostFacts, RdmaGid, RdmaPort
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster import rdma, stack
from tests.fakes.facts import facts, host, interfaces, node

SPEC = ClusterSpec(name="lab")
DEVICES = ("rdma_cm", "uverbs0")


def gids(interface: str, *addresses: str) -> tuple[RdmaGid, ...]:
    """The table of a RoCE port: the link's own GID in both versions, then each address in both versions."""
    rows: list[RdmaGid] = []
    for address in ("", *addresses):
        for kind in ("IB/RoCE v1", "RoCE v2"):
            rows.append(RdmaGid(index=len(rows), kind=kind, interface=interface, address=address))
    return tuple(rows)


def port(adapter: str = "mlx5_0", *, layer: str = "InfiniBand", state: str = "ACTIVE", **more: Any) -> RdmaPort:
    return RdmaPort(adapter=adapter, number=1, state=state, layer=layer, **more)


def roce(adapter: str, interface: str, *addresses: str, **more: Any) -> RdmaPort:
    return port(adapter, layer="Ethernet", gids=gids(interface, *addresses), **more)


def with_rdma(number: int, *ports: RdmaPort, **more: Any) -> HostFacts:
    addresses = interfaces(eth0=f"10.0.0.{number}/24", eth1=f"10.1.0.{number}/24")
    return facts(number, rdma_devices=DEVICES, rdma_ports=ports, interfaces=addresses, **more)


def body(seen: HostFacts, spec: ClusterSpec = SPEC) -> dict[str, Any]:
    file = stack.ComposeFiles(spec, "kit:cpu-1").file(
        "mpinode",
        node=node(1),
        interface="eth0",
        gpus="",
        host_key="",
        rdma=rdma.passed(seen, spec),
        more=rdma.environment(seen, spec),
    )
    service = yaml.safe_load(file.text)["services"]["mpinode"]
    assert isinstance(service, dict)
    return service


def test_a_host_with_rdma_passes_its_devices_to_its_node() -> None:
    service = body(with_rdma(1, port()))
    assert service["devices"] == ["/dev/infiniband:/dev/infiniband"]
    assert "CAP_IPC_LOCK" in service["cap_add"]
    assert service["ulimits"]["memlock"] == {"soft": -1, "hard": -1}
    assert not {"NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE"} & service["environment"].keys()


@pytest.mark.parametrize("seen", [facts(1), facts(1, rdma_ports=(port(),))])
def test_a_host_without_devices_has_an_ordinary_node(seen: HostFacts) -> None:
    service = body(seen)
    assert "devices" not in service
    assert "CAP_IPC_LOCK" not in service["cap_add"]


def test_off_passes_nothing_and_makes_nccl_use_tcp() -> None:
    service = body(with_rdma(1, port()), replace(SPEC, rdma="off"))
    assert "devices" not in service
    assert "CAP_IPC_LOCK" not in service["cap_add"]
    assert service["environment"]["NCCL_IB_DISABLE"] == "1"


def test_devices_of_kit_yaml_come_beside_those_of_rdma() -> None:
    spec = replace(SPEC, devices=("/dev/gdrdrv", "/dev/fuse:/dev/fuse:rw"))
    both = ["/dev/gdrdrv:/dev/gdrdrv", "/dev/fuse:/dev/fuse:rw"]
    assert body(with_rdma(1, port()), spec)["devices"] == ["/dev/infiniband:/dev/infiniband", *both]
    assert body(facts(1), spec)["devices"] == both
    # Written by hand, it is not there twice.
    spec = replace(SPEC, devices=("/dev/infiniband/",))
    assert body(with_rdma(1, port()), spec)["devices"] == ["/dev/infiniband:/dev/infiniband"]


@pytest.mark.parametrize(
    ("ports", "index"),
    [
        # The GIDs of the link come first, then those of the address; version 2 is the second of each.
        ((roce("mlx5_0", "eth0", "10.0.0.1"),), 3),
        # A second address of the interface is first in the table, and is not this host's any more.
        ((roce("mlx5_0", "eth0", "10.9.9.9", "10.0.0.1"),), 5),
        ((roce("mlx5_0", "eth0", "10.9.9.9"),), None),
        # The address of another interface: packets would leave by the wrong card.
        ((roce("mlx5_0", "eth0", "10.1.0.1"),), None),
        ((roce("mlx5_0", "eth0", "10.0.0.1", state="DOWN"), roce("mlx5_1", "eth1", "10.9.9.9", "10.1.0.1")), 5),
        # Most ports decide: there is one variable for all.
        (
            (
                roce("mlx5_0", "eth0", "10.9.9.9", "10.0.0.1"),
                roce("mlx5_1", "eth1", "10.1.0.1"),
                roce("mlx5_2", "eth0", "10.0.0.1"),
            ),
            3,
        ),
        ((port(),), None),
        ((), None),
    ],
)
def test_the_gid_is_that_of_the_hosts_own_address(ports: tuple[RdmaPort, ...], index: int | None) -> None:
    seen = with_rdma(1, *ports)
    assert rdma.gid_index(seen) == index
    expected = {} if index is None else {"NCCL_IB_GID_INDEX": str(index), "UCX_IB_GID_INDEX": str(index)}
    assert rdma.environment(seen, SPEC) == expected


def test_only_the_adapters_of_the_hosts_file_count() -> None:
    ports = roce("mlx5_0", "eth0", "10.0.0.1"), roce("mlx5_1", "eth1", "10.9.9.9", "10.1.0.1")
    seen = with_rdma(1, *ports, host=host(1, hca="=mlx5_1:1"))
    assert rdma.environment(seen, SPEC) == {
        "NCCL_IB_HCA": "=mlx5_1:1", "NCCL_IB_GID_INDEX": "5", "UCX_IB_GID_INDEX": "5",
    }  # fmt: skip


def test_variables_of_kit_yaml_win_but_not_over_the_hosts_file() -> None:
    spec = replace(SPEC, env={"NCCL_IB_GID_INDEX": "1", "NCCL_IB_HCA": "mlx4"})
    seen = with_rdma(1, roce("mlx5_0", "eth0", "10.0.0.1"), host=host(1, hca="mlx5_0"))
    assert rdma.environment(seen, spec) == {
        "NCCL_IB_HCA": "mlx5_0", "NCCL_IB_GID_INDEX": "1", "UCX_IB_GID_INDEX": "3",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (facts(2), "has no /dev/infiniband, and kit.yaml has rdma: require"),
        (with_rdma(2), "has no active RDMA port (no port at all)"),
        (with_rdma(2, port(state="DOWN"), port("mlx5_1", state="INIT")), "mlx5_0 port 1 DOWN, mlx5_1 port 1 INIT"),
        (with_rdma(2, roce("mlx5_0", "eth0")), "has no GID of RoCE v2 for one of its addresses (mlx5_0 port 1)"),
    ],
)
def test_require_refuses_a_host_by_name(seen: HostFacts, words: str) -> None:
    good = with_rdma(1, port(state="DOWN"), port("mlx5_1"))
    (problem,) = rdma.problems([good, seen], replace(SPEC, rdma="require"))
    assert problem.host == "gpu2"
    assert words in problem.message
    assert "rdma: auto" in (problem.hint or "")
    assert rdma.problems([good, seen], SPEC) == []


def test_swarm_refuses_what_it_would_drop() -> None:
    swarm = replace(SPEC, orchestrator="swarm")
    (problem,) = rdma.problems([facts(1), with_rdma(2, port())], swarm)
    assert problem.host == "gpu2"
    assert "Swarm cannot pass devices" in problem.message
    assert "rdma: off" in (problem.hint or "")
    assert rdma.problems([with_rdma(2, port())], replace(swarm, rdma="off")) == []
    assert rdma.environment(with_rdma(2, port()), replace(swarm, rdma="off")) == {"NCCL_IB_DISABLE": "1"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"rdma": "require"}, "rdma: require needs"), ({"devices": ["/dev/gdrdrv"]}, "it would drop them")],
)
def test_a_stack_has_no_devices(settings: dict[str, Any], words: str) -> None:
    with pytest.raises((InputError, InputErrors), match=words):
        spec_from({"orchestrator": "swarm", **settings})
    spec_from(settings)


@pytest.mark.parametrize(
    "device",
    ["gdrdrv", "/etc/passwd", "/dev/../etc/shadow", "/dev/./mem", "/dev//mem", "/dev", "/dev/", "/dev/mem", "./dev/a",
     "/dev/port:/dev/x", "/dev/a:rwm", "/dev/a:/dev/b:rwx", "/dev/a:/dev/b:", "/dev/a b"],
)  # fmt: skip
def test_what_no_device_is(device: str) -> None:
    with pytest.raises((InputError, InputErrors)):
        spec_from({"devices": [device]})


def test_two_devices_need_two_targets() -> None:
    with pytest.raises((InputError, InputErrors), match="the target '/dev/b'"):
        spec_from({"devices": ["/dev/a:/dev/b", "/dev/b"]})
    devices = ["/dev/vfio/1", "/dev/a:/dev/b:rw", "/dev/c:/dev/d"]
    assert list(spec_from({"devices": devices}).devices) == devices


@pytest.mark.parametrize("text", ["rdma: off", "rdma: 'off'", "rdma: no", "rdma: false"])
def test_off_may_be_written_bare(text: str) -> None:
    """YAML reads the bare word as false."""
    assert validate(read(text + "\n", source="kit.yaml")).rdma == "off"


@pytest.mark.parametrize("text", ["rdma: on", "rdma: true", "rdma: ib"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises((InputError, InputErrors)):
        validate(read(text + "\n", source="kit.yaml"))
