"""Reads, writes and removes files for kit, as root on a VM, or in a container. Python 3.6, standard library only.

Ranks write these files, so no name and no link in them decides anything: below TOP, this program follows no link.
Names travel as the text whose letters are their bytes (latin-1).

    survey FOLDER RUNS      a line for each run of a cluster: its size, and whether it lives
    ids FOLDER RUNS         a line for each run: only whether it lives
    list TOP BELOW NAME...  a line for each file in TOP/BELOW (without names: all of it)
    find PATH               the same for one path that a person named, with its links followed
    shared PATH FROM TO     the same for what is in a folder and changed between two times (ns); other files are counted
    now                     a line with this machine's time
    send TOP BELOW          frames with the content of files; standard input: [[PATH, AT, TIME, MOST], ...]
    write PATH NAME KIND    writes frames from standard input to PATH; KIND is f or d
    remove FOLDER RUNS      removes runs of a cluster; standard input: [ID, ...]

A frame is a kind (H, D or E), a length of four bytes, and that many bytes. A file is H (JSON: at, size, time, x), D
with its bytes from `at` on, and E (JSON: sha256 of the whole file, changed). H or E may have an error instead.
"""

import binascii
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import struct
import subprocess
import sys
from time import time as clock
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple

MADE = ("output", "checkpoints", "work")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# It gives a descriptor that names the entry, and opens nothing: no FIFO waits, and no device does anything.
ENTRY = os.O_PATH | os.O_NOFOLLOW
# Deeper folders are not read: each level holds a descriptor.
DEEPEST = 100
CHUNK = 1 << 18
HEAD = struct.Struct(">cI")
# The most bytes of a list, which is less than kit reads, and the longest frame that kit sends.
MOST = 200 << 20
LONGEST = 1 << 20
# A shared folder may have very many files of other runs: the most that this program looks at.
MOST_SEEN = 1000000
MOUNTS = "/proc/self/mountinfo"
TOO_MANY = "the list ends here: it has too many files"
# File systems whose mounts name a server. With the same server and folder, two hosts see the same files.
SERVED = (b"nfs", b"nfs4", b"cifs", b"smb3", b"ceph", b"lustre")
ID = re.compile("[0-9A-Za-z][0-9A-Za-z._-]{0,63}")

Entry = List[Any]
# An entry with what the system says about it; None if it could not be read.
Seen = Tuple[Entry, Optional[os.stat_result]]


def text(name: bytes) -> str:
    return name.decode("latin-1")


def say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def opened(top: str, below: str) -> int:
    """Open the folder TOP/BELOW. Links in BELOW are not followed. Raises OSError."""
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for name in below.split("/") if below else ():
        fd = inner(fd, name)
    return fd


def inner(fd: int, name: Any) -> int:
    """Open a folder in another one, and close that."""
    try:
        return os.open(name, FOLDER, dir_fd=fd)
    finally:
        os.close(fd)


