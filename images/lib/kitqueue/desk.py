"""What kit asks about the line, through kit-launch (kitrun.front): join it, see it, change it, and cordon hosts.

{"op": "queue", "entries": [entry, ...], "diff": {...}}
    {"queued": [ids], "ahead": how many runs were in line before}, {"unknown": word} if a run waits for another that
    nobody knows, with {"known": N, "size": N} if it is an array of which runs are missing, {"taken": [ids]} if there
    are runs with these ids, or {"failed": why}. kit.plan.queue has an entry's form. The head adds `place`, `queued`
    and `limit`, and finds out what the words in `after` mean (kitqueue.words). `diff`, if it is there, is how the code
    of all of them differs from its commit
{"op": "line"}
    {"line": [entries without what is secret or long], "state": {...}, "living": [records], "cordons": {...},
    "torn": [ids whose files are damaged], "now": seconds since 1970, by this clock}
{"op": "change", "id", "how": "hold" | "release" | "remove" | "first" | "last" | "priority", "priority": N}
    {"changed": entry, "members": [ids that changed], "others": [ids of runs in line that wait for them],
    "living": [ids of the array that have started]} or {"missing": id}. `changed` is None if all of an array has started
{"op": "give"}, {"op": "take", ...} and {"op": "forget", ...}
    see kitqueue.moving
{"op": "cordon", "hosts": [names], "why", "by"} and {"op": "uncordon", "hosts": [names]}
    {"cordons": {...}}
"""

import os
import signal
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

from kitrun import leases, store

from kitqueue import line, moving, words

# What an entry has for those who look at the line. Its request has the values of variables.
SHOWN = (
    "id", "place", "priority", "need", "share", "np", "limit", "held", "queued", "by", "command", "array", "options",
    "code", "data",
)  # fmt: skip
# The most bytes of the keeper's complaints that stay.
MOST_COMPLAINTS = 1 << 16

Answer = Dict[str, Any]


def answer(request: Mapping[str, Any], root: str, record: str = line.RECORD) -> Optional[Answer]:
    """Return the answer to a request about the line, or None if it is about something else.

    `record` is the path of cluster.json. Raises KeyError, TypeError or ValueError for a request that lacks a part.
    """
    operations = {
        "queue": queue,
        "line": look,
        "change": change,
        "cordon": cordon,
        "uncordon": uncordon,
        "give": moving.give,
        "take": moving.take,
        "forget": moving.forget,
    }
    operation = operations.get(str(request.get("op")))
    if operation is None:
        return None
    try:
        result = operation(request, root)
    except (line.Full, OSError) as error:
        return {"failed": str(error)}
    # Also after a look, and if all of them are held: the keeper writes why they wait.
    if line.entries(root) and request["op"] not in moving.AWAY:
        start_keeper(root, record)
    return result


def tend(root: str = store.ROOT, record: str = line.RECORD, waiting: Optional[Sequence[line.Entry]] = None) -> None:
    """Start a keeper if a run waits that may start by itself, and none lives. `waiting` are those in line."""
    waiting = line.entries(root) if waiting is None else waiting
    if line.hopeful(waiting, line.state(root)):
        start_keeper(root, record)


def start_keeper(root: str, record: str) -> None:
    """Start a keeper, unless one lives. It outlives this process."""
    # If this look takes the lock from a keeper that just starts, that one ends, and this process starts another.
    if store.locked(line.keeper_lock(root)):
        return
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    # The second child has no parent here, so nobody has to take its exit code.
    if os.fork():
        os._exit(0)
    become_keeper(root, record)


def queue(request: Mapping[str, Any], root: str) -> Answer:
    # Imported only where it is needed: every kit-launch imports this module.
    from kitqueue import keeper

    entries: List[line.Entry] = []
    for given in request["entries"]:
        if not store.ID.fullmatch(given["id"]) or given["request"]["id"] != given["id"]:
            raise ValueError("this is not the id of a run")
        entries.append(dict(given, limit=given["request"]["policy"].get("timeout")))
    diff = request.get("diff")
    diffs = [(dict(diff), [entry["id"] for entry in entries])] if diff else []
    with line.changing(root):
        taken = [entry["id"] for entry in entries if line.has(entry["id"], root) or store.Run(entry["id"], root).exists]
        if taken:
            return {"taken": taken}
        if any(entry.get("after") for entry in entries):
            there = [*records(root), *line.entries(root)]
            try:
                for number, entry in enumerate(entries):
                    # A run may wait for those before it in the same request.
                    there += entries[number - 1 : number] if number else []
                    entry["after"] = words.groups(entry.get("after") or [], there)
            except words.Unknown as error:
                return dict(
                    {"unknown": error.word}, **({"known": error.known, "size": error.size} if error.size else {})
                )
        for entry in entries:
            keeper.check(entry, root)
        ahead = line.add(entries, root, diffs)
    return {"queued": [entry["id"] for entry in entries], "ahead": ahead}


