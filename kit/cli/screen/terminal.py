"""The two streams that kit writes to, and what they can show: color, bars, whole lines, a reader that went away."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, cast

from kit.cli.screen.live import LiveLine
from kit.model.text import escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from kit.cli.screen.controls import ByteFilter
    from kit.events import Stream

Style = Literal["red", "green", "yellow", "bold", "dim"]

_CODES = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


class Terminal:
    """Writes lines, flushed, from any thread. Of `environ` it reads only NO_COLOR and TERM.

    kit's own sentences may quote a host. So everything in them is escaped that a terminal acts on, except for the
    colors of `paint`. What ranks and commands print goes through `output` and `pass_on`: to a file or pipe unchanged,
    and also to a terminal if `raw`; otherwise a terminal gets its text, color and carriage returns.

    An unfinished line never mixes with whole ones (kit.cli.screen.live).

    When the reader of a stream is gone (`kit … | head`), it sets `broken` and interrupts the main thread once, so that
    running work ends instead of continuing unseen. `quietly` is False if the reason deserves a message, such as a full
    disk.
    """

    def __init__(
        self,
        *,
        out: TextIO,
        err: TextIO,
        environ: Mapping[str, str],
        inp: TextIO | None = None,
        no_color: bool = False,
    ) -> None:
        self.out = out
        self.err = err
        self.inp = inp
        self.environ = environ
        self.no_color = no_color
        self.raw = False
        self.broken = False
        self.quietly = True
        # Begins a color of kit's own. Nobody else can know it.
        self._mark = f"\x1b<{os.urandom(8).hex()}>"
        self._colored = False
        # By stream; None if it is no terminal, or raw.
        self._filters: dict[int, ByteFilter | None] = {}
        self._noticed = False
        # The streams that could not be written.
        self._gone: set[int] = set()
        self._descriptors = {id(stream): _descriptor(stream) for stream in (out, err)}
        self._lock = threading.Lock()
        live = LiveLine()
        both = self.is_terminal(out) and self.is_terminal(err)
        # Two streams of one screen have one last line.
        self._live = {id(out): live, id(err): live if both else LiveLine()}
        for stream in (out, err):
            # A file name or a job's output may have characters that this locale cannot write: escape them.
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")
        reconfigure = getattr(inp, "reconfigure", None)
        if reconfigure is not None:
            # The verb must see bytes that are not text in this locale, so that it can refuse them.
            # Python changes no stream that has been read.
            with suppress(OSError, ValueError):
                reconfigure(errors="surrogateescape")

    def is_terminal(self, stream: TextIO) -> bool:
        return stream.isatty() and self.environ.get("TERM") != "dumb"

    @property
    def writes_unicode(self) -> bool:
        """Whether stdout can write every character, so that none is replaced by what JSON does not know, as \\xe9."""
        return (getattr(self.out, "encoding", None) or "utf-8").lower().startswith("utf")

    @property
    def width(self) -> int | None:
        """The columns of stdout, or None if it is not a terminal: a file takes lines of any length."""
        return self._columns(self.out)

    @property
    def told_width(self) -> int | None:
        """The columns of stderr, or None if it is not a terminal."""
        return self._columns(self.err)

    def _columns(self, stream: TextIO) -> int | None:
        if not self.is_terminal(stream):
            return None
        # shutil knows the variable, and otherwise asks stdout, which may be another terminal or none.
        if not os.environ.get("COLUMNS"):
            with suppress(OSError, ValueError):
                if columns := os.get_terminal_size(stream.fileno()).columns:
                    return columns
        import shutil  # noqa: PLC0415

        return shutil.get_terminal_size().columns

    def redraw(self, text: str, over: int) -> int:
        """Print a result over the last `over` lines of stdout, and return how many lines it took.

        On a terminal, each line is cut to the width, and lines that do not fit the height are counted. Elsewhere, print
        the whole text after what came before.
        """
        if not self.is_terminal(self.out):
            self.say(text)
            return 0
        import shutil  # noqa: PLC0415

        size = shutil.get_terminal_size()
        room = max(size.lines - 1, 2)
        rows = self._own(text).split("\n")
        lines = [line if len(line) <= size.columns else line[: size.columns - 1] + "…" for line in rows]
        if len(lines) > room:
            lines[room - 1 :] = [f"… and {len(lines) - room + 1} more lines"]
        # Up to the first line, then over each line, then clear the rest: a cleared screen would flicker.
        up = f"\x1b[{over}A" if over else ""
        self._print(self.out, up + "\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J", None)
        return len(lines)

    def colors(self, stream: TextIO) -> bool:
        return not self.no_color and not self.environ.get("NO_COLOR") and self.is_terminal(stream)

    def paint(self, text: str, style: Style, stream: TextIO) -> str:
        """Return text that `say` and `tell` print in this style if the stream shows colors."""
        return f"{self._mark}{_CODES[style]}m{text}{self._mark}0m" if self.colors(stream) else text

    def _own(self, text: str) -> str:
        """Return a sentence of kit as the terminal gets it."""
        first, *others = text.split(self._mark)
        parts = [escaped(first)]
        for part in others:
            code, _, rest = part.partition("m")
            parts.append(f"\x1b[{code}m{escaped(rest)}")
        return "".join(parts)

    def say(self, text: str) -> None:
        """Print a result: one or more lines on stdout."""
        self._print(self.out, self._own(text), None)

    def tell(self, text: str) -> None:
        """Print one or more lines on stderr, for the person who waits."""
        self._print(self.err, self._own(text), None)

    def output(
        self, text: str, stream: Stream, *, tag: str = "", source: str | None = None, raw: bytes | None = None
    ) -> None:
        """Print lines that a rank or command wrote, after a tag. `source` is whose unfinished line this may be.

        `raw` are the bytes of text that is not UTF-8.
        """
        to = self.out if stream == "stdout" else self.err
        # The plainest lines are most lines, so they take the shortest way.
        if not text.isprintable():
            text = self._foreign(to, text)
        if raw is not None:
            raw = escaped(tag).encode() + raw if self._filter(to) is None else None
        self._print(to, escaped(tag) + text if tag else text, source, raw)

    def _foreign(self, stream: TextIO, text: str) -> str:
        """Return what a rank or command wrote as this stream gets it."""
        passed = self._filter(stream)
        return text if passed is None else passed.line(text)

    def _filter(self, stream: TextIO) -> ByteFilter | None:
        """Return the filter of a stream, or None if it gets everything unchanged."""
        if id(stream) not in self._filters:
            from kit.cli.screen.controls import ByteFilter  # noqa: PLC0415  (only for verbs with output)

            # Also for TERM=dumb: kit cannot know what such a terminal ignores.
            self._filters[id(stream)] = ByteFilter() if stream.isatty() and not self.raw else None
        return self._filters[id(stream)]

    def show_unfinished(self, stream: TextIO, text: str, source: str, *, tag: str = "") -> None:
        """Show a line that has not ended. It is replaced by its next state, or by the whole line."""
        # A file or pipe takes nothing back, and gets the bytes of the whole line.
        if "\ufffd" in text and not stream.isatty():
            return
        text = escaped(tag) + self._foreign(stream, text)
        with self._lock:
            columns = self._columns(stream)
            self._write(stream, self._live[id(stream)].update(_owner(stream, source), text, columns))
        self.notice()

    def settle(self) -> None:
        """End unfinished lines, so that what follows begins on a new line."""
        with self._lock:
            for stream in (self.out, self.err):
                self._write(stream, self._live[id(stream)].end())
        self.notice()

    @property
    def interactive(self) -> bool:
        """Whether kit can ask the user a question."""
        return self.inp is not None and self.inp.isatty() and self.err.isatty()

    def agrees(self, question: str) -> bool:
        """Ask a question, and return whether the answer is yes. Without a terminal, return True and ask nothing."""
        if self.inp is None or not self.interactive:
            return True
        self.err.write(f"{self._own(question)} [y/N] ")
        self.err.flush()
        answer = ""
        try:
            # What cannot be read is no consent.
            with suppress(OSError, UnicodeError):
                answer = self.inp.readline()
        finally:
            # Ctrl-C and Ctrl-D leave the cursor behind the question.
            if not answer.endswith("\n"):
                with self._lock:
                    self._write(self.err, "\n")
        return answer.strip().lower() in ("y", "yes")

    @property
    def descriptor(self) -> int | None:
        """Return the descriptor of standard input, or None if it is closed. A read of it waits for input."""
        descriptor = _descriptor(self.inp)
        if descriptor is not None:
            with suppress(OSError):
                _let_wait(descriptor)
        return descriptor

    @property
    def piped(self) -> int | None:
        """Return the descriptor of standard input, or None if it is a terminal or closed."""
        return None if self.inp is None or self.inp.isatty() else self.descriptor

    def read(self) -> str:
        """Return all of standard input; '' if it cannot be read. Bytes that are not text become lone surrogates."""
        if self.inp is None:
            return ""
        with suppress(OSError, ValueError):
            _let_wait(self.inp.fileno())
        try:
            return self.inp.read()
        except OSError:
            return ""

    def pass_on(self, data: bytes, stream: Stream) -> None:
        """Write a command's bytes, which come in pieces of any size."""
        to = self.out if stream == "stdout" else self.err
        with self._lock:
            passed = self._filter(to)
            self._write(to, data if passed is None else passed.feed(data))
            self._colored = passed is not None and passed.colored
        self.notice()

    def _print(self, stream: TextIO, text: str, source: str | None, raw: bytes | None = None) -> None:
        with self._lock:
            if self._colored:
                self._end_color()
            live = self._live[id(stream)]
            if live.owner is not None:
                owner = None if source is None else _owner(stream, source)
                written = live.whole(owner, text, self._columns(stream))
            else:
                written = f"{text}\n"
            for part in (written,) if raw is None else _with_bytes(written, text, raw):
                self._write(stream, part)
        self.notice()

    def _end_color(self) -> None:
        """End a color that a command left on, which could hide what kit prints."""
        self._colored = False
        for stream in (self.out, self.err):
            passed = self._filters.get(id(stream))
            if passed is not None and passed.colored:
                passed.colored = False
                self._write(stream, "\x1b[0m")

    def _write(self, stream: TextIO, text: str | bytes) -> None:
        if text and not self.broken:
            self._attempt(stream, text)

    def _attempt(self, stream: TextIO, text: str | bytes) -> None:
        if self.is_gone(stream):
            return
        try:
            descriptor = self._descriptors[id(stream)]
            if descriptor is not None:
                _let_wait(descriptor)
            if isinstance(text, bytes):
                _write_bytes(stream, text)
            else:
                stream.write(text)
            stream.flush()
        except (OSError, ValueError) as error:  # gone, full or closed
            # `broken` is last: a signal may end this between any two lines.
            self.quietly = isinstance(error, BrokenPipeError)
            self._gone.add(id(stream))
            self.broken = True

    def is_gone(self, stream: TextIO) -> bool:
        """Return whether this stream could not be written. `broken` is about any stream."""
        return id(stream) in self._gone

    def canvas(self, stream: TextIO) -> TextIO:
        """Return a stream on which rich may draw. A write never raises: if the terminal is gone, it sets `broken`.

        After a closed window, kit cleans up, and reports what it does. Only `notice` interrupts, outside of rich. If
        only the other stream is gone, rich can still clear the screen and show the cursor.
        """
        return cast("TextIO", _Canvas(stream, self._attempt))

    def notice(self) -> None:
        """Interrupt the main thread once if a reader is gone."""
        with self._lock:
            first, self._noticed = self.broken and not self._noticed, self.broken
        if first:
            _interrupt()