def regular(fd: int, name: Any) -> int:
    """Open a regular file of a folder to read it. Raises OSError for anything else, which is not even opened."""
    entry = os.open(name, ENTRY, dir_fd=fd)
    try:
        if not stat.S_ISREG(os.fstat(entry).st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        return os.open("/proc/self/fd/%d" % entry, os.O_RDONLY | os.O_NONBLOCK)
    finally:
        os.close(entry)


# Lists


def entries(fd: int, path: bytes, depth: int, names: Optional[List[bytes]] = None) -> Iterator[Seen]:
    """Yield what is in a folder: f (file), d (folder), l (link), s (device, socket …), e (not readable)."""
    if names is None:
        names = [os.fsencode(name) for name in os.listdir(fd)]
    for name in sorted(names):
        below = path + b"/" + name if path else name
        try:
            at = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(at.st_mode):
                yield ["d", text(below)], at
                yield from folder(fd, name, below, depth)
            elif stat.S_ISREG(at.st_mode):
                yield ["f", text(below), at.st_size, at.st_mtime_ns, bool(at.st_mode & 0o100)], at
            elif stat.S_ISLNK(at.st_mode):
                yield ["l", text(below), text(os.fsencode(os.readlink(name, dir_fd=fd)))], at
            else:
                yield ["s", text(below)], at
        except FileNotFoundError:
            # A run that lives removes files.
            continue
        except OSError as error:
            yield ["e", text(below), error.strerror], None


def folder(fd: int, name: bytes, path: bytes, depth: int) -> Iterator[Seen]:
    if depth == DEEPEST:
        yield ["e", text(path), "more than %d folders deep" % DEEPEST], None
        return
    own = os.open(name, FOLDER, dir_fd=fd)
    try:
        yield from entries(own, path, depth + 1)
    finally:
        os.close(own)


def list_files(top: str, below: str, *names: str) -> None:
    """Print a line with the top, one for each entry, and one that says that the list is complete."""
    try:
        fd = opened(top, below)
    except (FileNotFoundError, NotADirectoryError):
        fd = -1
    say({"top": top, "live": fd >= 0 and lives(fd), "unsettled": fd >= 0 and has(fd, "work.json")})
    if fd >= 0:
        every = entries(fd, b"", 0, [os.fsencode(name) for name in names] or None)
        room = MOST
        for entry, _ in every:
            line = json.dumps(entry)
            room -= len(line)
            if room < 0:
                say(["e", entry[1], TOO_MANY])
                break
            sys.stdout.write(line + "\n")
    say({"end": True})


def shared(path: str, first: str, last: str) -> None:
    """Print the files, links and other entries that changed between two times, and how many files changed before or
    after. A file has its inode, or 0 where each host has its own numbers.
    """
    real = resolved(path)
    try:
        fd = opened(real, "")
    except (FileNotFoundError, NotADirectoryError):
        fd = -1
    kind, store = mount_of(os.fsencode(real))
    say({"top": real, "there": fd >= 0, "store": store})
    seen = others = size = 0
    room = MOST
    for entry, at in entries(fd, b"", 0) if fd >= 0 else ():
        seen += 1
        if seen > MOST_SEEN:
            say(["e", entry[1], TOO_MANY])
            break
        if at is not None:
            if entry[0] == "d":
                continue
            if not int(first) <= at.st_mtime_ns <= int(last):
                if entry[0] == "f":
                    others += 1
                    size += at.st_size
                continue
            if entry[0] == "f":
                entry.append(0 if kind.startswith(b"fuse") else at.st_ino)
        line = json.dumps(entry)
        room -= len(line)
        if room < 0:
            say(["e", entry[1], TOO_MANY])
            break
        sys.stdout.write(line + "\n")
    say({"others": others, "size": size})
    say({"end": True})


def mount_of(path: bytes) -> Tuple[bytes, str]:
    """Return the kind of the file system of a path, and the server and folder that its files come from, or ''."""
    best, kind, store = -1, b"", ""
    with open(MOUNTS, "rb") as file:
        for line in file:
            mount, _, device = line.partition(b" - ")
            root, place = (plain(word) for word in mount.split(b" ")[3:5])
            inside = (path + b"/").startswith(place.rstrip(b"/") + b"/")
            # The last one of several at the same place is the one that counts.
            if not inside or len(place) < best:
                continue
            kind, source = device.split(b" ")[:2]
            here = source.startswith((b"localhost:", b"127.", b"[::1]"))
            served = kind in SERVED and not here
            rest = path[len(place.rstrip(b"/")) :]
            best, store = len(place), text(b" ".join((source, root.rstrip(b"/") + rest))) if served else ""
    return kind, store


def now() -> None:
    say({"now": int(clock() * 1e9)})
    say({"end": True})


def resolved(path: str) -> str:
    return os.path.realpath(os.fsdecode(path.encode("latin-1")))


def find(path: str) -> None:
    real = resolved(path)
    if not os.path.exists(real):
        sys.exit("no such file: %s" % path)
    top, name = os.path.split(real)
    if name:
        list_files(top, "", name)
    else:
        list_files(real, "")


# Reads


def frame(kind: bytes, payload: bytes) -> None:
    out = sys.stdout.buffer
    out.write(HEAD.pack(kind, len(payload)) + payload)


def note(kind: bytes, **fields: Any) -> None:
    frame(kind, json.dumps(fields).encode())


def send(top: str, below: str) -> None:
    requests = json.loads(sys.stdin.buffer.read().decode())
    root = opened(top, below)
    for path, at, time, most in requests:
        try:
            file = open_file(root, path.encode("latin-1"))
        except OSError as error:
            note(b"H", error=error.strerror)
            continue
        try:
            send_file(file, at, time, most)
        finally:
            os.close(file)
        sys.stdout.flush()


def open_file(root: int, path: bytes) -> int:
    names = path.split(b"/")
    if b".." in names or b"" in names:
        raise OSError(errno.EINVAL, "this is not a path in the folder")
    fd = os.dup(root)
    for name in names[:-1]:
        fd = inner(fd, name)
    try:
        return regular(fd, names[-1])
    finally:
        os.close(fd)


def send_file(file: int, at: int, time: int, most: int) -> None:
    before = os.fstat(file)
    if before.st_size > most:
        note(b"H", error="it became much larger after it was listed")
        return
    if before.st_mtime_ns != time or at > before.st_size:
        # What kit has is another version.
        at = 0
    note(b"H", at=at, size=before.st_size, time=before.st_mtime_ns, x=bool(before.st_mode & 0o100))
    digest = hashlib.sha256()
    count = 0
    try:
        while count < before.st_size:
            data = os.read(file, min(CHUNK, at - count if count < at else before.st_size - count))
            if not data:
                break
            digest.update(data)
            if count >= at:
                frame(b"D", data)
            count += len(data)
    except OSError as error:
        note(b"E", error=error.strerror)
        return
    after = os.fstat(file)
    changed = count != before.st_size or (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns)
    note(b"E", sha256=digest.hexdigest(), changed=changed)


# Writes


def read_frame(stream: BinaryIO) -> Tuple[bytes, bytes]:
    head = stream.read(HEAD.size)
    if not head:
        return b"", b""
    if len(head) < HEAD.size:
        sys.exit("the connection ended early")
    kind, length = HEAD.unpack(head)
    if length > LONGEST:
        sys.exit("a frame of an impossible length")
    payload = stream.read(length)
    if len(payload) < length:
        sys.exit("the connection ended early")
    return kind, payload


def write(path: str, name: str, kind: str) -> None:
    """Write a file or a folder to a path, as cp does: into it if it is a folder, else with that name."""
    path = os.fsdecode(path.encode("latin-1"))
    if os.path.isdir(path):
        path = os.path.join(path, os.fsdecode(name.encode("latin-1")))
    elif path.endswith("/") and kind == "f":
        sys.exit("there is no folder %s" % path)
    base = os.fsencode(path.rstrip("/") or "/")
    if kind == "f" and os.path.isdir(base):
        sys.exit("%s is a folder" % path)
    if kind == "d" and os.path.exists(base) and not os.path.isdir(base):
        sys.exit("%s is a file" % path)
    count = 0
    while True:
        code, payload = read_frame(sys.stdin.buffer)
        if code != b"H":
            break
        write_entry(base, json.loads(payload.decode()))
        count += 1
    if code != b"E":
        sys.exit("the connection ended early")
    say({"path": text(base), "count": count})


def write_entry(base: bytes, header: Dict[str, Any]) -> None:
    below = header["path"].encode("latin-1")
    if not below and header["kind"] == "d":
        # The person named it, so its links count.
        if not os.path.isdir(base):
            os.mkdir(base)
        return
    fd, name = parent(base, below)
    try:
        if header["kind"] == "d":
            make_folder(fd, name)
        elif header["kind"] == "l":
            remove_file(fd, name)
            os.symlink(header["target"].encode("latin-1"), name, dir_fd=fd)
        else:
            write_file(fd, name, header)
    finally:
        os.close(fd)


def parent(base: bytes, below: bytes) -> Tuple[int, bytes]:
    """Open the folder of an entry. Return it with the entry's name.

    Links above `base` and `base` itself count, because the person named them. Below it, a rank may have put one.
    """
    if not below:
        return os.open(os.path.dirname(base) or b".", os.O_RDONLY | os.O_DIRECTORY), os.path.basename(base)
    fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    folders = below.split(b"/")
    for name in folders[:-1]:
        fd = inner(fd, name)
    return fd, folders[-1]


def make_folder(fd: int, name: bytes) -> None:
    try:
        os.mkdir(name, dir_fd=fd)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            raise


def remove_file(fd: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=fd)
    except FileNotFoundError:
        pass


def write_file(fd: int, name: bytes, header: Dict[str, Any]) -> None:
    """Write a file under another name, which nobody can guess, check it, and rename it."""
    partial = b".kit-cp-" + binascii.hexlify(os.urandom(8))
    digest = hashlib.sha256()
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=fd)
        with os.fdopen(handle, "wb") as file:
            while True:
                kind, payload = read_frame(sys.stdin.buffer)
                if kind != b"D":
                    break
                digest.update(payload)
                file.write(payload)
            if kind != b"E" or json.loads(payload.decode())["sha256"] != digest.hexdigest():
                sys.exit("%s did not arrive whole" % text(name))
            file.flush()
            os.fchmod(handle, 0o755 if header["x"] else 0o644)
            os.utime(handle, ns=(header["time"], header["time"]))
        os.rename(partial, name, src_dir_fd=fd, dst_dir_fd=fd)
    except BaseException:
        remove_file(fd, partial)
        raise


