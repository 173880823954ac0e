"""The ways to sum over ranks, and who does it: words of the command line, which loads nothing more for them."""

from __future__ import annotations

from typing import Literal

# How sums travel. `auto`: what the library would take by itself.
Algorithm = Literal["auto", "ring", "hierarchical", "tree", "recursive-doubling", "rabenseifner"]
ALGORITHMS: tuple[Algorithm, ...] = ("auto", "ring", "hierarchical", "tree", "recursive-doubling", "rabenseifner")

# Who sums. With mpi Horovod's thread waits for each all-reduce; with nccl it queues them on the GPU and goes on.
Library = Literal["nccl", "mpi"]
LIBRARIES: tuple[Library, ...] = ("nccl", "mpi")
