"""The program on a host that fetches a commit (kit.remote.ship.porter.gather), and one conversation with it."""

from __future__ import annotations

import base64
import binascii
import queue
import threading
import time
from collections.abc import Callable
from functools import cache as once
from typing import Any

from msgspec import Struct

from kit.errors import KitError, NotReadyError, UnreachableError
from kit.model.answer import OddAnswer, decode
from kit.model.host import Login
from kit.remote.code.logins import GitLogin, is_public, login_for, login_in
from kit.remote.code.sshkeys import Agent, NoWayError, way_to
from kit.remote.ship.faults import CODE, ended
from kit.remote.ship.porter.delta import Delta
from kit.remote.ship.porter.git import SshAddress, ssh_address
from kit.remote.ship.porter.manifest import shown
from kit.remote.ship.porters import FOLDER, FarProgram
from kit.remote.ssh.openssh import SSH_FAILED
from kit.remote.ssh.program import package, packed

# In the order in which they import each other.
MODULES = ("names", "wire", "hold", "manifest", "delta", "store", "agent", "git", "modules", "commit", "gather")
# The lines of 200,000 files, in base64.
_MOST_LINE = 96 << 20
_MOST_TEXT = 4000
# The program reports something every two seconds, from when it is there.
_START_S, _SILENCE_S, _END_S = 90.0, 15.0, 5.0

Say = Callable[[str], None]


class NotGatheredError(KitError):
    """The host cannot have the commit. This machine may be able to fetch it."""


class Place(Struct, frozen=True, kw_only=True):
    """A host, and the folder of the store there."""

    login: Login
    store: str


class Listed(Struct, frozen=True, kw_only=True):
    """All files of a commit, as the lines of a manifest, and the text of its .kitignore. Both are in base64.

    `without` are the paths of submodules that have no URL.
    """

    lines: str
    ignore: str | None = None
    without: list[str] = []


class Report(Struct, frozen=True, kw_only=True):
    """One report of the program. `kit.remote.ship.porter.gather` lists them."""

    beat: bool = False
    listed: Listed | None = None
    kept: bool = False
    agent: str | None = None
    link: int = 0
    failed: str | None = None
    kind: str = ""


@once
def program() -> bytes:
    """Return the program of the host, which reads orders after it."""
    return packed(f"{package('porter', FOLDER, MODULES)}sys.modules['porter.gather'].main()\n")


def read(line: bytes) -> Report:
    """Return the report of one line. Raises OddAnswer."""
    report: Report = decode(line, Report, most=_MOST_LINE)
    if max(len(report.failed or ""), len(report.kind)) > _MOST_TEXT:
        raise OddAnswer("a text is too long", line)
    if report.listed and sum(map(len, report.listed.without)) > _MOST_TEXT:
        raise OddAnswer("too many submodules lack a URL", line)
    return report


def decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise OddAnswer("this is not base64", text) from None


class Talk:
    """One conversation with the program on a host. `login` is yours, if the repository wanted one."""

    def __init__(self, place: Place, url: str, say: Say) -> None:
        self.login: GitLogin | None = None
        self.agent: Agent | None = None
        self._server: dict[str, Any] | None = None
        self._place = place
        self._url = url
        self._say = say
        self._said = False
        self._begun = time.monotonic()
        self._program = self._start(bulk=False)

    def _start(self, *, bulk: bool) -> FarProgram[Report]:
        self._reports: queue.SimpleQueue[Report | OddAnswer | None] = queue.SimpleQueue()
        put = self._reports.put
        return FarProgram(
            self._place.login, program(), lambda _, report: put(report), read=read, most=_MOST_LINE, bulk=bulk
        )

    @property
    def seconds(self) -> float:
        """Return how long it has taken."""
        return time.monotonic() - self._begun

    def fetch(self, commit: str, url: str) -> Listed:
        """Have the commit fetched: without a login, if that is enough. Raises NotGatheredError and OddAnswer."""
        self.login = login_in(url)
        address = ssh_address(url)
        if address:
            self._log_in_over_ssh(address)
        while True:
            login = self.login and {"name": self.login.name, "password": self.login.password.reveal().decode()}
            report = self._ask(
                op="fetch", url=self._url, commit=commit, store=self._place.store, login=login, ssh=self._server
            )
            if report.kind == "login" and self.login is None:
                self.login = None if is_public(url) else login_for(url)
                if self.login is not None:
                    continue
            if report.listed is None:
                raise self._refused(report)
            return report.listed

    def _log_in_over_ssh(self, address: SshAddress) -> None:
        """Get an agent with your keys ready, which the host may use for this server. Raises NotGatheredError."""
        try:
            way = way_to(address)
            self.agent = Agent(way)
        except NoWayError as error:
            text = f"cannot fetch {self._url} with your keys: {error}"
            raise NotGatheredError(text, host=self._place.login.host) from error
        self._server = {"name": way.name, "port": way.port, "user": way.user, "keys": way.keys}

    def keep(self, digest: str, delta: Delta) -> None:
        """Have the snapshot of this name stored. Raises NotGatheredError and OddAnswer."""
        removed, added = (base64.b64encode(b"\n".join(lines)).decode() for lines in (delta.removed, delta.added))
        report = self._ask(op="keep", digest=digest, remove=removed, add=added)
        if not report.kept:
            raise self._refused(report)

    def end(self) -> None:
        """End the program. Nobody waits for that."""
        if self.agent is not None:
            self.agent.close()
        self._program.end(keep=False)
        threading.Thread(target=self._program.wait, args=(_END_S,), daemon=True).start()

    def _refused(self, report: Report) -> KitError:
        if report.failed is None:
            raise OddAnswer("it answers something else")
        if report.kind == "absent":
            return NotReadyError("no cluster is deployed there", hint="run: kit deploy", host=self._place.login.host)
        # It may be many lines, from another machine.
        why = shown(report.failed.strip().rpartition("\n")[2].encode())
        return NotGatheredError(f"cannot fetch {self._url}: {why}", host=self._place.login.host)

    def _ask(self, **order: Any) -> Report:
        self._program.order(**order)
        is_there = False
        while True:
            patience = _SILENCE_S if is_there else _START_S
            try:
                report = self._reports.get(timeout=patience)
            except queue.Empty:
                what = f"its git program sent nothing for {patience:.0f} s"
                raise UnreachableError(what, hint=CODE.again, host=self._place.login.host) from None
            if isinstance(report, OddAnswer):
                raise report
            if report is None:
                if not is_there and self._program.kept and self._program.exit_code == SSH_FAILED:
                    # The kept connection was dead, and nothing began.
                    self._program = self._start(bulk=True)
                    self._program.order(**order)
                    continue
                raise ended(self._place.login, self._program, CODE)
            is_there = True
            if report.agent is not None:
                self._answer(report.link, report.agent)
                continue
            if not report.beat:
                return report
            if not self._said:
                self._said = True
                self._say(f"code: {self._place.login.host} fetches {self._url}")

    def _answer(self, link: int, question: str) -> None:
        """Answer a question to your agent. Raises OddAnswer if the host may not ask any."""
        if self.agent is None:
            raise OddAnswer("it asks an SSH agent")
        answer = self.agent.answer(link, decoded(question))
        self._program.order(op="agent", link=link, data=base64.b64encode(answer).decode())
