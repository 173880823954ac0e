"""Tab in zsh and fish. Tab in bash, which every machine has, is in tests/unit/cli/test_complete.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integration.conftest import missing
from tests.shells import cases, typed


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_tab(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        missing(f"there is no {shell} on this machine", "scripts/shells")
    lines = cases(tmp_path)
    assert {line: typed(shell, line, tmp_path) for line, _ in lines} == dict(lines)
