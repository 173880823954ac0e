"""The lock of a cluster: a process on the head's VM holds it while kit sends beats, so it never outlives its holder.

Two limits make it safe: kit considers the lock lost before the VM gives it to somebody else.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO, Literal, Protocol

from kit.errors import Interrupted, KitError, NotReadyError, SlowError, StepError
from kit.model.answer import OddAnswer, answer_of, number
from kit.model.host import Login
from kit.model.lock import Holder, LockStatus
from kit.remote.machine.operator import operator
from kit.remote.scripts import script
from kit.remote.ssh.attempts import Attempts
from kit.remote.ssh.openssh import SSH_FAILED, openssh_argv
from kit.remote.ssh.starting import starting
from kit.remote.ssh.transport import Completed, Transport, marked

BEAT_S = 5.0
# The VM frees the lock after this long without a beat.
SILENCE_S = 30
# When no younger beat has come back, kit considers the lock lost.
TRUST_S = 20.0
RELEASE_TIMEOUT_S = 10.0
# From the start of ssh to the VM's answer. ssh itself gives up a VM that does not answer; a shell there may hang.
ANSWER_S = 60.0
# Limits of an answer: bytes of a line or a message, lines that a login may print, and seconds since 1970.
_LONGEST = 1 << 16
_MOST_LINES = 1000
_LATEST = 2**36


class Lock(Protocol):
    """A lock that was taken. `check` raises NotReadyError once it is lost, and Interrupted once kit released it."""

    def check(self) -> None: ...

    def release(self) -> None: ...


# (the head, the lock's file there, what for) → the lock. Raises NotReadyError if somebody else holds it.
Take = Callable[[Login, str, str], Lock]


def take(head: Login, file: str, what: str) -> Lock:
    """Take the lock.

    Raises NotReadyError (names the holder), UnreachableError, StepError (the VM cannot hold it), or SlowError.
    """
    command = marked(script("lock", file, str(SILENCE_S), operator(), what))
    attempts = Attempts(head)
    while True:
        attempts.begin(head)
        try:
            return _ask(head, command)
        except _NoSession as ended:
            pause = attempts.pause_s(ended.text)
            if pause is None:
                raise attempts.error(ended.text) from None
        time.sleep(pause)


class _NoSession(Exception):
    """ssh ended before the VM answered. `text` is what it wrote."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def _ask(head: Login, command: str) -> Lock:
    start = _now()
    with starting(head.host):
        process = subprocess.Popen(
            [*openssh_argv(head), command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # kit handles Ctrl-C, and releases the lock when the work has ended.
            start_new_session=True,
        )
    late = threading.Event()

    def give_up() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(ANSWER_S, give_up)
    timer.daemon = True
    timer.start()
    try:
        # A login shell may print something first. The mark ends its last line.
        out = _pipe(process.stdout)
        for _ in range(_MOST_LINES):
            line = out.readline(_LONGEST)
            if not line:
                break
            if line == b"kit-lock held\n":
                return SshLock(process, head.host, start)
            if line.startswith(b"kit-lock "):
                raise not_taken((line + out.read(_LONGEST)).decode(errors="replace"), head.host)
        else:
            with answer_of(head.host, "its answer about the lock"):
                raise OddAnswer("there is no end", line)
        if late.is_set():
            raise SlowError(
                f"the host did not answer within {ANSWER_S:.0f} s whether the lock of the cluster is free",
                hint=f"look at its disk and its load: kit ssh {head.host} -- uptime; then try again",
                host=head.host,
            )
        stderr = _pipe(process.stderr).read(_LONGEST).decode(errors="replace").strip()
        code = process.wait()
        raise _NoSession(stderr) if code == SSH_FAILED else _not_held(stderr, code, head)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        timer.cancel()


class SshLock:
    """The lock as kit holds it: it sends a beat every few seconds, and knows when the last one came back."""

    def __init__(self, process: subprocess.Popen[bytes], host: str, start: float) -> None:
        self._process = process
        self._host = host
        # When kit sent the newest beat that came back.
        self._sure = start
        self._sent: dict[bytes, float] = {}
        self._gone = threading.Event()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._beat, self._listen)]
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        if self._over.is_set():
            # A thread of a change that Ctrl-C has ended. The main thread says so, and which hosts are not done.
            raise Interrupted("the change was ended before this step", host=self._host)
        if self._gone.is_set() or _now() - self._sure > TRUST_S:
            raise NotReadyError(
                "the lock of the cluster was lost: somebody released it, or the line to the head was cut",
                hint="nothing more was begun, and hosts may be incomplete. Run kit lock status, then: kit deploy",
                host=self._host,
            )

    def release(self) -> None:
        """Release the lock, and wait until its file is gone. Do nothing the second time."""
        if self._over.is_set():
            return
        self._over.set()
        self._threads[0].join(1.0)
        with contextlib.suppress(OSError, ValueError):
            _pipe(self._process.stdin).close()
        try:
            self._process.wait(RELEASE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # The VM frees the lock by itself.
            self._process.kill()
            self._process.wait()

    def _beat(self) -> None:
        number = 0
        while True:
            number += 1
            beat = b"%d\n" % number
            self._sent[beat] = _now()
            try:
                _pipe(self._process.stdin).write(beat)
                _pipe(self._process.stdin).flush()
            except (OSError, ValueError):
                return
            if self._over.wait(BEAT_S):
                return

    def _listen(self) -> None:
        while line := _pipe(self._process.stdout).readline(_LONGEST):
            self._sure = self._sent.pop(line, self._sure)
        self._gone.set()


def look(transport: Transport, cluster: str, file: str) -> LockStatus:
    """Return whether somebody holds the lock, and who."""
    done = transport.run(script("lock_status", file))
    with answer_of(transport.host.name, "the state of the lock"):
        status = read_status(done.text, cluster)
    if status is None:
        raise _failed(done, transport.host.name)
    return status


def take_away(transport: Transport, file: str, holder: Holder | None) -> None:
    """End this holder's process if it has the lock, and remove what it left."""
    done = transport.run(script("lock_release", file, str(holder.pid) if holder and holder.pid else ""))
    if "kit-lock changed" in done.text:
        raise NotReadyError(
            "the lock has another holder by now; nothing was done", hint="kit lock status", host=transport.host.name
        )
    if "kit-lock released" not in done.text:
        raise _failed(done, transport.host.name)


def refused(holder: Holder | None, host: str) -> NotReadyError:
    """Return the error for a second operator."""
    who = (
        f"{holder.who} holds the lock of the cluster since {holder.since_text()}, for {holder.what}" if holder else None
    )
    return NotReadyError(
        who or "somebody holds the lock of the cluster",
        hint="wait until that is done: kit lock status shows it. If nobody works there: kit lock release",
        host=host,
    )


def no_flock(host: str) -> StepError:
    return StepError("there is no flock, which holds the lock", hint="install util-linux on this VM", host=host)


def not_taken(answer: str, host: str) -> KitError:
    if answer.startswith("kit-lock no-flock"):
        return no_flock(host)
    with answer_of(host, "its answer about the lock"):
        status = read_status(answer.replace("kit-lock taken", "kit-lock held", 1), "")
        if status is None:
            raise OddAnswer("this is not the state of a lock", answer)
    return refused(status.holder, host)


def _not_held(stderr: str, code: int, head: Login) -> KitError:
    last = stderr.splitlines()[-1] if stderr else f"exit {code}"
    return StepError(
        f"the lock of the cluster cannot be held: {last}",
        hint="check its disk (df -h), and that the login may become root without a password",
        host=head.host,
    )


def _failed(done: Completed, host: str) -> KitError:
    return StepError(
        f"the lock of the cluster could not be looked at: {done.error_text or f'exit {done.code}'}",
        hint=f"look at it by hand: kit ssh {host}",
        host=host,
    )


def read_status(text: str, cluster: str) -> LockStatus | None:
    """Return the status in a script's output: `kit-lock STATE`, then a name and a value a line. None otherwise.

    Raises OddAnswer for a number that no clock shows.
    """
    lines = [line.partition(" ") for line in text.split("\n")]
    words = {name: value for name, _, value in lines}
    states: dict[str, Literal["free", "held", "stale"]] = {"free": "free", "held": "held", "stale": "stale"}
    state = states.get(words.get("kit-lock", ""))
    if state is None:
        return None
    now, since = (_number(words.get(name), _LATEST) for name in ("now", "since"))
    if state == "free" or not words.get("who"):
        return LockStatus(cluster=cluster, state=state)
    holder = Holder(
        who=words["who"],
        what=words.get("what", ""),
        since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since)),
        age_s=max(now - since, 0),
        pid=_number(words.get("pid"), 2**31),
    )
    return LockStatus(cluster=cluster, state=state, holder=holder)


def _number(word: str | None, most: int) -> int:
    """Return 0 for a file that a full disk has cut."""
    return number(word, most=most) if word is not None and word.isascii() and word.isdigit() else 0


def _now() -> float:
    # Counts the time for which a laptop slept.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the process was started without this pipe")
    return pipe
