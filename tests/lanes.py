"""The lanes of the integration tests: which test runs in which, and pytest-xdist's way to schedule them.

Lanes run side by side, because a test often waits: together they keep two cores busy. Each lane has its own hosts. A
mark says what a test needs of the other lanes: a `precise` test compares times and waits until the others are calm. A
`calm` test mostly waits for time limits, so a precise test may run beside it. The lanes take about the same time until
then, and the calm tests take as long as the precise ones.
"""

from __future__ import annotations

from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling

# test_local_engine looks at all of this machine's containers of `kit local`: what starts any shares its lane. Few lanes
# have a cluster, because the first deploy takes a minute.
_FILES = {
    "cluster": "blame cluster code collectives gpus local_engine mxnet nccl predict run runs security setup "
    "tensorboard tensorflow timeline top transport tune wheel",
    "faults": "bench data elastic fault_matrix faults lock neighbors queue results swarm",
    "bare": "bench_report completion cuda data_faults doctor image lab metrics nfs pytorch registry setup_boot ship "
    "timeline_page",
}
LANES = {lane: frozenset(files.split()) for lane, files in _FILES.items()}


def lane(nodeid: str) -> str:
    """Return the lane of a test by its file; the first one for a file that no lane names."""
    name = PurePath(nodeid.partition("::")[0]).stem.removeprefix("test_")
    return next((lane for lane, names in LANES.items() if name in names), next(iter(LANES)))


def order(item: pytest.Item) -> tuple[int, int]:
    """Return the sort key of an integration test: each lane in turn, its calm and its precise tests at its end."""
    last = 2 if item.get_closest_marker("precise") else 1 if item.get_closest_marker("calm") else 0
    return 1 + list(LANES).index(lane(item.nodeid)), last


class Lanes(LoadScopeScheduling):  # type: ignore[misc]
    """Give each worker one lane."""

    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid)
