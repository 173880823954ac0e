"""Asks the hosts of a run which processes compute on their GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from kit.model.answer import answer_of
from kit.model.host import Host
from kit.model.nvidia.listing import ListedGpu, listed
from kit.model.observed import GpuProcess
from kit.remote.cluster.gpus import look_for_users
from kit.remote.ssh import fanout
from kit.remote.ssh.transport import Connect

_TIMEOUT_S = 30.0


class Users(NamedTuple):
    """The processes that count, and the numbers of the host's GPUs by UUID. Without processes, kit reads no numbers.

    `lost` is what nvidia-smi prints in the cluster's node if that sees no GPU, or "".
    """

    processes: tuple[GpuProcess, ...]
    numbers: Mapping[str, Sequence[int]]
    lost: str = ""


def users_of_gpus(
    hosts: Sequence[Host],
    connect: Connect,
    counts: Callable[[Sequence[GpuProcess]], tuple[GpuProcess, ...]],
    cluster: str,
) -> fanout.Outcome[Users]:
    """Return the processes on the GPUs of each host. `counts` leaves out those that do not matter."""

    def work(host: Host) -> Users:
        with closing(connect(host)) as transport:
            every, node = look_for_users(transport, cluster)
            processes = counts(every)
            if not processes:
                return Users((), {}, node.fault)
            done = transport.run(("timeout", "20", "nvidia-smi", "-L"), timeout_s=_TIMEOUT_S)
            with answer_of(host.name, "the list of its GPUs"):
                return Users(processes, numbers(listed(done.text)), node.fault)

    return fanout.each(hosts, work)


def numbers(gpus: Sequence[ListedGpu]) -> dict[str, tuple[int, ...]]:
    """Return the numbers by which runs hold the GPUs, by UUID. Each MIG device has one, and its GPU has all of them."""
    result: dict[str, tuple[int, ...]] = {}
    first = 0
    for gpu in gpus:
        names = [mig.uuid for mig in gpu.migs] or [gpu.uuid]
        result |= {name: (number,) for number, name in enumerate(names, first)}
        result[gpu.uuid] = tuple(range(first, first + len(names)))
        first += len(names)
    return result
