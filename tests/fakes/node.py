"""A node without an engine: the real start.sh in a namespace of mounts, with an sshd that ends."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from kit.remote.machine.assets import images_dir

BIN = images_dir() / "bin"
_UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
# Where the node's files are: /etc/kit is `kit` in it, and programs in `path` come first.
PLACE = "/run/kit-test"

needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode != 0,
    reason="this machine does not let root mount",
)


def in_namespace(*commands: str) -> subprocess.CompletedProcess[str]:
    """Run the lines as one shell script, which ends at its first failure. Its mounts end with it."""
    return subprocess.run(
        [*_UNSHARE, "sh", "-euc", "\n".join(commands)], capture_output=True, text=True, check=False, timeout=60
    )


def prepared(folder: Path) -> tuple[str, ...]:
    """Return the lines that make a node's places, on a file system of memory at `folder` and PLACE."""
    template = "printf 'Port @SSH_PORT@\\nStrictModes yes\\n'"
    return (
        f"mount -t tmpfs none {folder}; chmod 755 {folder}",
        f"mkdir -p {folder}/kit/ssh {folder}/kit/tmp {folder}/path",
        f"(umask 077; for file in host_ed25519 authorized_keys; do echo key >{folder}/kit/ssh/$file; done)",
        f"cp /etc/passwd /etc/group {folder}",
        # The node's folder hides /tmp, which may have this one.
        f"mount -t tmpfs none /run; mkdir {PLACE}; mount --bind {folder} {PLACE}",
        "for place in /etc /opt /usr/sbin /var/lib; do mount -t tmpfs -o mode=755 none $place; done",
        f"cp {PLACE}/passwd {PLACE}/group /etc; mkdir -p /etc/kit /opt/kit/etc /opt/kit/bin",
        f"mount --bind {PLACE}/kit /etc/kit",
        f"{template} >/opt/kit/etc/sshd_config",
        "printf '#!/bin/sh\\nexit 0\\n' >/usr/sbin/sshd; chmod 755 /usr/sbin/sshd",
        f"PATH={PLACE}/path:$PATH",
    )


def program(name: str) -> str:
    """Return the line that puts one of the image's programs in its place. It runs while the repository is visible."""
    return f"mkdir -p /opt/kit/bin; cp {BIN / name} /opt/kit/bin"


def stub(name: str, body: str) -> str:
    """Return the line that makes a program which comes before the machine's own. `$real` is the machine's."""
    text = f"#!/bin/sh\nreal={shutil.which(name)}\n{body}\n"
    return f"printf %s {shlex.quote(text)} >{PLACE}/path/{name}; chmod 755 {PLACE}/path/{name}"
