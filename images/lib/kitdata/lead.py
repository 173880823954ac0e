"""Leads one staging: asks for the list of files, plans, has the pieces dealt, and says when all have all.

A round is one list of files and one plan. Another round follows where a file of the source changed meanwhile. Where
one is gone, the source is listed again first.
"""

import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from kitdata import manifest, plan, reports, room, wire
from kitdata.crew import Calls, Crew, Failed
from kitdata.dealing import Dealing
from kitdata.events import Events
from kitdata.listing import Listing
from kitdata.plan import Have, Plan
from kitdata.room import Room
from kitdata.source import Entry, SourceError, Version, arranged, shown

# A file that changes more often while it is read is given up.
MOST_CHANGES = 3
# A source of which files go away while they are read is listed again at most this often.
MOST_LISTS = 10
# A host that lacks a file at the end of this many rounds is out.
MOST_UNFINISHED = 3
# What rclone prints instead of bytes that are not UTF-8. It finds no file by such a name.
_NO_UTF8 = "\ufffd"


class _Vanished(Exception):
    """A file of the list cannot be found. Only another list says what the source has: its disk may be gone."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Lead:
    """One staging. `run` returns when it has ended, well or not; then `events` has said how."""

    def __init__(self, request: Dict[str, Any], id_: str, client: Any) -> None:
        self.id = id_
        self._source: Dict[str, Any] = request["source"]
        self._label = str(self._source.get("label", "the source"))
        # What kit.yaml says: the label of a folder of the operator's machine has the path on that machine.
        self._origin = str(self._source.get("origin", self._label))
        self._request = {name: value for name, value in request.items() if name != "source"}
        self._split = request.get("split") == "hosts"
        self._limit = int(request.get("limit") or 0)
        about = {"id": id_, "source": self._label, "limit": self._limit, "since": time.time()}
        self.events = Events(about)
        self._crew = Crew(request, id_, client, self.events)
        # For each file the set of hosts that must have it.
        self._owners: List[int] = []
        # With split, the names of the hosts that share the files.
        self._among = ""
        self._planned: Optional[Plan] = None
        self._removed = 0
        # How often each file has changed, and how often files were gone.
        self._changes: Dict[str, int] = {}
        self._vanished = 0
        # How often each member lacked a file at the end of a round.
        self._unfinished: Dict[int, int] = {}
        # Versions of the source that a host lacks.
        self._missing: Set[str] = set()

    def stop(self) -> None:
        """End the staging soon. What came stays."""
        self._crew.stop()

    def run(self) -> None:
        """Stage, and end with the event `done` or `failed`."""
        start = time.monotonic()
        try:
            self._begin()
            self._end(self._stage(), start)
        except Failed as error:
            self._fail(error)
        except SourceError as error:
            self._fail(Failed(error.kind, error.text))
        except Exception as error:
            # The text of a bug may have anything in it, also what is secret.
            self._fail(Failed("internal", "the stager failed with %s" % type(error).__name__))
        finally:
            # The secrets of the source.
            self._source = {}
            self._crew.end()

    def _fail(self, error: Failed) -> None:
        self.events.add({"failed": {"kind": error.kind, "host": error.host, "text": error.text}})

    def _begin(self) -> None:
        """Connect to all members. One that cannot be reached is out."""
        members = self._request["members"]
        places = [{"address": member["address"], "port": member["port"]} for member in members]
        for number in range(len(members)):
            order = {"members": places, "me": number, "limit": self._limit, "source": self._source}
            self._crew.send(number, {"begin": order})
        linked: Set[int] = set()
        self._crew.pump(lambda: self._crew.all(linked), {"linked": lambda member, _: linked.add(member)})

    # The list of files

    def _stage(self) -> Version:
        """Bring all files of the source to all hosts, and return its version. Raises Failed and SourceError."""
        while True:
            readers = self._crew.readers
            if not readers:
                raise Failed("source-lost", "no host is left that can read %s" % self._label)
            listing = Listing(self._crew, self.events, readers[0], self._label)
            # The list of many files takes longer than anything else of a staging that finds nothing to do.
            version = None if self._split else listing.version()
            if version is not None and self._is_staged(version):
                return version
            listed = listing.entries()
            if listed is None:
                continue
            entries = arranged(listed)
            version = manifest.version(entries)
            if not self._is_staged(version):
                try:
                    version = self._bring_all(entries)
                except _Vanished as vanished:
                    self._vanished += 1
                    if self._vanished == MOST_LISTS:
                        text = "files of %s go away all the time while they are read. The last one is %s"
                        raise Failed("source-changed", text % (self._label, shown(vanished.path))) from None
                    continue
            return version

    def _is_staged(self, version: Version) -> bool:
        """Return whether every host has all of this version, whose list it then need not get."""
        if self._split or version.id in self._missing:
            return False
        answers: Dict[int, bool] = {}
        self._crew.everybody({"staged": {"id": version.id, "source": self._origin}})
        calls = {"staged": lambda member, values: answers.update({member: values[0]})}
        self._crew.pump(lambda: self._crew.all(set(answers)), calls)
        if not all(answers[member] for member in self._crew.members):
            self._missing.add(version.id)
            return False
        hosts = len(self._crew.hosts)
        nothing = (0,) * hosts
        self._tell_plan(version.files, version.bytes, Plan((), 0, 0, nothing, (version.bytes,) * hosts, nothing), {})
        return True

    # Rounds

    def _bring_all(self, entries: List[Entry]) -> Version:
        """Bring all files to all hosts that need them, until each has its own. Return the version that they have.

        A disk may return wrong bytes of a file that the plan took for whole. It comes again in another round.
        Raises as `_bring`.
        """
        while True:
            entries = self._bring(entries)
            version = manifest.version(entries)
            if self._finish(entries, version):
                return version

    def _bring(self, entries: List[Entry]) -> List[Entry]:
        """Bring all files to all hosts that need them. Return the list of files in their newest versions.

        Raises Failed, and _Vanished if the source must be listed again.
        """
        while True:
            self._crew.round += 1
            rooms, haves = self._compare(entries)
            if not entries and (self._vanished or any(one.gone for one in rooms.values())):
                # A store says so itself. Of a folder, the disk may not be mounted, or not any more.
                text = "%s has no files now, so nothing was removed from the hosts"
                raise Failed("source-empty", text % self._label)
            self._owners = self._assign(entries, haves)
            step = plan.plan(entries, haves, self._owners)
            rooms = {member: rooms[member] for member in self._crew.members}
            room.check(step, rooms, self._crew.hosts, str(self._request.get("stage")), self._request.get("size"))
            if self._planned is None:
                self._tell_plan(len(entries), sum(entry.size for entry in entries), step, rooms)
            changed: Dict[int, Optional[Entry]] = {}
            if step.pieces:
                changed = Dealing(self._crew, self.events, entries, step, self._label).run()
            changed.update(self._check_large(entries, step, changed))
            if not changed:
                return entries
            entries = self._newest(entries, changed)

    def _compare(self, entries: Sequence[Entry]) -> Tuple[Dict[int, Room], List[Have]]:
        """Send the list to all members. Return what room each has, and what each has of it."""
        left = len(entries)
        for batch in wire.batches(entries) if entries else [entries]:
            left -= len(batch)
            # The list of many small files takes a link as long as a part of their bytes.
            order = {"round": self._crew.round, "columns": manifest.columns(batch), "more": left > 0}
            self._crew.everybody({"entries": order})
        self._crew.scope = reports.Scope(len(self._crew.hosts), entries)
        rooms: Dict[int, Room] = {}
        haves = [Have(frozenset(), {}) for _ in self._crew.hosts]

        def have(member: int, values: List[Any]) -> None:
            value = values[0]
            rooms[member] = Room(value["free"], value["inodes"], value["gone"])
            haves[member] = Have(value["whole"], haves[member].parts)

        def some(member: int, values: List[Any]) -> None:
            haves[member].parts.update((number, frozenset(parts)) for number, parts in values[0])

        self._crew.pump(lambda: self._crew.all(set(rooms)), {"have": have, "parts": some})
        return rooms, haves

    def _assign(self, entries: Sequence[Entry], haves: Sequence[Have]) -> List[int]:
        """Return for each file the set of hosts that must have it."""
        if not self._split:
            return [self._crew.living] * len(entries)
        members = self._crew.members
        self._among = plan.among(self._crew.hosts[member] for member in members)
        holders = [0] * len(entries)
        for place, member in enumerate(members):
            for number in (*haves[member].whole, *haves[member].parts):
                holders[number] |= 1 << place
        return [1 << members[place] for place in plan.split(entries, len(members), holders)]

    def _tell_plan(self, files: int, size: int, step: Plan, rooms: Dict[int, Room]) -> None:
        self._planned = step
        self._crew.need = step.need
        gone = [one.gone for one in rooms.values()]
        self._removed = sum(gone) if self._split else max(gone, default=0)
        hosts = {
            self._crew.hosts[member]: {"need": step.need[member], "have": step.have[member]}
            for member in self._crew.members
        }
        value = {"files": files, "bytes": size, "new": step.new, "removed": self._removed}
        self.events.add({"plan": dict(value, read=step.read, hosts=hosts)})

    def _check_large(
        self, entries: Sequence[Entry], step: Plan, changed: Dict[int, Optional[Entry]]
    ) -> Dict[int, Optional[Entry]]:
        """Let hosts compare new large files with the source: MD5 and time. Small ones were compared as they were read.

        Return those that differ, with what the source says of them now. Those in `changed` are known.
        """
        work: Dict[int, List[int]] = {}
        # No host has a piece with a part of a changed file, so the other files of that piece come in the next round.
        later = set(changed)
        for piece in step.pieces if changed else ():
            if any(file in changed for file, _ in piece.parts):
                later.update(file for file, _ in piece.parts)
        for file in sorted({file for piece in step.pieces for file, _ in piece.parts} - later):
            checkers = [one for one in self._crew.readers if self._owners[file] >> one & 1]
            if checkers and manifest.extents(entries[file].size) > 1:
                work.setdefault(checkers[file % len(checkers)], []).append(file)
        for member, files in work.items():
            self._crew.send(member, {"check": files})
        ended: Set[int] = set()
        bad: Dict[int, Optional[Entry]] = {}

        def checked(member: int, values: List[Any]) -> None:
            if not {file for file, _ in values[0]} <= set(work.get(member, ())):
                raise wire.Broken("a comparison that it was not asked for")
            ended.add(member)
            bad.update(values[0])

        self._crew.pump(lambda: all(one in ended or not self._crew.lives(one) for one in work), {"checked": checked})
        if bad:
            self._crew.everybody({"forget": sorted(bad)})
        return bad

    def _newest(self, entries: Sequence[Entry], changed: Dict[int, Optional[Entry]]) -> List[Entry]:
        """Return the list with the newest versions of changed files.

        Raises _Vanished if one is gone, and Failed if one changes, or is listed and gone, all the time.
        """
        result = list(entries)
        vanished = []
        for number, newest in sorted(changed.items()):
            path = entries[number].path
            count = self._changes[path] = self._changes.get(path, 0) + 1
            self.events.add({"changed": {"file": shown(path)}})
            if count > MOST_CHANGES:
                raise self._restless(path, newest, count)
            if newest is None:
                vanished.append(path)
            else:
                result[number] = newest
        if vanished:
            raise _Vanished(vanished[-1])
        return result

    def _restless(self, path: str, newest: Optional[Entry], count: int) -> Failed:
        """Return why a file is given up that is never what the list says."""
        if newest is not None:
            text = "%s in %s keeps changing: each of %d reads got something else than its list says"
            return Failed("source-changed", text % (shown(path), self._label, count))
        if _NO_UTF8 in path:
            text = "%s of %s cannot be read: the bytes of its name seem not to be UTF-8"
            return Failed("source-name", text % (shown(path), self._label))
        text = "%s cannot be read: %s lists it, and then has no such file"
        return Failed("source-changed", text % (shown(path), self._label))

    def _finish(self, entries: Sequence[Entry], version: Version) -> bool:
        """Let all members give the files their names. Return False if one of them lacks a file, so that it must come.

        A host that lacks one again and again is out.
        """
        summary = {
            "name": self._request["data"],
            "source": self._origin,
            "stage": self._request.get("stage"),
            "split": "hosts" if self._split else "none",
            "id": version.id,
            "at": int(time.time()),
        }
        if self._split:
            summary["among"] = self._among
        for member in self._crew.members:
            mine = [number for number, owner in enumerate(self._owners) if owner >> member & 1] if self._split else None
            self._crew.send(member, {"finish": {"summary": summary, "mine": mine}})
        finished: Set[int] = set()
        lacking: Dict[int, int] = {}

        def lacks(member: int, values: List[Any]) -> None:
            lacking[member] = values[0]
            finished.add(member)

        calls: Calls = {"finished": lambda member, _: finished.add(member), "unfinished": lacks}
        self._crew.pump(lambda: self._crew.all(finished), calls)
        for member, file in lacking.items():
            self._unfinished[member] = self._unfinished.get(member, 0) + 1
            if self._unfinished[member] == MOST_UNFINISHED:
                text = "its disk lost bytes of %s, and of other files before, while they were staged"
                self._crew.lose(member, Failed("disk", text % shown(entries[file].path)))
        return not lacking

    def _end(self, version: Version, start: float) -> None:
        assert self._planned is not None
        done = {
            "files": version.files,
            "bytes": version.bytes,
            "new": self._planned.new,
            "removed": self._removed,
            "read": self._crew.read,
            "seconds": round(time.monotonic() - start, 3),
            "hosts": [self._crew.hosts[member] for member in self._crew.members],
            "lost": [self._crew.hosts[member] for member in sorted(self._crew.lost)],
        }
        self.events.add({"done": done})
