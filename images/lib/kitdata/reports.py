"""What members report, checked: a member may be a host that somebody broke into, and its stager any program.

A report is a list of a word and its values. Each number in it is compared with what the staging has: hosts, files of
the list, and pieces of the plan.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from kitdata import manifest, wire
from kitdata.source import Entry, SourceError

# The most characters of a text for people, which may name a folder with a path of 4096.
MOST_TEXT = 10_000


class Scope(NamedTuple):
    """What the numbers in reports count: hosts, files of the list, and pieces of the plan."""

    hosts: int
    entries: Sequence[Entry] = ()
    pieces: int = 0


def checked(report: Any, scope: Scope) -> Tuple[str, List[Any]]:
    """Return the word of a report and its values. Rows of a listing are entries, and numbers of files are sets.

    Raises wire.Broken for a report that cannot be, and SourceError for a path in a listing that no file may have.
    """
    word, values = word_of(report), report[1:]
    shape = _SHAPES[word]
    if len(values) != len(shape):
        raise wire.Broken("a report with too many values or too few")
    result = [check(value, scope) for check, value in zip(shape, values)]
    if word == "changed":
        _same_file(result[1], result[2], scope)
    return word, result


def word_of(report: Any) -> str:
    """Return the word of a report. Raises wire.Broken."""
    if not isinstance(report, list) or not report or not isinstance(report[0], str) or report[0] not in _SHAPES:
        raise wire.Broken("a report of an unknown kind")
    return report[0]


def _count(value: Any, _: Scope) -> int:
    return wire.integer(value)


def _total(value: Any, _: Scope) -> int:
    return wire.integer(value, 1 << 60)


def _host(value: Any, scope: Scope) -> int:
    return wire.integer(value, scope.hosts - 1)


def _file(value: Any, scope: Scope) -> int:
    return wire.integer(value, len(scope.entries) - 1)


def _piece(value: Any, scope: Scope) -> int:
    return wire.integer(value, scope.pieces - 1)


def _text(value: Any, _: Scope) -> str:
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise wire.Broken("this is not a text")
    return value


def _flag(value: Any, _: Scope) -> bool:
    if not isinstance(value, bool):
        raise wire.Broken("neither true nor false")
    return value


def _id(value: Any, _: Scope) -> str:
    if not manifest.is_id(value):
        raise wire.Broken("this is not the id of a version")
    return str(value)


def _list(value: Any) -> List[Any]:
    if not isinstance(value, list):
        raise wire.Broken("this is not a list")
    return value


def _pair(value: Any) -> List[Any]:
    if len(_list(value)) != 2:
        raise wire.Broken("this is not a pair")
    return _list(value)


def _entry(value: Any) -> Entry:
    try:
        return manifest.entry_of(value)
    except SourceError:
        raise
    except ValueError as error:
        raise wire.Broken(str(error)) from None


def _rows(value: Any, _: Scope) -> List[Entry]:
    return [_entry(row) for row in _list(value)]


def _newest(value: Any, _: Scope) -> Optional[Entry]:
    """What the source says of a file now; None if it is gone."""
    try:
        return None if value is None else _entry(value)
    except SourceError:
        raise wire.Broken("another path than that of the file") from None


def _same_file(file: int, newest: Optional[Entry], scope: Scope) -> None:
    if newest is not None and newest.path != scope.entries[file].path:
        raise wire.Broken("another path than that of the file")


def _versions(value: Any, scope: Scope) -> List[Tuple[int, Optional[Entry]]]:
    result = []
    for file, newest in map(_pair, _list(value)):
        result.append((_file(file, scope), _newest(newest, scope)))
        _same_file(*result[-1], scope)
    return result


def _parts(value: Any, scope: Scope) -> List[Tuple[int, List[int]]]:
    """Extents of files: (number of file, numbers of extents) each."""
    result = []
    for number, some in map(_pair, _list(value)):
        file = _file(number, scope)
        result.append((file, wire.integers(some, manifest.extents(scope.entries[file].size) - 1)))
    return result


def _have(value: Any, scope: Scope) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise wire.Broken("this is not an object")
    try:
        whole = wire.numbers(value.get("whole", ""))
    except (TypeError, ValueError):
        raise wire.Broken("these are not hexadecimal digits") from None
    if max(whole, default=-1) >= len(scope.entries):
        raise wire.Broken("a file that is not in the list")
    # Some file systems say that they have as many inodes as fit into 64 bits.
    numbers = {name: wire.integer(value.get(name), (1 << 64) - 1) for name in ("free", "inodes", "gone")}
    return dict(numbers, whole=whole)


_Check = Callable[[Any, Scope], Any]
_SHAPES: Dict[str, Tuple[_Check, ...]] = {
    # What the lead's own side of the connection says.
    "linked": (),
    "gone": (_text,),
    # A kind of error that kit knows, and one line.
    "failed": (_text, _text),
    # Bytes that came, and bytes that it read from the source.
    "at": (_count, _count),
    # Of the source: files and bytes so far; which version it is, with its files and bytes; only its list can tell.
    "counted": (_count, _total),
    "version": (_id, _count, _total),
    "unknown": (),
    "list": (_rows,),
    "unlisted": (_text, _text),
    "listed": (),
    "staged": (_flag,),
    "parts": (_parts,),
    "have": (_have,),
    "has": (_piece,),
    "over": (_piece,),
    "wrong": (_piece, _file),
    "rotten": (_piece, _file),
    "unread": (_piece, _text, _text),
    "changed": (_piece, _file, _newest),
    # The piece, the host that it went to, and the connection; or whether the host was reached.
    "sent": (_piece, _host, _count),
    "unsent": (_piece, _host, _flag),
    # The host that sent, and the connection.
    "broken": (_host, _count),
    "checked": (_versions,),
    "finished": (),
    # A file that it lacks: its disk lost what it had.
    "unfinished": (_file,),
}
