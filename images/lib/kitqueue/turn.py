"""Follows or ends a run that waits in line, for kit-launch's `attach` and `stop` (kitrun.front)."""

from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Union

from kitrun import leases, store

from kitqueue import desk, line, words

TICK_S = 0.5

Say = Callable[[object], None]


def without_id(request: Dict[str, Any], waiting: Sequence[line.Entry], root: str) -> Optional[desk.Answer]:
    """Return the answer to `stop` without an id if it means a run in line; `attach` gets the id of that run.

    Without an id, people mean the latest run that lives, or else the newest run. `waiting` are those in line.
    """
    if not waiting or not request.get("line") or request["id"] != "":
        return None
    runs = store.runs(root)
    if any(run.alive for run in runs):
        return None
    newest = words.latest_in_line(waiting, [record for record in (run.record for run in runs) if record])
    if newest is not None and request["op"] == "stop":
        # Nobody has named it, so it stays in line.
        return shown(newest, root)
    if newest is not None:
        request["id"] = words.array_of(newest) or newest["id"]
    return None


def begun(word: str, request: Mapping[str, Any], root: str) -> Union[str, desk.Answer]:
    """Return the id of the run to follow, or the whole answer. A request to stop ends a run's wait.

    The beginning of an id means nothing if it also begins that of a run that has ended.
    """
    known = [*line.entries(root), *leases.living(root)]
    target = words.meant(word, known)
    if target is None:
        return {"missing": word}
    whole = word in (target.array, *target.ids)
    if not whole and words.meant(word, [*known, *desk.records(root)]) is None:
        return {"missing": word}
    if request["op"] == "stop":
        answer = desk.change({"id": word, "how": "remove"}, root)
        if target.array or "changed" in answer:
            answer["removed"] = answer.pop("changed", None)
            return answer
    elif target.array:
        in_line = [run_id for run_id in target.ids if line.has(run_id, root)]
        started = [run_id for run_id in target.ids if run_id not in in_line]
        return {"array": target.array, "members": in_line, "living": started}
    return target.ids[0]


def await_start(run: store.Run, record: str, say: Say, gone: Callable[[float], bool]) -> bool:
    """Say why a run waits, again whenever that changes. Return True when it has started.

    False: it left the line without a start, or kit has gone. `gone` waits for some seconds, and returns whether it has.
    `record` is the path of cluster.json.
    """
    root = run.root
    last_answer: Optional[desk.Answer] = None
    # A record that nobody can read is from a start during which the head went down. The run starts again.
    while run.record is None:
        entry = line.read(run.id, root)
        if entry is None:
            # Between the two looks, it started or was removed.
            if run.record is not None:
                break
            say({"missing": run.id})
            return False
        now = shown(entry, root)
        if now != last_answer:
            say(now)
            last_answer = now
        if gone(TICK_S):
            return False
        # A keeper that was killed comes back.
        desk.tend(root, record, [entry])
    return True


def shown(entry: Mapping[str, Any], root: str) -> desk.Answer:
    """Return what kit may see of a run in line, and why it waits."""
    return {"queued": desk.shown(entry), "reason": line.reason(entry["id"], root)}
