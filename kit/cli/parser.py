"""argv → Invocation: the verb, and the values of its options.

Global options are allowed before and after the verb, and kit never reads the words of your own command.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from kit.cli.verbs.options import GLOBAL, VERSION
from kit.cli.verbs.table import VERBS
from kit.cli.walk import Walk
from kit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kit.cli.verbs.grammar import Option, Verb


class Invocation(NamedTuple):
    """What a command line asks for. `verb` is None where it asks for help on the words in `path`."""

    verb: Verb | None
    args: SimpleNamespace
    path: tuple[str, ...] = ()
    help: bool = False


def parse(argv: Sequence[str]) -> Invocation:
    """Read a command line. Raises InputError with what is wrong and what to write."""
    walk = Walk().words(argv)
    if walk.help:
        return Invocation(verb=None, args=_defaults(GLOBAL), path=walk.path, help=True)
    if any(option is VERSION for option, _ in walk.given):
        verb = next(verb for verb in VERBS if verb.words == ("version",))
        return Invocation(verb=verb, args=_args(walk, verb), path=verb.words)
    if walk.verb is None:
        if walk.path:
            raise _unfinished(walk.path)
        return Invocation(verb=None, args=_defaults(GLOBAL), help=True)
    return Invocation(verb=walk.verb, args=_args(walk, walk.verb), path=walk.path)


def own(argv: Sequence[str]) -> Sequence[str]:
    """Return kit's own words, without your command. Where its beginning is unclear, return all words before any --."""
    try:
        command = Walk().words(argv).command or ()
    except InputError:
        return argv[: argv.index("--")] if "--" in argv else argv
    return argv[: len(argv) - len(command)]


def _unfinished(path: tuple[str, ...]) -> InputError:
    group = f"kit {' '.join(path)}"
    members = ", ".join(verb.words[-1] for verb in VERBS if verb.words[: len(path)] == path)
    return InputError(f"{group} needs one of: {members}", hint=f"{group} --help")


def _args(walk: Walk, verb: Verb) -> SimpleNamespace:
    args = _defaults((*GLOBAL, *verb.options))
    joined: dict[str, str] = {}
    for option, given in walk.given:
        text = given
        if text is None:
            setattr(args, option.dest, True)
            continue
        if option.joins:
            text = joined[option.dest] = f"{joined[option.dest]},{text}" if option.dest in joined else text
        value = _value(option.flags[-1], text, option.choices, option.kind, walk)
        if option.many:
            getattr(args, option.dest).append(value)
        else:
            setattr(args, option.dest, value)
    _take_operands(args, walk, verb)
    args.command, args.dashes = tuple(walk.command or ()), walk.dashes
    if verb.needs_command and not args.command:
        raise InputError("the command is missing", hint=verb.usage)
    return args


def _take_operands(args: SimpleNamespace, walk: Walk, verb: Verb) -> None:
    for place, operand in enumerate(verb.operands):
        words = walk.operands[place:] if operand.many else walk.operands[place : place + 1]
        if "" in words:
            # A variable that is not set, as in kit exec "$HOST". It must not mean all hosts, or the latest run.
            raise InputError(f"{operand.name}: the value is empty", hint=walk.usage)
        if operand.many:
            setattr(args, operand.name, tuple(walk.operands[place:]))
            continue
        given = walk.operands[place] if place < len(walk.operands) else None
        if given is not None:
            _value(operand.name, given, operand.choices, str, walk)
            if getattr(args, operand.name, None) is not None:
                raise InputError(f"{operand.name} are given twice: '{given}' and by -H", hint=walk.usage)
        if given is not None or not hasattr(args, operand.name):
            setattr(args, operand.name, given)
    missing = [operand for operand in verb.operands[len(walk.operands) :] if not operand.optional]
    if missing:
        names = " and ".join(operand.name for operand in missing)
        choices = f"give {', '.join(missing[0].choices)}: " if missing[0].choices else ""
        raise InputError(f"{names} {'are' if len(missing) > 1 else 'is'} missing", hint=choices + walk.usage)


def _defaults(options: Iterable[Option]) -> SimpleNamespace:
    return SimpleNamespace(**{option.dest: option.default for option in options})


def _value(name: str, text: str, choices: Sequence[str], kind: Callable[[str], object], walk: Walk) -> object:
    if choices and text not in choices:
        raise InputError(f"{name}: '{text}' is not one of: {', '.join(choices)}", hint=walk.usage)
    try:
        return kind(text)
    except ValueError as error:
        raise InputError(f"{name}: {error}", hint=walk.usage) from None
