"""kit stop by-hand: end ranks that a person started in the head's shell with hvd-distribute.sh, without kit run."""

from __future__ import annotations

import time

from kit.errors import NotReadyError
from kit.events import Warned
from kit.flows.cluster.ps import ps
from kit.flows.context import Context
from kit.model.failures import alike
from kit.model.run import RunRecord
from kit.remote.run.sweep import sweep

# images/bin/hvd-distribute.sh marks its ranks with this word and a number.
WORD = "by-hand"


def is_by_hand(run: str | None) -> bool:
    return run is not None and (run == WORD or run.startswith(f"{WORD}-"))


def stop_by_hand(context: Context, run: str) -> RunRecord:
    """End the processes with this mark on every host; `by-hand` means all such marks. Return what is left, by host.

    No supervisor watches these ranks, so kit looks for them on the hosts. Raises NotReadyError if it finds no process.
    """
    nodes = ps(context).nodes
    hosts = [context.host(node.host) for node in nodes if not node.problem]
    marks = sorted({mark for node in nodes for mark in node.ranks if is_by_hand(mark)})
    chosen = [mark for mark in marks if run in (WORD, mark)]
    if not chosen:
        raise NotReadyError(f"no ranks of {run} are running", hint="see what is running: kit ps")
    left: dict[str, int] = {}
    for mark in chosen:
        counts, failures = sweep(hosts, mark, context.connect)
        for host, count in counts.items():
            left[host] = left.get(host, 0) + count
        for failure in alike(failures.values()):
            context.reporter.report(Warned(text=str(failure), hint=failure.hint))
    return RunRecord(
        id=", ".join(chosen),
        cluster=context.spec.name,
        image="",
        command=(),
        places=(),
        state="ended",
        ended=time.time(),
        stopped="kit stop",
        left=left,
    )
