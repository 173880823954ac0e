"""The checks of hosts: what they say about files, programs and nodes that are not as they should be."""

from __future__ import annotations

from typing import Any

import pytest

from kit.config.validate import spec_from
from kit.model.doctor import DATA_ROOT, Command, Examined, Ran, Room, Seen
from kit.model.host import Host
from kit.plan.doctor.checks import (
    clock_service,
    data_mount,
    governor,
    huge_pages,
    inodes,
    kernels,
    limits,
    machine_id,
    memory_errors,
    own_name,
    selinux,
    shm,
    sizes,
    ssh_max_startups,
    ssh_prints,
    steal,
    swap,
    thp,
)
from tests.fakes.doctor import judged, rows
from tests.unit.plan.doctor.clean import LIMITS, MEMORY, SSHD, THREE

HEAD, SECOND, THIRD = THREE
THP = "/sys/kernel/mm/transparent_hugepage"
CPU = "/sys/devices/system/cpu"
EDAC = "/sys/devices/system/edac/mc/mc0"
SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
FILE_SWAP = "/swapfile                               file\t\t8388604\t\t{}\t\t-2\n"
CONFINED = '["name=seccomp,profile=builtin","name=selinux"]'
DOCKER = ("docker", "info", "--format", "{{json .SecurityOptions}}")
DF = ("node", "df", "-P", "-k", "/dev/shm")
DF_HEAD = "Filesystem     1024-blocks   Used Available Capacity Mounted on\n"
MOUNTS, SERVERS = "/proc/mounts", ("df", "-P", "-t", "nfs", "-t", "nfs4", "-t", "lustre")
VOLUME = "/var/lib/docker/volumes/kit-lab-data-web-1f/_data"
NFS = (
    "overlay / overlay rw,relatime 0 0\n"
    f":/web {VOLUME} nfs4 ro,relatime,vers=4.1,hard,clientaddr=10.0.0.2,addr=10.0.0.9 0 0\n"
    "nas:/home /home nfs rw,vers=3,addr=10.0.0.8 0 0\n"
)
LATE = Ran(code=None, out="")
LUSTRE = "10.0.0.5@tcp:/fs /fs lustre ro,flock 0 0\n"
NODE_LIMITS = ("node", "cat", "/proc/self/limits")
CLOCK = ("timedatectl", "show")
SHELL = next(read.argv for read in ssh_prints.CHECK.reads if isinstance(read, Command))


def sshd(old: str, new: str) -> dict[str, Any]:
    return {"runs": {("sshd", "-T"): SSHD.replace(old, new)}}


def node_limits(old: str, new: str) -> dict[str, Any]:
    return {"runs": {NODE_LIMITS: LIMITS.replace(old, new)}, "links": {"/sys/class/infiniband/mlx5_0": "x"}}


def file(path: str, text: str | None) -> dict[str, Any]:
    return {"files": {path: text}}


