"""Decisions about a run: when to stop it, when to retry it, and what failed first.

Pure functions on frozen values. They read no clock, no file and no process; kitrun.attempt and kitrun.supervise do.
"""

import re
import signal
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

TIMED_OUT = 124
# As a shell reports a command that the kernel killed, which it does where memory runs out.
OUT_OF_MEMORY = 137
STOPPED = 143
# kit's own exit codes for a host that it cannot reach, and for one on which a step failed.
HOST_LOST = 3
HOST_FAILED = 4
# kit-rank's exit code if NCCL uses another network than the run requires, and its words (kitrun.nccl).
NOT_READY, OTHER_NETWORK = 5, ", and nccl.require is "
# The operator in the foreground sends a beat more often than this. When its stream ends, the front shortens the wait.
OPERATOR_S = 60.0
# How long ranks have to end after a limit, or after their operator went away.
GRACE_S = 5.0
# How long mpirun has to end when its ranks have ended, or when a person is in a hurry. Then kit kills it.
MPIRUN_S = 8.0
HURRY_S = 3.0
# How long the last lines of ranks that have ended may take to the head. mpirun drops what comes after its own end.
LINES_S = 3.0
# How often kit asks nodes how many ranks are left.
COUNT_S = 0.2
LONGEST_BACKOFF_S = 60.0

LOST = "has lost communication with a remote daemon"
LOST_DAEMON = re.compile(
    r"(?:HNP|Remote) daemon\s*:\s*\[\[\d+,\d+\],(\d+)\] on node (\S+)|The process \w+ on node (\S+)"
)
UNSTARTED = "unable to reliably start one or more daemons"
# What ssh prints about a node on which mpirun could not start its daemon.
UNREACHED = re.compile(
    r"ssh: connect to host (\S+) port \d+: |Connection (?:closed|reset|timed out) by (?:\w+ )?(\S+) port"
)
# What kit-code prints on a node whose working folder it cannot seed. Then no rank starts.
UNSEEDED = re.compile(r"kit-code: (\S+): (.*)")


# What mpirun prints if a rank ended badly, and about the rank whose end made it end the others. Open MPI 5 calls itself
# prterun.
NAMELESS = "process returned a non-zero exit code"
SIGNALLED = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)")
EXITED = re.compile(r"first process to do so was: Process name: \[\S+,(\d+)\] Exit code: +(\d+)")


class Stop(NamedTuple):
    """A request to end the run: `why` for people, the seconds of `grace` for ranks, and the exit `code`."""

    why: str
    grace: float
    code: int
    retry: bool = False


class Progress(NamedTuple):
    """What an attempt has done by `now`. All times are seconds of the monotonic clock."""

    now: float
    # When the first attempt of the run began, and this one.
    run_began: float
    began: float
    # When a rank last wrote anything.
    spoke: float
    # The ranks that are up, out of those that should be.
    up: int
    ranks: int


class Stopping(NamedTuple):
    """How far the end of an attempt has come. First the ranks end, then mpirun ends, then kit kills it."""

    deadline: float
    # When the nodes were last asked for their number of ranks.
    counted: float
    # When no node had ranks left, for the first time.
    gone: Optional[float] = None
    mpirun_ends: bool = False


class RankEnd(NamedTuple):
    """How a rank ended, as kit-rank reports it. `rank` is None and `host` '' if nobody knows which rank it was."""

    rank: Optional[int]
    host: str
    code: int
    signal: int
    oom: bool


class Outcome(NamedTuple):
    """What is known about an attempt at its end."""

    code: int
    # The signal that ended mpirun, or 0.
    signal: int
    stop: Optional[Stop]
    # The first rank that failed.
    first: Optional[RankEnd]
    any_up: bool
    # The last lines of mpirun itself.
    words: Tuple[str, ...]
    # The nodes that the guards lost, and those that did not answer when kit cleaned up.
    lost: Tuple[str, ...]
    silent: Tuple[str, ...] = ()
    # Those of `silent` that had sent nothing for a while when the attempt ended.
    quiet: Tuple[str, ...] = ()


# Stop


def requested(policy: Mapping[str, Any], request: Optional[Mapping[str, Any]], age: Optional[float]) -> Optional[Stop]:
    """Return the stop that a person requested, or the one for an operator who went away.

    `age` is how many seconds ago the operator last sent a beat; None if there never was an operator.
    """
    if request is not None:
        return Stop(request.get("why") or "stopped", grace_of(request), STOPPED)
    if policy.get("operator") == "stop" and age is not None and age > OPERATOR_S:
        return Stop("its operator went away", GRACE_S, STOPPED)
    return None


