"""For the porter's tests: an engine, and a folder of layers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.remote.ship.porter.layers import Layers
from tests.fakes.socket_engine import FakeEngine


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    # A socket's path is short: pytest's own folders may be too deep for one.
    with tempfile.TemporaryDirectory(prefix="kit-engine-") as folder:
        made = FakeEngine(Path(folder))
        yield made
        made.close()


@pytest.fixture
def layers(tmp_path: Path) -> Iterator[Layers]:
    made = Layers(str(tmp_path / "layers"))
    yield made
    # Nothing that a test left behind waits for more.
    made.stop()
