"""Begins a run on the head: reads what kit asks for, makes the run's folder, and forks its supervisor."""

import os
import time
from typing import Any, Callable, Dict, Mapping, Optional

from kitrun import leases, store, supervise

# The parts of a start, and their types.
LAUNCH = {"hostfile": str, "argv": list, "env": dict, "places": list, "head": str, "policy": dict, "info": dict}

Request = Dict[str, Any]


def launch_of(request: Mapping[str, Any], root: str) -> Optional[Request]:
    """Return a copy of what the supervisor needs, or None if a part is missing or of another type."""
    try:
        launch = {name: request[name] for name in LAUNCH}
        good = all(isinstance(launch[name], kind) for name, kind in LAUNCH.items()) and launch["argv"]
        texts = [*launch["argv"], *launch["env"].values()]
        for place in launch["places"]:
            texts += [place["node"], place["address"]]
            good = good and all(
                isinstance(number, int) for number in [place["ranks"], place.get("of") or 0, *place["slots"]]
            )
        launch["helpers"] = request.get("helpers") or []
        launch["stdin"] = bool(request.get("stdin"))
        launch["torchrun"] = bool(request.get("torchrun"))
        launch["elastic"] = dict(request.get("elastic") or {})
        for helper in launch["helpers"]:
            texts += [helper["role"], helper["node"], helper["address"]]
        launch["code"] = request.get("code") or ""
        texts.append(launch["code"])
        if not good or not all(isinstance(text, str) for text in texts):
            return None
    except (AttributeError, KeyError, TypeError):
        return None
    folder = os.path.join(root, request["id"])
    launch["env"] = dict(
        launch["env"],
        KIT_OUTPUT_DIR=os.path.join(folder, "output"),
        KIT_CHECKPOINT_DIR=launch["policy"].get("checkpoints") or os.path.join(folder, "checkpoints"),
    )
    return launch


def record_of(run_id: str, launch: Mapping[str, Any]) -> Request:
    """Return the run's record as of now."""
    record = dict(launch["info"], id=run_id, places=launch["places"], helpers=launch["helpers"])
    record["started"] = time.time()
    # The line plans with both (kitqueue.keeper). A person may set the other clock, but not the supervisor's.
    record["monotonic"] = time.monotonic()
    # A run that was lost in an earlier boot holds no slots (kitrun.leases).
    record["boot"] = leases.boot()
    if launch["policy"].get("timeout"):
        record["limit"] = launch["policy"]["timeout"]
    return record


def begin(run: store.Run, record: Request, launch: Request, before: Callable[[], object] = lambda: None) -> None:
    """Make the run's folder and fork its supervisor. The caller holds `leases.starting`.

    `before` is called when the folder is there. Raises OSError, and leaves nothing.
    """
    lock = run.create(record, launch["hostfile"])
    try:
        before()
        child = os.fork()
    except OSError:
        store.remove_folder(run.folder)
        os.close(lock)
        raise
    if child == 0:
        # Locks that this process has would be held as long as the run lives.
        os.closerange(3, lock)
        os.closerange(lock + 1, 256)
        supervise.begin(run, launch, lock)
    os.close(lock)
