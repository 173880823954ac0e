"""What `kit down` removes from a host."""

from __future__ import annotations

from kit.model import names
from kit.model.plan import RemoveCluster
from kit.model.spec import ClusterSpec


def teardown_step(spec: ClusterSpec, images: tuple[str, ...]) -> RemoveCluster:
    """Return the step, which is the same for every host. It ignores what a host does not have."""
    return RemoveCluster(folder=names.folder(spec.name), cluster=spec.name, images=images, why="kit down")
