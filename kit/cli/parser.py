"""argv → Invocation. Global options may stand before or after the verb; a person's own command is never looked into.

A first walk over the words finds the verb and where the command begins; argparse then reads the values.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import GLOBAL, HELP
from kit.cli.verbs.table import FAMILIAR, VERBS
from kit.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """What was asked for. `verb` is None when only help (for the words in `path`) or the version is wanted."""

    verb: Verb | None
    args: argparse.Namespace
    path: tuple[str, ...] = ()
    help: bool = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # argparse says 'argument -n/-np/--np: …'; the longest spelling alone reads better.
        told = re.fullmatch(r"argument (?:\S+/)?(\S+): (.*)", message, re.DOTALL)
        missing = message.removeprefix("the following arguments are required: ")
        if told:
            message = f"{told[1]}: {told[2]}"
        elif missing != message:
            names = missing.split(", ")
            message = f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} missing"
        raise InputError(message, hint=f"{self.usage}   (all options: {self.prog} --help)")


def parse(argv: Sequence[str]) -> Invocation:
    """Read a command line; InputError says what is wrong and what to write."""
    walk = _walk(argv)
    if walk.help:
        return Invocation(verb=None, args=_globals(), path=walk.path, help=True)
    if walk.verb is None:
        if walk.path:
            members = ", ".join(verb.words[-1] for verb in VERBS if verb.words[: len(walk.path)] == walk.path)
            raise InputError(
                f"kit {' '.join(walk.path)} needs one of: {members}", hint=f"kit {' '.join(walk.path)} --help"
            )
        return Invocation(verb=None, args=_globals(), help=True)
    before = _parser("kit", "kit [global options] VERB [options]", GLOBAL).parse_args(walk.before)
    verb = _parser(f"kit {walk.verb.name}", walk.verb.usage, (*GLOBAL, *walk.verb.options), walk.verb.operands)
    args = verb.parse_args([*walk.options, *walk.operands], before)
    args.command = tuple(walk.command)
    if walk.verb.needs_command and not args.command:
        raise InputError("the command is missing", hint=walk.verb.usage)
    return Invocation(verb=walk.verb, args=args, path=walk.path)


def own(argv: Sequence[str]) -> Sequence[str]:
    """kit's own words, without the command behind them; where its beginning cannot be told, all before any --."""
    try:
        command = _walk(argv).command
    except InputError:
        return argv[: argv.index("--")] if "--" in argv else argv
    return argv[: len(argv) - len(command)]


@dataclass(kw_only=True)
class _Walk:
    verb: Verb | None
    path: tuple[str, ...]
    before: list[str]
    options: list[str]
    operands: list[str]
    command: Sequence[str]
    help: bool


def _walk(argv: Sequence[str]) -> _Walk:
    walk = _Walk(verb=None, path=(), before=[], options=[], operands=[], command=(), help=False)
    flags = _flags(GLOBAL)
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--":
            walk.command = argv[at + 1 :]
            if (walk.verb is None or walk.verb.command == "none") and not walk.help:
                raise InputError("-- begins a command, and there is none to give here", hint=_usage(walk))
            break
        if word in HELP.flags or (word == "help" and not walk.path):
            walk.help = True
        elif word.startswith("-") and word != "-":
            at += _option(argv, at, flags, walk)
        elif walk.verb is None or _longer(walk, word):
            walk.path = (*walk.path, word)
            walk.verb = _verb(walk)
            if walk.verb is not None:
                walk.before, walk.options = [*walk.before, *walk.options], []
                flags = _flags((*GLOBAL, *walk.verb.options))
        elif walk.verb.command == "rest":
            walk.command = argv[at:]
            break
        else:
            walk.operands.append(word)
            if len(walk.operands) > len(walk.verb.operands):
                raise _too_many(word, argv[at - 1], flags, walk)
        at += 1
    return walk


def _longer(walk: _Walk, word: str) -> bool:
    """Whether the verb so far is the beginning of another, which this word completes: bench, bench report."""
    return not walk.operands and any(verb.words == (*walk.path, word) for verb in VERBS)


def _option(argv: Sequence[str], at: int, flags: Mapping[str, Option], walk: _Walk) -> int:
    """Take the option at this place; returns how many more words it took (1 when its value is the next one)."""
    word = argv[at]
    if not _value_follows(word, flags, walk):
        walk.options.append((word in flags and flags[word].means) or word)
        return 0
    if at + 1 >= len(argv) or argv[at + 1] == "--":
        raise InputError(f"{word} needs a value", hint=_usage(walk))
    # As one word, so that argparse takes a value that begins with a dash for what it is.
    whole = word in flags
    walk.options += [f"{word}={argv[at + 1]}"] if whole else [word, argv[at + 1]]
    return 1


