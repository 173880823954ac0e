"""A source that rclone reads: an object store, a web server, or any remote of the operator's rclone configuration.

rclone gets its configuration in its environment alone: there is no file, and nothing of it is on a command line.
"""

import contextlib
import email.utils
import http.client
import json
import queue
import re
import subprocess
import threading
import time
from datetime import datetime
from typing import Any, Generator, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union
from urllib.parse import quote

from kitdata.complaints import meaning
from kitdata.rclone_process import LIMITS, PROGRAM, Answer, Ended, Program, Server, end
from kitdata.source import Entry, Source, SourceError, check_path, shown

# S3 gives the MD5 of an object that came in parts, if at all, only in a request for that object. Parts have at least
# this size, so the list asks for MD5s of smaller files only. `entry` returns it for every file.
LARGE = 5 << 20
# An encrypted bucket has no MD5 in its lists, so rclone asks for each object alone. After this number of files without
# one, the list goes on without MD5s.
SAMPLE = 8
# S3 would give the time that the uploading program had seen in a request for each object.
FLAGS = ("--use-server-modtime",)
# Some stores give fractions of a second in a list, but not for one file.
SECOND = 10**9
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|([+-]\d\d):?(\d\d))")
_TOTAL = re.compile(r"bytes \d+-\d+/(\d+)")
# Names for the source and the folder above it. Their path is in the environment, so an address never has to quote it.
ROOT, _ABOVE = "kitroot", "kitabove"

# rclone leaves out a file if the web server does not answer a request for its size. Only its debug log has that.
_DEBUG = ("--log-level", "DEBUG", "--use-json-log")
_SKIPPED = "skipping because of error: "
# Answers for a link that leads nowhere: such a page is no file.
_DEAD = ("object not found", "HTTP Error: 410")
# A web server may send a file with Content-Encoding: gzip. Without this, rclone unpacks it, so that its size differs.
_AS_STORED = ("--no-gzip-encoding",)
# The waits before each further request for a file that was left out.
WAITS = (0.0, 0.5, 2.0)

_Item = Union[Entry, SourceError, None]


class NoFiles(SourceError):
    """The list has come, and is empty. A store cannot say whether a folder without files is there."""

    def __init__(self, label: str) -> None:
        super().__init__("source-missing", "%s has no files, or is not there" % label)


