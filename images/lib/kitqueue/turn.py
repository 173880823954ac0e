"""Follows or ends a run that waits in line, for kit-launch's `attach` and `stop` (kitrun.front)."""

from typing import Any, Callable, Mapping, Optional, Union

from kitrun import store

from kitqueue import desk, line, words

TICK_S = 0.5

Say = Callable[[object], None]


def begun(word: str, request: Mapping[str, Any], root: str) -> Union[str, desk.Answer]:
    """Return the id of the run to follow, or the whole answer. A request to stop ends a run's wait."""
    found = words.meant(word, [*line.entries(root), *store.living(root)])
    if found is None:
        return {"missing": word}
    if request["op"] == "stop":
        answer = desk.change({"id": word, "how": "remove"}, root)
        if found.array or "changed" in answer:
            answer["removed"] = answer.pop("changed", None)
            return answer
    elif found.array:
        in_line = [run_id for run_id in found.ids if line.has(run_id, root)]
        started = [run_id for run_id in found.ids if run_id not in in_line]
        return {"array": found.array, "members": in_line, "living": started}
    return found.ids[0]


def await_start(run: store.Run, record: str, say: Say, gone: Callable[[float], bool]) -> bool:
    """Say why a run waits, again whenever that changes. Return True when it has started.

    False: it left the line without a start, or kit has gone. `gone` waits for some seconds, and returns whether it has.
    `record` is the path of cluster.json.
    """
    root = run.root
    told: Optional[desk.Answer] = None
    while not run.exists:
        entry = line.read(run.id, root)
        if entry is None:
            # Between the two looks, it started or was removed.
            if run.exists:
                break
            say({"missing": run.id})
            return False
        now = {"queued": desk.shown(entry), "reason": line.reason(run.id, root)}
        if now != told:
            say(now)
            told = now
        if gone(TICK_S):
            return False
        # A keeper that was killed comes back.
        desk.tend(root, record, [entry])
    return True
