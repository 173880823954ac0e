"""Tests that mount something with this machine's FUSE."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def mountable() -> None:
    """Skip where no test could mount."""
    if os.geteuid() or not os.access("/dev/fuse", os.W_OK):
        assert os.environ.get("CI") != "true", "FUSE or root is missing, and this test may not be skipped here"
        pytest.skip("FUSE or root is missing; to get it: modprobe fuse, and run the tests as root")
