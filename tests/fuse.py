"""Tests that mount something with this machine's FUSE."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes import launcher

fuse = launcher.load("kitdata.fuse")


@pytest.fixture(scope="session")
def mountable() -> None:
    """Skip where no test could mount."""
    if os.geteuid() or not os.access("/dev/fuse", os.W_OK):
        assert os.environ.get("CI") != "true", "FUSE or root is missing, and this test may not be skipped here"
        pytest.skip("FUSE or root is missing; to get it: modprobe fuse, and run the tests as root")


@contextlib.contextmanager
def silent_mount(point: Path) -> Iterator[Callable[[], None]]:
    """Mount at a folder as for rclone, with nobody who answers. Yield what ends the mount as the end of rclone does."""
    connection = os.open(fuse.DEVICE, os.O_RDWR)
    ends = contextlib.ExitStack()
    ends.callback(os.close, connection)
    try:
        with ends:
            fuse._mount(str(point), connection)
            yield ends.close
    finally:
        fuse.detach(str(point))
