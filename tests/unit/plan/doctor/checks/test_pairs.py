"""The checks of what kit measured between hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import pytest

from kit.config.validate import spec_from
from kit.model.doctor import Check, Command, Examined, PairSeen, Port, Ran, Seen, Sight
from kit.model.host import Host
from kit.model.values import replace
from kit.plan.doctor.checks import (
    CHECKS,
    clock_offset,
    head_ssh,
    name_differs,
    one_way,
    path_mtu,
    port_filtered,
    slow_link,
)

FAST = 1.25e9
PAIR_CHECKS = [check for check in CHECKS if check.measures]


def host(number: int) -> str:
    return f"gpu{number}"


def address(name: str) -> str:
    return f"10.0.0.{name.removeprefix('gpu')}"


def ports(*closed: int, fault: str = "timed out") -> tuple[Port, ...]:
    return tuple(Port(number=n, open=n not in closed, fault=fault if n in closed else "") for n in (33, 1024, 41234))


def clean(source: str, target: str) -> PairSeen:
    return PairSeen(
        source=source, target=target, address=address(target), ports=ports(), mtu=1500, mtu_local=1500, rtt_s=1e-4,
        rate=FAST, clock_s=0.0, clock_error_s=5e-5, resolved=(address(target),), ssh="" if source == "gpu1" else None,
    )  # fmt: skip


def examined(
    change: Callable[[PairSeen], PairSeen | None] = lambda pair: pair, *, count: int = 4, own: Sequence[str] = ()
) -> Examined:
    names = [host(n) for n in range(1, count + 1)]
    pairs = [change(clean(one, other)) for one, other in permutations(names, 2)]
    return Examined(
        spec=spec_from({"name": "lab"}),
        hosts=tuple(
            Seen(host=Host(name=name, address=address(name)), addresses={"": tuple(own)} if own else {})
            for name in names
        ),
        pairs=tuple(pair for pair in pairs if pair is not None),
        pairing="all",
    )


def changed(pair: PairSeen, **values: object) -> PairSeen:
    return replace(pair, **values)  # fields of the tests


def seen(check: Check, value: Examined) -> list[tuple[tuple[str, ...], str]]:
    return [(sight.hosts, sight.seen) for sight in check.judge(value)]


@pytest.mark.parametrize("check", PAIR_CHECKS, ids=lambda check: check.id)
@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_a_clean_cluster_has_no_finding(check: Check, count: int) -> None:
    assert list(check.judge(examined(count=count))) == []


@pytest.mark.parametrize("check", PAIR_CHECKS, ids=lambda check: check.id)
def test_what_was_not_measured_is_no_finding(check: Check) -> None:
    bare = examined(lambda pair: PairSeen(source=pair.source, target=pair.target, address=pair.address))
    assert list(check.judge(bare)) == []
    assert list(check.judge(Examined(spec=bare.spec, hosts=bare.hosts))) == []


@pytest.mark.parametrize("check", PAIR_CHECKS, ids=lambda check: check.id)
def test_each_has_a_fault_in_the_lab(check: Check) -> None:
    assert check.lab == f"kit lab fault HOST {check.id}"
    assert check.area == "pair"


def test_a_firewall_on_one_host() -> None:
    value = examined(lambda pair: changed(pair, ports=ports(33, 1024)) if pair.target == "gpu2" else pair)
    (sight,) = port_filtered.judge(value)
    assert sight == Sight(
        hosts=("gpu2",),
        seen="other hosts cannot connect to it: ports 33, 1024 timed out",
        fix="open it on gpu2: sudo iptables -I INPUT -p tcp -s 10.0.0.0/29 -j ACCEPT "
        "(or the cloud's security group: TCP from 10.0.0.0/29, all ports)",
    )


def test_firewalls_on_two_hosts_have_their_own_ports() -> None:
    def closed(pair: PairSeen) -> PairSeen:
        numbers = {"gpu2": 33, "gpu3": 1024}
        return changed(pair, ports=ports(numbers[pair.target])) if pair.target in numbers else pair

    assert seen(port_filtered.CHECK, examined(closed, count=6)) == [
        (("gpu2",), "other hosts cannot connect to it: port 33 timed out"),
        (("gpu3",), "other hosts cannot connect to it: port 1024 timed out"),
    ]


def test_a_firewall_for_what_leaves() -> None:
    value = examined(lambda pair: changed(pair, ports=ports(33, 1024, 41234)) if pair.source == "gpu3" else pair)
    (sight,) = port_filtered.judge(value)
    assert sight.hosts == ("gpu3",)
    assert sight.seen == "it cannot connect to other hosts: ports 33, 1024 and ephemeral ports timed out"
    assert "iptables -I OUTPUT -p tcp -d 10.0.0.0/29 -j ACCEPT" in sight.fix


def test_only_the_port_of_sshd_is_closed() -> None:
    value = examined(lambda pair: changed(pair, ports=ports(33, fault="connection refused")))
    sights = list(port_filtered.judge(value))
    assert {sight.hosts for sight in sights} == {("gpu1",), ("gpu2",), ("gpu3",), ("gpu4",)}
    assert {sight.seen for sight in sights} == {"other hosts cannot connect to it: port 33 connection refused"}
    assert "-m multiport --dports 33 -j ACCEPT" in sights[0].fix


TRUSTED = "sudo firewall-cmd --permanent --zone=trusted --add-source=10.0.0.0/29 && sudo firewall-cmd --reload"


@pytest.mark.parametrize("blamed", [True, False])
def test_a_firewall_that_firewalld_keeps(blamed: bool) -> None:
    """It rejects in its own tables: a rule of iptables in front of them changes nothing."""
    refused = ports(33, 1024, fault="no route to host")
    value = examined(
        lambda pair: (
            changed(pair, ports=refused) if pair.target == "gpu2" and (blamed or pair.source == "gpu1") else pair
        )
    )
    (sight,) = port_filtered.judge(value)
    assert sight.fix.endswith(f"all ports). If firewalld runs there: {TRUSTED}")
    read = next(read for read in port_filtered.CHECK.reads if isinstance(read, Command))
    for out, active in (("active\n", True), ("inactive\n", False)):
        ran = {read: Ran(code=0 if active else 3, out=out)}
        hosts = tuple(replace(one, commands=ran if one.name == "gpu2" else {}) for one in value.hosts)
        (sight,) = port_filtered.judge(replace(value, hosts=hosts))
        assert (f": {TRUSTED} (or" in sight.fix, "iptables" in sight.fix) == (active, not active)


def test_a_firewall_between_two_hosts() -> None:
    value = examined(
        lambda pair: changed(pair, ports=ports(41234)) if (pair.source, pair.target) == ("gpu2", "gpu3") else pair
    )
    assert seen(port_filtered.CHECK, value) == [(("gpu2", "gpu3"), "no connection: ephemeral ports timed out")]


def test_a_path_that_loses_large_packets() -> None:
    value = examined(lambda pair: changed(pair, mtu=1400, rate=0.0) if pair.target == "gpu2" else pair)
    (sight,) = path_mtu.judge(value)
    assert sight.hosts == ("gpu2",)
    assert sight.seen == "packets that it receives arrive up to 1400 bytes; its MTU is 1500"
    assert "mtu 1400" in sight.fix
    # Its streams stop, which needs no other finding.
    assert seen(slow_link.CHECK, value) == seen(one_way.CHECK, value) == []


def test_a_path_with_a_smaller_mtu_to_which_tcp_adapts() -> None:
    """A gateway between subnets answers that a packet is too large, and the probe ignores that."""
    value = examined(lambda pair: changed(pair, mtu=8500, mtu_local=9001))
    sights = list(path_mtu.judge(value))
    assert [(sight.hosts, sight.severity) for sight in sights] == [((host(n),), "watch") for n in range(1, 5)]
    assert sights[0].seen == "packets that it receives arrive up to 8500 bytes; its MTU is 9001; TCP adapts to that"
    assert sights[0].fix.startswith("nothing for TCP; for other protocols, on all hosts")

    def slow(pair: PairSeen) -> PairSeen:
        rate = FAST / 20 if "gpu4" in (pair.source, pair.target) else FAST
        return changed(pair, mtu=8500, mtu_local=9001, rate=rate)

    assert [hosts for hosts, _ in seen(slow_link.CHECK, examined(slow))] == [("gpu4",)]
    # A stream that stops on one of them is a fault.
    half = examined(lambda pair: changed(pair, mtu=8500, mtu_local=9001, rate=0.0 if pair.target == "gpu2" else FAST))
    assert next((s.hosts, s.severity) for s in path_mtu.judge(half)) == (("gpu2",), None)


def test_a_path_between_two_hosts_that_loses_large_packets() -> None:
    value = examined(
        lambda pair: changed(pair, mtu=1400, rate=0.0) if (pair.source, pair.target) == ("gpu2", "gpu3") else pair
    )
    assert seen(path_mtu.CHECK, value) == [(("gpu2", "gpu3"), "packets arrive up to 1400 bytes; the MTU is 1500")]
    # The link itself is slow, too, as its streams stop.
    both = examined(
        lambda pair: changed(pair, mtu=1400, rate=0.0) if {pair.source, pair.target} == {"gpu2", "gpu3"} else pair
    )
    assert seen(slow_link.CHECK, both) == seen(one_way.CHECK, both) == []


@pytest.mark.parametrize(("rate", "severity"), [(0.99e6, None), (1.01e6, "watch"), (None, None)])
def test_tcp_adapts_only_if_it_carries_more_than_a_megabyte_a_second(rate: float | None, severity: str | None) -> None:
    value = examined(lambda pair: changed(pair, mtu=8500, mtu_local=9001, rate=rate))
    assert {sight.severity for sight in path_mtu.judge(value)} == {severity}


@pytest.mark.parametrize("missing", ["mtu", "mtu_local"])
def test_a_path_of_which_half_was_measured_is_no_finding(missing: str) -> None:
    assert seen(path_mtu.CHECK, examined(lambda pair: changed(pair, **{"mtu": 1400, missing: None}))) == []


def test_each_of_two_lossy_hosts_has_its_own_size() -> None:
    def lossy(pair: PairSeen) -> PairSeen:
        sizes = {"gpu2": 1400, "gpu3": 1300}
        return changed(pair, mtu=sizes[pair.target], rate=0.0) if pair.target in sizes else pair

    assert [(hosts, text.partition("; ")[0]) for hosts, text in seen(path_mtu.CHECK, examined(lossy, count=6))] == [
        (("gpu2",), "packets that it receives arrive up to 1400 bytes"),
        (("gpu3",), "packets that it receives arrive up to 1300 bytes"),
    ]


def test_lossy_paths_that_were_measured_from_one_host_only() -> None:
    """It receives over none of them."""
    value = examined(lambda pair: changed(pair, mtu=1400, rate=0.0) if pair.source == "gpu1" else None)
    assert [hosts for hosts, _ in seen(path_mtu.CHECK, value)] == [("gpu1",), ("gpu2",), ("gpu3",), ("gpu4",)]


def test_of_several_lossy_paths_of_a_host_the_smallest_is_named() -> None:
    value = examined(
        lambda pair: (
            changed(pair, mtu=1400 if pair.source == "gpu1" else 1300, rate=0.0) if pair.target == "gpu2" else pair
        )
    )
    assert seen(path_mtu.CHECK, value) == [
        (("gpu2",), "packets that it receives arrive up to 1300 bytes; its MTU is 1500")
    ]


def test_a_smaller_mtu_at_one_end_is_no_lossy_path() -> None:
    """TCP sends what the smaller end takes. The check of interfaces names the difference."""
    value = examined(
        lambda pair: changed(
            pair,
            mtu=1500 if "gpu2" in (pair.source, pair.target) else 9000,
            mtu_local=1500 if pair.source == "gpu2" else 9000,
        )
    )
    assert seen(path_mtu.CHECK, value) == []


def test_a_slow_host() -> None:
    value = examined(lambda pair: changed(pair, rate=FAST / 20) if "gpu4" in (pair.source, pair.target) else pair)
    assert seen(slow_link.CHECK, value) == [(("gpu4",), "500 Mbit/s with other hosts, which reach 10 Gbit/s")]
    assert seen(one_way.CHECK, value) == []


def test_a_slow_link() -> None:
    value = examined(
        lambda pair: changed(pair, rate=FAST / 100) if {pair.source, pair.target} == {"gpu2", "gpu3"} else pair
    )
    assert seen(slow_link.CHECK, value) == [(("gpu2", "gpu3"), "100 Mbit/s both ways; other hosts reach 10 Gbit/s")]


def test_a_host_that_is_far_away() -> None:
    value = examined(lambda pair: changed(pair, rtt_s=0.012) if "gpu4" in (pair.source, pair.target) else pair)
    assert seen(slow_link.CHECK, value) == [(("gpu4",), "a round trip to it takes 12 ms, between others 0.1 ms")]


def test_two_hosts_that_are_far_from_each_other() -> None:
    value = examined(
        lambda pair: changed(pair, rtt_s=0.012) if {pair.source, pair.target} == {"gpu2", "gpu3"} else pair
    )
    assert seen(slow_link.CHECK, value) == [(("gpu2", "gpu3"), "a round trip takes 12 ms, between others 0.1 ms")]


def test_late_links_of_many_hosts_are_not_compared_with_each_other() -> None:
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    names = [Name(f"gpu{n}") for n in range(1, 51)]
    far = names[-5:]
    pairs = [
        replace(clean(one, other), rtt_s=0.012 if one in far or other in far else 1e-4)
        for one, other in permutations(names, 2)
    ]
    compared = 0
    sights = list(slow_link.CHECK.judge(replace(examined(), pairs=tuple(pairs))))
    assert [sight.hosts for sight in sights] == [(name,) for name in far]
    # Each link, but not each link with all others.
    assert compared < 10 * len(pairs)


def test_a_host_that_sends_slowly() -> None:
    value = examined(lambda pair: changed(pair, rate=FAST / 100) if pair.source == "gpu1" else pair)
    assert seen(one_way.CHECK, value) == [(("gpu1",), "it sends 100 Mbit/s and receives 10 Gbit/s")]
    assert seen(slow_link.CHECK, value) == []


def test_what_a_host_receives_is_its_own_rate() -> None:
    def change(pair: PairSeen) -> PairSeen:
        return changed(pair, rate=FAST / 100 if pair.source == "gpu1" else FAST / 2 if pair.target == "gpu1" else FAST)

    assert seen(one_way.CHECK, examined(change)) == [(("gpu1",), "it sends 100 Mbit/s and receives 5 Gbit/s")]


@pytest.mark.parametrize("disturbed", [{"rate": FAST / 3}, {"rtt_s": 0.012}])
def test_a_disturbed_link_of_a_host_that_sends_slowly_is_no_second_finding(disturbed: dict[str, Any]) -> None:
    def change(pair: PairSeen) -> PairSeen:
        if pair.source == "gpu1":
            pair = changed(pair, rate=FAST / 10)
        if {pair.source, pair.target} == {"gpu1", "gpu4"} and ("rtt_s" in disturbed or pair.target == "gpu1"):
            pair = changed(pair, **disturbed)
        return pair

    value = examined(change)
    assert [hosts for hosts, _ in seen(one_way.CHECK, value)] == [("gpu1",)]
    assert seen(slow_link.CHECK, value) == []
    # Without the slow direction, both are findings.
    link = {"gpu1", "gpu4"}
    alone = examined(
        lambda pair: changed(pair, **{"rate": FAST / 3, **disturbed}) if {pair.source, pair.target} == link else pair
    )
    assert seen(slow_link.CHECK, alone)


@pytest.mark.parametrize("check", [slow_link.CHECK, one_way.CHECK], ids=lambda check: check.id)
def test_a_slow_network_of_a_head_without_ranks_is_only_worth_a_look(check: Check) -> None:
    def slow(pair: PairSeen) -> PairSeen:
        ends = (pair.source, pair.target) if check is slow_link.CHECK else (pair.source,)
        return changed(pair, rate=FAST / 20) if "gpu1" in ends else pair

    spec = spec_from({"name": "lab", "head_runs_ranks": False})
    for head, severity in (("gpu1", "watch"), ("gpu2", None)):
        value = replace(examined(slow), spec=spec, head=head)
        assert [(sight.hosts, sight.severity) for sight in check.judge(value)] == [(("gpu1",), severity)]


def test_two_hosts_and_one_direction() -> None:
    value = examined(lambda pair: changed(pair, rate=FAST / 100) if pair.source == "gpu1" else pair, count=2)
    assert seen(one_way.CHECK, value) == [(("gpu1", "gpu2"), "100 Mbit/s, and 10 Gbit/s back")]


@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_clock_that_is_ahead(count: int) -> None:
    def ahead(pair: PairSeen) -> PairSeen:
        return changed(pair, clock_s=5.0 * ((pair.target == "gpu1") - (pair.source == "gpu1")))

    assert seen(clock_offset.CHECK, examined(ahead, count=count)) == [
        (("gpu1",), "its clock is 5.0 s ahead of the others")
    ]


def test_of_two_clocks_the_heads_counts() -> None:
    def behind(pair: PairSeen) -> PairSeen:
        return changed(pair, clock_s=-700.0 if pair.target == "gpu2" else 700.0)

    assert seen(clock_offset.CHECK, examined(behind, count=2)) == [(("gpu2",), "its clock is 700 s behind the others")]


@pytest.mark.parametrize(("offset", "error", "count"), [(0.49, 0.0, 0), (0.51, 0.0, 1), (0.7, 0.21, 0), (0.7, 0.19, 1)])
def test_a_clock_that_is_off_by_half_a_second_more_than_the_error_is_named(
    offset: float, error: float, count: int
) -> None:
    def ahead(pair: PairSeen) -> PairSeen:
        return changed(pair, clock_s=offset * ((pair.target == "gpu3") - (pair.source == "gpu3")), clock_error_s=error)

    assert len(seen(clock_offset.CHECK, examined(ahead))) == count


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_clock_that_kit_measured_from_one_end_only_is_compared(end: str) -> None:
    """One of two directions may fail."""

    def ahead(pair: PairSeen) -> PairSeen | None:
        if "gpu3" in (pair.source, pair.target) and getattr(pair, end) != "gpu3":
            return None
        return changed(pair, clock_s=5.0 * ((pair.target == "gpu3") - (pair.source == "gpu3")))

    assert seen(clock_offset.CHECK, examined(ahead)) == [(("gpu3",), "its clock is 5.0 s ahead of the others")]


@pytest.mark.parametrize("missing", ["clock_s", "clock_error_s"])
def test_a_clock_without_its_error_is_no_measurement(missing: str) -> None:
    value = examined(lambda pair: changed(pair, **{"clock_s": 5.0, "clock_error_s": 0.1, missing: None}))
    assert seen(clock_offset.CHECK, value) == []


def test_an_offset_within_the_round_trip_is_no_offset() -> None:
    value = examined(lambda pair: changed(pair, clock_s=2.0, clock_error_s=1.9))
    assert seen(clock_offset.CHECK, value) == []


def test_a_name_that_differs() -> None:
    value = examined(
        lambda pair: changed(pair, resolved=("192.0.2.99",)) if (pair.source, pair.target) == ("gpu3", "gpu1") else pair
    )
    assert seen(name_differs.CHECK, value) == [(("gpu3", "gpu1"), "the name of gpu1 is 192.0.2.99 here")]


def test_a_name_that_only_one_host_resolves() -> None:
    value = examined(lambda pair: changed(pair, resolved=("192.0.2.99",) if pair.source == "gpu3" else ()))
    assert [hosts for hosts, _ in seen(name_differs.CHECK, value)] == [
        ("gpu3", "gpu1"), ("gpu3", "gpu2"), ("gpu3", "gpu4"),
    ]  # fmt: skip


def test_a_name_that_is_the_same_everywhere_is_no_finding() -> None:
    """A name of a public address, while MPI uses another network. Nor is the host's own 127.0.1.1."""
    value = examined(lambda pair: changed(pair, resolved=("192.0.2.7",)), own=["127.0.1.1"])
    assert seen(name_differs.CHECK, value) == []


