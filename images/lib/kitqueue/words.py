"""What people mean by the id of a run or of an array, or by the beginning of one. Pure.

An array is several runs that one command put in line. Each has {"of": id of the array, "index", "size"} in `array`, in
line and in its record after that.
"""

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

# The newest run or array.
LATEST = "latest"
# How runs must end for which another one waits: in whichever way (kitqueue.order has the others).
ANY = "any"

Values = Sequence[Mapping[str, Any]]


class Meant(NamedTuple):
    """`array` is the id of the array, or '' for a single run. `ids` are its runs, in the order of their indexes."""

    array: str
    ids: Tuple[str, ...]


def array_of(value: Mapping[str, Any]) -> str:
    """Return the id of the array to which an entry or a record belongs, or ''."""
    array = value.get("array")
    return str(array.get("of") or "") if isinstance(array, dict) else ""


def meant(word: str, values: Values) -> Optional[Meant]:
    """Return what the word means among these entries and records. None if it means nothing, or several things."""
    known = _known(values)
    if not word:
        return None
    if word in known:
        return known[word]
    matches = [name for name in known if name.startswith(word)]
    return known[matches[0]] if len(matches) == 1 else None


def latest(values: Values) -> Optional[Meant]:
    """Return the newest run, or the array to which it belongs."""
    newest = max(values, key=arrival, default=None)
    return None if newest is None else _known(values)[array_of(newest) or str(newest["id"])]


def latest_in_line(waiting: Values, records: Values) -> Optional[Mapping[str, Any]]:
    """Return the newest of these runs in line. None if one of `records`, which have started, is newer."""
    newest = max(waiting, key=arrival, default=None)
    return None if newest is None or any(arrival(record) >= arrival(newest) for record in records) else newest


def arrival(value: Mapping[str, Any]) -> float:
    """Return when a run joined the line, or started without it. A run keeps its time of arrival when it starts."""
    moment = value.get("queued") or value.get("started")
    return float(moment) if isinstance(moment, (int, float)) else 0.0


def _known(values: Values) -> Dict[str, Meant]:
    singles = {str(value["id"]): Meant("", (str(value["id"]),)) for value in values}
    members: Dict[str, List[Tuple[int, str]]] = {}
    for value in values:
        if array_of(value):
            members.setdefault(array_of(value), []).append((int(value["array"].get("index") or 0), str(value["id"])))
    arrays = {name: Meant(name, tuple(run_id for _, run_id in sorted(runs))) for name, runs in members.items()}
    return dict(singles, **arrays)


class Unknown(Exception):
    """A run waits for another that nobody knows. `word` is what somebody wrote.

    `size` is how many runs an array has if only `known` of them are known; otherwise 0.
    """

    def __init__(self, word: str, known: int = 0, size: int = 0) -> None:
        super().__init__(word)
        self.word, self.known, self.size = word, known, size


def _size(array: str, values: Values) -> int:
    """Return how many runs an array has had; 0 for a single run."""
    sizes = [value["array"].get("size") for value in values if array and array_of(value) == array]
    return max((size for size in sizes if isinstance(size, int)), default=0)


def groups(after: Sequence[Sequence[Any]], values: Values) -> List[List[Any]]:
    """Return [id, how, [ids]] for each [word, how]: the run or array that the word means, and its runs.

    Raises Unknown, also for an array of which runs are missing: they have left the line, or their records were removed.
    Nobody knows how they ended, so only a run that starts however they end may wait for the others.
    """
    made = []
    for word, how, *_ in after:
        target = latest(values) if word == LATEST else meant(str(word), values)
        if target is None:
            raise Unknown(str(word))
        size = _size(target.array, values) if how != ANY else 0
        if len(target.ids) < size:
            raise Unknown(str(word), len(target.ids), size)
        made.append([target.array or target.ids[0], str(how), list(target.ids)])
    return made