def grace_of(request: Mapping[str, Any]) -> float:
    return float(request.get("grace", 10.0))


def overdue(policy: Mapping[str, Any], run_began: float, now: float) -> Optional[Stop]:
    """Return a stop if the time of all attempts together is over."""
    whole = policy.get("timeout")
    if not whole or now - run_began <= whole:
        return None
    return Stop("its time of %g s was over" % whole, GRACE_S, TIMED_OUT)


def limit(policy: Mapping[str, Any], progress: Progress) -> Optional[Stop]:
    """Return a stop if the attempt is over one of its limits. A start that takes too long is the reason that counts."""
    start, stall = policy.get("start_timeout"), policy.get("stall_timeout")
    if start and progress.up < progress.ranks and progress.now - progress.began > start:
        return Stop("%d of %d ranks were up after %g s" % (progress.up, progress.ranks, start), GRACE_S, TIMED_OUT)
    late = overdue(policy, progress.run_began, progress.now)
    if late is None and stall and progress.now - progress.spoke > stall:
        return Stop("no rank had said anything for %g s" % stall, GRACE_S, TIMED_OUT)
    return late


def lost_stop(host: str) -> Stop:
    """Return the stop for a lost host. Nothing can be waited for, and another attempt may succeed."""
    return Stop("%s went away" % host, 0.0, HOST_LOST, retry=True)


def memory_stop(host: str, used: int, most: int) -> Stop:
    """Return the stop for ranks that use more memory than --memory allows. They get no time: they may still grow."""
    text = "its ranks on %s used %s of memory, and --memory allows %s on each host"
    return Stop(text % (host, mebibytes(used), mebibytes(most)), 0.0, OUT_OF_MEMORY)


def mebibytes(size: int) -> str:
    return "%d MiB" % (size >> 20)


def begin_stop(stop: Stop, now: float) -> Stopping:
    return Stopping(deadline=now + stop.grace, counted=now)


def shortened(stopping: Stopping, request: Mapping[str, Any], now: float) -> Stopping:
    """Return the state after another request to stop. It can take time from the ranks, and gives them none."""
    return stopping._replace(deadline=min(stopping.deadline, now + grace_of(request)))


def next_step(stopping: Stopping, now: float, *, ranks_gone: bool, reported: bool, hurry: bool) -> Tuple[str, Stopping]:
    """Return what to do now ('kill' or 'end' mpirun, 'count' ranks, or '' to wait), and the state after it.

    `ranks_gone`: no node has ranks left. `reported`: the end of each rank, which comes after its last line, is here.
    `hurry`: a person asked again, with no grace.
    """
    if stopping.mpirun_ends:
        return ("kill" if now > stopping.deadline else ""), stopping
    if ranks_gone and stopping.gone is None:
        stopping = stopping._replace(gone=now)
    complete = stopping.gone is not None and (reported or now - stopping.gone > LINES_S)
    if hurry or complete or (stopping.gone is None and now > stopping.deadline):
        patience = min(MPIRUN_S, HURRY_S) if hurry else MPIRUN_S
        return "end", stopping._replace(mpirun_ends=True, deadline=now + patience)
    if now - stopping.counted > COUNT_S:
        return "count", stopping._replace(counted=now)
    return "", stopping


# Failure


def lost_hosts(outcome: Outcome, places: Sequence[Mapping[str, Any]], head: str) -> List[str]:
    """Return the nodes that the guards or mpirun itself missed, at the start, later, or at the end."""
    names = list(outcome.lost)
    if outcome.stop is None:
        # Other ranks may notice a dead host before kit does. The host of the rank that failed was there.
        silent = outcome.silent if outcome.first is None else outcome.quiet
        names += [name for name in silent if name not in names and not (outcome.first and outcome.first.host == name)]
    text = "\n".join(outcome.words)
    node_of = {word: str(place["node"]) for place in places for word in (place["node"], place["address"])}
    missed = []
    if UNSTARTED in text and not outcome.any_up:
        missed += [node_of.get(one or other, "") for one, other in UNREACHED.findall(text)]
    if LOST in text:
        # mpirun names the head's own daemon, number 0, beside the one that it lost.
        daemons = (node_of.get(far or near, "") for daemon, far, near in LOST_DAEMON.findall(text) if daemon != "0")
        missed += [name for name in daemons if name != head]
    for name in missed:
        if name and name not in names:
            names.append(name)
    return names