@pytest.mark.parametrize(
    ("own", "count"),
    [(["192.0.2.7", "2001:db8::7"], 0), (["192.0.2.7", "192.0.2.8"], 0), (["2001:db8::7"], 0), (["192.0.2.8"], 2)],
)
def test_the_target_may_know_more_of_its_addresses(own: list[str], count: int) -> None:
    """It asks for all families, and the others for IPv4 only."""
    value = examined(lambda pair: changed(pair, resolved=("192.0.2.7",)), count=2, own=own)
    assert len(seen(name_differs.CHECK, value)) == count


def test_with_two_hosts_the_target_itself_is_asked() -> None:
    value = examined(lambda pair: changed(pair, resolved=("192.0.2.7",)), count=2, own=["10.0.0.1", "10.0.0.2"])
    assert len(seen(name_differs.CHECK, value)) == 2


def test_the_heads_ssh() -> None:
    value = examined(
        lambda pair: changed(pair, ssh="Permission denied (publickey).") if pair.target == "gpu3" else pair
    )
    assert (("gpu1", "gpu3"), "the head's ssh fails: Permission denied (publickey).") in seen(head_ssh.CHECK, value)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0.0, "0 Mbit/s"), (1e6, "8 Mbit/s"), (1.25e7, "100 Mbit/s"), (1.17e9, "9.4 Gbit/s"), (5e10, "400 Gbit/s")],
)
def test_rates(rate: float, text: str) -> None:
    assert slow_link.rate_text(rate) == text


@pytest.mark.parametrize(("trip", "text"), [(1.23e-4, "0.12 ms"), (0.0141, "14 ms"), (1.5, "1500 ms")])
def test_round_trips(trip: float, text: str) -> None:
    assert slow_link.trip_text(trip) == text