CASES: list[tuple[Any, dict[str, Any], list[str]]] = [
    (kernels, file("/proc/sys/kernel/osrelease", "6.1.0-9\n"), ["kernel 6.1.0-9, usual 6.1.0-27-cloud-amd64"]),
    (kernels, file("/proc/sys/kernel/osrelease", "\x1b[31mred"), []),
    (sizes, file(f"{CPU}/online", "0\n"), ["1 CPU, usual 4"]),
    (sizes, file(f"{CPU}/online", "0-1,4-5,8\n"), ["5 CPUs, usual 4"]),
    (sizes, file(f"{CPU}/online", "3-0\n"), []),
    (sizes, file("/proc/meminfo", "MemTotal: 8193244 kB\n"), ["8.39 GB of memory, usual 16.79 GB"]),
    (sizes, file("/proc/meminfo", MEMORY.replace("16393244", "16111111")), []),
    (
        swap,
        file("/proc/swaps", SWAPS + FILE_SWAP.format(6291456)),
        ["6.44 GB of swap are used, with 16.79 GB of memory"],
    ),
    (swap, file("/proc/swaps", SWAPS + FILE_SWAP.format(100000)), []),
    (swap, file("/proc/swaps", SWAPS + FILE_SWAP.format(6291456).replace("/swapfile", "/dev/zram0")), []),
    (swap, file("/proc/swaps", SWAPS + "\n\n/a b file x y z\n"), []),
    (
        thp,
        file(f"{THP}/defrag", "[always] defer defer+madvise madvise never\n"),
        ["transparent huge pages with defrag=always"],
    ),
    (thp, {"files": {f"{THP}/defrag": "[always] never\n", f"{THP}/enabled": "always madvise [never]\n"}}, []),
    (
        governor,
        file(f"{CPU}/cpu0/cpufreq/scaling_governor", "powersave\n"),
        ["1 of 1 CPUs have the governor powersave"],
    ),
    (governor, file(f"{CPU}/cpu0/cpufreq/scaling_governor", "performance\n"), []),
    (steal, file("/proc/stat", "cpu  1000 0 1000 7000 0 0 0 1000 0 0\n"), ["10% of the CPUs' time went to other VMs"]),
    (steal, file("/proc/stat", "cpu  1500 0 1000 7000 0 0 0 500 0 0\n"), ["5% of the CPUs' time went to other VMs"]),
    (steal, file("/proc/stat", "cpu  1501 0 1000 7000 0 0 0 499 0 0\n"), []),
    (steal, file("/proc/stat", "cpu  1000 0 1000 3000 0 0 0 1000 0 0\n"), ["17% of the CPUs' time went to other VMs"]),
    (steal, file("/proc/stat", "cpu  1000 0 1000 2999 0 0 0 1000 0 0\n"), []),
    (steal, file("/proc/stat", "cpu  1 0 1 7 0 0 0 9 0 0\n"), []),
    (steal, file("/proc/stat", "cpu  x\n"), []),
    (steal, file("/proc/stat", "cpu0 1000 0 1000 7000 0 0 0 1000 0 0\n"), []),
    (
        huge_pages,
        file("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n"),
        ["64 huge pages of 2 MiB, usual 0"],
    ),
    (clock_service, {"runs": {CLOCK: "NTP=no\nNTPSynchronized=no\n"}}, ["no service sets the clock"]),
    (clock_service, {"runs": {CLOCK: "NTP=yes\nNTPSynchronized=no\n"}}, ["the clock is not synchronized"]),
    (clock_service, {"runs": {CLOCK: Ran(code=1, out="NTPSynchronized=no\n", err="no bus")}}, []),
    (clock_service, {"runs": {CLOCK: None}}, []),
    (clock_service, {**file("/run/systemd/container", "docker"), "runs": {CLOCK: "NTPSynchronized=no\n"}}, []),
    (ssh_max_startups, sshd("10:30:100", "2:30:100"), ["MaxStartups 2"]),
    (ssh_max_startups, sshd("10:30:100", "2"), ["MaxStartups 2"]),
    (ssh_max_startups, sshd("10:30:100", "100:30:200"), []),
    (ssh_max_startups, sshd("maxsessions 10", "maxsessions 1"), ["MaxSessions 1"]),
    (ssh_max_startups, {"runs": {("sshd", "-T"): Ran(code=255, out=SSHD.replace("10:30:100", "2:30:100"))}}, []),
    (
        ssh_prints,
        {"runs": {SHELL: "Welcome to \x1b[1mgpu2\nBye\n"}},
        ['each command by ssh prints "Welcome to \\x1b[1mgpu2" first'],
    ),
    (ssh_prints, {"runs": {SHELL: " \n"}}, []),
    (ssh_prints, {"runs": {SHELL: Ran(code=1, out="usage\n")}}, []),
    (machine_id, file("/etc/machine-id", ""), []),
    (machine_id, file("/etc/machine-id", "uninitialized\n"), []),
    (memory_errors, file(f"{EDAC}/ue_count", "1\n"), ["mc0: 1 error that ECC could not correct"]),
    (memory_errors, file(f"{EDAC}/ce_count", "12\n"), []),
    (memory_errors, file(f"{EDAC}/ce_count", "120000\n"), ["mc0: ECC corrected 120000 errors"]),
    (memory_errors, file(f"{EDAC}/ce_count", "1000\n"), ["mc0: ECC corrected 1000 errors"]),
    (memory_errors, file(f"{EDAC}/ce_count", "999\n"), []),
    (memory_errors, file(f"{EDAC}/ue_count", "2\n"), ["mc0: 2 errors that ECC could not correct"]),
    (
        selinux,
        {"files": {"/sys/fs/selinux/enforce": "1"}, "runs": {DOCKER: CONFINED}},
        ["SELinux is enforcing, and the engine has selinux-enabled"],
    ),
    (selinux, {"files": {"/sys/fs/selinux/enforce": "1"}}, []),
    (selinux, {"files": {"/sys/fs/selinux/enforce": "1"}, "runs": {DOCKER: Ran(code=1, out=CONFINED)}}, []),
    (selinux, {"files": {"/sys/fs/selinux/enforce": "0"}, "runs": {DOCKER: CONFINED}}, []),
    (
        inodes,
        {"rooms": {"/tmp": Room(total=4, free=4, inodes=500, inodes_free=499)}},
        ["/tmp: 499 of 500 inodes are free"],
    ),
    (
        inodes,
        {"rooms": {"/": Room(total=4, free=4, inodes=1_000_000, inodes_free=49_000)}},
        ["/: 49000 of 1000000 inodes are free"],
    ),
    (inodes, {"rooms": {"/": Room(total=4, free=4, inodes=0, inodes_free=0)}}, []),
    (
        inodes,
        {"rooms": {DATA_ROOT: Room(total=4, free=4, inodes=500, inodes_free=499)}},
        ["the engine's data-root: 499 of 500 inodes are free"],
    ),
    (shm, {"runs": {DF: DF_HEAD + "shm 1000000 950000 50000 95% /dev/shm\n"}}, ["973 MB of 1.02 GB are used"]),
    (shm, {"runs": {DF: DF_HEAD + "shm 1000000 899999 100001 90% /dev/shm\n"}}, []),
    (shm, {"runs": {DF: Ran(code=1, out=DF_HEAD + "shm 1000000 950000 50000 95% /dev/shm\n")}}, []),
    (shm, {"runs": {DF: DF_HEAD + "shm 65536 0 65536 0% /dev/shm\n"}}, ["only 67.1 MB"]),
    (shm, {"runs": {DF: DF_HEAD + "shm 65540 0 65540 0% /dev/shm\n"}}, []),
    (shm, {"runs": {DF: DF_HEAD + "shm 0 0 0 0% /dev/shm\n"}}, []),
    (data_mount, {"files": {MOUNTS: NFS}, "runs": {SERVERS: "Filesystem 1024-blocks Used\n"}}, []),
    (
        data_mount,
        {"files": {MOUNTS: NFS}, "runs": {SERVERS: LATE}},
        [f"no answer within 8 s of 10.0.0.9:/web at {VOLUME}, nas:/home at /home"],
    ),
    (
        data_mount,
        {"files": {MOUNTS: LUSTRE * 5}, "runs": {SERVERS: LATE}},
        ["no answer within 8 s of 10.0.0.5@tcp:/fs at /fs"],
    ),
    (
        data_mount,
        {
            "files": {MOUNTS: "".join(f"nas:/{n} /{n} nfs rw 0 0\n" for n in range(5))},
            "runs": {SERVERS: LATE},
        },
        ["no answer within 8 s of nas:/0 at /0, nas:/1 at /1, nas:/2 at /2 and 2 more"],
    ),
    (
        data_mount,
        {"files": {MOUNTS: NFS}, "runs": {SERVERS: Ran(code=1, out="", err="df: /home: Stale file handle\n")}},
        ["nas:/home at /home: Stale file handle"],
    ),
    (
        data_mount,
        {"files": {MOUNTS: NFS}, "runs": {SERVERS: Ran(code=1, out="", err="df: /x: Stale file handle\n")}},
        [],
    ),
    (data_mount, {"files": {MOUNTS: "x \x1b[1m nfs rw 0 0\n"}, "runs": {SERVERS: LATE}}, []),
    (data_mount, {"runs": {SERVERS: LATE}}, []),
    (limits, file("/proc/sys/kernel/pid_max", "4096\n"), ["the kernel allows 4096 processes and threads"]),
    (limits, file("/proc/sys/kernel/pid_max", "16383\n"), ["the kernel allows 16383 processes and threads"]),
    (limits, file("/proc/sys/kernel/pid_max", "16384\n"), []),
    (limits, {"runs": {("node", "cat", "/sys/fs/cgroup/pids.max"): "max\n"}}, []),
    (limits, {"runs": {("node", "cat", "/sys/fs/cgroup/pids.max"): "4096\n"}}, []),
    (
        limits,
        {"runs": {("node", "cat", "/sys/fs/cgroup/pids.max"): "4095\n"}},
        ["the node may have 4095 processes and threads"],
    ),
    # Not what a program prints that fails.
    (limits, {"runs": {("node", "cat", "/sys/fs/cgroup/pids.max"): Ran(code=1, out="200\n")}}, []),
    (limits, {"runs": {NODE_LIMITS: Ran(code=1, out=LIMITS.replace("1048576  ", "256  "))}}, []),
    (
        limits,
        {"runs": {("node", "cat", "/sys/fs/cgroup/pids.max"): "200\n"}},
        ["the node may have 200 processes and threads"],
    ),
    (
        limits,
        node_limits("1048576  ", "256  "),
        [
            "RDMA needs locked memory, and the node may lock 8388608 bytes",
            "a rank may open 256 files, and 6 ranks need about 280",
        ],
    ),
    (limits, node_limits("8388608  ", "unlimited"), []),
]


