"""What a `kit down` takes off a host."""

from __future__ import annotations

from kit.model.plan import RemoveCluster
from kit.model.spec import ClusterSpec
from kit.plan.cluster import stack


def teardown_step(spec: ClusterSpec, images: tuple[str, ...]) -> RemoveCluster:
    """The same for every host: what is not there needs no removing."""
    return RemoveCluster(folder=stack.folder(spec), cluster=spec.name, images=images, why="kit down")
