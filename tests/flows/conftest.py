"""What flow tests share: a fleet of VMs in memory, and an engine of this machine that holds the image."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.flows.cluster import deploy as deploy_flow
from kit.plan.cluster.supply import Image
from kit.remote.cluster import steps
from tests.fakes.cluster import Cluster
from tests.fakes.fleet import Fleet
from tests.fakes.head import Head
from tests.fakes.reporter import Remembering


@pytest.fixture
def reporter() -> Remembering:
    return Remembering()


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Four VMs. The image is on this machine, and shipping it is what the fleet does."""
    four = Fleet(4)
    # No seam yet: the context carries connections, but neither this machine's engine nor the way images go.
    monkeypatch.setattr(steps, "ship", four.ship)

    def image(_context: object, tag: str, *, dry_run: bool) -> Image:
        return Image(tag=tag, id="sha256:1f", size=1_900_000_000)

    monkeypatch.setattr(deploy_flow, "_image", image)
    return four


@pytest.fixture
def cluster(fleet: Fleet, head: Head, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    one = Cluster(fleet, head, reporter, monkeypatch)
    yield one
    # Runs that an error left have names that nobody knows.
    head.ids += [record["id"] for record in one.records]
