"""For the tests of code snapshots: a cache that is the test's, and real git repositories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SET = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always",
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return kit's folder in the test's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in _SET.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "cache" / "kit" / "code"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Return an empty folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the logins of this machine away, and its proxies."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy") or name.endswith("_ASKPASS")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
