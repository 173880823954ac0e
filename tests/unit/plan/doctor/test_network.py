"""The checks of networks: what they say about files of /proc and /sys that are not as they should be."""

from __future__ import annotations

from typing import Any

import pytest

from kit.config.validate import spec_from
from kit.model.doctor import Examined
from kit.model.values import replace
from kit.plan.doctor.checks import (
    arp_table,
    congestion,
    conntrack,
    docker_pool,
    infiniband,
    mac,
    mtu_differs,
    nic_errors,
    nic_speed,
    rp_filter,
    tcp_buffers,
)
from kit.plan.doctor.network import interface
from kit.remote.doctor.reader import places
from tests.fakes.doctor import judged, rows, seen, table
from tests.fakes.facts import facts, interfaces
from tests.unit.plan.doctor.clean import ANY, ROUTES, THREE, machine

NET = "/sys/class/net"
CONF = "/proc/sys/net/ipv4/conf"
TCP = "/proc/sys/net/ipv4"
TRACKED = "/proc/sys/net/netfilter"
IB = "/sys/class/infiniband/mlx5_0/ports/1"
HEAD, SECOND, THIRD = THREE
LAN = ("eth0", "10.0.0.0", "255.255.255.0")

ROCE = {f"{IB}/state": "4: ACTIVE\n", f"{IB}/link_layer": "Ethernet\n", f"{IB}/gid_attrs/types/0": "IB/RoCE v1\n"}
# What the reader keeps of it, with a name such as ConnectX cards have.
ARP = ("IP address       HW type     Flags       HW address            Mask     Device\n" + (
    "10.0.16.254      0x1         0x2         06:5f:4d:55:11:01     *        enp129s0f0np0\n" * 2000
))[: places.FILE]  # fmt: skip
COUNT = "/proc/net/stat/arp_cache"
ARP_COUNT = "entries  allocs   destroys hash_grows\n00003e66 00000b30 00000a8a 00000003\n00003e66 1 2 3\n"
CASES: list[tuple[Any, dict[str, str], list[str]]] = [
    (mtu_differs, {f"{NET}/eth0/mtu": "9001\n"}, ["MTU 9001 on eth0, usual 1500"]),
    (mtu_differs, {f"{NET}/docker0/mtu": "1400\n"}, []),
    (mtu_differs, {f"{NET}/eth0/mtu": "x"}, []),
    (nic_speed, {f"{NET}/eth0/speed": "1000\n"}, ["eth0 has 1000 Mbit/s, usual 10000"]),
    (nic_speed, {f"{NET}/eth0/speed": "25000\n"}, []),
    (nic_speed, {f"{NET}/eth0/speed": "-1\n"}, []),
    (nic_speed, {f"{NET}/eth0/speed": "4294967295\n"}, []),
    (nic_errors, {f"{NET}/eth0/statistics/rx_errors": "5000\n"}, ["eth0: 5000 errors in 9112344 packets received"]),
    (nic_errors, {f"{NET}/eth0/statistics/tx_errors": "5000\n"}, ["eth0: 5000 errors in 8112344 packets sent"]),
    (nic_errors, {f"{NET}/eth0/statistics/rx_errors": "99\n", f"{NET}/eth0/statistics/rx_packets": "100\n"}, []),
    (nic_errors, {f"{NET}/eth0/statistics/rx_errors": "100\n", f"{NET}/eth0/statistics/rx_packets": "90000000\n"}, []),
    (nic_errors, {f"{NET}/veth1/statistics/rx_errors": "5000\n"}, []),
    (nic_errors, {f"{NET}/eth0/carrier_changes": "50\n"}, ["eth0: the link went up or down 50 times"]),
    (nic_errors, {f"{NET}/eth0/carrier_changes": "49\n"}, []),
    (congestion, {f"{TCP}/tcp_congestion_control": "bbr\n"}, ["TCP uses bbr, usual cubic"]),
    (tcp_buffers, {f"{TCP}/tcp_rmem": "4096 87380 212992\n"}, ["tcp_rmem allows at most 212992 bytes"]),
    (tcp_buffers, {f"{TCP}/tcp_wmem": "4096 1 9999999\n"}, ["tcp_wmem allows at most 9999999 bytes, usual 4194304"]),
    (tcp_buffers, {f"{TCP}/tcp_wmem": "4096\n"}, []),
    (tcp_buffers, {f"{TCP}/tcp_rmem": "4096 87380 1048575\n"}, ["tcp_rmem allows at most 1048575 bytes"]),
    (
        tcp_buffers,
        {f"{TCP}/tcp_rmem": "4096 87380 1048576\n"},
        ["tcp_rmem allows at most 1048576 bytes, usual 6291456"],
    ),
    (conntrack, {f"{TRACKED}/nf_conntrack_count": "262000\n"}, ["262000 of 262144 tracked connections"]),
    (conntrack, {f"{TRACKED}/nf_conntrack_count": "210000\n"}, ["210000 of 262144 tracked connections"]),
    (conntrack, {f"{TRACKED}/nf_conntrack_count": "5\n", f"{TRACKED}/nf_conntrack_max": "0\n"}, []),
    (
        arp_table,
        {"/proc/sys/net/ipv4/neigh/default/gc_thresh3": "3\n"},
        ["room for 3 neighbors, 1 known, 3 hosts in the cluster"],
    ),
    (
        arp_table,
        {"/proc/net/arp": "IP address\n" + "10.0.0.9\n" * 900},
        ["room for 1024 neighbors, 900 known, 3 hosts in the cluster"],
    ),
    # The doctor reads only the beginning of a long list. The count of a short one also has what is in containers.
    (
        arp_table,
        {"/proc/net/arp": ARP, "/proc/sys/net/ipv4/neigh/default/gc_thresh3": "16384\n", COUNT: ARP_COUNT},
        ["room for 16384 neighbors, 15974 known, 3 hosts in the cluster"],
    ),
    (arp_table, {COUNT: ARP_COUNT}, []),
    (arp_table, {"/proc/net/arp": ARP, COUNT: "odd\n"}, []),
    (
        rp_filter,
        {"/proc/net/route": table(LAN, ("eth1", "10.0.0.0", "255.255.255.0"))},
        ["eth0 and eth1 are in one network, with rp_filter=1"],
    ),
    (rp_filter, {"/proc/net/route": table(LAN, ("eth1", "10.0.1.0", "255.255.255.0"))}, []),
    (rp_filter, {"/proc/net/route": table(LAN, ("br-1", "10.0.0.0", "255.255.255.0"))}, []),
    # A route through a gateway shows no network of the interface, nor does a default route.
    (rp_filter, {"/proc/net/route": table(LAN, ("eth1", "10.0.0.0", "255.255.255.0", "10.9.0.1"))}, []),
    (rp_filter, {"/proc/net/route": table(LAN, ("eth0", ANY, ANY), ("eth1", ANY, ANY))}, []),
    (
        rp_filter,
        {"/proc/net/route": table(LAN, ("eth1", "10.0.0.0", "255.255.255.0")), f"{CONF}/all/rp_filter": "2\n"},
        [],
    ),
    (
        docker_pool,
        {"/proc/net/route": table(LAN, ("br-0242ac110002", "10.0.0.1", "255.255.255.255"))},
        ["the network of br-0242ac110002 contains gpu1"],
    ),
    (
        docker_pool,
        {"/proc/net/route": table(("docker0", "10.0.0.0", "255.255.0.0"))},
        ["the network of docker0 contains gpu[1,3]"],
    ),
    *(
        (
            docker_pool,
            {"/proc/net/route": table((name, "10.0.0.0", "255.255.255.0"))},
            ["the network of " + name + " contains gpu[1,3]"],
        )
        for name in ("docker1", "docker_gwbridge")
    ),
    # Bridges of the host, to which its network card belongs.
    *(
        (docker_pool, {"/proc/net/route": table((name, "10.0.0.0", "255.255.255.0"))}, [])
        for name in ("br-ex", "br-lan", "br-0242ac11000", "br-0242ac1100021", "dockernet")
    ),
    # The smaller network of eth0 wins.
    (docker_pool, {"/proc/net/route": table(LAN, ("docker0", "10.0.0.0", "255.255.0.0"))}, []),
    (docker_pool, {"/proc/net/route": table(LAN, ("docker0", ANY, ANY))}, []),
    (docker_pool, {"/proc/net/route": table(("docker0", ANY, ANY))}, []),
    # Not the bridge's own network.
    (docker_pool, {"/proc/net/route": table(("docker0", "10.0.0.0", "255.255.255.0", "172.17.0.9"))}, []),
    (mac, {f"{NET}/eth1/address": "06:5f:4d:55:00:01\n"}, []),
    (infiniband, {f"{IB}/state": "4: ACTIVE\n", f"{IB}/link_layer": "InfiniBand\n"}, []),
    (infiniband, {f"{IB}/state": "1: DOWN\n"}, ["no port is active: mlx5_0 is DOWN"]),
    (infiniband, {f"{IB}/state": "\n"}, ["no port is active: mlx5_0 is unknown"]),
    (infiniband, ROCE, ["mlx5_0 has no GID of RoCE v2"]),
    (infiniband, {**ROCE, f"{IB}/gid_attrs/types/1": "RoCE v2\n"}, []),
    (infiniband, {**ROCE, f"{IB}/link_layer": "InfiniBand\n"}, []),
    (infiniband, {f"{IB}/state": "4: ACTIVE\n", f"{IB}/link_layer": "Ethernet\n"}, []),
]


