"""What the head keeps of runs that have ended: which ones go, and what stays of those that made something."""

import os
import time
from typing import List, Mapping, Optional, Sequence

from kitrun import store


def old(keep_s: float, keep_n: int, root: Optional[str] = None) -> List[store.Run]:
    """Return the runs that ended more than `keep_s` seconds ago, and all but the newest `keep_n` of the ended runs."""
    expired = []
    ended = [run for run in store.runs(root) if not run.alive]
    now = time.time()
    for index, run in enumerate(reversed(ended)):
        try:
            age = now - os.stat(run.path("log")).st_mtime
        except OSError:
            age = 0.0
        if index >= keep_n or age > keep_s:
            expired.append(run)
    return expired


def prune(runs: Sequence[store.Run], head: str, kept: Mapping[str, Sequence[str]]) -> None:
    """Remove the logs of these runs, and the records of those that made nothing anywhere.

    `kept` has the runs that have a folder on a node, for each other node that has said so.
    """
    for run in runs:
        if run.made or not made_nothing(run.id, run.record, head, kept):
            run.forget_log()
        else:
            run.forget()


def made_nothing(run_id: str, record: Optional[store.Record], head: str, kept: Mapping[str, Sequence[str]]) -> bool:
    """Return whether it is known that no node but the head, of those that had ranks of the run, has files of it."""
    hosts = {place["node"] for place in (*record["places"], *(record.get("helpers") or ()))} if record else set()
    return all(host in kept and run_id not in kept[host] for host in hosts - {head})