@pytest.mark.parametrize(("module", "change", "expected"), CASES)
def test_one_host_is_named(module: Any, change: dict[str, Any], expected: list[str]) -> None:
    sights = judged(module.CHECK, HEAD, SECOND.but(**change), THIRD)
    assert rows(sights) == [("gpu2", text) for text in expected]


def test_a_name_of_its_own_that_is_the_loopback_is_named() -> None:
    host = Host(name="gpu1", address="10.0.0.1")
    for addresses, expected in (
        (("10.0.0.1",), []),
        ((), []),
        (("127.0.1.1",), [("gpu1", "its own name is 127.0.1.1")]),
        (("10.0.0.1", "::1"), [("gpu1", "its own name is ::1")]),
    ):
        examined = Examined(spec=spec_from({"name": "lab"}), hosts=(Seen(host=host, addresses={"": addresses}),))
        assert rows(own_name.CHECK.judge(examined)) == expected


def test_hosts_with_one_machine_id_are_named_together() -> None:
    clone = SECOND.but(files={"/etc/machine-id": f"{3:032x}\n"})
    assert rows(judged(machine_id.CHECK, HEAD, clone, THIRD)) == [("gpu2 gpu3", "the same machine ID 00000000…")]


def test_a_new_machine_id_does_not_come_from_the_copy_of_the_old_one() -> None:
    """On Debian, D-Bus has its own, and systemd takes that."""
    assert (
        "`sudo rm -f /etc/machine-id /var/lib/dbus/machine-id && sudo systemd-machine-id-setup`" in machine_id.CHECK.fix
    )


