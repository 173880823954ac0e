"""What your ssh_config, and what kit adds to it, sets for a VM."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from kit.model.host import Login
from kit.remote.machine.home import expanded
from kit.remote.ssh.openssh import settings_argv

# ssh reads files. A `Match exec` in them runs a program.
_SETTINGS_S = 10.0


def settings_of(login: Login) -> dict[str, list[str]]:
    """Return ssh's settings for this VM by their lower-case names, or {} if ssh does not say them."""
    try:
        done = subprocess.run(
            settings_argv(login), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SETTINGS_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    settings: dict[str, list[str]] = {}
    for line in done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else ():
        name, _, value = line.partition(" ")
        settings.setdefault(name, []).append(value)
    return settings


def agent_of(settings: Mapping[str, Sequence[str]]) -> str:
    """Return the socket of the agent that ssh uses with these settings, or "" if it uses none."""
    name = settings.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    if name == "none":
        return ""
    if name == "SSH_AUTH_SOCK":
        name = "$SSH_AUTH_SOCK"
    # ssh prints a variable without braces unexpanded.
    return os.environ.get(name[1:], "") if name.startswith("$") else str(expanded(name))
