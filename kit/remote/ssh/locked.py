"""A key with which ssh cannot log in: it has a passphrase, and the agent that ssh uses does not hold it.

ssh may offer the public half of such a key, also without an agent. If the VM accepts that, the login fails because
the private half cannot be read. ssh prints the same text for a key that the VM does not know.
"""

from __future__ import annotations

import base64
import binascii
import os
import pwd
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from kit.model.host import Login
from kit.remote.machine.home import expanded
from kit.remote.ssh.settings import agent_of, settings_of

# A key file is small, an agent answers at once unless it is the one of another, dead session.
_MOST = 1 << 16
_LIMIT_S = 5.0
# What ssh replaces in the name of a key, and the settings whose values it writes there.
_PART = re.compile(r"%(?P<token>.)|\$\{(?P<name>\w+)\}")
_TOKENS = {"h": "hostname", "p": "port", "r": "user"}
# The beginning of a key in OpenSSH's own format (PROTOCOL.key). Its public half is never encrypted.
_MAGIC = b"openssh-key-v1\0"
_ARMOR = re.compile(rb"-----BEGIN OPENSSH PRIVATE KEY-----(?P<body>.*?)-----END ", re.DOTALL)
# A key of OpenSSL: in PKCS#8, or with a line of its cipher.
_SEALED = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: *4,ENCRYPTED", re.MULTILINE)


class LockedKey(Struct, frozen=True, kw_only=True):
    """A key file that ssh cannot read without its passphrase, and the agent that could hold the key.

    `agent` is the socket of ssh's agent for this VM if it is not the one in SSH_AUTH_SOCK, else "". `without` is the
    IdentityAgent by which ssh uses no agent: `none`, or a variable that is not set. `unlisted`: the file of the public
    half is missing, and without it ssh takes this key from no agent.
    """

    path: str
    agent: str = ""
    without: str = ""
    unlisted: bool = False


def locked_key(login: Login) -> LockedKey | None:
    """Return the first key for this VM that ssh could not use without a passphrase, or None if it can use all.

    This considers the login's key, or without one those of your ssh_config and ssh's own names. It contacts no host.
    """
    settings = settings_of(login)
    socket = agent_of(settings)
    held: frozenset[str] | None = None
    for path in _paths(login, settings):
        try:
            with path.open("rb") as file:
                content = file.read(_MOST)
        except OSError:
            continue
        if not needs_passphrase(content):
            continue
        if held is None:
            held = _held(socket)
        halves = _public_halves(content, f"{path}.pub")
        only = bool(login.key) or settings.get("identitiesonly") == ["yes"]
        # ssh offers all keys of the agent, and nobody can say whether this is one of them.
        if held & halves or (held and not halves and not only):
            continue
        name = settings.get("identityagent", ["SSH_AUTH_SOCK"])[0]
        return LockedKey(
            path=str(path),
            agent="" if socket == os.environ.get("SSH_AUTH_SOCK", "") else socket,
            without=name if not socket and name != "SSH_AUTH_SOCK" else "",
            unlisted=not halves and only,
        )
    return None


def _paths(login: Login, settings: Mapping[str, Sequence[str]]) -> list[Path]:
    """Return the key files for this VM. ssh prints those of ssh_config with ~, tokens and variables."""
    if login.key:
        return [Path(login.key)]
    values = {"%": "%", "d": str(expanded("~")), "i": str(os.getuid()), "n": login.address}
    values |= {token: settings[name][0] for token, name in _TOKENS.items() if name in settings}
    # Without a name for its user id, ssh does not run.
    with suppress(KeyError):
        values["u"] = pwd.getpwuid(os.getuid()).pw_name

    def value(part: re.Match[str]) -> str:
        known = os.environ.get(part["name"]) if part["name"] else values.get(part["token"])
        return part[0] if known is None else known

    return [Path(_PART.sub(value, str(expanded(name)))) for name in settings.get("identityfile", [])]


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


def _held(socket: str) -> frozenset[str]:
    """Return the public halves of the keys that the agent with this socket holds, as base64."""
    if not socket:
        return frozenset()
    try:
        done = subprocess.run(
            ("ssh-add", "-L"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
            env=os.environ | {"SSH_AUTH_SOCK": socket},
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    # Without a key in the agent, it prints a sentence.
    lines = done.stdout.decode(errors="replace").splitlines() if done.returncode == 0 else []
    return frozenset(half for line in lines for half in line.split()[1:2])
