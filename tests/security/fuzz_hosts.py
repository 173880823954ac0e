"""A hosts file of a stranger, or an inventory of another tool. `read` may raise only KitError."""

from __future__ import annotations

from kit.config.hosts import parse_hosts, render_hosts
from kit.config.selection import select_hosts
from kit.config.text import decoded
from kit.model.spec import SshSpec
from kit.plan.cluster.ssh import login
from kit.remote.ssh.openssh import openssh_argv

SAMPLES: tuple[bytes, ...] = (
    b"""\
# two VMs and a range
10.0.0.11 slots=8 user=ubuntu port=2222 key=~/.ssh/gpu name=gpu2 internal=10.0.0.12
ubuntu@gpu[03-08].example.com slots=8 /* their disks are slow */
2001:db8::11 key="/home/me/my key" max_slots=4
node1 slots = 4 // as Open MPI writes it
node2
node2
""",
    # An inventory of Ansible, which kit refuses by name.
    b"""\
[workers]
gpu1 ansible_host=10.0.0.1 ansible_user=ubuntu ansible_port=22 ansible_ssh_private_key_file=~/.ssh/id
[workers:vars]
ansible_user=ubuntu
""",
    b"all:\n  hosts:\n    gpu1:\n      ansible_host: 10.0.0.1\n",
    b"rank 0=gpu1 slot=0\n^gpu2\ngpu[1-4,7]n[01-03] internal=10.0.0.[1-15]\n",
)


def read(answer: bytes) -> None:
    """Read the file and write it again, and give each host to ssh. No word of a host may become an option."""
    inventory = parse_hosts(decoded(answer, source="hosts"), source="hosts")
    for host in select_hosts(inventory, inventory.hosts[-1].name).hosts:
        argv = openssh_argv(login(host, SshSpec()))
        if argv[-2] != "--" or argv[-1].startswith("-") or (host.user or "").startswith("-"):
            raise AssertionError(f"ssh takes a word of the file for an option: {argv!r}")
    render_hosts(inventory)