def _verb(walk: _Walk) -> Verb | None:
    """The verb of these words; None when more words must follow; InputError when there is no such verb."""
    begun = False
    for verb in VERBS:
        if verb.words == walk.path:
            return verb
        begun = begun or verb.words[: len(walk.path)] == walk.path
    if begun:
        return None
    word = " ".join(walk.path)
    names = [verb.name for verb in VERBS] + sorted({verb.words[0] for verb in VERBS})
    guess = FAMILIAR.get(word.lower()) or _nearest(word, names)
    raise InputError(
        f"there is no verb '{word}'",
        hint=f"did you mean: kit {guess}" if guess else "all verbs: kit --help",
    )


def _value_follows(word: str, flags: Mapping[str, Option], walk: _Walk) -> bool:
    """Whether the value of this option is the next word. InputError when there is no such option."""
    name, equals, value = word.partition("=")
    if name in flags:
        if equals and flags[name].value is None:
            raise InputError(f"{name} takes no value", hint=_instead(flags[name], value, walk) or _usage(walk))
        return not equals and flags[name].value is not None
    if not word.startswith("--"):
        # -qv is -q -v, and -C/data is -C /data.
        for place, letter in enumerate(word[1:], start=1):
            option = flags.get(f"-{letter}")
            if option is None:
                break
            if option.value is not None:
                return place == len(word) - 1
        else:
            return False
    guess = _nearest(name, flags)
    raise InputError(
        f"there is no option {name}" + (f" for kit {walk.verb.name}" if walk.verb else ""),
        hint=f"did you mean: {guess}" if guess else _usage(walk),
    )


def _usage(walk: _Walk) -> str:
    return f"{walk.verb.usage}   (all options: kit {walk.verb.name} --help)" if walk.verb else "all verbs: kit --help"


def _too_many(word: str, before: str, flags: Mapping[str, Option], walk: _Walk) -> InputError:
    """A plain word that has no place. After a switch it was most likely meant as a value of that."""
    hint = _usage(walk)
    if walk.verb is not None and walk.verb.command == "dashes":
        hint = f"put -- before a command: {walk.verb.usage}"
    option, why = flags.get(before), ""
    if option is not None and option.value is None:
        why, hint = f": {before} takes no value", _instead(option, word, walk) or hint
    return InputError(f"'{word}' is one word too many{why}", hint=hint)


def _instead(option: Option, value: str, walk: _Walk) -> str:
    """What to type where this switch was given a value; '' where nothing better is known than the usage."""
    if walk.verb is None or not option.valued or not value:
        return ""
    return f"kit {walk.verb.name} {option.valued} {shlex.quote(value)}"


def _flags(options: Iterable[Option]) -> dict[str, Option]:
    """By flag. A verb's own option goes before a global one of the same name."""
    return {flag: option for option in (HELP, *options) for flag in option.flags}


def _globals() -> argparse.Namespace:
    return argparse.Namespace(**{option.dest: _default(option) for option in GLOBAL})


def _default(option: Option) -> object:
    if option.many:
        return []
    return False if option.value is None else None


def _parser(prog: str, usage: str, options: Iterable[Option], operands: Iterable[Operand] = ()) -> _Parser:
    parser = _Parser(prog=prog, usage=usage, add_help=False, allow_abbrev=False, conflict_handler="resolve")
    for option in options:
        how: dict[str, Any] = {"dest": option.dest}
        if option.value is None:
            how["action"] = "store_true"
        else:
            how["type"] = _kind(option)
            how["action"] = "append" if option.many else "store"
            how["default"] = _default(option)
        parser.add_argument(*option.flags, **how)
    for operand in operands:
        parser.add_argument(operand.name, nargs="?" if operand.optional else None)
    return parser


def _kind(option: Option) -> Any:
    def convert(text: str) -> object:
        if option.choices and text not in option.choices:
            raise argparse.ArgumentTypeError(f"'{text}' is not one of: {', '.join(option.choices)}")
        try:
            return option.kind(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _nearest(word: str, known: Iterable[str]) -> str | None:
    import difflib  # noqa: PLC0415  (only when somebody mistyped)

    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None