def test_a_cpu_that_chooses_its_clock_is_only_worth_a_look() -> None:
    folder = f"{CPU}/cpu0/cpufreq"
    host = HEAD.but(files={f"{folder}/scaling_governor": "powersave\n", f"{folder}/scaling_driver": "intel_pstate\n"})
    assert [sight.severity for sight in judged(governor.CHECK, host)] == ["watch"]
    fixed = host.but(files={f"{folder}/scaling_driver": "acpi-cpufreq\n"})
    assert [sight.severity for sight in judged(governor.CHECK, fixed)] == [None]


def test_more_cpus_than_the_others_are_only_worth_a_look() -> None:
    sights = judged(sizes.CHECK, HEAD, SECOND.but(files={f"{CPU}/online": "0-7\n"}), THIRD)
    assert [(sight.seen, sight.severity) for sight in sights] == [("8 CPUs, usual 4", "watch")]


def test_no_rank_waits_for_a_small_head_without_ranks() -> None:
    small = HEAD.but(files={f"{CPU}/online": "0-1\n", "/proc/meminfo": "MemTotal: 4193244 kB\n"})
    spec = {"head_runs_ranks": False}
    assert list(judged(sizes.CHECK, small, SECOND, THIRD, spec=spec, head="gpu1")) == []
    assert len(judged(sizes.CHECK, small, SECOND, THIRD, head="gpu1")) == 2
    # Nor is it the reference: of two other hosts, the smaller one is named.
    less = THIRD.but(files={f"{CPU}/online": "0-1\n"})
    assert rows(judged(sizes.CHECK, small, SECOND, less, spec=spec, head="gpu1")) == [("gpu3", "2 CPUs, usual 4")]


