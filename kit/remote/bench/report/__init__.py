"""A benchmark's report on the disk: the template and the style of its page, and files that are whole or not there."""

from __future__ import annotations

import errno
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kit.errors import KitError


def template() -> str:
    """The page, for Jinja2 (kit.plan.bench.report.page fills it in), with the style in its place."""
    here = Path(__file__).parent
    page = (here / "report.html.j2").read_text(encoding="utf-8")
    return page.replace("/* style */", (here / "report.css").read_text(encoding="utf-8").strip())


def _hint(folder: Path, error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return f"make its folder: mkdir -p {shlex.quote(str(folder))}"
    if error.errno in (errno.EISDIR, errno.ENOTDIR):
        return "name a file in a folder"
    return "make room, or copy the folder to where you may write"


def write(folder: Path, files: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Each file beside its place first, and then there in one step. Raises KitError where the disk refuses."""
    written = []
    for name, content in files.items():
        path, part = folder / name, folder / f".{name}.part"
        try:
            part.write_bytes(content)
            part.replace(path)
        except OSError as error:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise KitError(f"{path} cannot be written: {error.strerror}", hint=_hint(folder, error)) from error
        written.append(path)
    return tuple(written)
