"""Which network NCCL uses: gives a rank NCCL's plugin, reads NCCL's own lines, and compares them with nccl.require.

NCCL writes these lines to a file that only kit reads, so that they do not fill the run's log. A rank that uses another
network than the run requires ends with code 5.
"""

import contextlib
import glob
import os
import re
import signal
from typing import Callable, List, MutableMapping, NamedTuple, Optional, Tuple

# Set by kit for each run (kit/plan/run/nccl.py): IB, PLUGIN or Socket, and the folder of the plugin in the container.
REQUIRE, PLUGIN = "KIT_NCCL_NETWORK", "KIT_NCCL_FOLDER"
LEVEL, SUBSYSTEMS, FILE = "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"
# kit's exit code for what is not ready.
NOT_READY = 5
# How often kit reads the file: until NCCL has chosen a network, and later.
SOON_S, LATER_S = 0.3, 5.0
# NCCL writes some kB at this level. A plugin may write more.
MOST = 1 << 20
LONGEST = 400
# Read from the sources of NCCL 2.16 to 2.27. `Using network` is in all of them. From 2.27 on, the line with `Assigned`
# comes before it.
NETWORK = re.compile(r"NCCL INFO (?:Using network (.+)|Assigned NET plugin (.+) to comm)$")
# Lines that say why NCCL does not use a network. The first part is the network.
# The first pattern that matches a line is the reason.
REASONS = (
    ("IB", re.compile(r"NCCL_IB_DISABLE set|[Ff]ailed to open libibverbs|NET/IB ?: No device found")),
    ("IB", re.compile(r"NET/IB.*[Ff]ail|Failed to initialize NET plugin IB|NCCL_NET set by|NCCL_IB_HCA set")),
    ("PLUGIN", re.compile(r"NET/Plugin ?:.*(?:cannot open|dlerror|returned \d|Could not find|No plugin found)")),
    ("PLUGIN", re.compile(r"NCCL WARN NET/|Failed to initialize NET plugin|NET/Plugin ?:.*[Ff]ail|NCCL_NET set by")),
    ("Socket", re.compile(r"NCCL_NET set by|NET/Plugin ?: (?:Loaded|Using) net plugin|Initialized NET plugin")),
    ("Socket", re.compile(r"NET/IB ?: Using \[0\]")),
)
BUILT_IN = ("IB", "Socket")


class NcclError(Exception):
    """The rank cannot have the plugin, or kit cannot watch NCCL."""


class Seen(NamedTuple):
    """What NCCL wrote: the networks that it chose, in this order, and the lines that may say why."""

    networks: Tuple[str, ...] = ()
    lines: Tuple[str, ...] = ()


def look(seen: Seen, lines: List[str]) -> Seen:
    """Add lines of NCCL to what is known."""
    networks, kept = list(seen.networks), list(seen.lines)
    for line in lines:
        match = NETWORK.search(line.rstrip())
        if match:
            name = (match.group(1) or match.group(2)).strip()
            if name not in networks:
                networks.append(name)
        elif any(pattern.search(line) for _, pattern in REASONS) and len(kept) < 20:
            kept.append(line.strip()[:LONGEST])
    return Seen(tuple(networks), tuple(kept))


def fits(require: str, network: str) -> bool:
    """Return whether this network is what the run requires. A plugin for InfiniBand, such as IBext, is both."""
    if require == "PLUGIN":
        return network not in BUILT_IN
    if require == "IB":
        return network.startswith("IB")
    return network == require


def verdict(require: str, seen: Seen) -> str:
    """Return what is wrong, or '' if nothing is, or if NCCL has not chosen yet."""
    wrong = [network for network in seen.networks if not fits(require, network)]
    if not wrong:
        return ""
    text = "NCCL uses the network %s, and nccl.require is %s" % (wrong[0], require)
    patterns = [pattern for network, pattern in REASONS if network == require]
    why = [line for pattern in patterns for line in seen.lines if pattern.search(line)]
    if not why:
        return text + "; NCCL did not say why"
    return "%s; NCCL says: %s" % (text, why[0].partition(" NCCL INFO ")[2] or why[0].partition(" NCCL ")[2])


def silent(require: str) -> str:
    """Return the words for a run in which NCCL chose no network."""
    return "NCCL chose no network in this run, so kit could not check nccl.require: %s" % require


