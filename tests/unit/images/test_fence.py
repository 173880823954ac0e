"""kitrun.fence: no new privileges, and ranks that are not root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import launcher

fence, guard = (launcher.load(f"kitrun.{name}") for name in ("fence", "guard"))
LIB = Path(fence.__file__).parents[1]
CLOSE = (
    "from kitrun import fence; fence.close(); fence.close()\n"
    "print([line for line in open('/proc/self/status') if line.startswith('NoNewPrivs')])"
)


@pytest.mark.parametrize(
    ("text", "user"), [("1000:100", (1000, 100)), ("", None), ("1000:", None), ("root:root", None), ("-1:0", None)]
)
def test_the_user_of_the_ranks(monkeypatch: pytest.MonkeyPatch, text: str, user: object) -> None:
    monkeypatch.setenv("KIT_USER", text)
    assert fence.user() == user


def closed(**environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-S", "-c", CLOSE],
        env={**os.environ, "PYTHONPATH": str(LIB), **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_process_gains_no_privileges() -> None:
    assert "NoNewPrivs:\\t1" in closed()


def test_kit_yaml_may_allow_new_privileges() -> None:
    (now,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("NoNewPrivs")]
    assert now.split()[1] in closed(KIT_NEW_PRIVILEGES="1")


def test_a_guard_signs_in_no_folder_that_a_rank_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first folder is full, and a rank has put a link to a file of root where the second one should be."""
    target = tmp_path / "record"
    target.mkdir()
    (tmp_path / "prepared").symlink_to(target)
    monkeypatch.setattr(guard, "FOLDERS", ("/proc/no-such-folder", str(tmp_path / "prepared")))
    assert guard.sign("run", "me") == ""
    monkeypatch.setattr(guard, "FOLDERS", (str(tmp_path / "own"),))
    assert guard.sign("run", "me") == str(tmp_path / "own/run")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert guard.sign("run", "me") == ""
