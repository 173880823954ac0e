"""What your ssh_config, and what kit adds to it, sets for a VM."""

from __future__ import annotations

import subprocess

from kit.model.host import Login
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
