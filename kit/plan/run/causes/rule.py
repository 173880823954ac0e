"""What a known cause of a failed run is made of.

A pattern is a line's text as the software prints it. `{name}` stands for a word, which the sentence may use; after a
quote it goes to the next quote, and `{library:libcu}` takes only a word that begins with libcu. `…` is anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The end of a hint that changes the image.
BUILD = "run: kit image build && kit deploy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One cause. It fits when one of the patterns does, and each of kind, exit_code, signal and oom that is given.

    `says` is looked for in every line; `raised` only in the exception that ended a Python program and those behind it:
    a program may well live on after one that it printed. `{host}` in a hint is the rank's host. Where a hint has a
    command, it is the hint's end, behind a colon.
    """

    name: str
    text: str
    hint: str
    says: tuple[str, ...] = ()
    raised: tuple[str, ...] = ()
    kind: Literal["rank", "host", "mpirun"] | None = None
    exit_code: int | None = None
    signal: str = ""
    oom: bool = False
