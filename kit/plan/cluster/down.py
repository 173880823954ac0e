"""The plan of `kit down`. It is the same whatever hosts have: each step skips what it does not find."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kit.model import names
from kit.model.data import data_folder
from kit.model.plan import TAKE_OFF, EndStagings, HostPlan, Plan, RemoveCluster, Round, Step, plan_of
from kit.model.spec import ClusterSpec
from kit.model.swarm import StackRemove, SwarmLeave


def down_plan(
    spec: ClusterSpec,
    hosts: Sequence[str],
    images: tuple[str, ...],
    *,
    keep: bool = True,
    stacks: Collection[str] = (),
) -> Plan:
    """Return the plan that removes the cluster from `hosts`, the head first, and also these images and earlier ones.

    `keep`: what runs made stays on the hosts. `stacks` are hosts that have the file of a stack: an earlier deploy may
    have left another head's record on the first host.

    A host that kit cannot reach, even the head, does not keep the cluster on the others.
    """
    head, *others = hosts
    managers = [host for host in others if host in stacks]
    take_off = StackRemove(cluster=spec.name, spares=True, why="Swarm would start its containers again")
    first: tuple[Step, ...] = (take_off,)
    if any(data.staged for data in spec.data):
        # The head leads a staging. If another host's stager ended first, its kit would report a lost host.
        first = (EndStagings(cluster=spec.name, why="its hosts are about to leave it"), *first)
    why = "kit down removes the cluster"
    folders = tuple(data_folder(spec.name, data) for data in spec.data if data.staged)
    remove = RemoveCluster(
        folder=names.folder(spec.name), cluster=spec.name, images=images, keep=keep, why=why, data=folders
    )
    leave = SwarmLeave(others=(), why="this cluster does not need it any more")
    return plan_of(
        spec.name,
        hosts,
        (
            Round(
                name=TAKE_OFF,
                hosts=(
                    HostPlan(host=head, steps=first),
                    *(HostPlan(host=host, steps=(take_off,)) for host in managers),
                ),
            ),
            Round(
                name="take down",
                hosts=(
                    HostPlan(host=head, steps=(remove,)),
                    *(HostPlan(host=h, steps=(remove,) if h in managers else (remove, leave)) for h in others),
                ),
                needs="reached",
            ),
            # The head leaves last: it manages the swarm, and the others need it to leave.
            Round(
                name="leave the swarm",
                hosts=tuple(HostPlan(host=host, steps=(leave,)) for host in (head, *managers)),
                needs="host",
            ),
        ),
    )