class _Canvas:
    """A stream whose `write` is another function. Everything else is the stream's."""

    def __init__(self, stream: TextIO, write: Callable[[TextIO, str], None]) -> None:
        self._stream, self._write = stream, write

    def write(self, text: str) -> int:
        self._write(self._stream, text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: each write is flushed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _with_bytes(written: str, text: str, raw: bytes) -> tuple[str | bytes, ...]:
    """Return what to write in place of `written`, which has the text of a line or only the end of it: the bytes."""
    before, middle, after = written.partition(text)
    if middle:
        return before, raw, after
    shown = text[: len(text) - len(written) + 1]
    # On a terminal, the beginning may be there with other characters.
    return (written,) if "\ufffd" in shown else (raw[len(shown.encode()) :], "\n")


def _owner(stream: TextIO, source: str) -> tuple[str, str]:
    return str(id(stream)), source


def _descriptor(stream: TextIO | None) -> int | None:
    """Return the descriptor of a stream, or None if it is closed or has none."""
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):
        return None


def _let_wait(descriptor: int) -> None:
    """Let reads and writes wait for the other side of a pipe.

    Another program with the same pipe, such as Node or ssh, may have made them fail instead, at any time.
    """
    if not os.get_blocking(descriptor):
        os.set_blocking(descriptor, True)


def _write_bytes(stream: TextIO, data: bytes) -> None:
    buffer = getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(data.decode(errors="replace"))
    else:
        stream.flush()
        buffer.write(data)


def _interrupt() -> None:
    import _thread  # noqa: PLC0415  (the only way to interrupt the main thread from another)

    # For one closed window, the kernel and the shell each send SIGHUP. With `kit … | tee log`, it and Ctrl-C also end
    # the reader. So kit counts SIGHUP only as the first signal: a reader that is gone cuts no cleanup short.
    # Under nohup, kit ignores SIGHUP. A shell's background job ignores SIGINT; kit.cli.main handles SIGTERM like it.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if callable(signal.getsignal(number)):
            _thread.interrupt_main(number)
            return
