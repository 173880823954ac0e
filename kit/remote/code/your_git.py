"""Runs your git for a repository, with the logins that it has. Its failures are errors with a next step."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from kit.errors import InputError, KitError, UnreachableError
from kit.model.repository import COMMIT, Repository, masked, without_login
from kit.remote.code import lfs
from kit.remote.code.environment import environment
from kit.remote.ship.porter.git import STALL_S

ASK_S = 120
_NO_LOGIN = (
    "Authentication failed", "Authentication required", "could not read Username", "could not read Password",
    "Permission denied (",
)  # fmt: skip


def your_git(
    source: Repository,
    *words: str,
    limit_s: int = ASK_S,
    more: Mapping[str, str] | None = None,
    folder: Path | None = None,
    started: Callable[[int], None] | None = None,
) -> str:
    """Return what git prints, started in `folder`. It uses the logins that you have, and asks only at a terminal.

    `started` gets the number of git's process.
    """
    stalls = ("-c", "http.lowSpeedLimit=1", "-c", f"http.lowSpeedTime={STALL_S}")
    quiet = ("-c", "gc.auto=0", "-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false", *stalls)
    try:
        with subprocess.Popen(
            ["git", *quiet, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment() | dict(more or {}),
            cwd=folder,
        ) as process:
            try:
                if started is not None:
                    started(process.pid)
                out, errors = process.communicate(timeout=limit_s)
            except BaseException:
                process.kill()
                raise
    except FileNotFoundError as error:
        raise InputError("git is not installed here", hint="install git, which fetches the code") from error
    except subprocess.TimeoutExpired as error:
        raise _failed(source, f"no answer within {limit_s} s") from error
    if process.returncode:
        raise _failed(source, errors.decode(errors="replace"), of_lfs="lfs" in words)
    return out.decode(errors="surrogateescape")


def _failed(source: Repository, errors: str, *, of_lfs: bool = False) -> KitError:
    url = without_login(source.url)
    lines = [line for line in masked(errors, source.url).strip().splitlines() if line.strip()]
    if of_lfs:
        program, what, why = "git-lfs", f"the files of Git LFS in {url}", lfs.why(lines)
    else:
        fatal = [line for line in lines if line.startswith(("fatal:", "ERROR:", "error:"))] or lines
        program, what, why = "git", url, fatal[0].partition(": ")[2] or fatal[0] if fatal else "git failed"
    check = f"check it: git ls-remote {url}"
    if any(word in errors for word in _NO_LOGIN):
        return UnreachableError(
            f"{program} cannot log in to {url}: {why}",
            hint=f"log in on this machine, and {check}; kit uses the same login",
        )
    if COMMIT.fullmatch(source.ref) and ("not our ref" in errors or "unadvertised object" in errors):
        return InputError(
            f"the repository {url} has no commit {source.ref}", hint="was it pushed? Or write a branch or a tag"
        )
    if of_lfs:
        check = f"check it: git clone {url}, and git lfs fetch in it"
    return UnreachableError(f"{program} cannot fetch {what}: {why}", hint=check)
