"""Kits that fetch from one repository at the same time, and what killed ones leave."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.errors import KitError
from kit.model.repository import repository
from kit.remote.code import fetched, turns
from tests.fakes import repository as repositories
from tests.fakes.repository import git

KITS = 8
# Waits until all processes are there, and fetches.
FETCH = """
import sys
from kit.model.repository import repository
from kit.remote.code import fetched
source = repository(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(fetched.fetch(source).git.commit)
"""


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return repositories.repository(tmp_path / "origin", {"train.py": "one\n"})


def change(origin: Path, text: str) -> str:
    repositories.write(origin, {"train.py": text})
    git(origin, "commit", "-qam", text)
    return git(origin, "rev-parse", "HEAD")


def repo_of(tmp_path: Path) -> Path:
    (repo,) = (tmp_path / "cache").glob("kit/git/*/repo")
    return repo


def test_many_kits_fetch_from_one_repository_at_once(origin: Path, tmp_path: Path) -> None:
    commits = [change(origin, str(number)) for number in range(KITS)]
    kits = [
        subprocess.Popen(
            [sys.executable, "-c", FETCH, f"git+{origin}@{commit}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for commit in commits
    ]
    for kit in kits:
        assert kit.stdout
        assert kit.stdout.readline() == "ready\n"
    for kit in kits:
        assert kit.stdin
        kit.stdin.write("\n")
        kit.stdin.flush()
    answers = [kit.communicate(timeout=120) for kit in kits]
    assert [kit.returncode for kit in kits] == [0] * KITS, answers
    assert [out.strip() for out, _ in answers] == commits
    assert not list(repo_of(tmp_path).rglob("*.lock"))
    assert not list(repo_of(tmp_path).parent.glob("full/.part-*"))


def test_locks_that_a_killed_fetch_left_are_removed(origin: Path, tmp_path: Path) -> None:
    fetched.fetch(repository(f"git+{origin}@main"))
    repo = repo_of(tmp_path)
    commit = change(origin, "two")
    left = [repo / "shallow.lock", repo / "refs/heads" / f"{commit}.lock", repo / "config.lock"]
    for file in left:
        file.touch()
    dead = subprocess.Popen(["true"])
    dead.wait()
    (repo.parent / "lock").write_text(f"{dead.pid} {dead.pid}")
    said: list[str] = []
    snapshot = fetched.fetch(repository(f"git+{origin}@main"), said.append)
    assert snapshot.git
    assert snapshot.git.commit == commit
    assert not any(file.exists() for file in left)
    assert said == []


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/shallow.lock").touch()
    return tmp_path


def take(place: Path, said: list[str], *, wait_s: float = 30.0) -> None:
    with turns.turn(place, place / "repo", "https://host/repo", said.append, wait_s=wait_s) as turn:
        assert turn.descriptor is not None
        assert not (place / "repo/shallow.lock").exists()


def test_kit_waits_for_another_kit_and_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_SAY_EVERY_S", 0.2)
    said: list[str] = []
    with (place / "lock").open("w") as held:
        held.write("4711")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(KitError) as caught:
            take(place, said, wait_s=0.5)
        # Its lock files are those of a fetch that goes on.
        assert (place / "repo/shallow.lock").exists()
    assert caught.value.message == (
        "another kit on this machine (process 4711) still fetches https://host/repo, after 0 s"
    )
    assert caught.value.hint == "wait for it, or end it: kill 4711"
    assert said[0] == "waiting for another kit on this machine (process 4711), which fetches https://host/repo"
    assert len(said) > 1
    said.clear()
    take(place, said)
    assert said == []


@pytest.fixture
def orphan(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that looks like the git of a kit that was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)", str(place / "repo")],
        stdout=subprocess.PIPE,
    )
    # Before its program has begun, the system does not show its words.
    assert process.stdout
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()


def test_the_git_of_a_killed_kit_keeps_its_locks(place: Path, orphan: subprocess.Popen[bytes]) -> None:
    (place / "lock").write_text(f"1 {orphan.pid}")
    with pytest.raises(KitError, match=rf"\(process {orphan.pid}\)"):
        take(place, [], wait_s=0.3)
    assert (place / "repo/shallow.lock").exists()
    orphan.kill()
    orphan.wait()
    take(place, [])


def test_a_number_that_another_process_has_now_is_ignored(place: Path) -> None:
    (place / "lock").write_text(f"1 {os.getpid()}")
    take(place, [], wait_s=0.3)


def test_pruning_spares_what_is_in_use(tmp_path: Path) -> None:
    names = ("old", "newer", "newest", ".part-fresh", ".part-left", ".part-used")
    for number, name in enumerate(names):
        (tmp_path / name).mkdir()
        age = 0 if name == ".part-fresh" else 7200 - number
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    with turns.in_use(tmp_path / ".part-used"):
        turns.prune(tmp_path, 2)
        assert {path.name for path in tmp_path.iterdir()} == {"newer", "newest", ".part-fresh", ".part-used"}
    turns.prune(tmp_path, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"newer", "newest", ".part-fresh"}
