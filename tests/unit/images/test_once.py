"""kitrun.once: one call of nvidia-smi for all ranks of a host, as real processes that begin together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import launcher

once: Any = launcher.load("kitrun.once")

RANK = """
import sys
sys.path.insert(0, sys.argv[1])
from kitrun import devices, once
once.FOLDER = sys.argv[2]
print([device.name for device in devices.devices(must=True)])
"""


def ranks(folder: Path, count: int, smi: str, **environ: str) -> list[tuple[int, str]]:
    """Return the exit code and the last line of ranks whose parent is this process."""
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho $$ >>{folder}/calls\n{smi}\n")
    program.chmod(0o755)
    (folder / "shm").mkdir(exist_ok=True)
    env = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(count),
        "KIT_RUN": "20261121-101500-3fa2",
        **environ,
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-ISc", RANK, str(launcher.LIB), str(folder / "shm")],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(count)
    ]  # fmt: skip
    ended = [(process.communicate(timeout=60), process.returncode) for process in started]
    return [(code, (out + err).strip().splitlines()[-1]) for (out, err), code in ended]


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text().split())


def test_one_rank_asks_for_all_and_nothing_stays(tmp_path: Path) -> None:
    smi = "sleep 0.3; echo 'GPU-a, 00000000:0A:00.0, 0, Disabled'; echo 'GPU-b, 00000000:1A:00.0, 1, Disabled'"
    assert ranks(tmp_path, 6, smi) == [(0, "['GPU-a', 'GPU-b']")] * 6
    assert calls(tmp_path) == 1
    assert list((tmp_path / "shm").iterdir()) == []
    # The next attempt asks again: the node may have lost a GPU.
    assert ranks(tmp_path, 2, "echo 'GPU-a, 00000000:0A:00.0, 0, Disabled'") == [(0, "['GPU-a']")] * 2
    assert calls(tmp_path) == 2


def test_a_failure_is_the_answer_of_all(tmp_path: Path) -> None:
    for code, line in ranks(tmp_path, 4, "echo 'Failed to initialize NVML: Unknown Error'; exit 255"):
        assert code == 1
        assert "nvidia-smi fails: Failed to initialize NVML: Unknown Error" in line
    assert calls(tmp_path) == 1


def test_a_rank_alone_leaves_no_file(tmp_path: Path) -> None:
    assert ranks(tmp_path, 1, "echo 'GPU-a, 00000000:0A:00.0, 0, Disabled'") == [(0, "['GPU-a']")]
    assert list((tmp_path / "shm").iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "hard link", "odd"])
def test_what_somebody_has_put_there_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(once, "FOLDER", str(tmp_path))
    secret, path = tmp_path / "secret", tmp_path / f"kit-once-{os.getppid()}-which-gpus"
    secret.write_text('["GPU-of-another", "", 0]')
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "hard link":
        path.hardlink_to(secret)
    else:
        path.write_text('{"a": [1, 2')
    assert once.once("which GPUs", 2, lambda: ("GPU-a", "")) == ("GPU-a", "")
    assert secret.read_text() == '["GPU-of-another", "", 0]'


def test_a_file_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "FOLDER", str(tmp_path))
    path = tmp_path / f"kit-once-{os.getppid()}-which-gpus"
    path.write_text('["GPU-of-another", "", 0]')
    mine = os.geteuid()
    monkeypatch.setattr(once.os, "geteuid", lambda: mine + 1)
    assert once.once("which GPUs", 2, lambda: ("GPU-a", "")) == ("GPU-a", "")
