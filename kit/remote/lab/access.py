"""Access to the lab: its login key, its known_hosts, the two files for the user, and plain ssh."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kit.errors import InputError, StepError, UnreachableError
from kit.remote.machine import ignored
from kit.remote.machine.cache import make
from kit.remote.machine.regular import read_regular
from kit.remote.ssh.openssh import quoted

_SSH_FAILED = 255


def lab_folder(folder: Path) -> Path:
    return folder / ".kit" / "lab"


def key_path(folder: Path) -> Path:
    return lab_folder(folder) / "id_ed25519"


def known_hosts_path(folder: Path) -> Path:
    return lab_folder(folder) / "known_hosts"


def make_key(folder: Path, lab: str) -> str:
    """Create the login key (0600) if it is missing. Return its public half as one line without a newline."""
    path = key_path(folder)
    try:
        make(path.parent)
        # git add . must not take the key.
        ignored.ignore(path.parent.parent)
        if path.exists():
            private = serialization.load_ssh_private_key(path.read_bytes(), password=None)
        else:
            private = Ed25519PrivateKey.generate()
            pem = private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            )
            _create(path, pem, 0o600)
    except OSError as error:
        raise _cannot(path, error) from error
    except ValueError as error:
        raise InputError(
            f"{path} is not a readable private key", hint="Remove it. `kit lab up` then creates a new one."
        ) from error
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{public.decode()} kit-lab-{lab}"


def read(path: Path) -> str | None:
    """Return the text of a file, or None if it does not exist. Replace bytes that are not text."""
    try:
        return read_regular(path).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def write(path: Path, text: str) -> None:
    """Write the file as a whole, or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # An earlier kit may have been killed here, or somebody planted a link.
        part.unlink(missing_ok=True)
        _create(part, text.encode(), 0o666)
        part.replace(path)
    except OSError as error:
        raise _cannot(path, error) from error


def _create(path: Path, content: bytes, mode: int) -> None:
    """Write a new file, and follow no link. Raises OSError if there is one already, or if the disk is full."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  (a descriptor)
            file.write(content)
    except OSError:
        # Half of a key is useless, and the next `lab up` would ask a person to remove it.
        path.unlink()
        raise


def remove(path: Path) -> bool:
    """Remove the file. Return whether it existed."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _cannot(path, error) from error
    return True


def remove_empty(folder: Path) -> None:
    """Remove the lab's folders below `folder` if they are empty."""
    path = lab_folder(folder)
    with suppress(OSError):
        path.rmdir()
        ignored.remove_empty(path.parent)


def engine_version(folder: Path, address: str, user: str, *, timeout_s: int = 5) -> str | None:
    """Return the version of the host's engine, over strict ssh, or None if it does not answer yet.

    Raises UnreachableError with ssh's message while sshd refuses the login.
    """
    command = ("docker", "version", "--format", "'{{.Server.Version}}'")
    return _ask(folder, address, user, *(("sudo",) if user != "root" else ()), *command, timeout_s=timeout_s)


def booted(folder: Path, address: str, user: str, *, timeout_s: int = 5) -> str | None:
    """Return the name of the host's system once it has booted, or None before. Raises like `engine_version`."""
    running = "systemctl is-system-running 2>/dev/null | grep -qxE 'running|degraded'"
    return _ask(folder, address, user, f"{running} && . /etc/os-release && echo $PRETTY_NAME", timeout_s=timeout_s)


def _ask(folder: Path, address: str, user: str, *command: str, timeout_s: int) -> str | None:
    """Return what a command prints, or None if it fails."""
    argv = [
        "ssh", "-F", "none", "-o", f"IdentityFile={quoted(str(key_path(folder)))}", "-l", user,
        "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes",
        "-o", f"UserKnownHostsFile={quoted(str(known_hosts_path(folder)))}", "-o", "GlobalKnownHostsFile=/dev/null",
        "-o", f"ConnectTimeout={timeout_s}", "-o", "LogLevel=ERROR", address, *command,
    ]  # fmt: skip
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnreachableError("ssh did not end within 30 s", host=address) from error
    except FileNotFoundError as error:
        raise _no_client() from error
    if done.returncode == _SSH_FAILED:
        raise UnreachableError(done.stderr.strip() or "ssh failed", host=address)
    return done.stdout.strip() or None if done.returncode == 0 else None


def require_client() -> None:
    """Raise StepError if this machine has no ssh client."""
    if shutil.which("ssh") is None:
        raise _no_client()


def _no_client() -> StepError:
    return StepError("this machine has no ssh client", hint="Install OpenSSH: apt-get install openssh-client")


def _cannot(path: Path, error: OSError) -> StepError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "Free space there." if full else "Choose a folder that you may write: kit -C DIR …"
    return StepError(f"cannot write {path}: {error.strerror}", hint=hint)
