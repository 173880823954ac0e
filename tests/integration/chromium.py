"""Chromium of the distribution, in which tests open what kit writes."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.conftest import missing

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
# For a browser to start, or to open a page: on a machine that is busy its own limit of 30 s is no sign of a fault.
PATIENCE_MS = 180_000


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Any]:
    """Yield a browser with this folder, which is empty, as its profile."""
    path = shutil.which("chromium")
    if path is None:
        missing("there is no chromium on this machine", "scripts/browser")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=path, headless=True, args=list(FLAGS), timeout=PATIENCE_MS
        )
        context.set_default_timeout(PATIENCE_MS)
        yield context
        context.close()
