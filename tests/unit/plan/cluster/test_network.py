"""Which address wins, and which network mpirun gets. It is never that of docker0."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.config.validate import spec_from
from kit.errors import InputError, InputErrors, KitError, StepError
from kit.model.observed import Interface
from kit.model.spec import ClusterSpec
from kit.model.values import replace
from kit.plan.cluster.network import (
    covering,
    data_interfaces,
    data_networks,
    from_inventory,
    is_address,
    mpi_network,
    pick_interface,
)
from kit.plan.cluster.nodes import cluster_record, nodes_of
from kit.plan.cluster.wires import environment
from tests.fakes.facts import DOCKER0, facts, host, interfaces

# In the order in which `ip addr` prints them: the bridges come before the wanted one.
MANY = interfaces(
    lo="127.0.0.1/8", docker0=DOCKER0, br_5f1="172.18.0.1/16", virbr0="192.168.122.1/24", eth0="10.0.0.4/24",
    ib0="10.9.0.4/16",
)  # fmt: skip


@pytest.mark.parametrize(
    ("host_says", "network", "default", "expected"),
    [
        # auto: what ssh goes to, then the default route, then the first that is left.
        ({"address": "10.9.0.4"}, "auto", "eth0", "ib0"),
        ({"address": "gpu4.example"}, "auto", "eth0", "eth0"),
        ({"address": "gpu4.example"}, "auto", "ib0", "ib0"),
        ({"address": "gpu4.example"}, "auto", None, "eth0"),
        # Not even where the default route or ssh itself goes there.
        ({"address": "gpu4.example"}, "auto", "docker0", "eth0"),
        ({"address": "172.17.0.1"}, "auto", None, "eth0"),
        # A network: the address inside; one that holds docker0, too, changes nothing.
        ({}, "10.9.0.0/16", "eth0", "ib0"),
        ({}, "10.0.0.0/8", "ib0", "eth0"),
        ({}, "10.0.0.77/24", "ib0", "eth0"),
        ({"address": "172.17.0.1"}, "0.0.0.0/1", None, "eth0"),
        # The person's word goes first, even for a bridge.
        ({"internal": "10.9.0.4"}, "10.0.0.0/24", "eth0", "ib0"),
        ({"internal": "192.168.122.1"}, "auto", "eth0", "virbr0"),
    ],
)
def test_the_interface(host_says: dict[str, str], network: str, default: str | None, expected: str) -> None:
    seen = facts(4, host=host(4, **host_says), interfaces=MANY, default_interface=default)
    assert pick_interface(seen, network).name == expected


@pytest.mark.parametrize(
    ("have", "host_says", "network", "message", "hint"),
    [
        (MANY, {}, "10.7.0.0/16", "no address in the network 10.7.0.0/16; its", "network: in kit.yaml"),
        (MANY, {}, "172.17.0.0/16", "no address in the network 172.17.0.0/16", "internal= for gpu4"),
        (MANY, {"internal": "10.0.0.5"}, "auto", "no interface has internal=10.0.0.5", "correct internal= of gpu4"),
        (MANY, {"internal": "172.17.0.1"}, "auto", "172.17.0.1 is the address of docker0", "correct internal= of gpu4"),
        (interfaces(docker0=DOCKER0), {}, "auto", "no interface that a cluster could use", "internal=ADDRESS for gpu4"),
        ((), {}, "auto", "it has no program ip", "kit ssh gpu4 -- sudo apt-get install iproute2"),
        ((), {"internal": "10.0.0.4"}, "auto", "it has no program ip", "install iproute2"),
    ],
)  # fmt: skip
def test_no_interface(
    have: tuple[Interface, ...], host_says: dict[str, str], network: str, message: str, hint: str
) -> None:
    with pytest.raises(StepError) as caught:
        pick_interface(facts(4, host=host(4, **host_says), interfaces=have), network)
    assert message in caught.value.message
    assert caught.value.host == "gpu4"
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_an_interface_that_only_begins_like_loopback_is_usable() -> None:
    seen = facts(4, interfaces=interfaces(lo="10.255.0.1/32", long0="10.0.0.4/24"), default_interface=None)
    assert pick_interface(seen, "10.0.0.0/8").name == "long0"


@pytest.mark.parametrize(("address", "name"), [("127.0.0.53/8", "eth0"), ("126.0.0.53/8", "dummy0")])
def test_an_address_that_only_this_host_reaches_is_never_taken(address: str, name: str) -> None:
    """A resolver or a load balancer may have one on another interface than lo."""
    seen = facts(4, interfaces=interfaces(dummy0=address, eth0="10.0.0.4/24"), default_interface=None)
    assert pick_interface(replace(seen, host=host(4, address="gpu4.example")), "auto").name == name


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["10.0.0.4"], "10.0.0.4/32"),
        (["10.0.0.4", "10.0.0.5"], "10.0.0.4/31"),
        (["10.0.0.4", "10.0.0.7", "10.0.0.5"], "10.0.0.4/30"),
        (["10.0.0.1", "10.0.1.1"], "10.0.0.0/23"),
        (["10.0.0.1", "10.255.0.1"], "10.0.0.0/8"),
        # Wider than /8.
        (["10.0.0.1", "11.0.0.1"], "10.0.0.1/32,11.0.0.1/32"),
        (["192.168.0.1", "10.0.0.1"], "10.0.0.1/32,192.168.0.1/32"),
        # It would swallow docker0's 172.17.0.0/16.
        (["172.16.0.5", "172.18.0.5"], "172.16.0.5/32,172.18.0.5/32"),
        (["172.31.0.5", "172.16.0.5", "172.31.0.5"], "172.16.0.5/32,172.31.0.5/32"),
        (["172.31.0.5", "172.31.200.5"], "172.31.0.0/16"),
    ],
)
def test_covering(addresses: list[str], expected: str) -> None:
    assert covering(addresses) == expected


def test_before_a_host_is_observed_the_hosts_file_says_its_address() -> None:
    assert from_inventory(host(4, internal="10.9.0.4")) == "10.9.0.4"
    assert from_inventory(host(4, address="gpu4.example")) == "gpu4.example"
    assert [is_address(word) for word in ("10.9.0.4", "gpu4.example", "2001:db8::1")] == [True, False, False]


def test_covering_nothing_is_an_error() -> None:
    with pytest.raises(KitError):
        covering([])


def test_covering_reads_its_addresses_once() -> None:
    assert covering(iter(["192.168.0.1", "10.0.0.1"])) == "10.0.0.1/32,192.168.0.1/32"


@given(st.sets(st.ip_addresses(v=4), min_size=1, max_size=12))
def test_laws_of_covering(addresses: set[ipaddress.IPv4Address]) -> None:
    networks = [ipaddress.IPv4Network(word) for word in covering(map(str, addresses)).split(",")]
    assert all(any(address in network for network in networks) for address in addresses)
    bridges = ipaddress.IPv4Network("172.17.0.0/16")
    for network in networks:
        assert network.prefixlen >= 8
        assert not network.overlaps(bridges) or any(a in network and a in bridges for a in addresses)


@given(st.lists(st.integers(0, 255), min_size=2, max_size=8))
def test_covering_is_the_smallest(last: list[int]) -> None:
    network = ipaddress.IPv4Network(covering(f"10.1.2.{n}" for n in last))
    if len(set(last)) > 1:
        halves = list(network.subnets())
        assert not any(all(ipaddress.IPv4Address(f"10.1.2.{n}") in half for n in last) for half in halves)


@pytest.mark.parametrize(
    ("network", "addresses", "expected"),
    [
        ("auto", ["10.0.0.4", "10.0.0.5"], "10.0.0.4/31"),
        ("auto", ["gpu1", "10.0.0.5"], None),
        ("10.0.0.9/24", ["gpu1"], "10.0.0.0/24"),
    ],
)
def test_the_network_of_mpirun(network: str, addresses: list[str], expected: str | None) -> None:
    assert mpi_network(network, addresses) == expected


@pytest.mark.parametrize(
    ("network", "addresses", "others", "expected"),
    [
        ("auto", ["10.0.0.4", "10.0.0.7"], ["10.0.0.6"], "10.0.0.4/32,10.0.0.7/32"),
        ("auto", ["10.0.0.5", "10.0.0.6"], ["10.0.0.4"], "10.0.0.5/32,10.0.0.6/32"),
        ("auto", ["10.0.0.5", "10.0.0.6"], ["10.0.0.7"], "10.0.0.5/32,10.0.0.6/32"),
        ("auto", ["10.0.0.4", "10.0.0.7"], ["10.0.0.8", "10.0.0.3", "172.17.0.1"], "10.0.0.4/30"),
        ("10.0.0.0/8", ["10.0.0.4", "10.0.0.5"], ["10.9.0.1"], "10.0.0.4/32,10.0.0.5/32"),
        ("10.0.0.0/24", ["10.0.0.4", "10.0.0.5"], ["10.9.0.1"], "10.0.0.0/24"),
        # Exact already.
        ("auto", ["192.168.0.1", "10.0.0.1"], ["10.0.0.2"], "10.0.0.1/32,192.168.0.1/32"),
    ],
)
def test_another_address_inside(network: str, addresses: list[str], others: list[str], expected: str) -> None:
    assert mpi_network(network, addresses, [int(ipaddress.IPv4Address(other)) for other in others]) == expected


@given(
    st.sets(st.integers(0, 4095), min_size=1, max_size=6),
    st.sets(st.integers(0, 4095), max_size=6),
    st.sampled_from(["auto", "10.0.0.0/8", "10.0.0.0/20"]),
)
def test_laws_of_the_network_of_mpirun(own: set[int], others: set[int], network: str) -> None:
    """It holds every address of the cluster, and no other that a host has."""
    start = ipaddress.IPv4Address("10.0.0.0")
    wanted, unwanted = {start + n for n in own}, {start + n for n in others - own}
    networks = mpi_network(network, [str(a) for a in wanted], map(int, unwanted))
    assert networks is not None
    parts = [ipaddress.IPv4Network(part) for part in networks.split(",")]
    assert all(any(a in part for part in parts) for a in wanted)
    assert not any(a in part for part in parts for a in unwanted)


# Several cards

TWO = [
    facts(number, interfaces=interfaces(eth0=f"10.0.0.{number}/24", **{card: f"10.1.0.{number}/24"}, docker0=DOCKER0))
    for number, card in ((1, "eth1"), (2, "ens6"))
]


def test_each_host_has_its_own_names_for_the_networks() -> None:
    spec = ClusterSpec(interfaces=("10.1.0.0/24", "10.0.0.0/24"))
    assert [environment(seen, spec) for seen in TWO] == [
        {"NCCL_SOCKET_IFNAME": "=eth1,eth0"}, {"NCCL_SOCKET_IFNAME": "=ens6,eth0"},
    ]  # fmt: skip
    assert environment(TWO[0], ClusterSpec(interfaces=("10.0.0.0/8", "eth0"))) == {"NCCL_SOCKET_IFNAME": "=eth0"}
    assert environment(TWO[0], ClusterSpec()) == {}
    # Your own choice wins.
    mine = ClusterSpec(interfaces=("10.1.0.0/24",), env={"NCCL_SOCKET_IFNAME": "ib"})
    assert environment(TWO[0], mine) == {}


def test_the_record_has_the_networks_of_the_data_beside_that_of_the_cluster() -> None:
    spec = ClusterSpec(network="10.0.0.0/24", interfaces=("10.0.0.0/24", "10.1.0.0/24"))
    nodes, problems = nodes_of(TWO, spec)
    assert problems == []
    record = cluster_record(spec, TWO, nodes, "kit:cpu-1")
    assert (record.network, record.data_networks) == ("10.0.0.0/24", ("10.0.0.0/24", "10.1.0.0/24"))
    assert cluster_record(ClusterSpec(), TWO, nodes, "kit:cpu-1").data_networks == ()


def test_a_name_stands_for_the_network_of_its_addresses() -> None:
    alike = [facts(n, interfaces=interfaces(eth0=f"10.0.0.{n}/24", eth1=f"10.1.0.{n}/24")) for n in (1, 2)]
    assert data_networks(("eth1", "eth0"), alike) == ("10.1.0.0/30", "10.0.0.0/30")


def test_addresses_that_nobody_chose_are_not_used() -> None:
    """Open MPI would use every interface in the network."""
    wide = [facts(n, interfaces=interfaces(eth0=f"10.0.0.{n}/24", eth1=f"10.1.0.{n}/24")) for n in (1, 2)]
    assert data_networks(("10.0.0.0/8",), wide) == ("10.0.0.1/32,10.0.0.2/32",)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("10.2.0.0/24", "no address in the network 10.2.0.0/24, which interfaces: in kit.yaml names"),
        ("eth1", "no interface eth1 with an address"),
        ("docker0", "no interface docker0 with an address"),
    ],
)
def test_a_host_without_such_a_card_is_named(word: str, message: str) -> None:
    _, (problem, *_) = nodes_of(TWO, ClusterSpec(interfaces=("10.0.0.0/24", word)))
    assert isinstance(problem, StepError)
    assert message in problem.message
    assert "eth0 10.0.0." in problem.message
    with pytest.raises(StepError):
        data_interfaces(TWO[1], [word])


def test_interfaces_in_kit_yaml() -> None:
    assert spec_from({"interfaces": ["10.1.0.5/24", "ens6"]}).interfaces == ("10.1.0.0/24", "ens6")


@pytest.mark.parametrize(
    "words", [["10.1.0.0/24", "10.1.0.9/24"], ["auto"], ["10.1.0.5"], ["0.0.0.0/0"], ["eth1", "eth1"], ["a b"], ["x/y"]]
)
def test_what_no_interfaces_are(words: list[str]) -> None:
    with pytest.raises((InputError, InputErrors)):
        spec_from({"interfaces": words})
