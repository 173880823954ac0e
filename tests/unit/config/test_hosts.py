"""Tests what the lines of a hosts file mean, and the messages about invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.config.hosts import MAX_HOSTS, parse_hosts, render_hosts
from kit.config.yaml import load_spec
from kit.errors import InputError, InputErrors
from kit.model.host import Host

ROOT = Path(__file__).parents[3]


def one(text: str) -> Host:
    (host,) = parse_hosts(text, source="hosts").hosts
    return host


def problems(text: str) -> list[tuple[int | None, str, str]]:
    with pytest.raises(InputError) as caught:
        parse_hosts(text, source="hosts")
    error = caught.value
    reported = error.problems if isinstance(error, InputErrors) else (error,)
    assert all(p.file == "hosts" and p.exit_code == 2 for p in reported)
    return [(p.line, p.message, p.hint or "") for p in reported]


def test_the_example_means_what_it_says() -> None:
    text = (ROOT / "hosts.example").read_text(encoding="utf-8")
    inventory = parse_hosts(text, source="hosts.example")
    hosts = {
        h.name: {
            k: getattr(h, k)
            for k in ("address", "slots", "user", "port", "key", "internal")
            if getattr(h, k) is not None and not (k == "address" and h.address == h.name)
        }
        for h in inventory.hosts
    }
    expected: dict[str, dict[str, object]] = {
        "10.0.0.11": {},
        "gpu12.example.com": {},
        "10.0.0.13": {"slots": 8},
        "10.0.0.14": {"user": "ubuntu", "port": 2222},
        "10.0.0.15": {"user": "ubuntu", "port": 2222, "key": "~/.ssh/gpu-cluster"},
        "10.0.0.16": {"key": "keys/my key"},
        "gpu17": {"address": "198.51.100.17"},
        "gpu18": {"address": "198.51.100.18", "internal": "10.0.0.18"},
        "far1": {"address": "203.0.113.5", "port": 2201, "internal": "10.0.1.1"},
        "far2": {"address": "203.0.113.5", "port": 2202, "internal": "10.0.1.2"},
    }
    expected |= {f"gpu0{n}": {"slots": 8} for n in range(1, 9)}
    expected |= {f"10.0.2.{n}": {} for n in range(1, 5)}
    expected |= {f"node{n}": {} for n in (1, 3, 5, 6, 7)}
    expected |= {f"rack{r}n{n}": {"slots": 4} for r in (1, 2) for n in (1, 2)}
    expected |= {f"east{n}": {"address": f"198.51.100.{30 + n}", "internal": f"10.0.3.{n}"} for n in range(1, 5)}
    expected |= {"ompi1": {"slots": 4}, "ompi2": {"slots": 2}, "ompi3": {"slots": 6}, "ompi4": {"slots": 2}}
    assert hosts == expected
    assert list(inventory.names) == list(expected)
    assert inventory.head.address == "10.0.0.11"
    lines = text.split("\n")
    assert all(host.address[:4] in lines[host.line - 1] for host in inventory.hosts if "[" not in lines[host.line - 1])


@pytest.mark.parametrize(
    ("text", "slots"),
    [  # each tried on mpirun 4.1.4 (--display-allocation), which counts the same
        ("n slots=4 max_slots=8", 4),
        ("n\nn", 2),
        ("n slots=2\nn", 3),
        ("n slots = 4", 4),
        ("n slots =4", 4),
        ("n slots= 4", 4),
        ("n count=4", 4),
        ("n cpu=4", 4),
        ("n slots=4 max_slots=4", 4),
        ("n max_slots=3", 3),
        ("n max-slots=3", 3),
        ("n slots=2 // note", 2),
        ("n slots=2 // note // slots=4", 2),
        ("n slots=2 /* note */", 2),
        ("n\tslots=2", 2),
        ("u@n slots=2", 2),
        ("n username=u slots=2", 2),
    ],
)
def test_slots_count_as_mpirun_counts(text: str, slots: int) -> None:
    assert one(text).slots == slots


def test_a_host_that_is_listed_once_says_nothing_of_its_slots() -> None:
    assert one("10.0.0.1").slots is None


def test_windows_line_ends_and_a_byte_order_mark_change_nothing() -> None:
    plain = "# note\n10.0.0.1 slots=2\n\n10.0.0.2\n"
    dressed = "\ufeff" + plain.replace("\n", "\r\n")
    assert parse_hosts(dressed, source="h") == parse_hosts(plain, source="h")
    assert parse_hosts(plain.replace("\n", "\r"), source="h") == parse_hosts(plain, source="h")


def test_a_comment_of_several_lines_keeps_the_numbers_of_the_lines() -> None:
    assert one("/* a\nb\nc */\n10.0.0.1").line == 4


def test_an_ipv6_address_gets_a_name_that_a_folder_can_have() -> None:
    host = one("2001:0DB8::0001 port=22")
    assert (host.address, host.name, host.port) == ("2001:db8::1", "ip6-2001-db8--1", 22)


def test_names_are_compared_without_case() -> None:
    assert problems("gpu1\n10.0.0.1 name=GPU1")[0][0] == 2
    assert one("GPU1\ngpu1").slots == 2


def test_all_problems_of_a_file_are_reported_in_order() -> None:
    reported = problems("10.0.0.256\n10.0.0.1\n10.0.0.2 slots=x\ngpu[1-\n10.0.0.1 name=b\n")
    assert [line for line, _, _ in reported] == [1, 3, 4, 5]


def test_very_many_problems_are_counted_not_listed() -> None:
    reported = problems("bad/address\n" * 200)
    assert len(reported) == 51
    assert reported[-1][1] == "150 more problems from this line on"


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("", 1, "hosts names no VM", "write one VM on each line, such as: 10.0.0.11"),
        ("# nobody\n\n", 1, "hosts names no VM", "write one VM on each line"),
        ("n\nn2 slot=4", 2, "there is no setting 'slot'=", "did you mean slots=?"),
        ("n Slots=4", 1, "there is no setting 'Slots'=", "did you mean slots=?"),
        ("n gpus=4", 1, "there is no setting 'gpus'=", "in kit, write slots="),
        ("n ansible_user=u", 1, "this is a line of an Ansible inventory", "write: n user=u"),
        (
            "gpu1 ansible_host=10.0.0.1 ansible_user=u ansible_become=true slots=4",
            1,
            "this is a line of an Ansible inventory",
            "write: 10.0.0.1 name=gpu1 user=u slots=4",
        ),
        (
            "n ansible_ssh_host=n ansible_port=23 ansible_ssh_private_key_file=~/k",
            1,
            "this is a line of an Ansible inventory",
            "write: n port=23 key=~/k",
        ),
        ("n\n[gpus:vars]", 2, "'[gpus:vars]' is a group of an Ansible inventory", "delete this line"),
        ("ansible_user=u", 1, "'ansible_user=u' sets a variable for a group", "ssh: {user: u}"),
        ("ansible_become=true", 1, "'ansible_become=true' sets a variable for a group", "delete this line"),
        ("gpu1:", 1, "'gpu1:' looks like an inventory in YAML", "10.0.0.11 name=gpu1"),
        ("ansible_host: 10.0.0.1", 1, "'ansible_host:' looks like an inventory in YAML", "10.0.0.11 name=gpu1"),
        ("gpu[01:03]", 1, "[01:03] is a range in Ansible's syntax", "write [01-03]"),
        ("n zzz=4", 1, "there is no setting 'zzz'=", "slots=, user=, port=, key=, name=, internal= or hca="),
        ("n hca=a;b", 1, "hca=a;b is not a list of InfiniBand adapters", "hca=mlx5_0"),
        ("n nccl_ib_hca=mlx5_0", 1, "there is no setting", "in kit, write hca="),
        ("n slots=0", 1, "slots=0 leaves no room for a rank", "head_runs_ranks: false"),
        ("n slots=many", 1, "slots=many is not a number from 1 to 4096", "slots=8"),
        ("n slots=4097", 1, "slots=4097 is not a number from 1 to 4096", "slots=8"),
        ("n port=0", 1, "port=0 is not a number from 1 to 65535", "port=22"),
        ("n slots=4,max_slots=8", 1, "slots=4,max_slots=8 is not a number", "put a space"),
        ("n slots=4 max_slots=3", 1, "max_slots=3 is below slots=4", "max_slots=4"),
        ("n slots=2 slots=3", 1, "slots= occurs twice on this line", "once"),
        ("n slots=", 1, "slots= has no value", "value after the ="),
        ("n key= name=x", 1, "key= has no value", "value after the ="),
        ("n slots", 1, "'slots' has no value", "slots=VALUE"),
        ("n port=70000", 1, "port=70000 is not a number from 1 to 65535", "port=22"),
        ("n:4", 1, "'n:4': a hosts file has no HOST:NUMBER", "'n slots=4' for slots"),
        ("u@n:4", 1, "'n:4': a hosts file has no HOST:NUMBER", "'u@n port=4' for the port"),
        ("[2001:db8::1]:22", 1, "'[2001:db8::1]:22' is in brackets", "write: 2001:db8::1 port=22"),
        ("u@[fe80::1]", 1, "'[fe80::1]' is in brackets", "write: u@fe80::1"),
        ("[fe80::1]", 1, "'[fe80::1]' is in brackets", "write: fe80::1"),
        ("10.0.0.1-4", 1, "'10.0.0.1-4' looks like a range", "write: 10.0.0.[1-4]"),
        ("u@10.0.0.1-10.0.0.4", 1, "'10.0.0.1-10.0.0.4' looks like a range", "write: u@10.0.0.[1-4]"),
        ("10.0.0.11 gpu1", 1, "'gpu1' is a second word", "if it is the name of this VM, write: 10.0.0.11 name=gpu1;"),
        ("u@10.0.0.11 gpu1", 1, "'gpu1' is a second word", "write: u@10.0.0.11 name=gpu1;"),
        ("10.0.0.11 10.0.0.12", 1, "'10.0.0.12' is a second word", "put '10.0.0.12' on another line"),
        ("n slots:8", 1, "'slots:8' has a colon", "write slots=8"),
        ("n slots: 8", 1, "'slots:' has a colon", "write slots=8"),
        ("n slots:", 1, "'slots:' has a colon", "write slots=VALUE"),
        ("n gpus", 1, "'gpus' has no value", "gpus=VALUE"),
        ("n gpus:8", 1, "'gpus:8' has a colon", "write slots=8"),
        ("u@n -p 2222", 1, "'-p' is an option of ssh", "write port=2222"),
        ("u@n -p2222", 1, "'-p2222' is an option of ssh", "write port=2222"),
        ("u@n -i ~/.ssh/key", 1, "'-i' is an option of ssh", "write key=~/.ssh/key"),
        ("n -l", 1, "'-l' is an option of ssh", "write user=VALUE"),
        ("n key='my key' slots=2", 1, "key= has a single quote", 'write key="my key"'),
        ("n key='~/.ssh/a'", 1, "key= has a single quote", "write key=~/.ssh/a"),
        ("n name=\"a\" key='~/.ssh/a'", 1, "key= has a single quote", "write key=~/.ssh/a"),
        ("n n2 slots=2", 1, "'n2' is a second word", "another line"),
        ("n,n2", 1, "'n,n2' is not an address", "one VM on each line"),
        ("10.0.0.0/24", 1, "'10.0.0.0/24' is not an address", "only the VM's address"),
        ("10.0.0.300", 1, "'10.0.0.300' is not an IPv4 address", "four numbers"),
        ("10.0.0.01", 1, "'10.0.0.01' is not an IPv4 address", "without leading zeros"),
        ("10.0.0", 1, "'10.0.0' is not an IPv4 address", "four numbers"),
        ("-n", 1, "'-n' is not an address", "gpu1"),
        ("gp\u00fc1", 1, "'gp\u00fc1' is not an address", "U+00FC"),
        ("n\u200b", 1, "'n\\u200b' is not an address", "U+200B"),
        ("gpu{1..4}", 1, "'gpu{1..4}' is not an address", "gpu[1-4]"),
        ("fe80::zz", 1, "'fe80::zz' is not an address", "2001:db8::11"),
        ("gpu[4-1]", 1, "[4-1] runs backwards: 4 is above 1", "write [1-4]"),
        ("gpu[1-4", 1, "'gpu[1-4' has a '[' with no ']'", "gpu[1-4]"),
        ("gpu1-4]", 1, "'gpu1-4]' has a ']' with no '['", "gpu[01-08]"),
        ("gpu[[1-4]]", 1, "'gpu[[1-4]]' has a bracket inside a bracket", "gpu[01-08]"),
        ("gpu[]", 1, "[] is not a range of numbers", "[1-4]"),
        ("gpu[1..4]", 1, "[1..4] is not a range of numbers", "[1-4]"),
        ("gpu[a-d]", 1, "[a-d] is not a range of numbers", "whole numbers"),
        ("gpu[1\u20134]", 1, "[1\u20134] has a long dash in it", "[1-4]"),
        ("gpu[1,1]", 1, "[1,1] has 1 twice", "once"),
        ("gpu[1-008]", 1, "[1-008] has ends of different width", "write [001-008] or [1-8]"),
        ("gpu[0-99999]", 1, "[0-99999] has more than 10000 hosts", "smaller"),
        ("g[0-999]n[0-999]", 1, "'g[0-999]n[0-999]' has more than 10000 hosts", "smaller"),
        ("gpu[1-4] name=x", 1, "the line has 4 VMs, but name=x has 1 value", "name=gpu[01-04]"),
        (
            "gpu[1-4] internal=10.0.0.[1-3]",
            1,
            "the line has 4 VMs, but internal=10.0.0.[1-3] has 3 values",
            "internal=10.0.0.[1-4]",
        ),
        ("gpu internal=10.0.0.[1-3]", 1, "internal=10.0.0.[1-3] has 3 values", "internal=10.0.0.1"),
        ("gpu internal=node1", 1, "internal=node1 is not an IPv4 address", "internal=10.0.0.11"),
        ("gpu internal=127.0.0.1", 1, "internal=127.0.0.1 is a loopback address", "internal=10.0.0.11"),
        ("a\ngpu[1-2] internal=127.0.0.[1-2]", 2, "internal=127.0.0.1 is a loopback address", "internal=10.0.0.11"),
        *[
            (f"a\ngpu internal={address}", 2, f"internal={address} is not the address of one VM", "internal=10.0.0.11")
            for address in ("0.0.0.0", "0.1.2.3", "224.0.0.1", "239.1.1.1", "255.255.255.255")  # noqa: S104  (not bound here)
        ],
        (
            "a internal=10.0.0.1\nb internal=10.0.0.1",
            2,
            "the host on line 1 already has internal=10.0.0.1",
            "own address",
        ),
        ("10.0.0.1 name=a/b", 1, "'a/b' cannot be a name", "name=gpu-01"),
        ("10.0.0.1 name=-H", 1, "'-H' cannot be a name", "name=gpu-01"),
        ("10.0.0.1 name=a\n10.0.0.2 name=a", 2, "the host on line 1 already has the name 'a'", "another name"),
        (
            "10.0.0.1 name=n2\nn2 name=x",
            1,
            "the name 'n2' is the address of the host on line 2",
            "not the address of another host",
        ),
        ("10.0.0.1 user=a\n10.0.0.1 user=b", 2, "'10.0.0.1' has user=b here but user=a on line 1", "one line"),
        ("10.0.0.1\n10.0.0.1 slots=2", 2, "'10.0.0.1' is already on line 1", "10.0.0.1 slots=2"),
        ("10.0.0.1 slots=2\n10.0.0.1 slots=2", 2, "only its first line can have slots=", "10.0.0.1 slots=2"),
        (
            "n port=1 name=a\nn port=2 name=b\nn port=2 name=c",
            3,
            "'n' is already on line 2 with another name or port",
            "its port= and name=",
        ),
        (
            "10.0.0.1 port=1\n10.0.0.1 port=2",
            2,
            "is already on line 1 with another name or port",
            "its port= and name=",
        ),
        ("a@n user=b", 1, "the line has two logins, 'a' and 'b'", "user=b"),
        ("ro;ot@n", 1, "'ro;ot' is not a login", "user=ubuntu"),
        ("n user=ann@", 1, "'ann@' is not a login", "write it as User into ~/.ssh/config"),
        ("CORP\\@n", 1, "is not a login", "~/.ssh/config"),
        ("n user=-oProxyCommand=x", 1, "is not a login", "~/.ssh/config"),
        ('n key="a', 1, "a quote is never closed", "close it"),
        ("n\n/* x", 2, "the comment that starts with /* has no end", "*/"),
        ("[gpus]", 1, "'[gpus]' is a group of an Ansible inventory", "delete this line"),
        ("rank 0=n slot=0", 1, "this line belongs in a rankfile", "slots=4"),
        ("rank 0=n", 1, "this line belongs in a rankfile", "slots=4"),
        ("rank 8", 1, "'8' is a second word", "another line"),
        ("n 0=n slot=0", 1, "there is no setting '0'=", "slots="),
        ("n key=a\x07b", 1, "key= contains an unprintable character", "write the path of the private key"),
        ("a\n^a", 2, "'^a' excludes a host in mpirun's syntax", "# a"),
        ("slots=4 n", 1, "the line starts with 'slots=4', not with an address", "10.0.0.11 slots=4"),
    ],
)
def test_a_bad_line_is_reported_with_what_to_write(text: str, line: int, message: str, hint: str) -> None:
    reported = problems(text)
    assert len(reported) == 1
    assert reported[0][0] == line
    assert message in reported[0][1]
    assert hint in reported[0][2]


@pytest.mark.parametrize("user", ["ann@corp.example", "CORP\\ann", "a.b-c_d", "u"])
def test_a_login_may_have_a_domain(user: str) -> None:
    assert (one(f"10.0.0.1 user={user}").user, one(f"{user}@10.0.0.1").user) == (user, user)
    assert load_spec(f"ssh: {{user: '{user}'}}", source="kit.yaml").ssh.user == user


@pytest.mark.parametrize(
    "line", ["127.77.0.1 internal=127.77.0.1", "localhost internal=127.0.0.1", "n internal=240.0.0.1"]
)
def test_a_host_on_this_machine_may_have_a_loopback_address_for_mpi(line: str) -> None:
    assert one(line).internal == line.partition("=")[2]


def test_ten_thousand_hosts_are_taken_and_one_more_is_not() -> None:
    assert len(parse_hosts("n[1-9999]\nlast", source="h").hosts) == MAX_HOSTS
    assert problems("n[1-9999]\nm1\nm2")[0][:2] == (3, "the file has over 10000 hosts")


def test_one_host_has_4096_slots_at_most_however_they_are_counted() -> None:
    assert one("n\n" * 4096).slots == 4096
    assert problems("n\n" * 4098)[0][0] == 4097


def test_a_single_quote_in_double_quotes_or_a_comment_is_only_a_character() -> None:
    assert one("n key=\"'k\" # name='x'").key == "'k"
    assert render_hosts(parse_hosts('n key="\'k"', source="h")) == 'n key="\'k"\n'


@pytest.mark.parametrize("text", ["gpu1 gpu2", "10.0.0.1 10.0.0.2", "10.0.0.1 a/b", "10.0.0.1 word:8"])
def test_a_second_word_that_cannot_be_the_name_of_the_vm_is_not_called_one(text: str) -> None:
    first, word = text.split()
    assert problems(text) == [
        (
            1,
            f"'{word}' is a second word after '{first}', but a line holds one VM",
            f"put '{word}' on another line, or write # before it",
        )
    ]


def test_a_path_may_have_an_equals_sign() -> None:
    assert one("n key=/keys/a=b slots=2").key == "/keys/a=b"


def test_a_host_may_be_named_rank() -> None:
    assert one("rank slots=4").slots == 4


def test_an_option_of_ssh_gets_only_its_own_word() -> None:
    assert problems("u@n -p 2222 slots=2") == [(1, "'-p' is an option of ssh", "write port=2222")]


def test_a_comment_after_a_quote_is_no_setting() -> None:
    host = one('n key="my key" "" // slots=9')
    assert (host.key, host.slots) == ("my key", None)


def test_a_rendered_inventory_says_only_what_differs() -> None:
    text = '10.0.0.1\nu@n slots=2 port=22\nm name=x key="a b#c" internal=10.0.0.9 hca=^mlx5_3:1,b\n'
    assert render_hosts(parse_hosts(text, source="h")) == (
        '10.0.0.1\nn slots=2 user=u port=22\nm name=x key="a b#c" internal=10.0.0.9 hca=^mlx5_3:1,b\n'
    )
