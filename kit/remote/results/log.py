"""Writes the log of a run as text: each line of a rank with the rank's number, as kit logs --tag-output prints it."""

from __future__ import annotations

from pathlib import Path

from kit.remote.run.log import LogEntry, RunLog

_CHUNK = 1 << 20


def write_text(log: Path, text: Path) -> None:
    """Read a log of records, and write its lines. Raises OSError."""
    reader = RunLog()
    with log.open("rb") as records, text.open("wb") as lines:
        while data := records.read(_CHUNK):
            for entry in reader.feed(data):
                lines.writelines(_lines(entry))
        for entry in reader.end():
            lines.writelines(_lines(entry))


def _lines(entry: LogEntry) -> list[bytes]:
    tag = f"{entry.rank} | ".encode() if entry.rank else b""
    return [tag + line + b"\n" for line in entry.lines]
