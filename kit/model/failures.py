"""Failures of many hosts that differ only in the host: one message with the hosts folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kit.errors import KitError
from kit.model.text import fold

# Takes the place of a host in a text. No message has this character.
_HOST = "\0"
# A message names at most this many ranges of addresses, and a line this many ranges of hosts.
_ADDRESSES = 3
_HOSTS = 16


class SharedFailure(Struct, frozen=True, kw_only=True):
    """The same failure of one or more hosts. `hint` is what to do for the first of them."""

    hosts: tuple[str, ...]
    message: str
    hint: str | None
    exit_code: int

    def __str__(self) -> str:
        """Return `gpu[1-4]: message`, as the text of an error with one host."""
        hosts = fold(self.hosts, most=_HOSTS)
        return f"{hosts}: {self.message}" if hosts else self.message


def alike(errors: Iterable[KitError]) -> tuple[SharedFailure, ...]:
    """Return each failure once, in the order of its first host."""
    groups: dict[tuple[str, str, int], list[KitError]] = {}
    for error in errors:
        names = (error.host, error.address)
        key = (masked(error.message, names), masked(error.hint or "", names), error.exit_code)
        groups.setdefault(key, []).append(error)
    return tuple(
        SharedFailure(
            hosts=tuple(error.host for error in group if error.host),
            message=unmasked(message, [_spelled(error) for error in group]),
            hint=_hint(group, hint),
            exit_code=exit_code,
        )
        for (message, hint, exit_code), group in groups.items()
    )


def masked(text: str, names: Sequence[str | None]) -> str:
    """Return the text with a mark in place of the host's names. A name inside a longer word stays."""
    for name in sorted({name for name in names if name}, key=len, reverse=True):
        parts, start = [], 0
        while (at := text.find(name, start)) >= 0:
            end = at + len(name)
            parts += [text[start:at], _HOST if _is_word(text, at, end) else name]
            start = end
        text = "".join([*parts, text[start:]])
    return text


def unmasked(text: str, names: Sequence[str]) -> str:
    """Return a masked text with the names of all its hosts, folded."""
    return text.replace(_HOST, fold(names, most=_ADDRESSES)) if _HOST in text else text


def _hint(group: Sequence[KitError], masked_hint: str) -> str | None:
    others = len(group) - 1
    if not others or _HOST not in masked_hint:
        return group[0].hint
    return f"{group[0].hint} (and the same for {others} more host{'' if others == 1 else 's'})"


def _is_word(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start], text[end : end + 2]
    if before.isalnum() or before in {"-", "_", "."}:
        return False
    # A period ends a sentence if no letter follows.
    return not (after[:1].isalnum() or after[:1] in {"-", "_"} or (after[:1] == "." and after[1:].isalnum()))


def _spelled(error: KitError) -> str:
    """Return how the error's message spells its host."""
    if error.address and error.address in error.message:
        return error.address
    return error.host or error.address or ""
