"""The launcher elastic: Horovod's elastic driver in mpirun's place (images/lib/kitelastic), through kit's ssh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kit.errors import InputError, NotReadyError
from kit.model.launch import LaunchPlan, Node, RunRequest
from kit.model.run import RunRecord
from kit.model.spec import ClusterSpec, ImageSpec
from kit.model.values import replace
from kit.plan.run import gpus, leases
from kit.plan.run.mpi import MEETING

LAUNCHER = "elastic"
PROGRAM = "kit-elastic"
# kit-elastic sets these for each rank, so a user cannot set them for all ranks (images/lib/kitelastic/crew.py).
_OWN = frozenset(
    {
        *(
            f"HOROVOD_{name}"
            for name in ("HOSTNAME", "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        ),
        *("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_CONTROLLER"),
        *("HOROVOD_CPU_OPERATIONS", "HOROVOD_ELASTIC"),
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
    }
)
# What a script must have. docs/elastic.md has a whole one.
WRITE = (
    "wrap the training in @hvd.elastic.run, keep what must survive in horovod.common.elastic.ObjectState or Keras's "
    "TensorFlowKerasState, and call state.commit(); docs/elastic.md has an example; or run without --elastic"
)


def check(request: RunRequest, image: ImageSpec) -> None:
    """Raise InputError for options that conflict, and for an image without Horovod."""
    policy = request.policy
    if request.launcher != LAUNCHER:
        if policy.max_np is not None:
            raise InputError(
                f"--max-np {policy.max_np} has no effect without --elastic", hint="add --elastic, or use --np"
            )
        return
    others: dict[str, object] = {
        "--np": request.np,
        "--npernode": request.npernode,
        "--oversubscribe": request.oversubscribe,
        "--retries": policy.retries,
        "-it": request.terminal,
    }
    if used := [name for name, value in others.items() if value]:
        hints = {
            "--np": "use --min-np and --max-np",
            "--npernode": "set slots= in the hosts file; limit the ranks with --max-np",
            "--retries": "remove --retries: an elastic run goes on from its last commit by itself",
        }
        raise InputError(
            f"{used[0]} has no meaning with --elastic", hint=hints.get(used[0], f"remove {used[0]}, or --elastic")
        )
    for name, _ in request.env:
        if name in _OWN:
            raise InputError(f"-x {name}: --elastic sets this variable", hint=f"remove -x {name}")
    if policy.min_np is not None and policy.max_np is not None and policy.min_np > policy.max_np:
        raise InputError(
            f"--min-np {policy.min_np} is more than --max-np {policy.max_np}",
            hint=f"use --max-np with a number from {policy.min_np}",
        )
    if image.base is None and "pytorch" in image.flavour:
        raise InputError(
            f"--elastic needs Horovod, and the image ({image.flavour}) has none",
            hint="use --launcher torchrun --max-restarts 3, or an image of TensorFlow or MXNet",
        )


def check_addresses(nodes: Sequence[Node]) -> None:
    """Raise InputError for an address at which Horovod's ranks cannot meet."""
    for node in nodes:
        if ":" in node.address:
            raise InputError(
                f"--elastic: Horovod's rendezvous supports IPv4 only, but {node.name} has {node.address}",
                hint="choose an IPv4 network with --network",
            )


def ignored(spec: ClusterSpec) -> str | None:
    """Return a warning about settings of kit.yaml that are for mpirun alone, or None."""
    if not spec.mpi.args:
        return None
    return "mpi.args in kit.yaml has no effect with --elastic: no mpirun starts these ranks, and Gloo has their data"


def ranks(
    request: RunRequest, nodes: Sequence[Node], living: Sequence[RunRecord], *, share: int = 0
) -> tuple[int, int, int | None]:
    """Return how many ranks to start now, and the least and the most that the run may have. None: no limit."""
    least, most = request.policy.min_np or 1, request.policy.max_np
    count = max(sum(leases.room(nodes, living, share)), least)
    return (count if most is None else min(most, count)), least, most


def as_elastic(plan: LaunchPlan, head: Node, least: int, most: int | None) -> LaunchPlan:
    """Return the launch with kit-elastic in mpirun's place. Raises InputError for addresses that Horovod cannot use."""
    check_addresses((head, *plan.placement.nodes))
    # The command can have the same words as options of its own.
    words = plan.argv[: len(plan.argv) - len(plan.command)]
    named = [name for word, name in pairwise(words) if word == "-x"]
    # kit-elastic sets none of these, but a user can.
    names = [name for name in named if name in plan.env or name not in MEETING]
    argv = [PROGRAM, "--min-np", str(least), *(() if most is None else ("--max-np", str(most)))]
    if "--wdir" in words:
        argv += ["--wdir", words[words.index("--wdir") + 1]]
    for name in names:
        argv += ["-x", name]
    settings: dict[str, object] = {"address": head.address, "min_np": least, "max_np": most}
    if share := plan.env.get(gpus.SHARE_VARIABLE):
        settings["gpus_per_rank"] = int(share)
    return replace(plan, argv=(*argv, "--", *plan.command), elastic=settings)


def check_added(
    nodes: Sequence[Node], run: RunRecord, record: Mapping[str, Any], living: Sequence[RunRecord], *, exclusive: bool
) -> None:
    """Raise NotReadyError for a host whose GPUs or CPUs the ranks would not get as they should.

    The words by which ranks choose them were fixed when the run began. On other hosts, ranks use all that they see.
    `record` is that of `run`, as the head sends it.
    """
    settings = record.get("elastic")
    share = settings.get("gpus_per_rank") if isinstance(settings, dict) else None
    if share:
        raise NotReadyError(
            f"run {run.id} gives each rank {share} of the GPUs (--gpus-per-rank), and its hosts cannot grow",
            hint="start a run on more hosts, from its last checkpoint; or start it with --gpus-per-rank 0",
        )
    for node in nodes:
        others = [
            other.id
            for other in living
            if other.id != run.id and any(place.node == node.name and place.slots for place in other.places)
        ]
        if others and (node.gpus or exclusive or run.cpus is not None):
            raise NotReadyError(
                f"{others[0]} holds slots of {node.name}, and the ranks of run {run.id} there would also use its "
                f"{'GPUs' if node.gpus else 'CPUs'}",
                hint=f"add a host that no run uses, or wait until {others[0]} has ended: kit runs",
                host=node.name,
            )
        if node.mig:
            raise NotReadyError(
                f"{node.name} has MIG devices, and the ranks of run {run.id} there would all use the first one",
                hint="add a host without MIG; or start a run on more hosts, from the last checkpoint",
                host=node.name,
            )


def limit_reached(record: Mapping[str, Any]) -> int | None:
    """Return --max-np of a run that has as many ranks already, or None if it would start ranks on more hosts.

    `record` is as the head sends it. Where it is odd, kit does not know the limit.
    """
    elastic, places = record.get("elastic"), record.get("places")
    most = elastic.get("max_np") if isinstance(elastic, dict) else None
    if not isinstance(most, int) or not isinstance(places, list):
        return None
    there = [place for place in places if isinstance(place, dict) and not place.get("out")]
    count = sum(ranks for place in there if isinstance(ranks := place.get("ranks"), int))
    return most if count >= most else None
