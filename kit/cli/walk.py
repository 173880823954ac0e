"""Walk: reads a command line word by word. It knows the verb, and where your own command begins, after each word.

The parser takes the result of a whole line; completion asks what may come after the words so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.verbs.options import GLOBAL, HELP
from kit.cli.verbs.table import VERBS
from kit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kit.cli.verbs.grammar import Option, Verb


class Walk:
    """The meaning of the words so far. Every method raises InputError with what to write instead.

    `given` are the options with their text, None for a switch. `pending` is an option that the next word is the value
    of, as it was spelled. `command` is your own command, None until it begins. `dashes`: it began with --.
    """

    def __init__(self) -> None:
        self.verb: Verb | None = None
        self.path: tuple[str, ...] = ()
        self.given: list[tuple[Option, str | None]] = []
        self.operands: list[str] = []
        self.pending: tuple[Option, str] | None = None
        self.command: list[str] | None = None
        self.dashes = False
        self.help = False
        self.flags = by_flag(GLOBAL)
        self._before = ""
        # All words, and how many of them were taken: an error may depend on what comes next.
        self._all: Sequence[str] = ()
        self._taken = 0

    def words(self, argv: Sequence[str]) -> Walk:
        """Take all words; an option at the end must have its value."""
        self._all = argv
        for self._taken, word in enumerate(argv, start=1):
            self.word(word)
        if self.pending is not None:
            raise self._needs_value()
        return self

    def word(self, word: str) -> None:
        if self.command is not None:
            self.command.append(word)
        elif self.pending is not None:
            if word == "--":
                raise self._needs_value()
            self.given.append((self.pending[0], word))
            self.pending = None
        elif word == "--":
            self._command()
        elif word in HELP.flags or (word == "help" and not self.path):
            self.help = True
        elif word.startswith("-") and word != "-":
            self._option(word)
        elif self.verb is None or self._is_longer(word):
            self._verb((*self.path, word))
        elif self.verb.command == "rest":
            self.command = [word]
        else:
            self.operands.append(word)
            operands = self.verb.operands
            if len(self.operands) > len(operands) and not (operands and operands[-1].many):
                raise self._too_many(word)
        self._before = word

    @property
    def usage(self) -> str:
        if self.verb is None:
            return "all verbs: kit --help"
        return f"{self.verb.usage}   (all options: kit {self.verb.name} --help)"

    def _command(self) -> None:
        if (self.verb is None or self.verb.command == "none") and not self.help:
            name = f"kit {self.verb.name}" if self.verb else "kit without a verb"
            raise InputError(f"-- begins a command, but {name} runs no command", hint=self.usage)
        self.command, self.dashes = [], True

    def _is_longer(self, word: str) -> bool:
        """Return whether the verb so far and this word are a verb, too: bench, bench report."""
        return not self.operands and any(verb.words == (*self.path, word) for verb in VERBS)

    def _verb(self, path: tuple[str, ...]) -> None:
        """Set the verb of these words; None where more words must follow."""
        self.path = path
        begins = [verb for verb in VERBS if verb.words[: len(path)] == path]
        self.verb = next((verb for verb in begins if verb.words == path), None)
        if self.verb is not None:
            self.flags = by_flag((*GLOBAL, *self.verb.options))
            own = by_flag(self.verb.options)
            for option, text in self.given:
                # Before the verbs, --hosts names a file: `lab up` would take 2 for one, and make 4 hosts.
                if option not in self.verb.options and option.flags[-1] in own and (text or "").isdecimal():
                    raise InputError(
                        f"{option.flags[-1]} before kit {self.verb.name} means: {option.help}",
                        hint=f"write it after its verb, as in: kit {self.verb.name} {option.flags[-1]}",
                    )
                if option not in GLOBAL and option not in self.verb.options:
                    raise self._no_option(option.flags[-1])
        elif not begins:
            raise self._no_verb(path[0]) if len(path) == 1 else _no_member(path[:-1], path[-1])

    def _no_verb(self, word: str) -> InputError:
        from kit.cli.verbs.elsewhere import FAMILIAR, INSTEAD  # noqa: PLC0415  (only for a typing error)

        names = [verb.name for verb in VERBS] + sorted({verb.words[0] for verb in VERBS})
        guess = FAMILIAR.get(word.lower()) or _nearest(word, names)
        hint = INSTEAD.get(word.lower()) or (f"did you mean: kit {guess}" if guess else "all verbs: kit --help")
        return InputError(f"there is no verb '{word}'", hint=hint)

    def _option(self, word: str) -> None:
        name, equals, value = word.partition("=")
        option = self.flags.get(name)
        if option is not None:
            self._take(option, word, value if equals else None)
        elif word.startswith("--") or not self._letters(word):
            raise self._no_option(name)

    def _letters(self, word: str) -> bool:
        """Take one-letter options in one word: -qv is -q -v, and -C/data is -C /data. Return whether they are that."""
        taken: list[tuple[Option, str | None]] = []
        for place, letter in enumerate(word[1:], start=2):
            option = self.flags.get(f"-{letter}")
            if option is None:
                return False
            taken.append((option, word[place:] or None))
            if option.value is not None:
                break
        for option, value in taken:
            self._take(option, option.flags[0], value if option.value is not None else None)
        return True

    def _take(self, option: Option, word: str, value: str | None) -> None:
        """Take an option that was spelled `word`, with the value in the same word, if any."""
        if option is HELP:
            self.help = True
        elif option.means:
            if value is not None:
                raise self._no_value(option, word, value)
            self._option(option.means)
        elif option.value is None:
            if value is not None:
                raise self._no_value(option, word, value)
            self.given.append((option, None))
        elif value is None:
            self.pending = (option, word)
        else:
            self.given.append((option, value))

    def _needs_value(self) -> InputError:
        spelled = self.pending[1] if self.pending else ""
        return InputError(f"{spelled} needs a value", hint=self.usage)

    def _no_value(self, option: Option, word: str, value: str) -> InputError:
        name = word.partition("=")[0]
        return InputError(f"{name} takes no value", hint=self._instead(option, value) or self.usage)

    def _no_option(self, name: str) -> InputError:
        from kit.cli.verbs.elsewhere import option_instead  # noqa: PLC0415  (only for a typing error)

        verb = self.verb.name if self.verb else ""
        instead = option_instead(name, verb) or self._too_early(name)
        guess = _nearest(name, self.flags) if instead is None else None
        return InputError(
            f"there is no option {name}" + (f" for kit {verb}" if verb else ""),
            hint=instead or (f"did you mean: {guess}" if guess else self.usage),
        )

    def _too_early(self, name: str) -> str | None:
        """Return where to write an option of a verb that came before its verb. Of several verbs, show yours, or run."""
        if self.verb is not None:
            return None
        owners = {
            verb.words: verb.name
            for verb in VERBS
            if verb.words[: len(self.path)] == self.path and name in by_flag(verb.options)
        }
        ahead = self._all[self._taken :]
        typed = ((*self.path, *ahead[begin:end]) for begin in range(len(ahead)) for end in (begin + 2, begin + 1))
        owner = next((owners[words] for words in typed if words in owners), None)
        owner = owner or ("run" if ("run",) in owners else next(iter(owners.values()), None))
        return f"write it after its verb, as in: kit {owner} {name}" if owner else None

    def _too_many(self, word: str) -> InputError:
        """Refuse a plain word that has no place. After a switch, it was most likely meant as the switch's value."""
        hint = self.usage
        option = self.flags.get(self._before)
        if self.verb is not None and option is None and _members(self.verb.words):
            # kit hosts is a verb, and its name also begins others: kit hosts cordon.
            first = self.operands[0]
            if not self.verb.operands or _member(self.verb.words, first):
                return _no_member(self.verb.words, first)
        if self.verb is not None and self.verb.command == "dashes":
            hint = f"put -- before a command: {self.verb.usage}"
        elif self.verb is not None and self.verb.operands and self.verb.operands[-1].name == "hosts":
            import shlex  # noqa: PLC0415  (only for a typing error)

            hint = f"hosts are one word: kit {self.verb.name} {shlex.quote(','.join(self.operands))}"
        why = ""
        if option is not None and option.value is None:
            why, hint = f": {self._before} takes no value", self._instead(option, word) or hint
        return InputError(f"'{word}' is one word too many{why}", hint=hint)

    def _instead(self, option: Option, value: str) -> str:
        """Return what to type for a switch that was given a value; '' where the usage says it all."""
        if self.verb is None or not option.valued or not value:
            return ""
        import shlex  # noqa: PLC0415

        return f"kit {self.verb.name} {option.valued} {shlex.quote(value)}"