@pytest.mark.parametrize(("module", "files", "expected"), CASES)
def test_one_host_is_named(module: Any, files: dict[str, str], expected: list[str]) -> None:
    sights = judged(module.CHECK, HEAD, SECOND.but(files=files), THIRD)
    assert rows(sights) == [("gpu2", text) for text in expected]


def test_the_head_is_right_where_two_hosts_differ() -> None:
    sights = judged(mtu_differs.CHECK, HEAD, SECOND.but(files={f"{NET}/eth0/mtu": "9001\n"}))
    assert rows(sights) == [("gpu2", "MTU 9001 on eth0, usual 1500")]


def test_of_two_links_or_adapters_the_worse_one_is_the_heads() -> None:
    slow = HEAD.but(files={f"{NET}/eth0/speed": "1000\n"})
    assert rows(judged(nic_speed.CHECK, slow, SECOND)) == [("gpu1", "eth0 has 1000 Mbit/s, usual 10000")]
    # Also in a tie of two and two, and not against a majority.
    assert rows(judged(nic_speed.CHECK, slow, SECOND, slow, THIRD)) == [
        ("gpu1", "eth0 has 1000 Mbit/s, usual 10000"),
        ("gpu3", "eth0 has 1000 Mbit/s, usual 10000"),
    ]
    assert rows(judged(nic_speed.CHECK, slow, SECOND, slow)) == []
    both = {f"/sys/class/infiniband/mlx5_{n}/ports/1/state": "4: ACTIVE\n" for n in (0, 1)}
    one = {**both, "/sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n"}
    hosts = (HEAD.but(files=one), SECOND.but(files=both))
    assert rows(judged(infiniband.CHECK, *hosts)) == [("gpu1", "1 active ports, usual 2")]


