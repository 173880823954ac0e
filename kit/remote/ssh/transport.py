"""One host's control channel: what OpenSshTransport, FabricTransport and the tests' own all promise.

A command is an argv list and is quoted here, once. Bulk bytes and live streams start OpenSSH's client themselves:
kit.remote.ssh.openssh has its options.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from threading import Event
from typing import Protocol

from msgspec import Struct

from kit.errors import AnswerError
from kit.model.host import Host

# What a command may print, in bytes. A host that goes on printing must not fill the memory. The longest answer is a
# list of all files of a run: about 100 bytes each.
MOST_OUTPUT = 256 * 2**20


class Completed(Struct, frozen=True, kw_only=True):
    """A command that ended: exit code and everything that it wrote."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode(errors="replace").strip()


class Output:
    """The output of one command of a host. Raises AnswerError when it has more than MOST_OUTPUT bytes."""

    def __init__(self, host: str) -> None:
        self.out, self.err = bytearray(), bytearray()
        self._host = host

    def add_out(self, data: bytes) -> None:
        self.out += data
        self.check()

    def add_err(self, data: bytes) -> None:
        self.err += data
        self.check()

    def check(self) -> None:
        if len(self.out) + len(self.err) > MOST_OUTPUT:
            raise AnswerError(
                f"a command printed more than {MOST_OUTPUT >> 20} MiB, and kit ended it",
                hint=f"look at the host: kit ssh {self._host}",
                host=self._host,
            )


class Reader(Protocol):
    """The input of one live command."""

    def read(self, most: int) -> bytes:
        """Return some bytes, at most this many, or nothing at the end. It waits for them."""

    def close(self) -> None:
        """End a read that waits."""


class Lasting:
    """An input without bytes that lasts until `close`, for a command that ends with its input."""

    def __init__(self) -> None:
        self._closed = Event()

    def read(self, most: int) -> bytes:  # noqa: ARG002  (it has no bytes)
        self._closed.wait()
        return b""

    def close(self) -> None:
        self._closed.set()


class Live(Struct, frozen=True, kw_only=True):
    """What a live command is connected to.

    `out` and `err` get its output as it comes. `stdin` returns its input; without it, the input is empty. `begin` is
    called before the command begins, and may refuse that. After `stop` is set, no command begins, and one that runs
    gets a few more seconds.
    """

    out: Callable[[bytes], None]
    err: Callable[[bytes], None]
    stdin: Callable[[], Reader] | None = None
    begin: Callable[[], bool] | None = None
    stop: Event | None = None


class Transport(Protocol):
    """Runs commands on one host as root (by sudo where the login is not root).

    `run` raises UnreachableError when the host cannot be reached or the connection breaks, StepError when `timeout_s`
    passes, and AnswerError when the command prints more than MOST_OUTPUT
    bytes. The limit counts from the start of the command, not of the login. A command's own failure is in
    `Completed.code`. Not thread-safe: use one transport for each thread, inside `contextlib.closing`.
    """

    @property
    def host(self) -> Host: ...

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed: ...

    def close(self) -> None: ...


class LiveTransport(Transport, Protocol):
    """A transport that also runs live commands."""

    def stream(self, argv: Sequence[str], live: Live) -> int:
        """Run a command without a limit of time, and return its exit code. Raises Interrupted after `stop`."""


Connect = Callable[[Host], Transport]

# Runs a command as root on any login: directly, or by sudo without a prompt.
AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec "$@"; else exec sudo -n -- "$@"; fi'


_BACKSLASHES = re.compile(r"(\\+)")

# What the far shell writes before the command: a login's own files may print something earlier, also without an end of
# line. `fenced` writes it to standard error, and waits for the word to begin. `marked` writes it to standard output.
BEGUN = b"kit-session\n"
_MARK = f"echo {BEGUN.decode().strip()}; "
_MARK_ERRORS = f"echo {BEGUN.decode().strip()} >&2; "
_FENCE = _MARK_ERRORS + "read -r kit || exit 255; "


# What it writes instead if the login shell is csh or tcsh. Within quotes, these read newlines, backslashes and `!` in
# their own way, and would run the lines of a script as commands. So this first line ends them. Others set no `shell`.
CSH = "the login shell is csh"
_NOT_FOR_CSH = re.compile(r"[\n\\!]")
_NO_CSH = f"""sh -c 'case $1 in *csh) echo {CSH} >&2; kill -9 "$PPID" ;; esac' kit "$shell"\nexec """


def fenced(argv: Sequence[str]) -> str:
    """Return `as_root(argv)` that first writes BEGUN, then waits for one line on standard input."""
    return _not_by_csh(quoted(["sh", "-c", _FENCE + AS_ROOT, "kit", *argv]))


def marked(argv: Sequence[str], *, errors: bool = False) -> str:
    """Return `as_root(argv)` that first writes BEGUN on standard output, and with `errors` on standard error, too.

    It does not wait. A reader of lines skips the line that ends with BEGUN; kit.remote.ssh.login_text cuts bytes.
    """
    return _not_by_csh(quoted(["sh", "-c", _MARK + (_MARK_ERRORS if errors else "") + AS_ROOT, "kit", *argv]))


def as_root(argv: Sequence[str]) -> str:
    """Return the command as text for the VM's shell. Commands are quoted here and nowhere else."""
    return _not_by_csh(quoted(["sh", "-c", AS_ROOT, "kit", *argv]))


def _not_by_csh(text: str) -> str:
    """Return a text from `quoted` with a line before it that ends csh, if csh would read the text differently."""
    return _NO_CSH + text if _NOT_FOR_CSH.search(text) else text


def quoted(argv: Sequence[str]) -> str:
    """Return a command as text that every login shell reads alike, except for csh.

    Within single quotes, fish takes a backslash for the beginning of an escape. So kit puts backslashes into double
    quotes, in which fish and sh read two of them as one.
    """
    return " ".join(map(_quoted_word, argv))


def _quoted_word(word: str) -> str:
    if "\\" not in word:
        return shlex.quote(word)
    parts = _BACKSLASHES.split(word)
    doubled = [f'"{part * 2}"' if part.startswith("\\") else shlex.quote(part) for part in parts if part]
    return "".join(doubled)
