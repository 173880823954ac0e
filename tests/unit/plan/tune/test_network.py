"""The rules of kit tune for network: which networks all hosts are in, and when one is worth moving to."""

from __future__ import annotations

from typing import Any

import pytest

from kit.model.tune import Machine, Wire
from kit.model.values import replace
from kit.plan.tune import network as networks
from tests.fakes.facts import DOCKER0, host, interfaces


def machine(number: int, *, up: tuple[str, ...] = ("eth0", "eth1"), others: Any = (), **nics: Any) -> Machine:
    """gpuN: eth0 in 10.0.0.0/24, which is in use, and eth1 in 10.1.0.0/24 unless a test says otherwise."""
    addresses = {"lo": "127.0.0.1/8", "docker0": DOCKER0, "eth0": f"10.0.0.{number}/24", "eth1": f"10.1.0.{number}/24"}
    return Machine(
        name=f"gpu{number}", slots=2, threads=8, nic="eth0", nic_mbit=1000, others=others, address=f"10.0.0.{number}",
        addresses=interfaces(**{**addresses, **nics}), up=up,
    )  # fmt: skip


def three(**nics: str) -> list[Machine]:
    """Three alike; `{}` in an address is the number of the host."""
    numbered: list[dict[str, Any]] = [{name: text.format(n) for name, text in nics.items()} for n in (1, 2, 3)]
    return [machine(n, **addresses) for n, addresses in enumerate(numbered, 1)]


def wire(rate: float | None, network: str = "10.1.0.0/24", **more: Any) -> Wire:
    return Wire(
        network=network, addresses=(("gpu1", "10.1.0.1"), ("gpu2", "10.1.0.2")), nics=("eth1",), rate=rate, **more
    )


def test_a_second_network_of_all_hosts_is_found_with_its_addresses() -> None:
    assert networks.others(three()) == (
        Wire(
            network="10.1.0.0/24",
            addresses=(("gpu1", "10.1.0.1"), ("gpu2", "10.1.0.2"), ("gpu3", "10.1.0.3")),
            nics=("eth1",),
        ),
    )


def test_names_of_nics_may_differ_and_networks_come_in_the_order_of_the_first_host() -> None:
    hosts = three(ib0="10.9.0.{}/16")
    hosts = [replace(item, up=("eth0", "eth1", "ib0", "ens5")) for item in hosts]
    renamed = tuple(replace(item, name="ens5" if item.name == "eth1" else item.name) for item in hosts[1].addresses)
    hosts[1] = replace(hosts[1], addresses=renamed)
    candidates = networks.others(hosts)
    assert [(item.network, item.nics) for item in candidates] == [
        ("10.1.0.0/24", ("eth1", "ens5")),
        ("10.9.0.0/16", ("ib0",)),
    ]


@pytest.mark.parametrize(
    "hosts",
    [
        [machine(1), machine(2), machine(3, eth1="10.2.0.3/24")],
        [machine(1), machine(2), machine(3, eth1="10.1.0.3/16")],
        [machine(1), machine(2), machine(3, up=("eth0",))],
        three(eth1="10.1.0.{}/32"),
        # The same address everywhere: a bridge of something that runs on each host.
        three(eth1="10.1.0.1/24"),
        three(eth1="169.254.1.{}/16"),
        # In the network that is in use: network: could not tell the two NICs apart.
        three(eth1="10.0.0.1{}/24"),
        three(eth1="10.0.0.1{}/16"),
        [replace(machine, address="gpu.example") for machine in three()],
        [machine(1)],
        [],
    ],
    ids=[
        "missing on one host", "another prefix on one host", "down on one host", "prefixes of 32", "same address",
        "link-local", "same network", "wider than the one in use", "names for addresses", "one host", "none",
    ],
)  # fmt: skip
def test_what_is_no_second_network(hosts: list[Machine]) -> None:
    assert networks.others(hosts) == ()


def test_bridges_of_engines_are_none() -> None:
    up = ("eth0", "br-5f1", "docker0", "virbr0")
    hosts = [
        replace(machine, up=up)
        for machine in three(eth1="10.1.0.{}/24", br_5f1="172.18.0.{}/16", virbr0="192.168.122.{}/24")
    ]
    assert networks.others(hosts) == ()


