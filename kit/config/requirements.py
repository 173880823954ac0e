"""A file of pip requirements: its bytes, after a check of each line that names the file and the line.

pip reads many more things than packages. kit refuses what needs a file that the build does not have, and what is no
requirement at all; pip judges the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kit.config.problems import limited
from kit.config.text import text_of
from kit.config.words import shown
from kit.errors import InputError, InputErrors
from kit.model.logins import has_login

_COMMENT = re.compile(r"(^|\s)#.*")
_OTHER_FILE = re.compile(r"(-r|-c|--requirement|--constraint)([\s=]|$|(?<=-[rc])\S)")
_EDITABLE = re.compile(r"(-e|--editable)([\s=]|$)")
_LOCAL = re.compile(r"(\.{0,2}/|\.{1,2}$|~|file:)|(?!.*://)[^@]*\.(whl|zip|tar\.gz)$")
# A folder with wheels. pip would only warn that the build does not have it.
_LINKS = re.compile(r"(-f|--find-links)[\s=]*(?![\s=]|(?!file:)\S*://|\$\{)", re.IGNORECASE)
_ONLY_THIS_FILE = "the build has only this file: write the lines of the other file here"
_NO_FOLDER = "the build has no folder of this machine: write a package's name, or NAME @ https://… of its archive"
_NO_LINKS = "the build has no folder of this machine: put the wheels into the folder that image.wheels names"
_NO_PLACE = "the build has no folder of this machine: write NAME==VERSION, as pip list --format=freeze prints it"
# For image.pip, too. They do not show the line, because what is not where a login belongs may be a part of one.
HAS_LOGIN = "there is a login in it, which the image, its history or the output of the build would show"
NO_LOGIN = (
    "remove it, and put the wheels into the folder that image.wheels names; flavour: ssh-layer takes none, so install "
    "the packages in its base"
)


def read_requirements(path: Path) -> bytes:
    """Return the file's bytes. Raises InputError if it cannot be read, or InputErrors with every line at fault."""
    text = text_of(path)
    if text is None:
        raise InputError(
            f"there is no file {shown(str(path))}",
            hint="`requirements:` in kit.yaml names it, relative to kit.yaml; write the file or remove the setting",
            file=str(path),
        )
    problems = [
        InputError(message, hint=hint, file=str(path), line=number)
        for number, line in _lines(text)
        for message, hint in _faults(line)
    ]
    if problems:
        raise InputErrors(limited(problems))
    return text.encode()


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each requirement or option with its comment, and its line. A backslash continues a line."""
    first = 0
    parts: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        first = first if parts else number
        # As pip does: a line of comment is not continued.
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            parts.append(line[:-1])
            continue
        yield first, "".join([*parts, line])
        parts = []
    if parts:
        yield first, "".join(parts)


def _faults(text: str) -> Iterator[tuple[str, str]]:
    line = _COMMENT.sub("", text).strip()
    if has_login(text):
        # Also in a comment: the image of an ssh-layer has the whole file.
        yield HAS_LOGIN, NO_LOGIN
    elif _OTHER_FILE.match(line):
        yield f"{shown(line)} names another file", _ONLY_THIS_FILE
    elif _EDITABLE.match(line) or _LOCAL.match(line):
        yield f"{shown(line)} names a folder or file of this machine", _NO_FOLDER
    elif _LINKS.match(line):
        yield f"{shown(line)} names a folder or file of this machine", _NO_LINKS
    elif line and not line.startswith("-") and "${" not in line and not re.match(r"[a-z0-9+.]+://", line):
        from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415  (only for such a file)

        # Options of one requirement, such as --hash, follow it.
        alone = re.split(r"\s--?[a-z]", line, maxsplit=1)[0].strip()
        try:
            url = Requirement(alone).url
        except InvalidRequirement as error:
            reason = str(error).splitlines()[0]
            yield f"{shown(line)} is no requirement of pip: {reason}", "write, for example: pandas==2.1.4"
            return
        # pip freeze prints these for packages that somebody built, as conda does.
        if url and ("://" not in url or url.startswith("file:")):
            yield f"{shown(line)} names a folder or file of this machine", _NO_PLACE