# Runs


def ids(cluster: str, below: str) -> None:
    survey(cluster, below, sized=False)


def survey(cluster: str, below: str, sized: bool = True) -> None:
    try:
        runs = opened(cluster, below)
    except (FileNotFoundError, NotADirectoryError):
        runs = -1
    for name in sorted(os.listdir(runs)) if runs >= 0 else ():
        try:
            fd = os.open(name, FOLDER, dir_fd=runs)
        except OSError:
            continue
        say(dict(sizes(fd) if sized else {}, id=text(os.fsencode(name)), live=lives(fd)))
        os.close(fd)
    say({"end": True})


def sizes(run: int) -> Dict[str, int]:
    """Return the bytes of what a run made, how many files that is, and the bytes of its record and log."""
    result = {"files": 0, "log": 0}
    for name in os.listdir(run):
        if name not in MADE:
            result["log"] += file_size(run, name)
    for kind in MADE:
        result[kind] = 0
        for entry, _ in entries(run, b"", 0, [kind.encode()]):
            if entry[0] != "d":
                result["files"] += 1
            if entry[0] == "f":
                result[kind] += entry[2]
    return result


def file_size(fd: int, name: str) -> int:
    """Return the size of a file, or 0 for anything else. A run that lives removes files."""
    try:
        at = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return 0
    return at.st_size if stat.S_ISREG(at.st_mode) else 0


