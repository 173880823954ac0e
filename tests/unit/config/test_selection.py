"""-H: which hosts it names."""

from __future__ import annotations

import pytest

from kit.config.hosts import parse_hosts
from kit.config.selection import select_host, select_hosts
from kit.errors import InputError

INVENTORY = parse_hosts("gpu[01-04]\n10.0.0.9 name=far\n", source="hosts")


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[01-02],gpu04", ["gpu01", "gpu02", "gpu04"]),
        ("gpu[02,04] far", ["gpu02", "gpu04", "far"]),
        ("far,gpu01,far", ["gpu01", "far"]),
        ("10.0.0.9,GPU03", ["gpu03", "far"]),
        ("far,head", ["gpu01", "far"]),
        ("HEAD", ["gpu01"]),
    ],
)
def test_hosts_come_in_the_order_of_the_file_each_once(wanted: str, names: list[str]) -> None:
    assert list(select_hosts(INVENTORY, wanted).names) == names


@pytest.mark.parametrize(
    ("wanted", "message", "hint"),
    [
        ("gpu1", "'gpu1' is not in hosts", "did you mean gpu01"),
        ("zzz", "'zzz' is not in hosts", "hosts there: gpu01, gpu02, gpu03, gpu04, far"),
        ("gpu[01-05]", "'gpu05' is not in hosts", "gpu0"),
        ("gpu01:2", "'gpu01:2': a list of hosts takes no number", "slots=2"),
        # No number of slots, and no host before it.
        ("gpu01:x", "'gpu01:x' is not in hosts", "did you mean gpu01"),
        ("zzz:2", "'zzz:2' is not in hosts", "hosts there: gpu01, gpu02, gpu03, gpu04, far"),
        (" , ", "the list names no host", "such as gpu01"),
        ("gpu[2-1]", "[2-1] runs backwards", "[1-2]"),
        ("gpu[1,2", "has a '[' with no ']'", "]"),
    ],
)
def test_an_unknown_host_gets_similar_names(wanted: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        select_hosts(INVENTORY, wanted)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, " and 1 more"), (8, " and 3 more")])
def test_of_many_hosts_five_are_listed(count: int, more: str) -> None:
    with pytest.raises(InputError) as caught:
        select_hosts(parse_hosts(f"gpu[1-{count}]\n", source="hosts"), "zzz")
    assert caught.value.hint == f"hosts there: gpu1, gpu2, gpu3, gpu4, gpu5{more}"


def test_a_host_that_is_named_head_is_that_host() -> None:
    inventory = parse_hosts("gpu1\ngpu2 name=head\n", source="hosts")
    assert select_hosts(inventory, "head").names == ("head",)


@pytest.mark.parametrize(
    "wanted",
    ["2001:0db8:0000::11", "2001:DB8::11", "2001:db8::11", "ip6-2001-db8--11", "2001:0db8:0000::[11-12]"],
)
def test_an_ipv6_address_is_that_host_however_it_is_written(wanted: str) -> None:
    inventory = parse_hosts("2001:0db8:0000::11\n2001:db8::12\n", source="hosts")
    assert select_hosts(inventory, wanted).hosts[0].address == "2001:db8::11"
    if "[" not in wanted:
        assert select_host(inventory, wanted).name == "ip6-2001-db8--11"


def test_one_host() -> None:
    assert select_host(INVENTORY, "head").name == "gpu01"
    assert select_host(INVENTORY, "10.0.0.9").name == "far"
    with pytest.raises(InputError) as caught:
        select_host(INVENTORY, "gpu[01-02]")
    assert str(caught.value) == "'gpu[01-02]' names 2 hosts"
    assert caught.value.hint == "name one host"