def records(root: str) -> List[store.Record]:
    """Return the records of all runs, living or not."""
    return [record for record in (run.record for run in store.runs(root)) if record]


def look(_: Mapping[str, Any], root: str) -> Answer:
    return {
        "line": [shown(entry) for entry in line.entries(root)],
        "state": line.state(root),
        "living": leases.living(root),
        "cordons": line.cordons(root),
        "torn": line.torn(root),
        "now": time.time(),
    }


def shown(entry: Mapping[str, Any]) -> Answer:
    """Return what people may see of an entry."""
    after = [list(group[:2]) for group in entry.get("after") or []]
    return dict({name: entry[name] for name in SHOWN if name in entry}, after=after)


def change(request: Mapping[str, Any], root: str) -> Answer:
    word, how = str(request["id"]), request["how"]
    with line.changing(root):
        there, living = line.entries(root), leases.living(root)
        target = words.meant(word, [*there, *living])
        if target is None:
            return _without_torn(word, root) if how == "remove" else {"missing": word}
        chosen = [entry for entry in there if entry["id"] in target.ids]
        ids = [entry["id"] for entry in chosen]
        started = [run_id for run_id in target.ids if run_id not in ids]
        if not chosen and not target.array:
            return {"missing": word}
        others = [entry["id"] for entry in there if entry["id"] not in ids and set(ids) & set(awaited(entry))]
        changed = chosen if how == "remove" else changes(chosen, how, request.get("priority"), there)
        for entry in changed:
            if how == "remove":
                line.remove(entry["id"], root)
            else:
                line.write(entry, root)
    return {"changed": shown(changed[0]) if changed else None, "members": ids, "others": others, "living": started}


def _without_torn(word: str, root: str) -> Answer:
    """Remove a run whose file is damaged."""
    if word not in line.torn(root):
        return {"missing": word}
    line.remove(word, root)
    return {"changed": {"id": word}, "members": [word], "others": [], "living": []}


def awaited(entry: Mapping[str, Any]) -> List[str]:
    """Return the runs for which an entry waits."""
    return [run_id for _, _, ids in entry.get("after") or [] for run_id in ids]


def changes(chosen: List[line.Entry], how: str, priority: object, there: List[line.Entry]) -> List[line.Entry]:
    """Return the entries after a change. Those of an array keep their order. Raises ValueError for an unknown one."""
    if how in ("hold", "release"):
        return [dict(entry, held=how == "hold") for entry in chosen]
    if how == "priority" and isinstance(priority, int):
        return [dict(entry, priority=priority) for entry in chosen]
    if how not in ("first", "last"):
        raise ValueError("this is no change of the line")
    ids = [entry["id"] for entry in chosen]
    others = [entry for entry in there if entry["id"] not in ids]
    if not others:
        return chosen
    levels = [int(entry.get("priority") or 0) for entry in others]
    places = [entry["place"] for entry in others]
    if how == "first":
        begin, level = min(places) - len(chosen), max(levels)
        return [
            dict(entry, place=begin + number, priority=max(level, int(entry.get("priority") or 0)))
            for number, entry in enumerate(chosen)
        ]
    begin, level = max(places) + 1, min(levels)
    return [
        dict(entry, place=begin + number, priority=min(level, int(entry.get("priority") or 0)))
        for number, entry in enumerate(chosen)
    ]


def cordon(request: Mapping[str, Any], root: str) -> Answer:
    note = {"why": str(request["why"]), "by": str(request["by"]), "at": time.time()}
    # Every start looks at the cordons in `starting`. So after this, no run starts that did not see this one.
    with leases.starting(root), line.changing(root):
        value = dict(line.cordons(root), **{str(host): note for host in request["hosts"]})
        line.write_cordons(value, root)
    return {"cordons": value}


def uncordon(request: Mapping[str, Any], root: str) -> Answer:
    with line.changing(root):
        value = {host: note for host, note in line.cordons(root).items() if host not in request["hosts"]}
        line.write_cordons(value, root)
    return {"cordons": value}


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
    if os.fstat(complaints).st_size > MOST_COMPLAINTS:
        os.ftruncate(complaints, 0)
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