def first_end(outcome: Outcome, hosts: Mapping[int, str], ended: Mapping[int, RankEnd]) -> Optional[RankEnd]:
    """Return how the rank ended that failed first, or None. `hosts` has the host of each rank.

    This is the first failure that a keeper (kit-rank) reported. But mpirun ends the others because of the rank that it
    names. If that rank's keeper was killed, too, it reports nothing, perhaps not even that the rank is up; and on a
    busy machine its report comes after that of a rank that mpirun ended by SIGTERM. mpirun names no rank that ended
    before all ranks had started; but its exit code always is that rank's.
    """
    if outcome.stop is not None:
        return outcome.first
    text = " ".join(" ".join(outcome.words).split())
    for pattern, is_signal in ((SIGNALLED, True), (EXITED, False)):
        match = pattern.search(text)
        if match is None:
            continue
        rank, number = int(match.group(1)), int(match.group(2))
        if rank in hosts and rank not in ended:
            return RankEnd(rank, hosts[rank], 0 if is_signal else number, number if is_signal else 0, False)
        end = ended.get(rank)
        if end and (end.code or end.signal) and not is_terminated(end) and is_terminated(outcome.first):
            return end
    doubtful = NAMELESS in text if outcome.first is None else is_terminated(outcome.first)
    if not doubtful or outcome.signal or outcome.code in (0, STOPPED):
        return outcome.first
    return next((end for end in ended.values() if _code(end) == outcome.code), None) or _nameless(outcome.code)


def is_terminated(end: Optional[RankEnd]) -> bool:
    """Return whether the rank ended as mpirun ends ranks: by SIGTERM, or with the exit code of a shell that got it."""
    return end is not None and _code(end) == STOPPED


def _code(end: RankEnd) -> int:
    """Return mpirun's exit code, if this end made it end the others."""
    return 128 + end.signal if end.signal else end.code


def _nameless(code: int) -> RankEnd:
    by_signal = 128 < code < 128 + signal.NSIG
    return RankEnd(None, "", 0 if by_signal else code, code - 128 if by_signal else 0, False)


def failure(
    outcome: Outcome,
    *,
    lost: Sequence[str],
    head: str,
    role: str,
    lines: Sequence[str],
    before: Optional[RankEnd] = None,
) -> Optional[Dict[str, Any]]:
    """Return what went wrong first, or None. `role` and `lines` are those of the first rank that failed.

    `before` is the rank that ended without an error before it, if that is why it failed.
    """
    words = list(outcome.words)
    if lost:
        return {"kind": "host", "host": lost[0], "mpirun": words}
    first = outcome.first
    unseeded = None if first else next(filter(None, map(UNSEEDED.search, words)), None)
    if unseeded is not None:
        return {"kind": "code", "host": unseeded[1], "lines": [unseeded[2]], "mpirun": words}
    if first is not None:
        return {
            **rank_failure(first),
            "role": role,
            "lines": list(lines),
            "mpirun": words,
            **({"before": {"rank": before.rank, "host": before.host}} if before else {}),
        }
    if outcome.code and outcome.stop is None:
        return {
            "kind": "mpirun",
            "host": head,
            "exit_code": None if outcome.signal else outcome.code,
            "signal": signal_name(outcome.signal),
            "mpirun": words,
        }
    return None


def rank_failure(end: RankEnd) -> Dict[str, Any]:
    """Return the failure of a rank, as far as its end shows it."""
    return {
        "kind": "rank",
        "rank": end.rank,
        "host": end.host,
        "exit_code": None if end.signal else end.code,
        "signal": signal_name(end.signal),
        "oom": end.oom,
    }


def signal_name(number: int) -> str:
    if not number:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIG%d" % number


def exit_code(stop: Optional[Stop], failure: Optional[Mapping[str, Any]], code: int) -> int:
    """Return the exit code of the run. `code` is that of mpirun."""
    if stop is not None:
        return stop.code
    # torchrun ends with another code than its ranks.
    if failure and failure.get("exit_code") == NOT_READY and OTHER_NETWORK in "\n".join(failure.get("lines", ())):
        return NOT_READY
    return {"host": HOST_LOST, "code": HOST_FAILED}.get(failure["kind"] if failure else "", code)


# Retry


def retries(policy: Mapping[str, Any], number: int, stop: Optional[Stop], failure: Optional[Mapping[str, Any]]) -> bool:
    """Return whether attempt `number`, which failed, is followed by another one."""
    if number > int(policy.get("retries") or 0) or failure is None or failure["kind"] == "code":
        return False
    if stop is not None and not stop.retry:
        return False
    return policy.get("retry_on") != "lost-host" or failure["kind"] == "host"


def backoff(policy: Mapping[str, Any], number: int) -> float:
    """Return the seconds to wait after attempt `number`. They double with each attempt."""
    first = float(policy.get("backoff") or 1.0)
    return min(LONGEST_BACKOFF_S, first * 2.0 ** min(number - 1, 64))
