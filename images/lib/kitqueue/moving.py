"""Moves the line to another head. kit asks the earlier head for its runs, gives them to the new one, and then removes
them from the earlier one. A run that is on both heads for a moment starts once: the earlier head is a node by then.

{"op": "give"}
    {"entries": [entry, ...], "diffs": [[diff, [ids]], ...], "cordons": {...}}: the first entries, whole, at most about
    MOST_BYTES. Each has `ended`: how those runs ended for which it waits, because the next head has no record of them.
    `diffs` are those of their code (kitqueue.line)
{"op": "take", "entries": [entry, ...], "diffs": [[diff, [ids]], ...], "cordons": {...}, "head": name}
    {"taken": [ids]}: those that are in line here now, or have started here already; or {"failed": why}
{"op": "forget", "ids": [...], "cordons": [hosts]}
    {"forgotten": [ids]}: those that left the line here. The cordons of these hosts go, too; or {"failed": why}

Only root reads the entries, and they have the values of variables, so they pass through kit's memory alone.
"""

import json
from typing import Any, Dict, List, Mapping

from kitrun import leases, store

from kitqueue import line

MOST_BYTES = 4 << 20
# After these, no keeper starts: the host is no head any more.
AWAY = ("give", "forget")


def give(_: Mapping[str, Any], root: str) -> Dict[str, Any]:
    entries: List[line.Entry] = []
    # The text of a difference -> the runs with that code.
    owners: Dict[str, List[str]] = {}
    size = 0
    for entry in line.entries(root):
        whole = dict(entry, ended=dict(entry.get("ended") or {}, **_ended(entry, root)))
        diff = json.dumps(line.diff(entry["id"], root))
        size += len(json.dumps(whole)) + (0 if diff in owners else len(diff))
        if entries and size > MOST_BYTES:
            break
        entries.append(whole)
        owners.setdefault(diff, []).append(entry["id"])
    diffs = [[json.loads(diff), ids] for diff, ids in owners.items() if diff != "{}"]
    return {"entries": entries, "diffs": diffs, "cordons": line.cordons(root)}


def _ended(entry: Mapping[str, Any], root: str) -> Dict[str, bool]:
    known = line.state(root).get("ended") or {}
    ended = {}
    for run_id in [run_id for _, _, ids in entry.get("after") or [] for run_id in ids]:
        well = bool(known[run_id]) if run_id in known else line.ended_well(run_id, root)
        if well is not None:
            ended[run_id] = well
    return ended


def take(request: Mapping[str, Any], root: str) -> Dict[str, Any]:
    from kitqueue import keeper

    given = [moved(entry, str(request["head"])) for entry in request["entries"]]
    for entry in given:
        if not store.ID.fullmatch(entry["id"]) or entry["request"]["id"] != entry["id"]:
            raise ValueError("this is not the id of a run")
        keeper.check(entry, root)
    with leases.starting(root), line.changing(root):
        new = [entry for entry in given if not line.has(entry["id"], root) and not store.Run(entry["id"], root).exists]
        line.add(new, root, [(dict(diff), [*ids]) for diff, ids in request.get("diffs") or []])
        # A word of somebody on this head is newer.
        line.write_cordons(dict(request.get("cordons") or {}, **line.cordons(root)), root)
    return {"taken": [entry["id"] for entry in given]}


def moved(entry: Mapping[str, Any], head: str) -> line.Entry:
    """Return the entry for another head: only its request names one."""
    return dict(entry, request=dict(entry["request"], head=head))


def forget(request: Mapping[str, Any], root: str) -> Dict[str, Any]:
    with line.changing(root):
        forgotten = [str(run_id) for run_id in request["ids"] if line.remove(str(run_id), root)]
        gone = request.get("cordons") or []
        if gone:
            left = {host: note for host, note in line.cordons(root).items() if host not in gone}
            line.write_cordons(left, root)
    return {"forgotten": forgotten}
