"""The supervisor: one process in the head for each run. It has no parent, so it outlives the client that started it.

It starts mpirun, keeps everything that mpirun prints, ends the run when a person or a limit requires it, retries, and
checks at the end that no process of the run is left on any node. kitrun.attempt makes one attempt; kitrun.decide
decides.
"""

import contextlib
import os
import signal
import threading
import time
from typing import Any, Dict, Mapping, Optional, Sequence, Set, Type

from kitrun import code, decide, leases, limits, metrics, newest, procs, retention, settle, store
from kitrun.attempt import Attempt
from kitrun.launch import Launch, without

# How long the nodes have to report, at the end, that nothing is left on them.
CLEAN_S = 10.0
# How long they have to report which runs have files there. Without an answer, a record stays.
KEPT_S = 3.0
PAUSE_TICK_S = 0.1
# How long a supervisor whose run is over waits for the disk.
DISK_S = 10.0
KEEP_S, KEEP = 30 * 86400, 200


def supervise(run: store.Run, request: Mapping[str, Any]) -> None:
    """Run it to its end, with as many attempts as its policy allows, and write how it ended."""
    log = store.Log(run.path("log"))
    to_disk(run)
    policy = request["policy"]
    launch = launch_of(request)
    began = time.monotonic()
    # On other nodes, kit-rank makes them.
    folders = [run.path("output"), *([] if policy.get("checkpoints") else [run.path("checkpoints")])]
    for folder in folders:
        with contextlib.suppress(OSError):
            os.mkdir(folder)
    number = 0
    ports: Set[int] = set()
    recorder = metrics.Recorder(run.path("metrics.jsonl"), str(launch.env.get("KIT_HELD_SLOTS", "")))
    while True:
        number += 1
        kind = attempt_of(launch)
        attempt = kind(run, launch, policy, log, number=number, run_began=began, ports=ports, recorder=recorder)
        attempt.go()
        failure = attempt.failure()
        good = attempt.code == 0 and attempt.stop is None
        if not good:
            attempt.clean(CLEAN_S)
            failure = attempt.failure()
        if good or not decide.retries(policy, number, attempt.stop, failure):
            break
        attempt.close()
        wait = decide.backoff(policy, number)
        dropped, launch = without(launch, attempt.lost_hosts(), policy)
        release(run, dropped)
        age = newest.age(str(launch.env.get("KIT_CHECKPOINT_DIR", "")), time.time())
        checkpoint = {} if age is None else {"checkpoint": round(age, 1)}
        # The log has the rank's lines already.
        why = {name: value for name, value in (failure or {}).items() if name != "lines"}
        attempt.note("again", number=number + 1, wait=wait, dropped=dropped, failure=why, **checkpoint)
        attempt.stop = pause(attempt, wait)
        if attempt.stop is not None:
            break
    for folder in folders:
        with contextlib.suppress(OSError):
            # Succeeds only if nobody wrote anything there.
            os.rmdir(folder)
    if failure and failure["kind"] == "code":
        code.doubt(os.path.dirname(run.folder))
    cut = run.stdin_cut
    run.forget_stdin()
    run.finish(ending_of(attempt, failure, log.lost, recorder.summary(), stdin_cut=cut))
    written = to_disk(run)
    prune(run, attempt, policy)
    leave_nodes(run, attempt, good=good, clean=bool(policy.get("clean", True)))
    attempt.close()
    if written.is_alive():
        written.join(DISK_S)


def to_disk(run: store.Run) -> threading.Thread:
    """Let the run's files outlive a power cut. Neither its ranks nor its guards wait for a busy disk."""
    thread = threading.Thread(target=run.to_disk, daemon=True)
    # If the node may have no more threads, the disk gets them when the kernel writes them.
    with contextlib.suppress(RuntimeError):
        thread.start()
    return thread


def leave_nodes(run: store.Run, attempt: Attempt, *, good: bool, clean: bool) -> None:
    """End what a good run left in the background, or let it be. The client already knows how the run ended."""
    if good and clean and attempt.guarded:
        attempt.clean(CLEAN_S)
    if attempt.launch.code:
        settle_all(run, attempt)
    if good and not clean:
        attempt.leave(CLEAN_S)


