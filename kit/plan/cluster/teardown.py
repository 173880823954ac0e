"""What a `kit down` takes off a host."""

from __future__ import annotations

from kit.model import names
from kit.model.plan import RemoveCluster
from kit.model.spec import ClusterSpec


def teardown_step(spec: ClusterSpec, images: tuple[str, ...]) -> RemoveCluster:
    """The same for every host: what is not there needs no removing."""
    return RemoveCluster(folder=names.folder(spec.name), cluster=spec.name, images=images, why="kit down")
