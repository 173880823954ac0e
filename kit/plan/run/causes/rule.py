"""Defines a rule: how kit recognizes a known cause of a failed run, and what it prints then.

A pattern is the text of a line, as the software prints it. `{name}` matches one word, which the rule's text may use;
after a quote it matches up to the next quote. `{library:libcu}` matches only a word that starts with libcu. `…` matches
anything.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

# Ends each hint that changes the image. `kit deploy` builds what the hosts need. `kit image build` builds what fits the
# GPUs of this machine.
BUILD = "run: kit deploy"


class Rule(Struct, frozen=True, kw_only=True):
    """One cause. A rule matches if one of its patterns does, and kind, exit_code, signal and oom if they are set.

    `says` is searched in every line. `raised` is searched only in the exception that ended a Python program and in
    those it was raised from, because a program may print an exception that it handled. `{host}` in a hint is the host
    of the rank, and `{run}` is the id of the run. A hint with a command ends with it, after a colon. `kit run` without
    a command starts another program, so a hint repeats the run: `kit run --again {run}`.
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