def release(run: store.Run, hosts: Sequence[str]) -> None:
    """Give back the slots of hosts that the run does not use again. The record keeps these, for their files."""
    # On a full disk, other runs wait for the slots until this one ends.
    with contextlib.suppress(OSError), leases.starting(os.path.dirname(run.folder)):
        places = (run.record or {}).get("places") or ()
        if any(place["node"] in hosts for place in places):
            run.change_places([dict(place, ranks=0, slots=[]) if place["node"] in hosts else place for place in places])


def prune(run: store.Run, attempt: Attempt, policy: Mapping[str, Any]) -> None:
    """Remove what is left of old runs, while the guards of this one can say whether they have files of them."""
    old = retention.old(float(policy.get("keep_s", KEEP_S)), int(policy.get("keep", KEEP)), os.path.dirname(run.folder))
    # This one is not over: its working folder is not settled yet.
    others = [other for other in old if other.id != run.id]
    if others:
        retention.prune(others, attempt.launch.head, attempt.runs_kept(KEPT_S))


def attempt_of(launch: Launch) -> Type[Attempt]:
    """Return the kind of attempt that this launch needs."""
    if not launch.elastic:
        return Attempt
    # Imported only here: few runs are elastic.
    from kitrun.elastic import ElasticAttempt

    return ElasticAttempt


def settle_all(run: store.Run, attempt: Attempt) -> None:
    """Settle the run's working folders. Other nodes do that by themselves if they knew that no attempt would follow."""
    if not attempt.is_last:
        attempt.settle(CLEAN_S)
    os.nice(19)
    settle.settle(run, code.STORE)
    root, now = os.path.dirname(run.folder), time.time()
    watched = [other.id for other in store.runs(root) if other.watched]
    settle.settle_others(root, code.STORE, me=run.id, living=watched, began=now)


def launch_of(request: Mapping[str, Any]) -> Launch:
    return Launch(
        argv=tuple(request["argv"]),
        env=request["env"],
        hostfile=request["hostfile"],
        places=tuple(request["places"]),
        helpers=tuple(request.get("helpers") or ()),
        head=request["head"],
        code=request.get("code") or "",
        stdin=bool(request.get("stdin")),
        torchrun=bool(request.get("torchrun")),
        elastic=request.get("elastic") or {},
    )


def ending_of(
    attempt: Attempt,
    failure: Optional[Dict[str, Any]],
    lost_bytes: int,
    used: Optional[Dict[str, Any]],
    *,
    stdin_cut: bool,
) -> Dict[str, Any]:
    """Return the fields of end.json. `used` is what the run used of its hosts (kitrun.metrics), if that is known.

    `stdin_cut`: a full disk cut the standard input of rank 0.
    """
    stop = attempt.stop
    return {
        "ended": time.time(),
        "exit_code": decide.exit_code(stop, failure, attempt.code),
        "stopped": stop.why if stop and not stop.retry else "",
        "failure": failure,
        "attempt": attempt.number,
        "left": attempt.left,
        "lost_bytes": lost_bytes,
        **({"stdin_cut": True} if stdin_cut else {}),
        **({"metrics": used} if used else {}),
    }


def pause(attempt: Attempt, seconds: float) -> Optional[decide.Stop]:
    """Wait before the next attempt. Return the reason to end the run meanwhile, if there is one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        stop = attempt.requested() or decide.overdue(attempt.policy, attempt.run_began, time.monotonic())
        if stop is not None:
            attempt.note("stopping", why=stop.why)
            return stop
        time.sleep(PAUSE_TICK_S)
    return None


def begin(run: store.Run, request: Mapping[str, Any], lock: int) -> None:
    """Become the supervisor of this run, in a child of the process that started it. Never return."""
    os.setsid()
    for sign in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(sign, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    complaints = os.open(run.path("supervisor"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, target in ((nowhere, 0), (nowhere, 1), (complaints, 2)):
        os.dup2(fd, target)
    os.set_inheritable(lock, False)
    limits.raise_files()
    code = 0
    try:
        supervise(run, request)
    except BaseException:
        # Imported only here, because it is slow to import.
        import traceback

        traceback.print_exc()
        code = 70
        run.finish({"ended": time.time(), "exit_code": 70, "stopped": "", "failure": None, "left": {}})
        procs.sweep(run.id)
    os._exit(code)
