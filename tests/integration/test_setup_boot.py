"""What kit setup leaves for the next boot, read there by the distribution's own programs.

netplan, systemd-networkd, ifupdown, NetworkManager and GRUB are Debian's packages. A container has no disk that GRUB
could look at, no separate kernel and no network card: those have stand-ins here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.integration.bare import BareLab
from tests.integration.rig import kit, taken_down, until

NAME = f"test-{os.getpid()}-boot"
# A card has a folder `device` in sysfs, which the end of a veth pair lacks. The rest stays the kernel's own.
CARD = """
mkdir -p /run/card/device
mount -t overlay overlay -o lowerdir=/run/card:/sys/devices/virtual/net/eth0 /sys/devices/virtual/net/eth0
"""
NETPLAN = """
mkdir -p /etc/netplan && cat >/etc/netplan/50-cloud-init.yaml <<END
network:
  version: 2
  ethernets:
    lan:
      match: {{name: "eth0"}}
      addresses: [{address}/{bits}]
      routes: [{{to: default, via: {gateway}}}]
END
chmod 600 /etc/netplan/50-cloud-init.yaml
netplan generate && systemctl enable --now systemd-networkd && networkctl reload
"""
NETWORKD = """
cat >/etc/systemd/network/20-lan.network <<END
[Match]
Name=eth0
[Network]
Address={address}/{bits}
Gateway={gateway}
END
systemctl enable --now systemd-networkd && networkctl reload
"""
# The engine gives a container's card its address before the host boots. ifup and NetworkManager then leave it alone.
IFUPDOWN = """
cat >/etc/network/interfaces <<END
auto eth0
iface eth0 inet static
  pre-up ip addr flush dev eth0
  address {address}/{bits}
  gateway {gateway}
END
systemctl enable networking
"""
NETWORK_MANAGER = """
mkdir -p /etc/systemd/system/NetworkManager.service.d
cat >/etc/systemd/system/NetworkManager.service.d/lab.conf <<END
[Service]
ExecStartPre=/usr/sbin/ip addr flush dev eth0
END
nmcli connection add type ethernet ifname eth0 con-name lan \\
  ipv4.method manual ipv4.addresses {address}/{bits} ipv4.gateway {gateway}
nmcli connection up lan && systemctl enable NetworkManager
"""


@dataclass(frozen=True)
class Manager:
    """A network manager: its package, its settings, kit's file, how to see that it configured eth0, and its end."""

    package: str
    settings: str
    kept: str
    configured: str
    end: str


NETWORKD_HAS_IT = "networkctl list eth0 | grep -w configured"
NETWORKD_ENDS = "systemctl disable --now systemd-networkd.socket systemd-networkd"
# systemd-networkd comes with systemd.
MANAGERS = {
    "netplan": Manager(
        "netplan.io",
        NETPLAN,
        "/etc/netplan/90-kit-mtu.yaml",
        NETWORKD_HAS_IT,
        f"{NETWORKD_ENDS}; apt-get purge -qqy netplan.io; rm -r /etc/netplan",
    ),
    "networkd": Manager(
        "",
        NETWORKD,
        "/etc/systemd/network/20-lan.network.d/90-kit-mtu.conf",
        NETWORKD_HAS_IT,
        f"{NETWORKD_ENDS}; rm /etc/systemd/network/20-lan.network",
    ),
    "ifupdown": Manager(
        "ifupdown",
        IFUPDOWN,
        "/etc/network/if-up.d/kit-mtu",
        "systemctl is-enabled networking",
        "apt-get purge -qqy ifupdown; rm -rf /etc/network",
    ),
    "NetworkManager": Manager(
        "network-manager",
        NETWORK_MANAGER,
        "/etc/NetworkManager/dispatcher.d/90-kit-mtu",
        "nmcli -g GENERAL.CONNECTION device show eth0 | grep -x lan",
        "apt-get purge -qqy network-manager",
    ),
}
CI_HAS_TIME_FOR = ("netplan", "networkd", "ifupdown")
# What grub-probe says of a root on the first partition of a disk.
GRUB_PROBE = """#!/bin/sh
case "$*" in
*--target=device*) echo /dev/vda1 ;;
*--target=fs_uuid*) echo 11111111-2222-3333-4444-555555555555 ;;
*--target=fs*) echo ext2 ;;
*--target=partmap*) echo gpt ;;
*--target=compatibility_hint*) echo hd0,gpt1 ;;
*--target=abstraction*) ;;
*) exit 1 ;;
esac
"""
# Boots a kernel with the command line that GRUB's menu has: as many pages as it says, and none of them can be reserved
# later, because memory is in pieces. The append-only flag has the program that tries get an error.
KERNEL = """#!/bin/sh
set -eu
line=$(sed -n 's/^[[:space:]]*linux[[:space:]]*//p' /boot/grub/grub.cfg | head -n 1)
pages=$(printf '%s' "$line" | sed -n 's/.*[[:space:]]hugepages=\\([0-9]*\\).*/\\1/p')
folder=/var/lib/kernel/hugepages/hugepages-1048576kB
mkdir -p "$folder" && chattr -f -a "$folder/nr_hugepages" || :
printf '%s\\n' "${pages:-0}" >"$folder/nr_hugepages"
printf '%s\\n' "$line" >/run/cmdline
chattr +a "$folder/nr_hugepages"
mount --bind /var/lib/kernel/hugepages /sys/kernel/mm/hugepages
mount --bind /run/cmdline /proc/cmdline
"""
UNIT = """[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/kernel
[Install]
WantedBy=sysinit.target
"""
PAGES = "cat /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"


