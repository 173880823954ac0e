"""What a bare VM answers to kit setup, and the plans that follow from it."""

from __future__ import annotations

from kit.config.validate import spec_from
from kit.model.answer import answer_of
from kit.model.host import Host
from kit.model.setup.areas import AREAS
from kit.plan.setup.setup import setup_plan
from kit.plan.setup.undo import undo_plan
from kit.remote.setup.apt_faults import first_cause
from kit.remote.setup.observe import parse

_BARE = b"""@@ m system
os debian
version 13
codename trixie
name Debian GNU/Linux 13 (trixie)
arch amd64
kernel 6.12.48+deb13-amd64
boot_id 1f3c
systemd yes
apt yes
grub yes
pages 0
@@ m packages
interrupted docker.io
nvidia-smi 550.163.01-2
@@ m sources
http://deb.example/debian trixie main /etc/apt/sources.list - signed-by=/k.gpg trusted=yes
@@ m docker
path /usr/bin/docker
engine 20.10.24+dfsg1
running 2
live_restore false
compose 2.26.1-4
@@ m files
/etc/docker/daemon.json 644 eyJkZWJ1ZyI6IHRydWV9
/etc/sysctl.d/90-kit.conf link -
@@ m kernel
net.core.rmem_max 212992
net.ipv4.tcp_rmem 4096 131072 6291456
@@ m nics
eth0 1500 yes no /run/systemd/network/10-netplan-eth0.network
@@ m addresses
2: eth0    inet 10.0.0.4/24 brd 10.0.0.255 scope global eth0
@@ m route
default via 10.0.0.1 dev eth0
@@ m manager
netplan
@@ m gpu
pci
driver 550.163.01
gpu 0, Enabled, 2619, 345, 2619, 1980
@@ m saved
file /etc/docker/daemon.json docker existed same
value sysctl net.ipv4.tcp_rmem sysctl 4096 131072 6291456
value mtu eth0 mtu 1500
package docker.io docker
@@ m end
"""
_APT = b"E: Could not get lock /var/lib/dpkg/lock. It is held by process 12 (apt)\nE: Unable to locate package x\n"
SAMPLES: tuple[bytes, ...] = (_BARE, _APT)


def read(answer: bytes) -> None:
    """Read it as a host's state, plan with it in both directions, or look for apt's first cause."""
    text = answer.decode(errors="replace")
    if "@@ m" not in text:
        first_cause(text, "gpu1")
        return
    with answer_of("gpu1", "its state"):
        facts = parse(Host(name="gpu1", address="10.0.0.4"), text, mark="m")
    spec = spec_from({"name": "lab", "setup": {"mtu": 9000, "hugepages": 4, "proxy": "http://proxy:3128"}})
    setup_plan(spec, [facts], AREAS, reboot=True, own_boot_id="x")
    undo_plan(spec, [facts], AREAS)
