"""A key that ssh left out at a refused login: it has a passphrase, and no agent of this machine holds it."""

from __future__ import annotations

import base64
import binascii
import os
import re
import subprocess

from kit.model.host import Login
from kit.remote.machine.home import expanded
from kit.remote.ssh.settings import settings_of

# A key file is small, an agent answers at once unless it is the one of another, dead session.
_MOST = 1 << 16
_LIMIT_S = 5.0
# The beginning of a key in OpenSSH's own format (PROTOCOL.key). Its public half is never encrypted.
_MAGIC = b"openssh-key-v1\0"
_ARMOR = re.compile(rb"-----BEGIN OPENSSH PRIVATE KEY-----(?P<body>.*?)-----END ", re.DOTALL)
# A key of OpenSSL: in PKCS#8, or with a line of its cipher.
_SEALED = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: *4,ENCRYPTED", re.MULTILINE)


def locked_key(login: Login) -> str:
    """Return the first key file for this VM that ssh could not read without a passphrase, or "" if it can read all.

    These are the login's key, or those of your ssh_config and ssh's own names. This contacts no host.
    """
    settings = settings_of(login)
    held: frozenset[str] | None = None
    for name in settings.get("identityfile", []):
        path = expanded(name)
        try:
            with path.open("rb") as file:
                content = file.read(_MOST)
        except OSError:
            continue
        if not needs_passphrase(content):
            continue
        if held is None:
            held = _held(settings)
        if not held & _public_halves(content, f"{path}.pub"):
            return str(path)
    return ""


def needs_passphrase(content: bytes) -> bool:
    """Return whether this is the file of a private key that is encrypted."""
    if own := _own_format(content):
        cipher, _ = own
        return cipher not in (b"", b"none")
    return bool(_SEALED.search(content))


def _own_format(content: bytes) -> tuple[bytes, bytes] | None:
    """Return the cipher and the public half of a key in OpenSSH's format, or None for any other file."""
    armor = _ARMOR.search(content)
    if armor is None:
        return None
    try:
        data = base64.b64decode(armor["body"])
    except (binascii.Error, ValueError):
        return None
    if not data.startswith(_MAGIC):
        return None
    data = data[len(_MAGIC) :]
    # The cipher, the key derivation and its options, each after its length; the number of keys; then the public half.
    cipher, data = _string(data)
    for _ in range(2):
        _, data = _string(data)
    return cipher, _string(data[4:])[0]


def _string(data: bytes) -> tuple[bytes, bytes]:
    """Return the first string of a message of ssh, and what comes after it."""
    size = 4 + int.from_bytes(data[:4], "big")
    return data[4:size], data[size:]


def _public_halves(content: bytes, file: str) -> frozenset[str]:
    """Return what an agent may list for a key: the public half in it, and that of the file beside it."""
    halves = set()
    if own := _own_format(content):
        halves.add(base64.b64encode(own[1]).decode())
    try:
        with open(file, encoding="utf-8", errors="replace") as public:  # noqa: PTH123
            halves.update(public.read(_MOST).split()[1:2])
    except OSError:
        pass
    return frozenset(halves)


def _held(settings: dict[str, list[str]]) -> frozenset[str]:
    """Return the public halves of the keys that your agent holds, as base64."""
    named = settings.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    path = os.environ.get("SSH_AUTH_SOCK", "") if named == "SSH_AUTH_SOCK" else str(expanded(named))
    if path in ("", "none"):
        return frozenset()
    try:
        done = subprocess.run(
            ("ssh-add", "-L"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
            env=os.environ | {"SSH_AUTH_SOCK": path},
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(half for line in done.stdout.decode(errors="replace").splitlines() for half in line.split()[1:2])