@pytest.fixture(scope="module")
def lab(bases: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareLab]:
    folder = tmp_path_factory.mktemp("boot")
    with taken_down(folder, NAME):
        up = kit(folder, "lab", "up", "--bare", "--hosts", "1", "--user", "ubuntu", "--name", NAME)
        assert up.returncode == 0, up.stderr
        bare = BareLab(folder)
        bare.on("gpu1", "apt-get update -qq")
        yield bare


def install(lab: BareLab, package: str) -> None:
    lab.on("gpu1", f"DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends {package} >/dev/null")


@pytest.mark.parametrize("name", [*CI_HAS_TIME_FOR, pytest.param("NetworkManager", marks=pytest.mark.long)])
def test_the_next_boot_keeps_the_mtu(lab: BareLab, name: str) -> None:
    manager, mtu = MANAGERS[name], "cat /sys/class/net/eth0/mtu"
    words = lab.on("gpu1", "ip -4 -o addr show eth0; ip route show default").split()
    address, bits = words[words.index("inet") + 1].split("/")
    gateway = words[words.index("via") + 1]
    if manager.package:
        install(lab, manager.package)
    lab.on("gpu1", CARD + manager.settings.format(address=address, bits=bits, gateway=gateway))

    def configured() -> bool:
        return bool(lab.on("gpu1", f"{manager.configured} || :"))

    until(f"{name} has configured the card", configured)

    lab.setup("--only", "mtu", "--mtu", "8000")
    assert lab.on("gpu1", f"{mtu}; stat -c %U {manager.kept}").split() == ["8000", "root"]
    lab.reboot("gpu1")
    # The engine makes a container's card again, with the MTU of its network.
    until(f"{name} has set the MTU", lambda: lab.on("gpu1", mtu).strip() == "8000")
    until(f"{name} has configured the card", configured)
    assert address in lab.on("gpu1", "ip -4 addr show eth0")
    lab.on("gpu1", CARD)
    assert "Nothing to do" in lab.setup("--only", "mtu", "--mtu", "8000").stdout

    lab.setup("--only", "mtu", "--undo")
    assert lab.on("gpu1", f"{mtu}; ls {manager.kept} 2>/dev/null || :").split() == ["1500"]
    lab.on("gpu1", manager.end)


def test_grub_passes_huge_pages_to_the_next_boot_and_setup_reboots_for_them(lab: BareLab) -> None:
    """The whole of --allow-reboot: a plan that waits, the reboot, and the look that finds what the boot has brought."""
    install(lab, "grub2-common e2fsprogs")
    lab.on("gpu1", "mkdir -p /boot/grub && touch /boot/vmlinuz-6.12.1-amd64 /boot/initrd.img-6.12.1-amd64")
    lab.on("gpu1", "printf 'GRUB_CMDLINE_LINUX=\"console=ttyS0\"\\n' >/etc/default/grub")
    lab.on("gpu1", "dpkg-divert --local --rename --add /usr/sbin/grub-probe")
    lab.on("gpu1", "cat >/usr/sbin/grub-probe && chmod 755 /usr/sbin/grub-probe", stdin=GRUB_PROBE)
    lab.on("gpu1", "cat >/usr/local/sbin/kernel && chmod 755 /usr/local/sbin/kernel", stdin=KERNEL)
    lab.on("gpu1", "cat >/etc/systemd/system/kernel.service", stdin=UNIT)
    lab.on("gpu1", "update-grub && systemctl enable --now kernel")
    lines = "grep -h vmlinuz /boot/grub/grub.cfg | grep -c 'console=ttyS0{words}' || :"
    entries = lab.on("gpu1", lines.format(words="")).strip()
    assert lab.on("gpu1", PAGES).strip() == "0"

    waits = lab.setup("--only", "hugepages", "--hugepages", "2")
    assert "needs a reboot: 2 pages of 1 GiB" in waits.stderr
    words = " default_hugepagesz=2M hugepagesz=1G hugepages=2"
    assert lab.on("gpu1", lines.format(words=words)).strip() == entries != "0"
    before = lab.boot_id("gpu1")
    lab.setup("--only", "hugepages", "--hugepages", "2", "--allow-reboot")
    assert lab.boot_id("gpu1") != before
    assert lab.on("gpu1", PAGES).strip() == "2"
    again = lab.setup("--only", "hugepages", "--hugepages", "2", "--allow-reboot")
    assert "Nothing to do" in again.stdout

    # A kernel gives pages back at any time.
    lab.on("gpu1", "chattr -a /var/lib/kernel/hugepages/*/nr_hugepages")
    lab.setup("--only", "hugepages", "--undo")
    assert lab.on("gpu1", f"{PAGES}; {lines.format(words=words)}").split() == ["0", "0"]
    assert lab.on("gpu1", "ls /etc/default/grub.d") == ""
