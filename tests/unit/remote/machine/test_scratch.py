"""Where kit keeps large temporary files (kit.remote.machine.scratch)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kit.remote.machine.scratch import scratch_folder

OTHERS = Path("/var/tmp")


def test_the_folder_is_tmpdir(tmp_path: Path) -> None:
    assert scratch_folder({"TMPDIR": str(tmp_path)}) == tmp_path


@pytest.mark.parametrize("named", [None, "", "/missing", "/" + 300 * "x", "/dev/null"])
def test_a_tmpdir_that_is_no_folder_is_left(named: str | None) -> None:
    assert scratch_folder({} if named is None else {"TMPDIR": named}) == OTHERS


def test_a_tmpdir_in_a_closed_home_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As TMPDIR=/root/tmp after su to another user. Tests may run as root, who may look anywhere."""
    real = os.stat

    def stat(path: os.PathLike[str] | str, **more: bool) -> os.stat_result:
        if str(path) == "/closed/tmp":
            raise PermissionError(13, "Permission denied", path)
        return real(path, **more)

    monkeypatch.setattr(os, "stat", stat)
    assert scratch_folder({"TMPDIR": "/closed/tmp"}) == OTHERS
