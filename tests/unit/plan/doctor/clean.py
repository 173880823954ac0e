"""A sound VM of a cloud: Debian 12 with Docker and one network card. No check may report anything about it."""

from __future__ import annotations

from kit.model.doctor import Mount, Room
from tests.fakes.doctor import Machine, table

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max processes             unlimited            unlimited            processes 
Max open files            1048576              1048576              files     
Max locked memory         8388608              8388608              bytes     
"""  # noqa: W291  (the kernel's own)
MEMORY = """\
MemTotal:       16393244 kB
MemFree:         9000112 kB
MemAvailable:   14000000 kB
SwapTotal:             0 kB
SwapFree:              0 kB
HugePages_Total:       0
Hugepagesize:       2048 kB
"""
SSHD = "port 22\naddressfamily any\nmaxauthtries 6\nmaxsessions 10\nmaxstartups 10:30:100\npersourcemaxstartups none\n"
ANY = "0.0.0.0"  # noqa: S104  (nothing listens)
ROUTES = table(
    ("eth0", ANY, ANY, "10.0.0.254"),
    ("eth0", "10.0.0.0", "255.255.255.0"),
    ("docker0", "172.17.0.0", "255.255.0.0"),
)
NET = "/sys/class/net"
# A store that rclone has mounted on the VM, and that its node sees.
NODE_MOUNTS = """\
812 811 0:52 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A:/var/lib/docker/overlay2/l/B
840 812 0:61 / /data/crawl ro,nosuid,nodev,relatime master:31 - fuse.rclone rclone ro,user_id=0,group_id=0,allow_other
841 812 8:1 /opt/kit/.data/lab/images/files /data/images ro,relatime - ext4 /dev/sda1 rw
"""


def machine(number: int) -> Machine:
    """Return the sound VM gpu<number>."""
    return Machine(
        files={
            "/etc/machine-id": f"{number:032x}\n",
            "/proc/meminfo": MEMORY,
            "/proc/net/arp": "IP address       HW type     Flags       HW address            Mask     Device\n"
            "10.0.0.254       0x1         0x2         06:5f:4d:55:11:01     *        eth0\n",
            "/proc/net/route": ROUTES,
            "/proc/stat": f"cpu  190{number}21 310 40113 8112931 9121 0 901 2710 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n",
            "/proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
            "/proc/sys/kernel/osrelease": "6.1.0-27-cloud-amd64\n",
            "/proc/sys/kernel/pid_max": "4194304\n",
            "/proc/sys/net/ipv4/conf/all/rp_filter": "0\n",
            "/proc/sys/net/ipv4/conf/eth0/rp_filter": "1\n",
            "/proc/sys/net/ipv4/neigh/default/gc_thresh3": "1024\n",
            "/proc/sys/net/ipv4/tcp_congestion_control": "cubic\n",
            "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
            "/proc/sys/net/ipv4/tcp_wmem": "4096\t16384\t4194304\n",
            "/proc/sys/net/netfilter/nf_conntrack_count": "82\n",
            "/proc/sys/net/netfilter/nf_conntrack_max": "262144\n",
            f"{NET}/docker0/address": "02:42:1c:2d:3e:4f\n",
            f"{NET}/docker0/mtu": "1500\n",
            f"{NET}/eth0/address": f"06:5f:4d:55:00:{number:02x}\n",
            f"{NET}/eth0/carrier_changes": "2\n",
            f"{NET}/eth0/mtu": "1500\n",
            f"{NET}/eth0/speed": "10000\n",
            f"{NET}/eth0/statistics/rx_errors": "0\n",
            f"{NET}/eth0/statistics/rx_packets": "9112344\n",
            f"{NET}/eth0/statistics/tx_errors": "0\n",
            f"{NET}/eth0/statistics/tx_packets": "8112344\n",
            f"{NET}/lo/address": "00:00:00:00:00:00\n",
            f"{NET}/lo/mtu": "65536\n",
            "/sys/devices/system/cpu/online": "0-3\n",
            "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
            "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0\n",
            "/sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never\n",
            "/sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
        },
        runs={
            (
                "dmesg",
                "--level=emerg,alert,crit,err,warn,notice",
            ): "[    0.4] ACPI: PCI Interrupt Link [LNKS] enabled\n",
            (
                "docker",
                "info",
                "--format",
                "{{json .SecurityOptions}}",
            ): '["name=apparmor","name=seccomp,profile=builtin"]',
            ("sshd", "-T"): SSHD,
            ("timedatectl", "show"): "Timezone=Etc/UTC\nLocalRTC=no\nCanNTP=yes\nNTP=yes\nNTPSynchronized=yes\n",
            ("node", "cat", "/proc/self/limits"): LIMITS,
            ("node", "cat", "/proc/self/mountinfo"): NODE_MOUNTS,
            ("node", "cat", "/sys/fs/cgroup/pids.max"): "32768\n",
            ("node", "df", "-P", "-k", "/dev/shm"): "Filesystem     1024-blocks  Used Available Capacity Mounted on\n"
            "shm                1000000     8    999992       1% /dev/shm\n",
        },
        rooms={
            "/": Room(total=64 << 30, free=40 << 30, inodes=4_000_000, inodes_free=3_700_000),
            "/var/lib/docker": Room(total=64 << 30, free=40 << 30, inodes=4_000_000, inodes_free=3_700_000),
            "/tmp": Room(total=8 << 30, free=8 << 30, inodes=1_048_576, inodes_free=1_048_500),
        },
        mounts={"/opt/kit/.data/lab/crawl/mount": Mount(device="0:61")},
    )


THREE = tuple(machine(number) for number in (1, 2, 3))