def test_a_slower_link_of_a_head_without_ranks_is_only_worth_a_look() -> None:
    slow = HEAD.but(files={f"{NET}/eth0/speed": "1000\n"})
    for runs_ranks, severity in ((False, "watch"), (True, None)):
        spec = {"head_runs_ranks": runs_ranks}
        (sight,) = judged(nic_speed.CHECK, slow, SECOND, THIRD, spec=spec, head="gpu1")
        assert (sight.hosts, sight.severity) == (("gpu1",), severity)


def test_a_bridge_with_the_hosts_own_address_is_no_bridge_of_the_engine() -> None:
    bridge = SECOND.but(files={"/proc/net/route": table(("docker0", "10.0.0.0", "255.255.255.0"))})
    machines = (HEAD, bridge, THIRD)
    hosts = [seen(f"gpu{n}", n, one, docker_pool.CHECK.reads) for n, one in enumerate(machines, 1)]
    for address, count in (("10.0.0.2/24", 0), ("10.0.0.200/24", 1)):
        observed = facts(2, interfaces=interfaces(lo="127.0.0.1/8", docker0=address))
        examined = Examined(
            spec=spec_from({"name": "lab"}), hosts=(hosts[0], replace(hosts[1], facts=observed), hosts[2])
        )
        assert len(list(docker_pool.CHECK.judge(examined))) == count