def test_of_two_nics_in_a_network_the_first_counts_as_in_kit_deploy() -> None:
    up = ("eth0", "eth1", "eth2")
    hosts = [replace(machine, up=up) for machine in three(eth2="10.1.0.10{}/24")]
    assert [address for _, address in networks.others(hosts)[0].addresses] == ["10.1.0.1", "10.1.0.2", "10.1.0.3"]
    assert networks.others([replace(hosts[0], up=("eth0", "eth2")), *hosts[1:]]) == ()


@pytest.mark.parametrize(
    ("now", "rates", "taken"),
    [
        (100e6, (200e6,), 0),
        (100e6, (111e6,), 0),
        (100e6, (109e6,), None),
        (100e6, (50e6,), None),
        (100e6, (None,), None),
        (100e6, (120e6, None, 300e6, 90e6), 2),
        (100e6, (), None),
        (None, (200e6,), None),
    ],
)
def test_a_network_is_taken_for_more_than_ten_per_cent(
    now: float | None, rates: tuple[float | None, ...], taken: int | None
) -> None:
    wires = [wire(rate, f"10.{n}.0.0/24") for n, rate in enumerate(rates, 1)]
    assert networks.faster(now, wires) is (None if taken is None else wires[taken])


def test_the_setting_says_both_rates() -> None:
    setting = networks.setting(wire(118e6), 11.9e6, three())
    assert (setting.path, setting.value, setting.acts) == ("network", "10.1.0.0/24", "deploy")
    assert setting.reason == (
        "with TCP on all links at once, the slowest link of this network (eth1) reaches 118.0 MB/s, and 11.9 MB/s on "
        "10.0.0.0/24 (eth0), which was in use"
    )
    routed = [machine(1), replace(machine(2, eth0="10.0.3.2/24"), address="10.0.3.2")]
    assert networks.in_use(routed) == "that of eth0"


def test_internal_of_the_hosts_file_goes_first_and_is_advice() -> None:
    assert networks.overridden(wire(2e8), 1e8, [host(1), host(2)]) is None
    advice = networks.overridden(wire(2e8), 1e8, [host(1, internal="10.0.0.1"), host(2), host(7, internal="10.0.0.7")])
    assert advice is not None
    assert "10.1.0.0/24 (eth1) reaches 200.0 MB/s by TCP" in advice
    assert "Change it to gpu1 internal=10.1.0.1; or remove internal= from gpu1 and run kit tune again" in advice


def test_a_flag_or_a_variable_goes_first_and_is_advice() -> None:
    assert networks.elsewhere(wire(2e8), 1e8, file="auto", in_force="auto") is None
    advice = networks.elsewhere(wire(2e8), 1e8, file="auto", in_force="10.0.0.0/24")
    assert advice is not None
    assert "--network or KIT_NETWORK is 10.0.0.0/24" in advice


def test_what_nobody_answers_on_is_reported() -> None:
    assert networks.failures([wire(1e6), wire(None)]) == []
    (line,) = networks.failures([wire(None, failure="gpu2: TCP could not be measured")])
    assert "10.1.0.0/24 (eth1), but it could not be measured and is not used: gpu2: TCP could not" in line


@pytest.mark.parametrize(
    ("mbit", "address", "expected"),
    [
        # Clouds with prefixes of /32.
        (25_000, "10.1.0.{}/32", True),
        (100, "10.1.0.{}/32", False),
        # A network that all share is measured, or is reported as not measured.
        (25_000, "10.1.0.{}/24", False),
        # network: could not name it.
        (25_000, None, False),
    ],
)
def test_a_claimed_speed_is_advice_where_nothing_can_be_measured(
    mbit: int, address: str | None, expected: bool
) -> None:
    hosts = three(**({"eth1": address} if address else {}))
    if address is None:
        own = [tuple(item for item in one.addresses if item.name != "eth1") for one in hosts]
        hosts = [replace(one, addresses=addresses) for one, addresses in zip(hosts, own, strict=True)]
    hosts = [replace(one, others=(("eth1", mbit),)) for one in hosts]
    assert [text.partition(",")[0] for text in networks.claimed(hosts)] == (["every host has eth1"] if expected else [])
    assert networks.claimed([*hosts[:2], machine(3)]) == []
    assert networks.claimed([replace(one, nic_mbit=None) for one in hosts]) == []
    assert networks.claimed([]) == []


def test_a_network_in_its_canonical_form() -> None:
    assert networks.canonical("10.1.0.5/24") == "10.1.0.0/24"
    assert networks.canonical("auto") == "auto"
