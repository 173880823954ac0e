"""The way into the lab: its login key, its known_hosts, the two files for the user, and ssh as any user has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kit.errors import InputError, StepError, UnreachableError

_SSH_FAILED = 255


def lab_folder(folder: Path) -> Path:
    return folder / ".kit" / "lab"


def key_path(folder: Path) -> Path:
    return lab_folder(folder) / "id_ed25519"


def known_hosts_path(folder: Path) -> Path:
    return lab_folder(folder) / "known_hosts"


def make_key(folder: Path, lab: str) -> str:
    """Makes the login key (0600) unless it is there. Returns its public half, one line with no newline."""
    path = key_path(folder)
    try:
        if path.exists():
            private = serialization.load_ssh_private_key(path.read_bytes(), password=None)
        else:
            private = Ed25519PrivateKey.generate()
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            pem = private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            )
            path.touch(mode=0o600)
            path.write_bytes(pem)
    except OSError as error:
        raise _cannot(path, error) from error
    except ValueError as error:
        raise InputError(
            f"{path} is not a private key that can be read", hint="Remove it, and `kit lab up` makes a new one."
        ) from error
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{public.decode()} kit-lab-{lab}"


def read(path: Path) -> str | None:
    """The text of a file, None when there is none. Bytes that are not text are kept as marks."""
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        part.replace(path)
    except OSError as error:
        raise _cannot(path, error) from error


def remove(path: Path) -> bool:
    """Whether the file was there."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _cannot(path, error) from error
    return True


def remove_empty(folder: Path) -> None:
    """The lab's own folders below `folder`, when nothing else is in them."""
    for path in (lab_folder(folder), lab_folder(folder).parent):
        try:
            path.rmdir()
        except OSError:
            return


def engine_version(folder: Path, address: str, user: str, *, timeout_s: int = 5) -> str | None:
    """Over strict ssh: the version of the host's own engine, None when it does not answer yet.

    Raises UnreachableError while sshd does not let us in, with what ssh said.
    """
    argv = [
        "ssh", "-F", "none", "-i", str(key_path(folder)), "-l", user,
        "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes",
        "-o", f"UserKnownHostsFile={_quoted(known_hosts_path(folder))}", "-o", "GlobalKnownHostsFile=/dev/null",
        "-o", f"ConnectTimeout={timeout_s}", "-o", "LogLevel=ERROR", address,
        *(["sudo"] if user != "root" else []),
        "docker", "version", "--format", "'{{.Server.Version}}'",
    ]  # fmt: skip
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnreachableError("ssh did not end within 30 s", host=address) from error
    except FileNotFoundError as error:
        raise StepError(
            "no ssh client on this machine", hint="Install OpenSSH: apt-get install openssh-client"
        ) from error
    if done.returncode == _SSH_FAILED:
        raise UnreachableError(done.stderr.strip() or "ssh failed", host=address)
    return done.stdout.strip() or None if done.returncode == 0 else None


def _quoted(path: Path) -> str:
    """ssh splits this option at blanks, and takes it whole in double quotes."""
    return f'"{path}"'


def _cannot(path: Path, error: OSError) -> StepError:
    return StepError(f"cannot write {path}: {error.strerror}", hint="Choose a folder that you may write: kit -C DIR …")
