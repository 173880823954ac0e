"""The words of the command line as data: Option, Operand and Verb.

They are named tuples because every `kit --help` and every Tab builds all of them: dataclasses would take twice as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kit.cli.candidates import Place
    from kit.cli.session import Session

CommandForm = Literal["none", "rest", "dashes"]


class Option(NamedTuple):
    """A flag. `value` names its value in the help; None makes it a switch. The last flag names the attribute, or `to`.

    - `kind` turns the text into the value, and raises ValueError with what to write.
    - `choices` are the only values; `complete` returns values that the shell can offer, of any others.
    - `many` collects the values into a list.
    - `joins`: the value is a list with commas, and a repeated option adds to it, as mpirun's -H does.
    - `valued`, for a switch that people give a value: the words to write before that value instead.
    - `means`: the switch is short for this word.
    """

    flags: tuple[str, ...]
    help: str
    value: str | None = None
    kind: Callable[[str], object] = str
    choices: tuple[str, ...] = ()
    complete: Callable[[Place], Iterable[str]] | None = None
    many: bool = False
    joins: bool = False
    to: str | None = None
    valued: str = ""
    means: str = ""

    @property
    def dest(self) -> str:
        return self.to or self.flags[-1].lstrip("-").replace("-", "_")

    @property
    def default(self) -> object:
        """The value where the command line does not give the option."""
        if self.many:
            return []
        return False if self.value is None else None

    @property
    def spelled(self) -> str:
        return ", ".join(self.flags) + (f" {self.value}" if self.value else "")


class Operand(NamedTuple):
    """A word that is known by its place instead of a flag. `many`: all further words, as a tuple; only the last one."""

    name: str
    help: str
    optional: bool = False
    choices: tuple[str, ...] = ()
    complete: Callable[[Place], Iterable[str]] | None = None
    many: bool = False


class Verb(NamedTuple):
    """One thing that you can ask kit to do. `handler` does it, and returns the exit code.

    `command` says how you give a command of your own, which kit passes on verbatim: "rest" is everything from the first
    plain word or `--` on, "dashes" is everything after `--`. `needs_command`: it is required.
    """

    words: tuple[str, ...]
    purpose: str
    handler: Callable[[Session], int]
    group: str
    operands: tuple[Operand, ...] = ()
    options: tuple[Option, ...] = ()
    command: CommandForm = "none"
    needs_command: bool = False
    notes: str = ""
    examples: tuple[str, ...] = ()
    exits: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def usage(self) -> str:
        names = [(o, f"{o.name}…" if o.many else o.name) for o in self.operands]
        operands = [f"[{name}]" if o.optional else name for o, name in names]
        command = {
            "none": [],
            "rest": ["[--]", "[command …]"],
            "dashes": ["--", "command …"] if self.needs_command else ["[-- command …]"],
        }[self.command]
        return " ".join(["kit", self.name, "[options]", *operands, *command])
