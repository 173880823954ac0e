"""Brings a commit of a git repository into the store of this host, with this host's own git.

Orders come on standard input, reports go to standard output. Both are lines of JSON.

    {"op": "fetch", "url", "commit", "store", "login", "ssh"}
                                                         fetch it. `login` is {"name", "password"}, or null. `ssh` is
                                                         null, or a server as of git.ssh_command. The answer:
                                                         {"listed": {"lines", "ignore", "without"}}: the lines of a
                                                         manifest with everything in the commit, the text of its
                                                         .kitignore, and the submodules that have no URL
    {"op": "keep", "digest", "remove", "add"}            store the snapshot of this name. The answer: {"kept": true}
    {"op": "agent", "link", "data"}                      an answer of the operator's SSH agent, to {"agent", "link"}
    {"op": "beat"}                                       the operator is still there
    {"op": "end"}                                        end, as at the end of standard input

Lines, what is removed and added (delta.py), and messages of an agent (agent.py) are in base64. {"beat": true} goes out
while git works. If something fails, {"failed", "kind"} goes out, and the next order may come: `kind` is git, stopped,
login (the repository wants one, or another one), absent (no cluster is here), lfs, many or odd (the commit has what the
operator's machine must fetch), disk, system or bug. The program ends when standard input ends, or is silent for a
minute.

    git/tree-*   in the store: the files of a commit (commit.py), until each of them has its place there
"""

import base64
import contextlib
import errno
import io
import os
import queue
import shutil
import sys
import threading
import time
import traceback
from typing import Any, BinaryIO, Dict, List, Optional, cast

from . import delta, manifest, names, wire
from .agent import Agent
from .commit import Files
from .git import FETCH_S, Failed, Git, known_hosts_text, ssh_command
from .hold import Hold
from .store import Store

BEAT_S = 2.0
DEAF_S = 60.0
_INCOMING = "incoming"


class Gather:
    """One commit, from its repository to the store."""

    def __init__(self, reading: io.BufferedReader, writing: BinaryIO) -> None:
        self._reading = reading
        self._writing = writing
        self._lock = threading.Lock()
        self._orders: "queue.Queue[Dict[str, Any]]" = queue.Queue()
        self._heard = time.monotonic()
        self._hold = Hold()
        self._git: Optional[Git] = None
        self._agent: Optional[Agent] = None
        self._store = Store("")
        self._tree = ""
        self._text = b""

    def say(self, value: Dict[str, Any]) -> None:
        with self._lock:
            wire.write_line(self._writing, value)

    def run(self) -> None:
        """Run until the operator is gone."""
        for work in (self._work, self._beat, self._watch):
            threading.Thread(target=work, daemon=True).start()
        try:
            while True:
                order = wire.read_line(self._reading)
                self._heard = time.monotonic()
                if order["op"] == "end":
                    return
                if order["op"] == "agent":
                    if self._agent is not None:
                        self._agent.answer(int(order["link"]), base64.b64decode(order["data"]))
                elif order["op"] != "beat":
                    self._orders.put(order)
        finally:
            if self._git is not None:
                self._git.stop()
            self._clean()

    def _work(self) -> None:
        while True:
            order = self._orders.get()
            try:
                if order["op"] == "fetch":
                    self._fetch(order)
                else:
                    self._keep(order)
            except Failed as error:
                self._fail(error.kind, str(error))
            except (names.BadName, manifest.BadManifest) as error:
                self._fail("system", str(error))
            except OSError as error:
                self._fail("disk" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "system", str(error))
            except Exception:
                self._fail("bug", traceback.format_exc())

    def _fail(self, kind: str, text: str) -> None:
        self.say({"failed": text, "kind": kind})

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_S)
            self.say({"beat": True})

    def _watch(self) -> None:
        """End when the operator went away without closing, for example because its machine went to sleep."""
        while time.monotonic() - self._heard < DEAF_S:
            time.sleep(1.0)
        if self._git is not None:
            self._git.stop()
        self._clean()
        os._exit(0)

    def _clean(self) -> None:
        if self._tree:
            shutil.rmtree(self._tree, ignore_errors=True)

    def _fetch(self, order: Dict[str, Any]) -> None:
        store = str(order["store"])
        if not os.path.isdir(os.path.dirname(store)):
            raise Failed("absent", "no cluster is deployed there")
        self._store = Store(store)
        names.private(store)
        self._tree = self._new_tree(names.below(store, "git"))
        self._git = Git(str(order["url"]), order["login"], self._ssh(order["ssh"]) if order["ssh"] else "")
        files = Files(self._git, names.below(store, "git"), self._tree)
        files.write(self._git.url, str(order["commit"]))
        self._text = manifest.join(files.lines())
        answer = {"lines": _packed(self._text), "ignore": _ignore(files), "without": files.without}
        self.say({"listed": answer})

    def _ssh(self, server: Dict[str, Any]) -> str:
        """Return how git starts ssh for the server. Begin to pass the questions of ssh on to the operator."""
        known_hosts = names.below(self._tree, "known_hosts")
        with open(known_hosts, "w") as file:
            file.write(known_hosts_text(server["keys"]))
        self._agent = Agent(names.below(self._tree, "agent"), self._ask)
        return ssh_command(server, self._agent.path, known_hosts)

    def _ask(self, link: int, message: bytes) -> None:
        self.say({"agent": _packed(message), "link": link})

    def _new_tree(self, folder: str) -> str:
        """Make a folder for the files of the commit. Remove those of programs that were killed."""
        self._clean()
        names.private(folder)
        for name in os.listdir(folder):
            if name.startswith("tree-"):
                with contextlib.suppress(OSError):
                    Hold().take(names.below(folder, name), 0.0)
                    shutil.rmtree(names.below(folder, name), ignore_errors=True)
        tree = names.below(folder, "tree-{}".format(os.getpid()))
        self._hold = Hold()
        self._hold.take(tree)
        return tree

    def _keep(self, order: Dict[str, Any]) -> None:
        """Store the snapshot: what is listed, changed as the order says."""
        if not self._tree:
            raise Failed("system", "nothing was fetched")
        text = delta.merge(self._text, _split(order["remove"]), _split(order["add"]))
        if manifest.digest(text) != names.digest(order["digest"]):
            raise Failed("system", "this makes another snapshot than {}".format(order["digest"][:12]))
        entries = manifest.parse(text)
        holding = Hold()
        # Another one may remove objects that no manifest names yet.
        holding.take(names.below(self._store.folder, _INCOMING), FETCH_S)
        try:
            for entry in entries:
                if entry.kind == manifest.FILE and not self._store.has_object(entry.digest, entry.size):
                    path = os.path.join(self._tree, "files", os.fsdecode(entry.path))
                    os.chmod(path, 0o644)
                    self._store.add_object(path, entry.digest)
            self._store.add(text)
        finally:
            holding.release()
        self.say({"kept": True})


def _ignore(files: Files) -> Optional[str]:
    """Return the text of .kitignore in base64, or None without one. Raises Failed."""
    if not files.has(b".kitignore"):
        return None
    try:
        return _packed(files.read(b".kitignore"))
    except OSError as error:
        raise Failed("odd", "its .kitignore is not a file") from error


def _packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _split(text: str) -> List[bytes]:
    return base64.b64decode(text).split(b"\n") if text else []


def main() -> None:
    with contextlib.suppress(wire.Broken, OSError):
        Gather(cast(io.BufferedReader, sys.stdin.buffer), sys.stdout.buffer).run()
    os._exit(0)
