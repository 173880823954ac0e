"""What one stager is doing: the staging that it takes part in, the one that it leads, a verification, a mount.

Each order of the operator comes on a connection of a unix socket, one line of JSON. kitdata.orders has the protocol.
"""

import contextlib
import hashlib
import json
import os
import threading
import time
from typing import Any, BinaryIO, Callable, Dict, Optional

from kitdata import feed, opening, tls, verify
from kitdata.lead import Lead
from kitdata.member import Joining, Member
from kitdata.mounting import Mount, MountFailed
from kitdata.rclone import Rclone
from kitdata.source import Source, SourceError

VERSION = 1
# For how long a host that joined waits for its lead.
LEAD_S = 60.0
# A stager ends when it has had nothing to do for this long, and when nobody has ordered anything since its start.
IDLE_S, UNUSED_S = 10.0, 60.0
# Where a mounter mounts, in its folder.
MOUNT = "mount"

Say = Callable[[Dict[str, Any]], None]


class Refused(Exception):
    """An order that cannot be carried out."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class Station:
    """One stager. `folder` is where the data set is, and `memory` a folder in memory for what must be on no disk."""

    def __init__(self, folder: str, memory: str) -> None:
        self._folder = folder
        self._memory = memory
        self._lock = threading.Lock()
        self._member: Optional[Member] = None
        self._client: Any = None
        self._lead: Optional[Lead] = None
        self._feeds: Dict[str, feed.Feed] = {}
        # While it is held, nobody else mounts.
        self._mounting = threading.Lock()
        self._mount: Optional[Mount] = None
        # Of the source that is mounted, as the order had it: only a digest, because the order has secrets.
        self._mounted = b""
        self._stopped = False
        # A staging would change what is being compared, so neither begins during the other.
        self._verifying = False
        self._working = 0
        self._used = False
        self._since = time.monotonic()

    @property
    def finished(self) -> bool:
        """Whether this stager has had nothing to do for so long that it ends."""
        with self._lock:
            if self._working or self._member is not None or self._mount is not None:
                return False
            return time.monotonic() - self._since > (IDLE_S if self._used else UNUSED_S)

    @contextlib.contextmanager
    def at_work(self) -> Any:
        """In this block, the stager does not end."""
        with self._lock:
            self._working += 1
            self._used = True
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1
                self._since = time.monotonic()

    def carry_out(self, order: Dict[str, Any], say: Say, stream: BinaryIO) -> None:
        """Carry out one order to its end. `say` answers, and `stream` has what comes after the order."""
        with self.at_work():
            try:
                calls: Dict[Any, Callable[[Dict[str, Any], Say], None]] = {
                    "hello": self._hello,
                    "join": self._join,
                    "stage": self._stage,
                    "watch": self._watch,
                    "stop": self._stop,
                    "verify": self._verify,
                    "mount": self._mount_source,
                    "feed": lambda order, _: self._feed(str(order["id"]), "").serve(stream),
                }
                if order.get("op") not in calls:
                    raise Refused("internal", "this stager does not know the order")
                calls[order["op"]](order, say)
            except (Refused, SourceError) as error:
                say({"failed": {"kind": error.kind, "host": None, "text": error.text}})
            except OSError as error:
                if isinstance(error, BrokenPipeError):
                    raise
                text = error.strerror or "the system refused something"
                say({"failed": {"kind": "disk", "host": None, "text": text}})

    def _hello(self, _: Dict[str, Any], say: Say) -> None:
        with self._lock:
            member, lead, mount = self._member, self._lead, self._mount if self._mounted else None
        leads = member is not None and lead is not None and lead.id == member.id
        staging, mounted = member.id if member else None, mount is not None and mount.attached
        say({"hello": {"version": VERSION, "staging": staging, "lead": leads, "mounted": mounted}})

    def _join(self, order: Dict[str, Any], say: Say) -> None:
        id_ = str(order["id"])
        with self._lock:
            self._check_verifying()
            before = self._member
        if before is not None and (before.id != id_ or before.led.is_set()):
            raise Refused("busy", "another staging of this data set is running here")
        if before is not None:
            before.close()
        try:
            contexts = tls.contexts(order["certificate"], order["key"], self._memory)
        except (OSError, ValueError, TypeError):
            raise Refused("internal", "the certificate of the staging cannot be read") from None
        joining = Joining(id_, str(order["address"]), *contexts)
        member = Member(self._folder, joining, lambda source: self._source(id_, source), lambda: self._left(id_))
        try:
            with self._lock:
                self._check_verifying()
                if self._member is not None:
                    raise Refused("busy", "another staging of this data set is running here")
                self._member, self._client = member, contexts[1]
        except Refused:
            member.close()
            raise
        threading.Thread(target=self._await_lead, args=(member,), daemon=True).start()
        say({"joined": {"port": member.port, "free": member.free}})

    def _await_lead(self, member: Member) -> None:
        if not member.led.wait(LEAD_S):
            member.close()

    def _left(self, id_: str) -> None:
        with self._lock:
            if self._member is not None and self._member.id == id_ and self._member.closed:
                self._member = None
            self._since = time.monotonic()
            self._feeds.pop(id_, None)

    def _source(self, id_: str, source: Dict[str, Any]) -> Source:
        return opening.open_source(source, lambda label: self._feed(id_, label), self._memory)

    def _feed(self, id_: str, label: str) -> feed.Feed:
        with self._lock:
            source_feed = self._feeds.setdefault(id_, feed.Feed(label))
        if label:
            source_feed.label = label
        return source_feed

    def _stage(self, order: Dict[str, Any], say: Say) -> None:
        id_ = str(order["id"])
        with self._lock:
            member, lead = self._member, self._lead
            if lead is None or lead.id != id_:
                if member is None or member.id != id_:
                    raise Refused("busy", "this host has not joined the staging")
                lead = self._lead = Lead(order["request"], id_, self._client)
                threading.Thread(target=lead.run, daemon=True).start()
        for event in lead.events.follow():
            say(event)

    def _watch(self, _: Dict[str, Any], say: Say) -> None:
        with self._lock:
            member, lead = self._member, self._lead
        # Between a join and its lead, the last one here is that of an earlier staging.
        if lead is None or (member is not None and member.id != lead.id):
            raise Refused("not-staged", "no staging is running here")
        for event in lead.events.follow():
            say(event)

    def _stop(self, order: Dict[str, Any], say: Say) -> None:
        with self._lock:
            lead, member = self._lead, self._member
        if lead is not None and lead.id == order.get("id"):
            lead.stop()
        elif member is not None and member.id == order.get("id"):
            member.close()
        say({"stopped": True})

    def _verify(self, order: Dict[str, Any], say: Say) -> None:
        with self._lock:
            if self._member is not None:
                raise Refused("busy", "a staging of this data set is running here")
            self._check_verifying()
            self._verifying = True
        try:
            verify.verify(self._folder, bool(order.get("write")), say)
        finally:
            with self._lock:
                self._verifying = False

    def _check_verifying(self) -> None:
        """Raise Refused during a verification. The caller holds the lock."""
        if self._verifying:
            raise Refused("verifying", "this data set is being verified here")

    def _mount_source(self, order: Dict[str, Any], say: Say) -> None:
        write = bool(order.get("write"))
        digest = hashlib.sha256(json.dumps([order["source"], write], sort_keys=True).encode()).digest()
        with self._mounting:
            with self._lock:
                before, mounted = self._mount, self._mounted
            already = before is not None and before.alive
            if already and mounted != digest:
                raise Refused("busy", "another source is mounted here, or this one with other keys or another write:")
            if not already:
                if before is not None:
                    # Its rclone has just ended, or somebody has detached it. The rest of it goes before the next comes.
                    before.close()
                self._begin_mount(order["source"], digest, write=write)
        say({"mounted": {"already": already}})

    def _begin_mount(self, source: Dict[str, Any], digest: bytes, *, write: bool) -> None:
        if source.get("kind") != "rclone":
            raise Refused("internal", "this stager mounts only a source that rclone reads")
        opened = self._source("", source)
        assert isinstance(opened, Rclone)
        mount = Mount(opened, os.path.join(self._folder, MOUNT), self._memory, write=write)
        with self._lock:
            stopped = self._stopped
            self._mount, self._mounted = mount, b""
        try:
            if stopped:
                raise Refused("internal", "this stager is ending")
            mount.start()
        except BaseException as error:
            mount.close()
            self._unmounted(mount)
            if isinstance(error, MountFailed):
                raise Refused(error.kind, str(error)) from None
            raise
        with self._lock:
            self._mounted = digest
        mount.watch(self._unmounted)

    def _unmounted(self, mount: Mount) -> None:
        with self._lock:
            if self._mount is mount:
                self._mount, self._mounted = None, b""
            self._since = time.monotonic()

    def close(self) -> None:
        """Leave nothing mounted, also if a mount is just beginning."""
        with self._lock:
            self._stopped = True
            mount = self._mount
        if mount is not None:
            mount.close()


def memory_folder(path: str) -> str:
    """Make a folder that only this user can read, and return it."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    os.chmod(path, 0o700)
    return path
