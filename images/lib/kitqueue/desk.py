"""What kit asks about the line, through kit-launch (kitrun.front): join it, see it, change it, and cordon hosts.

{"op": "queue", "entries": [entry, ...]}
    {"queued": [ids]} or {"failed": why}. kit.plan.queue has an entry's form; `place` and `queued` are added here
{"op": "line"}
    {"line": [entries without what is secret or long], "state": {...}, "living": [records], "cordons": {...}}
{"op": "change", "id", "how": "hold" | "release" | "remove" | "first" | "last" | "priority", "priority": N}
    {"changed": entry, "others": [ids of runs in line that wait for it]} or {"missing": id}
{"op": "cordon", "hosts": [names], "why", "by"} and {"op": "uncordon", "hosts": [names]}
    {"cordons": {...}}
"""

import os
import signal
import time
from typing import Any, Dict, List, Mapping, Optional

from kitrun import store

from kitqueue import line

# What an entry has for those who look at the line. Its request has the values of variables.
SHOWN = (
    "id", "place", "priority", "need", "share", "np", "limit", "after", "held", "queued", "by", "command", "array",
    "options", "code",
)  # fmt: skip

Answer = Dict[str, Any]


def answer(request: Mapping[str, Any], root: str, record: str = line.RECORD) -> Optional[Answer]:
    """Return the answer to a request about the line, or None if it is about something else.

    `record` is the path of cluster.json. Raises KeyError, TypeError or ValueError for a request that lacks a part.
    """
    operations = {"queue": queue, "line": look, "change": change, "cordon": cordon, "uncordon": uncordon}
    operation = operations.get(str(request.get("op")))
    if operation is None:
        return None
    try:
        result = operation(request, root)
    except (line.Full, OSError) as error:
        return {"failed": str(error)}
    # Also after a look: a keeper that somebody killed comes back.
    tend(root, record)
    return result


def tend(root: str = store.ROOT, record: str = line.RECORD) -> None:
    """Start a keeper if somebody waits."""
    if line.entries(root):
        start_keeper(root, record)


def queue(request: Mapping[str, Any], root: str) -> Answer:
    # Imported only where it is needed: every kit-launch imports this module.
    from kitqueue import keeper

    entries = [dict(entry) for entry in request["entries"]]
    for entry in entries:
        if not store.ID.fullmatch(entry["id"]) or entry["request"]["id"] != entry["id"]:
            raise ValueError("this is not the id of a run")
        keeper.check(entry, root)
    with line.changing(root):
        line.add(entries, root)
    return {"queued": [entry["id"] for entry in entries]}


def look(_: Mapping[str, Any], root: str) -> Answer:
    return {
        "line": [shown(entry) for entry in line.entries(root)],
        "state": line.state(root),
        "living": store.living(root),
        "cordons": line.cordons(root),
    }


def shown(entry: Mapping[str, Any]) -> Answer:
    return {name: entry[name] for name in SHOWN if name in entry}


def change(request: Mapping[str, Any], root: str) -> Answer:
    how = request["how"]
    with line.changing(root):
        entry = line.find(request["id"], root)
        if entry is None:
            return {"missing": request["id"]}
        others = [
            other["id"]
            for other in line.entries(root)
            if entry["id"] in [str(pair[0]) for pair in other.get("after") or []]
        ]
        if how == "remove":
            line.remove(entry["id"], root)
        else:
            entry = changed(entry, how, request.get("priority"), line.entries(root))
            line.write(entry, root)
    return {"changed": shown(entry), "others": others}


def changed(entry: line.Entry, how: str, priority: object, there: List[line.Entry]) -> line.Entry:
    """Return the entry after a change. Raises ValueError for an unknown one."""
    if how in ("hold", "release"):
        return dict(entry, held=how == "hold")
    if how == "priority" and isinstance(priority, int):
        return dict(entry, priority=priority)
    others = [other for other in there if other["id"] != entry["id"]] or [entry]
    if how == "first":
        top = max(int(other.get("priority") or 0) for other in others)
        place = min(other["place"] for other in others) - 1
        return dict(entry, priority=max(top, int(entry.get("priority") or 0)), place=place)
    if how == "last":
        low = min(int(other.get("priority") or 0) for other in others)
        place = max(other["place"] for other in others) + 1
        return dict(entry, priority=min(low, int(entry.get("priority") or 0)), place=place)
    raise ValueError("this is no change of the line")


def cordon(request: Mapping[str, Any], root: str) -> Answer:
    note = {"why": str(request["why"]), "by": str(request["by"]), "at": time.time()}
    with line.changing(root):
        value = dict(line.cordons(root), **{str(host): note for host in request["hosts"]})
        line.write_cordons(value, root)
    return {"cordons": value}


def uncordon(request: Mapping[str, Any], root: str) -> Answer:
    with line.changing(root):
        value = {host: note for host, note in line.cordons(root).items() if host not in request["hosts"]}
        line.write_cordons(value, root)
    return {"cordons": value}


def start_keeper(root: str, record: str) -> None:
    """Start a keeper, which ends at once if there is one. It outlives this process."""
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    # The second child has no parent here, so nobody has to take its exit code.
    if os.fork():
        os._exit(0)
    become_keeper(root, record)


def become_keeper(root: str, record: str) -> None:
    """Keep the line in this process, away from its terminal and streams, and end it."""
    os.setsid()
    # The start of a container has a stricter one, and ranks inherit it.
    os.umask(0o022)
    for sign in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(sign, signal.SIG_IGN)
    os.makedirs(line.folder(root), mode=0o700, exist_ok=True)
    nowhere = os.open(os.devnull, os.O_RDWR)
    # A keeper that finds another one ends, so it must not empty the other's file.
    log = os.path.join(line.folder(root), ".keeper.log")
    complaints = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, target in ((nowhere, 0), (nowhere, 1), (complaints, 2)):
        os.dup2(fd, target)
    os.closerange(3, 256)
    from kitqueue import keeper

    code = 0
    try:
        keeper.Keeper(root, record).keep()
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    os._exit(code)
