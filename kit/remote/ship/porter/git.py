"""git on this host: it fetches a commit of a repository, without the history, and writes its files to a folder.

The files come from anybody who may push to that repository. So git runs no hook, and fetches over no other protocol.
A login is in the environment of git alone, and git gives it to the host of the repository alone. No file has it, and no
command line. With SSH, the keys stay with the operator's agent (agent.py).
"""

import os
import re
import shlex
import signal
import subprocess
import threading
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence
from urllib.parse import urlsplit

# No folder of this host. SSH only with the operator's agent.
PROTOCOLS = "http:https:git"
_ASK_S, FETCH_S = 120.0, 1800.0
# A server that sends nothing for so long is given up. One that works on a pack sends something every five seconds.
STALL_S = 60
_NAME, _PASSWORD = "KIT_GIT_NAME", "KIT_GIT_PASSWORD"
_HELPER = '!f() {{ [ "$1" != get ] || printf "username=%s\\npassword=%s\\n" "${}" "${}"; }}; f'.format(_NAME, _PASSWORD)
_NO_LOGIN = ("Authentication failed", "could not read Username", "could not read Password", "error: 401", "error: 403")
_SSH_URL = re.compile(
    r"ssh://(?:(?P<user>[^@/]*)@)?(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:/@\[]+))(?::(?P<port>[0-9]{1,5}))?/"
    r"|(?:(?P<login>[^@/:]+)@)?(?P<short>[^:/@\[-][^:/@\[]*):(?!//|:)"
)
# The name of the server in the file of its host keys.
_ALIAS = "kit-repository"
_SSH = (
    *("BatchMode=yes", "StrictHostKeyChecking=yes", "GlobalKnownHostsFile=none", "HostKeyAlias=" + _ALIAS),
    *("CheckHostIP=no", "UpdateHostKeys=no", "PreferredAuthentications=publickey", "IdentityFile=none"),
    *("ControlPath=none", "ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=4"),
)


class SshAddress(NamedTuple):
    """Where a URL of SSH leads. `user` is '' and `port` is 0 where the URL has none."""

    user: str
    host: str
    port: int


def ssh_address(url: str) -> Optional[SshAddress]:
    """Return where the URL leads, or None if it is not one of SSH (`ssh://…`, or `user@host:path`)."""
    match = _SSH_URL.match(url)
    if match is None:
        return None
    user, host = match.group("user") or match.group("login"), match.group("host") or match.group("short")
    return SshAddress(user or "", host or match.group("six"), int(match.group("port") or 0))


def ssh_command(server: Mapping[str, Any], agent: str, known_hosts: str) -> str:
    """Return how git starts ssh for the server {"name", "port", "user", "keys"}. The file has its host keys."""
    options = ["HostName=" + str(server["name"]), "Port={}".format(int(server["port"])), "User=" + str(server["user"])]
    options += ["UserKnownHostsFile=" + known_hosts, "IdentityAgent=" + agent, *_SSH]
    return " ".join(map(shlex.quote, ["ssh", "-F", "none", *[word for option in options for word in ("-o", option)]]))


def known_hosts_text(keys: Sequence[str]) -> str:
    """Return the text of a file with these host keys, as `ssh_command` needs it."""
    return "".join("{} {}\n".format(_ALIAS, key) for key in keys)


class Failed(Exception):
    """git, or what it fetched, is not as needed. `kind`: git, login, stopped (git was ended), or one of gather.py."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Git:
    """git for the repository at `url`, with the login {"name", "password"} for its host, or None.

    `ssh` is how it starts ssh (ssh_command). Without it, there is no SSH.
    """

    def __init__(self, url: str, login: Optional[Mapping[str, str]], ssh: str = "") -> None:
        self.url = url
        self._login = login
        self._ssh = ssh
        self._running: Optional[subprocess.Popen[bytes]] = None
        self._lock = threading.Lock()
        self._stopped = False

    def run(
        self,
        *words: str,
        limit_s: float = _ASK_S,
        more: Optional[Mapping[str, str]] = None,
        folder: Optional[str] = None,
    ) -> bytes:
        """Return what git prints, started in `folder`. Raises Failed."""
        with self._lock:
            if self._stopped:
                raise Failed("stopped", "it was stopped")
            try:
                self._running = subprocess.Popen(
                    ["git", *self._settings(), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=dict(self._environment(), **(more or {})),
                    cwd=folder,
                    # Its helpers end with it.
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise Failed("git", "git is not installed there") from error
        process = self._running
        try:
            out, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise Failed("stopped", "no answer within {:.0f} s".format(limit_s)) from error
        if process.returncode < 0:
            raise Failed("stopped", "git was ended by signal {}".format(-process.returncode))
        if process.returncode:
            raise _failed(errors.decode("utf-8", "replace"))
        return out

    def check(self, url: str) -> None:
        """Raise Failed if the URL, of a submodule, leads to another server of SSH than that of the repository."""
        there, here = ssh_address(url), ssh_address(self.url)
        if there and (not here or there != here):
            raise Failed("odd", "{} is on another server".format(url))

    def stop(self) -> None:
        """End the git that runs, and start no other one."""
        with self._lock:
            self._stopped = True
            if self._running is not None:
                _kill(self._running)

    def _settings(self) -> List[str]:
        # The empty helper removes those of this host: one of them could write the login to its disk.
        settings = ["gc.auto=0", "core.hooksPath=/dev/null", "core.autocrlf=false", "credential.helper="]
        settings += ["http.lowSpeedLimit=1", "http.lowSpeedTime={}".format(STALL_S)]
        if self._login is not None:
            parts = urlsplit(self.url)
            settings.append("credential.{}://{}.helper={}".format(parts.scheme, parts.netloc, _HELPER))
        return [word for setting in settings for word in ("-c", setting)]

    def _environment(self) -> Dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "SSH_"))}
        kept.update(
            LC_ALL="C",
            GIT_ALLOW_PROTOCOL=PROTOCOLS + ":ssh" if self._ssh else PROTOCOLS,
            GIT_TERMINAL_PROMPT="0",
            # Empty, and so above the setting core.askPass.
            GIT_ASKPASS="",
            GIT_LFS_SKIP_SMUDGE="1",
        )
        if self._ssh:
            kept.update(GIT_SSH_COMMAND=self._ssh, GIT_SSH_VARIANT="ssh")
        if self._login is not None:
            kept.update({_NAME: self._login["name"], _PASSWORD: self._login["password"]})
        return kept


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _failed(errors: str) -> Failed:
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "ERROR:", "error:"))] or lines
    why = fatal[0].partition(": ")[2] or fatal[0] if fatal else "git failed"
    if "Could not read from remote repository" in why and lines.index(fatal[0]):
        # What ssh says is before it.
        why = lines[lines.index(fatal[0]) - 1]
    return Failed("login" if any(word in errors for word in _NO_LOGIN) else "git", why)
