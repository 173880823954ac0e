"""Reads the runs that a head keeps. Ranks can write to their folder: folder.py, which comes before this, opens it.

Arguments: TOP BELOW OPERATION [WORD]... The runs are in TOP/BELOW; only root can change TOP.

    list            a line of JSON for each run, the latest first: id, live, record and end (texts); one for each run
                    that waits in line: queued (without values of variables) and reason; then {"end": true}, with the
                    time that it is now in seconds since 1970 if there is a folder of runs
    living          a line for each active run and each active mark of ranks that somebody started by hand
    waiting         a line for each run that waits in line
    cordoned        a line `yes` if hosts are cordoned
    states          a line `living ID` or `over ID` for each run
    slots           a line of JSON for each active run: id, and places, each with its node and slots
    read RUN NAME   the content of one file of a run

Standard library only, Python 3.6. It runs as root on a VM, or in a container.
"""

import json
import os
import sys
import time

MYPY = False
if MYPY:
    from typing import Any, Dict

    from kit.remote.scripts.folder import (
        cordoned,
        exists,
        is_run,
        lives,
        living,
        locked,
        open_file,
        open_folder,
        read_file,
        run_folders,
        waiting,
    )

# The largest record, and how much of all records a list has. A record of 10,000 hosts has 1 MB.
RECORD_BYTES = 4 << 20
LIST_BYTES = 48 << 20
# The files that kit reads on their own.
READABLE = ("log", "code.diff", "record.json", "end.json")
CHUNK = 1 << 18
# What is printed of a run in line, and of how many.
SHOWN = ("id", "place", "priority", "need", "np", "limit", "after", "held", "queued", "by", "command", "array", "data")
MOST_IN_LINE = 10000


def list_runs(runs: int) -> None:
    # First the line: a run leaves it when it has its record, and one that starts meanwhile must not be in neither.
    queued = line(runs)
    total = count = more = 0
    for name, run in run_folders(runs):
        record = read_file(run, "record.json", RECORD_BYTES)
        # A power cut may leave an empty one, which kit reports. Without a file, the run is just starting.
        if not record and not exists(run, "record.json"):
            continue
        # The head went down while this run started. It is still in line, and starts again (images/lib/kitrun/store.py).
        if name in queued and not value_of(record):
            continue
        queued.pop(name, None)
        end = read_file(run, "end.json", RECORD_BYTES)
        total += len(record) + len(end)
        if total > LIST_BYTES:
            more += 1
            continue
        count += 1
        row = {"id": name, "live": locked(run, "lock"), "record": text(record), "end": text(end)}
        sys.stdout.write(json.dumps(row) + "\n")
    for row in queued.values():
        sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.write(json.dumps({"end": True, "more": more, "now": time.time()}) + "\n")


def line(runs: int) -> "Dict[str, Any]":
    """Return what to print of each run that waits in line (images/lib/kitqueue/line.py), by its id."""
    try:
        folder = os.open(".queue", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=runs)
    except OSError:
        return {}
    reasons = value_of(read_file(folder, ".state.json", RECORD_BYTES)).get("reasons")
    rows = {}
    for file in sorted(os.listdir(folder))[:MOST_IN_LINE]:
        name = file[: -len(".json")]
        entry = value_of(read_file(folder, file, RECORD_BYTES)) if is_run(name) and file.endswith(".json") else {}
        # The request has the values of variables, which may be secrets.
        shown = {key: entry[key] for key in SHOWN if key in entry}
        # What a word means on the head comes after the word and how the run must end.
        if isinstance(shown.get("after"), list):
            shown["after"] = [group[:2] if isinstance(group, list) else group for group in shown["after"]]
        if shown.get("id") == name:
            reason = reasons.get(name) if isinstance(reasons, dict) else None
            rows[name] = {"queued": shown, "reason": reason}
    return rows


def value_of(data: bytes) -> "Dict[str, Any]":
    """Return the JSON object; an empty one for anything else."""
    try:
        value = json.loads(text(data))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def print_states(runs: int) -> None:
    for name, run in run_folders(runs):
        if read_file(run, "record.json", RECORD_BYTES):
            print("living" if lives(run) else "over", name)


def print_slots(runs: int) -> None:
    for name, run in run_folders(runs):
        places = value_of(read_file(run, "record.json", RECORD_BYTES)).get("places") if lives(run) else None
        rows = [place for place in places if isinstance(place, dict)] if isinstance(places, list) else []
        if rows:
            held = [{"node": place.get("node"), "slots": place.get("slots")} for place in rows]
            sys.stdout.write(json.dumps({"id": name, "places": held}) + "\n")


def read_run(runs: int, name: str, file: str) -> None:
    if not is_run(name) or file not in READABLE:
        sys.exit("not a file of a run")
    run = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=runs)
    descriptor = open_file(run, file)
    # A file that grows must not keep this program busy.
    left = os.fstat(descriptor).st_size
    if file in ("record.json", "end.json"):
        left = min(left, RECORD_BYTES)
    while left > 0:
        piece = os.read(descriptor, min(left, CHUNK))
        if not piece:
            break
        left -= len(piece)
        view = memoryview(piece)
        while view:
            view = view[os.write(1, view) :]


def main(top: str, below: str, operation: str, *words: str) -> None:
    if operation in ("living", "waiting", "cordoned"):
        names = {"living": living, "waiting": waiting, "cordoned": cordoned}[operation](top, below)
        print("".join("%s\n" % name for name in names), end="")
        return
    try:
        runs = open_folder(top, below)
    except OSError:
        runs = -1
    if operation == "list":
        if runs < 0:
            print('{"end": true, "more": 0}')
        else:
            list_runs(runs)
    elif runs >= 0 and operation == "states":
        print_states(runs)
    elif runs >= 0 and operation == "slots":
        print_slots(runs)
    elif runs >= 0 and operation == "read":
        try:
            read_run(runs, *words)
        except FileNotFoundError:
            # kit removes the logs of old runs.
            return
        except OSError as error:
            sys.exit("%s: %s" % (words[-1], error.strerror))


if __name__ == "__main__":
    main(*sys.argv[1:])
