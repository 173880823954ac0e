"""Chooses how Open MPI sums large messages between hosts: what is safe to know without a measurement.

docs/decisions/28-large-all-reduces.md has the reasons and the measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from kit.model import names
from kit.model.launch import Placement
from kit.model.spec import ClusterSpec

Parameters = tuple[tuple[str, str], ...]

# In kit's image. If an image lacks the file, Open MPI 4.1 uses its own choice and prints nothing.
LARGE = f"{names.IMAGE_LIB}/allreduce-large.conf"
RING: Parameters = (("coll_tuned_use_dynamic_rules", "1"), ("coll_tuned_dynamic_rules_filename", LARGE))
# The same as `mpi.allreduce: openmpi`, for a single run or in mpi.args.
OWN_CHOICE: Parameters = (("coll_tuned_use_dynamic_rules", "0"),)
# Between two hosts, Open MPI's own algorithm sends fewer bytes if each host has several ranks.
LEAST_HOSTS = 3
# Parameters of Open MPI's collectives start with this word, as arguments of mpirun and as environment variables.
_COLLECTIVES = "coll"
_VARIABLES = f"OMPI_MCA_{_COLLECTIVES}"
# Those of the components that have several algorithms.
_CHOOSING = ("coll_tuned_", "coll_han_")
_FLAGS = ("--mca", "-mca", "--gmca", "-gmca")


def parameters(spec: ClusterSpec, placement: Placement, variables: Iterable[str] = ()) -> Parameters:
    """Return the MCA parameters of kit's default for all-reduces, or none.

    `variables` are the names of the run's environment variables. Who sets any parameter of Open MPI's collectives
    decides alone: kit adds nothing to it.
    """
    if spec.mpi.allreduce == "openmpi" or len(placement.nodes) < LEAST_HOSTS:
        return ()
    if _chosen(spec.mpi.args) or any(name.startswith(_VARIABLES) for name in (*spec.env, *variables)):
        return ()
    return RING


def without_choice(args: Sequence[str]) -> tuple[str, ...]:
    """Return mpirun's arguments without the parameters that choose an algorithm of Open MPI's collectives."""
    left: list[str] = []
    at = 0
    while at < len(args):
        chooses = args[at] in _FLAGS and len(args) > at + 2 and args[at + 1].startswith(_CHOOSING)
        if not chooses:
            left.append(args[at])
        at += 3 if chooses else 1
    return tuple(left)


def _chosen(args: Sequence[str]) -> bool:
    """Return whether mpirun's arguments set a parameter of Open MPI's collectives."""
    # A file may set any parameter.
    files = any(word in ("--tune", "-tune", "--am", "-am") for word in args)
    return files or any(word in _FLAGS and name.startswith(_COLLECTIVES) for word, name in pairwise(args))
