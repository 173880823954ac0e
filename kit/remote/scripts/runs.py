"""Reads the runs that a head keeps. Ranks can write to their folder: folder.py, which comes before this, opens it.

Arguments: TOP BELOW OPERATION [WORD]... The runs are in TOP/BELOW; only root can change TOP.

    list            a line of JSON for each run, the latest first: id, live, record and end (texts); then {"end": true}
    living          a line for each active run and each active mark of ranks that somebody started by hand
    states          a line `living ID` or `over ID` for each run
    read RUN NAME   the content of one file of a run

Standard library only, Python 3.6. It runs as root on a VM, or in a container.
"""

import json
import os
import sys

MYPY = False
if MYPY:
    from kit.remote.scripts.folder import (
        is_run,
        lives,
        living,
        locked,
        open_file,
        open_folder,
        read_file,
        run_folders,
    )

# The largest record, and how much of all records a list has. A record of 10,000 hosts has 1 MB.
RECORD_BYTES = 4 << 20
LIST_BYTES = 48 << 20
# The files that kit reads on their own.
READABLE = ("log", "code.diff")
CHUNK = 1 << 18


def list_runs(runs: int) -> None:
    total = count = more = 0
    for name, run in run_folders(runs):
        record = read_file(run, "record.json", RECORD_BYTES)
        if not record:
            continue
        end = read_file(run, "end.json", RECORD_BYTES)
        total += len(record) + len(end)
        if total > LIST_BYTES:
            more += 1
            continue
        count += 1
        row = {"id": name, "live": locked(run, "lock"), "record": text(record), "end": text(end)}
        sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.write(json.dumps({"end": True, "more": more}) + "\n")


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def print_states(runs: int) -> None:
    for name, run in run_folders(runs):
        if read_file(run, "record.json", RECORD_BYTES):
            print("living" if lives(run) else "over", name)


def read_run(runs: int, name: str, file: str) -> None:
    if not is_run(name) or file not in READABLE:
        sys.exit("not a file of a run")
    run = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=runs)
    descriptor = open_file(run, file)
    # A file that grows must not keep this program busy.
    left = os.fstat(descriptor).st_size
    while left > 0:
        piece = os.read(descriptor, min(left, CHUNK))
        if not piece:
            break
        left -= len(piece)
        view = memoryview(piece)
        while view:
            view = view[os.write(1, view) :]


def main(top: str, below: str, operation: str, *words: str) -> None:
    if operation == "living":
        print("".join("%s\n" % name for name in living(top, below)), end="")
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