def has(fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def lives(run: int) -> bool:
    """Return whether the run has not ended and its supervisor holds the lock."""
    if not file_size(run, "record.json") or has(run, "end.json"):
        return False
    try:
        lock = regular(run, "lock")
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def remove(cluster: str, below: str) -> None:
    """Remove the folders of runs that do not live. Print {"id", "removed"}, {"id", "live"} or {"id", "error"}."""
    ids = json.loads(sys.stdin.buffer.read().decode())
    try:
        runs = opened(cluster, below)
    except (FileNotFoundError, NotADirectoryError):
        runs = -1
    for run in ids if runs >= 0 else ():
        if not ID.fullmatch(run):
            sys.exit("this is not the id of a run: %s" % ascii(run))
        try:
            fd = os.open(run, FOLDER, dir_fd=runs)
        except OSError:
            continue
        living = lives(fd)
        size = sizes(fd)
        os.close(fd)
        if living:
            say({"id": run, "live": True})
            continue
        places = mounts(os.path.join(os.readlink("/proc/self/fd/%d" % runs), run))
        if places:
            say({"id": run, "error": "%s is mounted there; unmount it first" % places[0]})
            continue
        # rm follows no link, and reads folders of any depth.
        os.fchdir(runs)
        rm = subprocess.Popen(["rm", "-rf", "--", "./" + run], stderr=subprocess.PIPE)
        errors = rm.communicate()[1].decode("utf-8", "replace")
        if rm.returncode:
            say({"id": run, "error": errors.strip() or "exit %d" % rm.returncode})
        else:
            say({"id": run, "removed": size["log"] + sum(size[kind] for kind in MADE)})
    say({"end": True})


def mounts(path: str) -> List[str]:
    """Return where disks and shares are mounted at or below a path: what is on them is not the run's."""
    with open(MOUNTS, "rb") as file:
        places = [line.split(b" ")[4] for line in file]
    return [text(place) for place in map(plain, places) if (place + b"/").startswith(os.fsencode(path) + b"/")]


def plain(word: bytes) -> bytes:
    """Return a path of the kernel's list of mounts. It has a space, a tab, a newline and a backslash as numbers."""
    return re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code.group(1), 8)]), word)


def main(argv: List[str]) -> None:
    operations: Dict[str, Any] = {
        "survey": survey,
        "ids": ids,
        "list": list_files,
        "find": find,
        "shared": shared,
        "now": now,
        "send": send,
        "write": write,
        "remove": remove,
    }
    try:
        operations[argv[0]](*argv[1:])
    except OSError as error:
        sys.exit("%s%s" % (error.strerror, ": %s" % (error.filename,) if error.filename else ""))


if __name__ == "__main__":
    main(sys.argv[1:])