def by_flag(options: Iterable[Option]) -> dict[str, Option]:
    """Return the options by flag. A verb's own option replaces a global one with the same flag."""
    return {flag: option for option in (HELP, *options) for flag in option.flags}


def _members(group: tuple[str, ...]) -> list[str]:
    """Return the words that may follow these in the name of a verb."""
    return [
        verb.words[len(group)] for verb in VERBS if len(verb.words) > len(group) and verb.words[: len(group)] == group
    ]


def _member(group: tuple[str, ...], word: str) -> str | None:
    """Return what `word` most likely means in this group of verbs, if anything."""
    from kit.cli.verbs.elsewhere import MEMBERS  # noqa: PLC0415  (only for a typing error)

    members = _members(group)
    return next((other for other in MEMBERS.get(word.lower(), ()) if other in members), None) or _nearest(word, members)


def _no_member(group: tuple[str, ...], word: str) -> InputError:
    name, guess = " ".join(group), _member(group, word)
    return InputError(
        f"there is no verb '{name} {word}'",
        hint=f"did you mean: kit {name} {guess}" if guess else f"kit {name} has: {', '.join(_members(group))}",
    )


def _nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the only known word that begins like this one, or the most similar one. None if none is similar."""
    import difflib  # noqa: PLC0415  (only for a typing error)

    known = list(known)
    longer = [other for other in known if other.startswith(word)] if len(word) > 3 else []
    if len(longer) == 1:
        return longer[0]
    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.65)
    return matches[0] if matches else None