@pytest.mark.parametrize(
    ("count", "severity"), [(209_715, None), (209_716, "watch"), (249_036, "watch"), (249_037, "breaks")]
)
def test_a_nearly_full_table_is_worth_a_look(count: int, severity: str | None) -> None:
    """262144 is its size."""
    sights = judged(conntrack.CHECK, HEAD.but(files={f"{TRACKED}/nf_conntrack_count": f"{count}\n"}))
    assert [sight.severity for sight in sights] == ([severity] if severity else [])


def test_two_hosts_of_one_network_with_one_mac_are_named_together() -> None:
    clone = SECOND.but(files={f"{NET}/eth0/address": "06:5f:4d:55:00:03\n"})
    assert rows(judged(mac.CHECK, HEAD, clone, THIRD)) == [("gpu2 gpu3", "the same MAC address 06:5f:4d:55:00:03")]
    elsewhere = clone.but(files={"/proc/net/route": table(("eth0", "10.9.0.0", "255.255.255.0"))})
    assert list(judged(mac.CHECK, HEAD, elsewhere, THIRD)) == []


@pytest.mark.parametrize(
    ("interface", "network"),
    [
        # BlueField's link to its host, in the network that its driver chooses, in that of the hosts, and without one.
        ("tmfifo_net0", "192.168.100.0"),
        ("tmfifo_net0", "10.0.0.0"),
        ("enp3s0f0", "169.254.0.0"),
        # A network without any host of the cluster.
        ("usb0", "192.168.7.0"),
    ],
)
def test_a_mac_of_a_network_inside_each_host_is_no_finding(interface: str, network: str) -> None:
    files = {
        f"{NET}/{interface}/address": "00:1a:ca:ff:ff:02\n",
        "/proc/net/route": ROUTES + table((interface, network, "255.255.255.0")).partition("\n")[2],
    }
    assert list(judged(mac.CHECK, *(host.but(files=files) for host in THREE))) == []


@pytest.mark.parametrize(
    ("mac_address", "route"),
    [
        ("00:00:00:00:00:00", ("eth1", "10.0.0.0", "255.255.0.0")),
        ("ff:ff:ff:ff:ff:ff", ("eth1", "10.0.0.0", "255.255.0.0")),
        ("odd", ("eth1", "10.0.0.0", "255.255.0.0")),
        ("00:1a:ca:ff:ff:03", ("eth1", ANY, ANY)),
        ("00:1a:ca:ff:ff:03", ("eth1", "10.0.0.0", "255.255.0.0", "10.9.0.1")),
        ("00:1a:ca:ff:ff:03", ("docker0", "10.0.0.0", "255.255.0.0")),
    ],
    ids=["none", "all", "no address", "default route", "behind a gateway", "bridge of the engine"],
)
def test_what_is_no_card_in_a_network_of_the_hosts_has_no_mac_to_compare(mac_address: str, route: Any) -> None:
    files = {f"{NET}/{route[0]}/address": f"{mac_address}\n", "/proc/net/route": table(LAN, route)}
    assert list(judged(mac.CHECK, *(host.but(files=files) for host in THREE))) == []


def test_a_second_network_of_the_hosts_has_its_macs_judged() -> None:
    files = {
        f"{NET}/eth1/address": "00:1a:ca:ff:ff:03\n",
        "/proc/net/route": table(LAN, ("eth1", "10.0.0.0", "255.255.0.0")),
    }
    assert rows(judged(mac.CHECK, HEAD.but(files=files), SECOND.but(files=files), THIRD)) == [
        ("gpu1 gpu2", "the same MAC address 00:1a:ca:ff:ff:03")
    ]


def test_a_host_with_fewer_active_ports_is_named() -> None:
    both = {f"/sys/class/infiniband/mlx5_{n}/ports/1/state": "4: ACTIVE\n" for n in (0, 1)}
    one = {**both, "/sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n"}
    hosts = [host.but(files=one if host is SECOND else both) for host in THREE]
    assert rows(judged(infiniband.CHECK, *hosts)) == [("gpu2", "1 active ports, usual 2")]