def take_plugin(environ: MutableMapping[str, str]) -> None:
    """Let NCCL load the plugin of this folder. Raises NcclError if the folder has none."""
    folder = environ.get(PLUGIN, "")
    if not folder:
        return
    names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(glob.escape(folder), "libnccl-net*.so*")))
    if not names:
        raise NcclError("%s has no libnccl-net*.so: check nccl.plugin in kit.yaml, then run kit deploy" % folder)
    if "libnccl-net.so" not in names:
        match = re.match(r"libnccl-net-(.+?)\.so", names[0])
        if match and len(names) == 1:
            environ.setdefault("NCCL_NET_PLUGIN", match.group(1))
    folders = [folder, *filter(None, [environ.get("LD_LIBRARY_PATH", "")])]
    environ["LD_LIBRARY_PATH"] = ":".join(folders)


def subsystems(words: str) -> str:
    """Return the user's NCCL_DEBUG_SUBSYS with what kit needs to read."""
    names = words.upper().split(",")
    if not words or words.startswith("^"):
        return "INIT,NET"
    return words if "ALL" in names else ",".join([words, *(name for name in ("INIT", "NET") if name not in names)])


class Watch:
    """Watches the NCCL of one rank. `send` sends a record: rank, kind, body. `uid` and `gid` are those of the rank."""

    def __init__(
        self,
        environ: MutableMapping[str, str],
        rank: str,
        send: Callable[[str, bytes, bytes], None],
        *,
        uid: int,
        gid: int,
    ) -> None:
        """Set the variables by which NCCL writes the file. Raises NcclError."""
        if environ.get(FILE):
            raise NcclError("%s is set, and nccl.require needs it: remove one of them" % FILE)
        self.require = environ[REQUIRE]
        self._rank = rank
        self._host = environ.get("KIT_NODE", "-")
        self._send = send
        level = environ.get(LEVEL, "").upper()
        # What the user asked to see: all lines, warnings, or nothing.
        self._shows_all, self._shows_some = level in ("INFO", "TRACE"), bool(level)
        if not self._shows_all:
            environ[LEVEL] = "INFO"
        environ[SUBSYSTEMS] = subsystems(environ.get(SUBSYSTEMS, "") if self._shows_all else "")
        path = "/tmp/kit-nccl-%s-%s" % (environ.get("KIT_RUN", ""), self._rank)  # noqa: S108  (never followed)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            if os.path.lexists(path):
                os.unlink(path)
            self._fd = os.open(path, flags, 0o600)
            os.fchown(self._fd, uid, gid)
        except OSError as error:
            raise NcclError("cannot make %s: %s" % (path, error.strerror)) from None
        self._path = environ[FILE] = path
        self._next = 0.0
        self._offset = 0
        self._rest = b""
        self._wrong = False
        self.seen = Seen()

    @property
    def every(self) -> float:
        return LATER_S if self.seen.networks else SOON_S

    def tick(self, now: float, pid: Optional[int]) -> None:
        """Read what NCCL has written, if that is due. Kill the rank if its network is another one.

        `pid` is None if the rank has ended.
        """
        if now < self._next or self._wrong:
            return
        self._next = now + self.every
        self._take()
        if self._wrong and pid is not None:
            # An all-reduce over the wrong network may last for hours, so the rank has no say in it.
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def end(self, status: int) -> int:
        """Read the rest after the rank's end. Return its status, or that of a rank whose network is another one."""
        if not self._wrong:
            self._take()
        os.close(self._fd)
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        if self._wrong:
            return NOT_READY << 8
        if not status and not self.seen.networks and self._rank == "0":
            self._say(silent(self.require))
        return status

    def _take(self) -> None:
        lines = self._lines()
        self.seen = look(self.seen, [line.decode("utf-8", "replace") for line in lines])
        shown = [line for line in lines if self._shows_all or (self._shows_some and b" NCCL WARN " in line)]
        for line in shown:
            self._send(self._rank, b"o", line[:LONGEST] + b"\n")
        why = verdict(self.require, self.seen)
        if why:
            self._wrong = True
            self._say(why)

    def _say(self, words: str) -> None:
        self._send(self._rank, b"e", ("kit-rank: %s: %s\n" % (self._host, words)).encode("utf-8", "replace"))

    def _lines(self) -> List[bytes]:
        try:
            if os.fstat(self._fd).st_size < self._offset:
                # NCCL opened the file again, in another process of the rank.
                self._offset = 0
            data = os.pread(self._fd, MOST, self._offset)
        except OSError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-MOST:]
        return lines
