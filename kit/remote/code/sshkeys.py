"""Your way to a git server over SSH, as your own ssh has it: address, user, host keys, and an agent with your keys."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

from msgspec import Struct

from kit.remote.code.environment import environment
from kit.remote.code.guard import FAILURE, Guard
from kit.remote.machine.home import expanded
from kit.remote.ship.porter.git import SshAddress
from kit.remote.ssh.private import make_folder
from kit.remote.ssh.settings import agent_of

_LIMIT_S = 20
# A signature on a hardware key waits for a touch.
_SIGN_S = 60.0
# The largest message of an agent (OpenSSH's own limit).
MOST = 256 * 1024


class NoWayError(Exception):
    """A host cannot log in to this server with your keys. The text says why."""


class Way(Struct, frozen=True, kw_only=True):
    """A server, and what a host needs to log in there. `keys` are lines `KIND BASE64` of its host keys."""

    name: str
    port: int
    user: str
    keys: tuple[str, ...]
    config: dict[str, list[str]]

    @property
    def blobs(self) -> list[bytes]:
        """Return the host keys as ssh sends them."""
        return [base64.b64decode(key.split()[1]) for key in self.keys]


def way_to(address: SshAddress) -> Way:
    """Return your way to a server, from your ssh_config and known_hosts. Raises NoWayError."""
    if any(os.environ.get(name) for name in ("GIT_SSH", "GIT_SSH_COMMAND")) or _printed(
        "git", "config", "core.sshCommand"
    ):
        raise NoWayError("your git starts ssh in its own way")
    words = [*(["-p", str(address.port)] if address.port else []), *(["-l", address.user] if address.user else [])]
    config: dict[str, list[str]] = {}
    for line in _printed("ssh", "-G", *words, "--", address.host).splitlines():
        key, _, value = line.partition(" ")
        config.setdefault(key, []).append(value)
    if not config:
        raise NoWayError("your ssh does not know the server")
    if any(config.get(key, ["none"]) != ["none"] for key in ("proxyjump", "proxycommand")):
        raise NoWayError("your ssh reaches the server over another one")
    name, port = config["hostname"][0], int(config["port"][0])
    alias = config.get("hostkeyalias", [""])[0]
    keys = _host_keys(alias or (name if port == 22 else f"[{name}]:{port}"), config)
    if not keys:
        raise NoWayError("your known_hosts has no key of the server")
    return Way(name=name, port=port, user=config["user"][0], keys=tuple(keys), config=config)


def _host_keys(name: str, config: dict[str, list[str]]) -> list[str]:
    """Return the keys that known_hosts has for this name, without revoked ones."""
    good, revoked = [], set()
    files = [
        file for key in ("userknownhostsfile", "globalknownhostsfile") for file in config.get(key, [""])[0].split()
    ]
    for file in files:
        for line in _printed("ssh-keygen", "-F", name, "-f", str(expanded(file))).splitlines():
            words = line.split()
            marker = words.pop(0) if line.startswith("@") else ""
            if line.startswith("#") or len(words) < 3 or marker == "@cert-authority":
                continue
            key = f"{words[1]} {words[2]}"
            with contextlib.suppress(binascii.Error, ValueError):
                base64.b64decode(words[2], validate=True)
                revoked.add(key) if marker == "@revoked" else good.append(key)
    return [key for key in dict.fromkeys(good) if key not in revoked]


class Agent:
    """An agent with your keys for a way, and the guard before it. `close` ends what was started for it."""

    def __init__(self, way: Way) -> None:
        """Use your agent, or start one with your key files that have no passphrase. Raises NoWayError."""
        self._folder: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._links: dict[int, socket.socket] = {}
        self._path = ""
        try:
            # With IdentitiesOnly, the other keys of your agent are not for this server.
            choices = [self._yours, self._own]
            if way.config.get("identitiesonly") == ["yes"]:
                choices.reverse()
            self._path = next(filter(None, (choice(way) for choice in choices)), "")
            if not self._path:
                raise NoWayError("no SSH agent is running here with a key, and no key file has no passphrase")
        except BaseException:
            self.close()
            raise
        self._guard = Guard(way.user, way.blobs, self._ask)

    def answer(self, link: int, message: bytes) -> bytes:
        """Return the answer to a host's message on its connection `link`."""
        return self._guard.answer(link, message)

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @staticmethod
    def _yours(way: Way) -> str:
        """Return the socket of your agent, or '' if it has no key."""
        path = agent_of(way.config)
        return path if path and _works("ssh-add", "-l", agent=path) else ""

    def _own(self, way: Way) -> str:
        """Return the socket of an agent with your key files for this way, or '' if none can be read."""
        files = [str(expanded(file)) for file in way.config.get("identityfile", [])]
        files = [file for file in files if Path(file).is_file()]
        if not files:
            return ""
        self._folder = make_folder()
        path = f"{self._folder}/agent"
        quiet = subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdin=quiet, stdout=quiet, stderr=quiet)
        except OSError:
            return ""
        while not _listens(path) and self._process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.01)
        # One that has a passphrase, or is no key, is left out.
        return path if [file for file in files if _works("ssh-add", "-q", "--", file, agent=path)] else ""

    def _ask(self, link: int, message: bytes) -> bytes:
        try:
            if link not in self._links:
                self._links[link] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._links[link].settimeout(_SIGN_S)
                self._links[link].connect(self._path)
            connection = self._links[link]
            connection.sendall(len(message).to_bytes(4, "big") + message)
            count = int.from_bytes(_exactly(connection, 4), "big")
            return _exactly(connection, count) if 0 < count <= MOST else FAILURE
        except OSError:
            return FAILURE


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            return connection.connect_ex(path) == 0
        except OSError:
            # Python raises it for a path that is too long for a socket.
            return False


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the agent is gone")
        data += part
    return data


def _printed(*argv: str) -> str:
    """Return what a program prints, or '' if it fails."""
    done = _run(argv, environment())
    return "" if done is None or done.returncode else done.stdout.decode(errors="replace").strip()


def _works(*argv: str, agent: str) -> bool:
    done = _run(argv, environment() | {"SSH_AUTH_SOCK": agent, "SSH_ASKPASS_REQUIRE": "never", "SSH_ASKPASS": ""})
    return done is not None and not done.returncode


def _run(argv: tuple[str, ...], environ: dict[str, str]) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Without a terminal, ssh-add asks for no passphrase.
            start_new_session=True,
            timeout=_LIMIT_S,
            env=environ,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
