"""The programs that prepare this machine: `engine` (a Docker Engine) and `base` (base images of Debian and Ubuntu).

They install packages as root, so kit runs one only after you agreed. A person can run them by hand as well.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from kit.remote.machine import docker_context
from kit.remote.machine.assets import scripts_dir

Program = Literal["engine", "base"]

_LAST_LINES = 5


def command_line(program: Program, *arguments: str) -> str:
    """Return what a person types to run the program as root: `sudo scripts/base trixie`.

    `base` uses the engine that kit uses, so `sudo` passes on what chooses another one than the local socket.
    """
    path = scripts_dir() / program
    # From a checkout, the short name; from a wheel, or if the current folder is gone, the full path.
    with contextlib.suppress(OSError, ValueError):
        path = path.relative_to(Path.cwd())
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    if sudo and program == "base" and (chosen := docker_context.variables(os.environ)):
        sudo += ["env", *(f"{name}={value}" for name, value in chosen.items())]
    return shlex.join([*sudo, str(path), *arguments])


def run(program: Program, *arguments: str, on_line: Callable[[str], None]) -> str | None:
    """Run the program as root, through sudo if need be, and pass its lines on. Return why it failed, or None."""
    words = ["bash", str(scripts_dir() / program), *arguments]
    if os.geteuid() != 0:
        # sudo drops these from the environment; the program must use the same engine as kit.
        passed = docker_context.variables(os.environ)
        if mirror := os.environ.get("KIT_UBUNTU_MIRROR"):
            passed["KIT_UBUNTU_MIRROR"] = mirror
        words = ["sudo", "env", *(f"{name}={value}" for name, value in passed.items()), *words]
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return f"{words[0]}: {error.strerror}"
    with process:
        try:
            for line in process.stdout or ():
                if text := line.rstrip():
                    lines.append(text)
                    on_line(text)
        except BaseException:
            # kit may not signal a process of root. Ctrl-C has reached it already.
            with contextlib.suppress(OSError):
                process.terminate()
            raise
    if process.returncode == 0:
        return None
    return "\n  ".join(lines) or f"{program} ended with exit code {process.returncode}"
