"""The launcher elastic: Horovod's elastic driver in mpirun's place (images/lib/kitelastic), through kit's ssh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kit.errors import InputError, NotReadyError
from kit.model.launch import MOST_SLOTS, LaunchPlan, Node, Placement, RunRequest
from kit.model.run import Place, RunRecord
from kit.model.spec import ClusterSpec, ImageSpec
from kit.model.values import asdict, replace
from kit.plan.run import cores, gpus, leases, mpi

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
        "--retry-on": "retry_on" in request.given,
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
    """Return how many ranks to start now, and the least and the most that the run may have. None: no limit.

    Raises InputError if the least do not even fit on an empty cluster.
    """
    least, most = request.policy.min_np or 1, request.policy.max_np
    fit = sum(leases.room(nodes, (), share))
    # If no rank fits, its placement knows why.
    if 0 < fit < least:
        those = "the only rank that fits" if fit == 1 else f"the {fit} ranks that fit"
        more = "or add hosts" if share else "add hosts, or raise slots="
        raise InputError(
            f"--min-np {least} is more than {those} on these hosts",
            hint=f"use --min-np {fit}, {more} in the hosts file",
        )
    count = max(sum(leases.room(nodes, living, share)), least)
    return (count if most is None else min(most, count)), least, most


def as_elastic(plan: LaunchPlan, head: Node, least: int, most: int | None) -> LaunchPlan:
    """Return the launch with kit-elastic in mpirun's place. Raises InputError for addresses that Horovod cannot use."""
    check_addresses((head, *plan.placement.nodes))
    # The command can have the same words, for the script.
    words = plan.argv[: len(plan.argv) - len(plan.command)]
    named = [name for word, name in pairwise(words) if word == "-x"]
    # kit-elastic sets none of these, but a user can.
    names = [name for name in named if name in plan.env or name not in mpi.MEETING]
    argv = [PROGRAM, "--min-np", str(least), *(() if most is None else ("--max-np", str(most)))]
    if "--wdir" in words:
        argv += ["--wdir", words[words.index("--wdir") + 1]]
    for name in names:
        argv += ["-x", name]
    settings: dict[str, object] = {"address": head.address, "min_np": least, "max_np": most}
    if share := plan.env.get(gpus.SHARE_VARIABLE):
        settings["gpus_per_rank"] = int(share)
    return replace(plan, argv=(*argv, "--", *plan.command), elastic=settings)


def gpus_of_rank(record: Mapping[str, Any]) -> int:
    """Return how many GPUs each rank of a run has for itself, by the run's record as the head sends it."""
    settings = record.get("elastic")
    share = settings.get("gpus_per_rank") if isinstance(settings, dict) else None
    return share if isinstance(share, int) and 0 < share <= MOST_SLOTS else 0


def check_added(nodes: Sequence[Node], run: RunRecord, share: int) -> None:
    """Raise NotReadyError for a host that lacks the GPUs of a rank. Each rank of the run has `share` for itself."""
    for node in nodes:
        if share and node.gpus < share:
            raise NotReadyError(
                f"{node.name} has {node.gpus or 'no'} GPU{'s' if node.gpus > 1 else ''}, and run {run.id} gives each "
                f"rank {share} (--gpus-per-rank)",
                hint="add a host with more GPUs; if they are new, run: kit deploy",
                host=node.name,
            )
        if share > 1 and node.mig:
            raise NotReadyError(
                f"{node.name} has MIG devices, and run {run.id} gives each rank {share} GPUs: CUDA can use only one "
                "MIG device in a process",
                hint="add a host without MIG",
                host=node.name,
            )


def words(
    spec: ClusterSpec, nodes: Sequence[Node], places: Sequence[Place], *, exclusive: bool, cpus: int | None
) -> list[dict[str, Any]]:
    """Return the places for the head, each with the host's own values of the variables for its GPUs and CPUs.

    '' stands for no value. Those of the hosts with which the run began do not fit: each run holds other slots there.
    """
    result = []
    for node, place in zip(nodes, places, strict=True):
        alone = Placement(nodes=(node,), counts=(place.ranks,))
        values = mpi.held_slots([place], alone)
        values |= cores.variables(spec, alone, [place], exclusive=exclusive, count=cpus)
        own = {name: values.get(name, "") for name in (mpi.SLOTS_VARIABLE, cores.SLOTS_VARIABLE)}
        result.append({**asdict(place), "env": own})
    return result


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