@pytest.mark.parametrize(("slots", "severity"), [({}, None), ({"gpu2": 1}, "watch"), ({"gpu2": 2}, None)])
def test_fewer_slots_in_the_hosts_file_suit_fewer_cpus(slots: dict[str, int], severity: str | None) -> None:
    """The other hosts have two."""
    less = SECOND.but(files={f"{CPU}/online": "0-1\n"})
    (sight,) = judged(sizes.CHECK, HEAD, less, THIRD, slots=slots)
    assert (sight.seen, sight.severity) == ("2 CPUs, usual 4", severity)


def test_of_two_hosts_the_smaller_one_is_the_heads() -> None:
    less = HEAD.but(files={f"{CPU}/online": "0-1\n", "/proc/meminfo": "MemTotal: 8193244 kB\n"})
    sights = judged(sizes.CHECK, less, SECOND)
    assert rows(sights) == [("gpu1", "2 CPUs, usual 4"), ("gpu1", "8.39 GB of memory, usual 16.79 GB")]
    assert [sight.severity for sight in sights] == [None, "watch"]


def test_the_ssh_server_has_two_names() -> None:
    """It is ssh on Debian and Ubuntu, and sshd on Rocky."""
    assert "`sudo systemctl reload ssh || sudo systemctl reload sshd`" in ssh_max_startups.CHECK.fix


@pytest.mark.parametrize(
    ("total", "free", "severity"),
    [
        (1_000_000, 50_001, None),
        (1_000_000, 50_000, "watch"),
        (1_000_000, 10_001, "watch"),
        (1_000_000, 10_000, "breaks"),
        (19_000, 1000, None),
        (19_000, 999, "breaks"),
    ],
)
def test_a_disk_with_some_room_for_files_is_only_worth_a_look(total: int, free: int, severity: str | None) -> None:
    room = Room(total=4, free=4, inodes=total, inodes_free=free)
    sights = judged(inodes.CHECK, HEAD.but(rooms={"/": room}))
    assert [sight.severity for sight in sights] == ([severity] if severity else [])


def test_two_paths_of_one_disk_are_one_sight() -> None:
    full = Room(total=4, free=4, inodes=1000, inodes_free=1)
    (sight,) = judged(inodes.CHECK, HEAD.but(rooms={"/": full, "/var/lib/docker": full}))
    assert (sight.seen, sight.severity) == ("/: 1 of 1000 inodes are free", "breaks")


def test_huge_pages_that_kit_yaml_asks_for_are_missed() -> None:
    pages = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
    hosts = [HEAD.but(files={pages: "4\n"}), SECOND.but(files={pages: "0\n"}), THIRD.but(files={pages: "4\n"})]
    assert rows(judged(huge_pages.CHECK, *hosts, spec={"setup": {"hugepages": 4}})) == [
        ("gpu2", "0 huge pages of 1 GiB, 4 in kit.yaml (setup.hugepages)"),
    ]
