"""Asks the hosts of a run which processes compute on their GPUs, and whether their nodes see these GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kit.model.host import Host
from kit.remote.cluster.gpus import GpuUse, look_for_users
from kit.remote.ssh import fanout
from kit.remote.ssh.transport import Connect


def users_of_gpus(hosts: Sequence[Host], connect: Connect, cluster: str) -> fanout.Outcome[GpuUse]:
    """Return who uses the GPUs of each host, side by side."""

    def work(host: Host) -> GpuUse:
        with closing(connect(host)) as transport:
            return look_for_users(transport, cluster)

    return fanout.each(hosts, work)
