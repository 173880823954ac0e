"""The proxy between your machine and a VM (ProxyJump or ProxyCommand of ssh_config), and what it writes if it fails."""

from __future__ import annotations

import subprocess

from kit.model.host import Login
from kit.remote.ssh.openssh import SSH_FAILED, openssh_argv
from kit.remote.ssh.settings import settings_of
from kit.remote.ssh.talk import START_S

_NAMES = {"proxyjump": "ProxyJump", "proxycommand": "ProxyCommand"}
# The end of what ssh and the proxy wrote is enough.
_MOST = 1 << 16


def proxy_of(login: Login) -> str:
    """Return how ssh_config reaches the VM, such as `ProxyJump bastion`. "" if ssh connects to the VM itself."""
    settings = settings_of(login)
    for name, word in _NAMES.items():
        for value in settings.get(name, []):
            if value not in ("", "none"):
                return f"{word} {value}"
    return ""


def complaint_of(login: Login) -> str:
    """Connect once without keeping the connection, and return what ssh and the proxy wrote. "" if a session began.

    For a connection that is to be kept, ssh sends the proxy's standard error to /dev/null.
    """
    try:
        done = subprocess.run(
            [*openssh_argv(login, sharing="no"), "exit"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=START_S,
            check=False,
            # Neither ssh nor the proxy may ask at a terminal.
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr[-_MOST:].decode(errors="replace").strip() if done.returncode == SSH_FAILED else ""
