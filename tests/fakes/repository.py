"""Real git repositories for tests."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def repository(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """Create a repository on the branch main with these files in its first commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    write(folder, files or {})
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
