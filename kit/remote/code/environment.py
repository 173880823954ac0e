"""The environment of your git, when it works on another repository than that of the folder where you are."""

from __future__ import annotations

import os
import sys

from kit.remote.code.git import OTHER_REPOSITORY


def environment() -> dict[str, str]:
    """Return an environment in which git speaks English, uses your logins, and asks only at a terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in OTHER_REPOSITORY}
    kept |= {"LC_ALL": "C", "GIT_LFS_SKIP_SMUDGE": "1"}
    # Without a terminal, a question would wait for ever.
    return kept if sys.stdin is not None and sys.stdin.isatty() else kept | {"GIT_TERMINAL_PROMPT": "0"}