def test_fewer_active_ports_of_a_head_without_ranks_are_only_worth_a_look() -> None:
    both = {f"/sys/class/infiniband/mlx5_{n}/ports/1/state": "4: ACTIVE\n" for n in (0, 1)}
    one = {**both, "/sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n"}
    hosts = [host.but(files=one if host is HEAD else both) for host in THREE]
    for runs_ranks, severity in ((False, "watch"), (True, None)):
        (sight,) = judged(infiniband.CHECK, *hosts, spec={"head_runs_ranks": runs_ranks}, head="gpu1")
        assert (sight.hosts, sight.severity) == (("gpu1",), severity)


@pytest.mark.parametrize(("rdma", "count"), [("auto", 1), ("off", 0)])
@pytest.mark.parametrize("state", ["1: DOWN\n", "4: ACTIVE\n"])
def test_ports_do_not_matter_without_rdma(rdma: str, count: int, state: str) -> None:
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    ports = {f"{port}/state": state, f"{port}/link_layer": "Ethernet\n", f"{port}/gid_attrs/types/0": "IB/RoCE v1\n"}
    assert len(judged(infiniband.CHECK, HEAD.but(files=ports), spec={"rdma": rdma})) == count


def test_a_host_without_its_adapters_is_named() -> None:
    """After a kernel's update, the module of the adapters may not load: /sys/class/infiniband is then empty."""
    both = {f"/sys/class/infiniband/mlx5_{n}/ports/1/state": "4: ACTIVE\n" for n in (0, 1)}
    hosts = [HEAD.but(files=both), SECOND.but(files=both), THIRD]
    (sight,) = judged(infiniband.CHECK, *hosts)
    assert (sight.hosts, sight.seen) == (("gpu3",), "no RDMA adapter, usual 2 active ports")
    assert "sudo modprobe -a mlx5_ib ib_uverbs" in sight.fix
    assert list(judged(infiniband.CHECK, *hosts, spec={"rdma": "off"})) == []
    # Where most hosts have none, those that have some are the exception. Of two, the one without is named.
    assert list(judged(infiniband.CHECK, HEAD, SECOND.but(files=both), THIRD)) == []
    assert rows(judged(infiniband.CHECK, HEAD, SECOND.but(files=both))) == [
        ("gpu1", "no RDMA adapter, usual 2 active ports")
    ]
    # Ports that are all down, or those of a head without ranks, are nothing that the others should have.
    down = SECOND.but(files=dict.fromkeys(both, "1: DOWN\n"))
    assert rows(judged(infiniband.CHECK, HEAD, down)) == [("gpu2", "no port is active: mlx5_0 is DOWN")]
    assert list(judged(infiniband.CHECK, hosts[0], THIRD, spec={"head_runs_ranks": False}, head="gpu1")) == []
    # Nor is it said of a host whose files kit could not read, or of a head without ranks.
    examined = Examined(
        spec=spec_from({"name": "lab", "head_runs_ranks": False}),
        hosts=tuple(seen(f"gpu{n}", n, one, infiniband.CHECK.reads) for n, one in enumerate((HEAD, *hosts[:2]), 1)),
        head="gpu1",
    )
    assert list(infiniband.CHECK.judge(examined)) == []
    unread = (*examined.hosts[1:], replace(examined.hosts[0], globs={}))
    assert list(infiniband.CHECK.judge(replace(examined, hosts=unread, head="gpu2"))) == []


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (ROUTES, "eth0"),
        # The way to the other hosts, and not the default route.
        (table(("eth0", ANY, ANY, "192.0.2.1"), ("ens6", "10.0.0.0", "255.255.255.0")), "ens6"),
        (table(("eth0", ANY, ANY, "192.0.2.1")), "eth0"),
        # A bridge of the engine in front of the others is another check's.
        (table(("docker0", "10.0.0.0", "255.255.255.0"), ("eth0", ANY, ANY, "192.0.2.1")), "eth0"),
        (None, None),
        ("Iface\n", None),
    ],
)
def test_the_interface_is_the_one_to_the_other_hosts(routes: str | None, expected: str | None) -> None:
    hosts = tuple(
        seen(f"gpu{number}", number, machine(number).but(files={"/proc/net/route": routes}), mtu_differs.CHECK.reads)
        for number in (1, 2)
    )
    spec = spec_from({"name": "lab"})
    assert interface(hosts[0], Examined(spec=spec, hosts=hosts)) == expected