class Rclone(Source):
    """Reads a remote such as `kit:bucket/path` with the settings in `env`: RCLONE_CONFIG_KIT_TYPE and so on.

    `ca`: certificates (PEM) that it trusts instead of those of this system. `folder`, for the socket, is in memory.
    Nothing starts before the first call. If the remote is a file, it is the only one, under its own name.
    """

    # A store takes some ten milliseconds for each object.
    parallel = 16

    def __init__(
        self,
        remote: str,
        env: Mapping[str, str],
        label: str,
        *,
        ca: str = "",
        folder: Optional[str] = None,
        program: str = PROGRAM,
    ) -> None:
        self.label = label
        above, slash, self._name = remote.rpartition("/")
        if not slash:
            above, slash, self._name = remote.rpartition(":")
            above += slash
        self._secret = dict(env)
        types = {value for name, value in env.items() if name.endswith("_TYPE")}
        self._web = "http" in types
        self._flags = _AS_STORED if self._web else ()
        # S3 encrypts objects with keys of KMS in a way that nothing in its lists shows.
        self.etags = "s3" in types
        self._env = dict(env)
        # With a slash at its end, rclone does not ask whether it is a file. If credentials allow a list alone, rclone
        # would take that refusal for a file.
        for name, target in ((ROOT, remote if remote[-1:] in (":", "/") else remote + "/"), (_ABOVE, above)):
            self._env["RCLONE_CONFIG_%s_TYPE" % name.upper()] = "alias"
            self._env["RCLONE_CONFIG_%s_REMOTE" % name.upper()] = target
        self._ca, self._folder, self._program_name = ca, folder, program
        self._lock = threading.Lock()
        self._closed = False
        self._program: Optional[Program] = None
        self._server: Optional[Server] = None
        self._listers: List[subprocess.Popen[bytes]] = []
        # Known after the first call.
        self._root = ""
        self._md5 = False
        # Files of a web server that it sends in parts.
        self._in_parts: Set[str] = set()

    def entries(self) -> Generator[Entry, None, None]:
        server = self._running()
        missing: Optional[SourceError] = NoFiles(self.label)
        try:
            if self._root == ROOT:
                for entry in self._listed():
                    missing = None
                    yield entry
        except SourceError as error:
            if error.kind != "source-missing":
                raise
            missing = error
        if missing:
            alone = None
            # Above a bucket is no folder.
            with contextlib.suppress(SourceError):
                alone = self._look(server, _ABOVE, self._name)
            if alone is None:
                raise missing
            self._root = _ABOVE
            yield alone

    def alone(self, *, empty: bool = False) -> bool:
        """Return whether the source is a single file. Raises SourceError if it cannot be listed.

        Also raises it if there are no files, unless it may be `empty`.
        """
        with contextlib.closing(self.entries()) as entries:
            try:
                next(entries)
            except SourceError as error:
                # A path that no host can have prevents a copy, but not a mount.
                if error.kind != "source-name" and not (empty and isinstance(error, NoFiles)):
                    raise
        return self._root == _ABOVE

    def program(self, env: Mapping[str, str], folder: str, limits: Sequence[str]) -> Program:
        """Return another rclone with the same settings, which knows the source as `ROOT`. `env` adds to its own."""
        return Program({**self._env, **env}, self._ca, folder, self._program_name, (*limits, *self._flags))

    def meaning(self, message: str) -> SourceError:
        """Return what a message of rclone means for this source, without its secrets."""
        return meaning(message, self.label, self._secret)

    def entry(self, path: str) -> Entry:
        server = self._running()
        self._check(path)
        entry = self._look(server, self._root, path)
        if entry is None and self._may_be_alone(path):
            entry = self._look(server, _ABOVE, path)
        if entry is None:
            raise self._gone(path)
        return entry

    def read(self, entry: Entry, offset: int, length: int) -> bytes:
        server = self._running()
        self._check(entry.path)
        if not length:
            return b""
        whole = offset == 0 and length == entry.size
        if self._web and not whole:
            self._refuse_without_parts(server, entry)
        answer = self._get(server, self._root, entry.path, None if whole else (offset, length))
        if answer.status == 404 and self._may_be_alone(entry.path):
            answer = self._get(server, _ABOVE, entry.path, None if whole else (offset, length))
            if answer.status in (200, 206):
                self._root = _ABOVE
        if answer.status not in (200, 206):
            raise self._unread(answer, entry.path)
        total = _TOTAL.fullmatch(answer.headers.get("content-range", ""))
        size = int(total.group(1)) if total else len(answer.body) if whole else -1
        if size != entry.size or len(answer.body) != length or not _same_time(answer, entry):
            text = "%s has changed in %s since it was listed" % (shown(entry.path), self.label)
            raise SourceError("source-changed", text)
        return answer.body

    def _get(self, server: Server, root: str, path: str, part: Optional[Tuple[int, int]]) -> Answer:
        headers = {"Range": "bytes=%d-%d" % (part[0], part[0] + part[1] - 1)} if part else {}
        address = "/[%s:]/%s" % (root, quote(path, safe="", errors="surrogateescape"))
        return self._ask(server, "GET", address, headers)

    def _may_be_alone(self, path: str) -> bool:
        """Return whether the source may be this one file, which rclone finds in the folder above."""
        return self._root == ROOT and path == self._name

    def _refuse_without_parts(self, server: Server, entry: Entry) -> None:
        """Raise SourceError if the web server ignores ranges: then rclone may pass on the wrong part of this file."""
        if entry.path in self._in_parts:
            return
        try:
            right = entry.size > 1 and len(self._get(server, self._root, entry.path, (1, 1)).body) == 1
        except SourceError:
            right = False
        if not right:
            text = "%s does not send %s in parts. The web server must support range requests"
            raise SourceError("source-lost", text % (self.label, shown(entry.path)))
        self._in_parts.add(entry.path)

    def _look(self, server: Server, root: str, path: str) -> Optional[Entry]:
        options = {"noMimeType": True, "filesOnly": True, "hashTypes": ["md5"] if self._md5 else []}
        request = {"fs": root + ":", "remote": path, "opt": options}
        item = self._decoded(self._ask(server, "POST", "/operations/stat", *_json(request))).get("item")
        return None if item is None else self._entry(item)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            server, self._server = self._server, None
            program, self._program = self._program, None
            listers, self._listers = self._listers, []
        for lister in listers:
            with contextlib.suppress(OSError):
                lister.kill()
        if server is not None:
            server.close()
        if program is not None:
            program.close()

    def _running(self) -> Server:
        """Return the server; start it if it is not there, or has ended."""
        with self._lock:
            if self._closed:
                raise SourceError("source-lost", "%s is closed" % self.label)
            try:
                if self._program is None:
                    limits = (*LIMITS, *self._flags)
                    self._program = Program(self._env, self._ca, self._folder, self._program_name, limits)
                if self._server is not None and not self._server.alive:
                    self._server.close()
                    self._server = None
                if self._server is None:
                    self._server = Server(self._program, FLAGS)
            except Ended as ended:
                raise self.meaning(str(ended)) from None
            if not self._root:
                self._root = self._found(self._server)
            return self._server

    def _found(self, server: Server) -> str:
        """Return the name under which rclone knows the source: the folder above it if it is a file."""
        root = ROOT
        answer = self._ask(server, "POST", "/operations/fsinfo", *_json({"fs": root + ":"}))
        if answer.status != 200 and b"is a file not a directory" in answer.body:
            root = _ABOVE
            answer = self._ask(server, "POST", "/operations/fsinfo", *_json({"fs": root + ":"}))
        about = self._decoded(answer)
        # A slow MD5 is one that reads the file.
        self._md5 = "md5" in (about.get("Hashes") or ()) and not about.get("Features", {}).get("SlowHash")
        return root

    def _listed(self) -> Iterator[Entry]:
        words = ["lsjson", "--recursive", "--files-only", "--no-mimetype", *FLAGS, ROOT + ":"]
        if self._web:
            words += _DEBUG
        if not self._md5:
            yield from self._lists([words])
            return
        small = ["--hash", "--hash-type", "MD5", "--max-size", "%dB" % (LARGE - 1)]
        with contextlib.closing(self._lists([[*words, *small], [*words, "--min-size", "%dB" % LARGE]])) as listed:
            first, knows = sample(listed)
            if knows:
                yield from first
                yield from listed
        if not knows:
            yield from self._lists([words])

    def _lists(self, lists: List[List[str]]) -> Generator[Entry, None, None]:
        """Yield the files of several lists, which run at the same time."""
        items: queue.Queue[_Item] = queue.Queue()
        processes = []
        try:
            for one in lists:
                process = self._lister(one)
                processes.append(process)
                threading.Thread(target=self._pump, args=(process, items), name="kit-data-list", daemon=True).start()
            left = len(lists)
            while left:
                item = items.get()
                if item is None:
                    left -= 1
                elif isinstance(item, SourceError):
                    raise item
                else:
                    yield item
        finally:
            for process in processes:
                end(process)
                with self._lock, contextlib.suppress(ValueError):
                    self._listers.remove(process)

    def _lister(self, words: List[str]) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._closed or self._program is None:
                raise SourceError("source-lost", "%s is closed" % self.label)
            try:
                process = self._program.start(*words, stdout=subprocess.PIPE)
            except Ended as ended:
                raise self.meaning(str(ended)) from None
            self._listers.append(process)
            return process

    def _pump(self, process: "subprocess.Popen[bytes]", items: "queue.Queue[_Item]") -> None:
        """Put what a list prints into the queue, and None at its end."""
        assert process.stdout
        assert process.stderr
        errors: List[bytes] = []
        with process.stdout, process.stderr:
            ear = threading.Thread(target=lambda: errors.append(process.stderr.read()), daemon=True)  # type: ignore[union-attr]
            ear.start()
            try:
                for line in process.stdout:
                    text = line.strip().rstrip(b",")
                    if text not in (b"[", b"]", b""):
                        items.put(self._entry(json.loads(text.decode("utf-8"))))
            except SourceError as error:
                items.put(error)
                # Nobody reads the rest of the list.
                process.kill()
            except ValueError:
                items.put(SourceError("source-lost", "%s was listed in a way that cannot be read" % self.label))
                process.kill()
            ear.join()
        message = b"".join(errors).decode("utf-8", "replace")
        skipped: List[Tuple[str, str]] = []
        if self._web:
            message, skipped = parsed(message)
        if process.wait():
            items.put(self.meaning(message))
        else:
            for path, why in skipped:
                item = self._again(path, why)
                items.put(item)
                if isinstance(item, SourceError):
                    # Nobody reads the rest of the list.
                    break
        items.put(None)

    def _again(self, path: str, why: str) -> _Item:
        """Ask again for a file that a list left out for this reason. Return it, or why it cannot be listed."""
        error = self.meaning(why)
        for wait in WAITS:
            time.sleep(wait)
            try:
                return self.entry(path)
            except SourceError as failed:
                if failed.kind == "source-name":
                    return failed
                error = failed
            except (ValueError, LookupError, TypeError):
                error = SourceError("source-lost", "%s gave an odd answer" % self.label)
        return SourceError(error.kind, "%s cannot be listed: %s" % (shown(path), error.text))

    def _entry(self, item: "Any") -> Entry:
        path, size = item["Path"], item["Size"]
        self._check(path)
        if size < 0:
            raise SourceError("source-name", "%s does not say how long %s is" % (self.label, shown(path)))
        return Entry(path, size, _nanoseconds(item["ModTime"]), (item.get("Hashes") or {}).get("md5", "").lower())

    def _check(self, path: str) -> None:
        check_path(path)
        if "\n" in path:
            raise SourceError("source-name", "rclone cannot read %s: its name has a line break" % shown(path))

    def _decoded(self, answer: Answer) -> "Any":
        if answer.status != 200:
            raise self.meaning(_error(answer))
        return json.loads(answer.body.decode("utf-8"))

    def _ask(self, server: Server, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        try:
            return server.request(method, path, headers, body)
        except http.client.IncompleteRead:
            raise SourceError("source-lost", "%s broke off while it was read" % self.label) from None
        except Ended as ended:
            raise self.meaning(str(ended)) from None

    def _unread(self, answer: Answer, path: str) -> SourceError:
        error = _error(answer)
        if "object not found" in error:
            return self._gone(path)
        if answer.status == 404:
            # rclone has found the file, but could not open it. It does not say why.
            return SourceError("source-lost", "%s does not let %s be read" % (self.label, shown(path)))
        return self.meaning(error)

    def _gone(self, path: str) -> SourceError:
        return SourceError("source-changed", "%s is no longer in %s" % (shown(path), self.label))


def sample(entries: Iterator[Entry]) -> Tuple[List[Entry], bool]:
    """Take entries until it is clear whether a list with MD5s is worth its time. Return them, and whether it is.

    It is not if the first SAMPLE small files have none.
    """
    first: List[Entry] = []
    without = 0
    for entry in entries:
        first.append(entry)
        if entry.md5:
            break
        without += entry.size < LARGE
        if without == SAMPLE:
            return first, False
    return first, True


def parsed(log: str) -> Tuple[str, List[Tuple[str, str]]]:
    """Return the errors in a debug log of rclone as text, and the files that a list left out, each with the reason."""
    lines = []
    skipped = []
    for line in log.splitlines():
        try:
            value = json.loads(line)
            level, message, name = value["level"], str(value["msg"]), str(value.get("object", ""))
        except (ValueError, LookupError, TypeError, AttributeError):
            lines.append(line)
            continue
        if level not in ("debug", "info"):
            lines.append(message)
        elif message.startswith(_SKIPPED):
            why = message[len(_SKIPPED) :]
            if not any(words in why for words in _DEAD):
                skipped.append((name, why))
    return "\n".join(lines), skipped


def _json(request: "Any") -> "Any":
    return {"Content-Type": "application/json"}, json.dumps(request).encode()


def _error(answer: Answer) -> str:
    """Return the reason in an answer of rclone's remote control."""
    text = answer.body.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, AttributeError):
        text = str(json.loads(text).get("error", text))
    return text


def _same_time(answer: Answer, entry: Entry) -> bool:
    parsed = email.utils.parsedate_tz(answer.headers.get("last-modified", ""))
    return parsed is None or email.utils.mktime_tz(parsed) == entry.mtime // SECOND


def _nanoseconds(text: str) -> int:
    """Return a time of rclone's lists, to the second, in nanoseconds since 1970. Raises ValueError."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    zone = "%s%s" % (match.group(2), match.group(3)) if match.group(2) else "+0000"
    return int(datetime.strptime(match.group(1) + zone, "%Y-%m-%dT%H:%M:%S%z").timestamp()) * SECOND
