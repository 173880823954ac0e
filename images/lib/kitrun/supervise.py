"""The supervisor: one process in the head for each run, nobody's child, so that it outlives whoever started the run.

It starts mpirun, keeps all that it prints, notes the first failure, ends the run when somebody or a limit asks for it,
starts it again where that was asked for, and looks at its end that nothing of it is left on any node.
"""

import contextlib
import errno
import os
import re
import signal
import subprocess
import time
from collections import deque

from kitrun import frames, nodes, procs, roles, store

TICK_S = 0.1
# Short runs do without guards: a stream to each node costs more than they do.
GUARD_AFTER_S = 1.0
OPEN_AT_ONCE = 32
# No beat of the operator in the foreground for so long: gone. The front takes most of it off when its input ends.
OPERATOR_S = 60.0
# What mpirun needs to end ranks that have gone already; then it is killed.
MPIRUN_S = 8.0
# How long the nodes have to say, at the end, that nothing is left on them.
CLEAN_S = 10.0
# What a node that mpirun misses has to say that it is there nevertheless.
DOUBT_S = 3.0
TAIL = 8192
# Open MPI needs 50 to say that MPI_Init failed, and names the reason in the first of them.
LAST_LINES = 60
TIMED_OUT = 124
STOPPED = 143
# As kit's own code for a host that cannot be reached.
HOST_LOST = 3
# mpirun and its child both set the child's process group; whoever is second says this. Nothing is wrong.
HARMLESS = b"plm:rsh: Warning: setpgid"
# How a rank ended, as kit-rank tells it: HOST CODE SIGNAL OOM.
END = re.compile(r"(\S+) (\d{1,3}) (\d{1,3}) ([01])")
LOST_DAEMON = re.compile(
    r"(?:HNP|Remote) daemon\s*:\s*\[\[\d+,\d+\],(\d+)\] on node (\S+)|The process \w+ on node (\S+)"
)
LOST = "has lost communication with a remote daemon"
UNSTARTED = "unable to reliably start one or more daemons"
# What ssh says of a node on which mpirun could not start its daemon.
UNREACHED = re.compile(
    r"ssh: connect to host (\S+) port \d+: |Connection (?:closed|reset|timed out) by (?:\w+ )?(\S+) port"
)


class Log:
    """The run's log. A disk that is full loses lines, never the order of records or the run."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._good = os.fstat(self._fd).st_size
        self.lost = 0

    def write(self, data):
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
            self._good += len(data)
        except OSError:
            self.lost += len(data)
            try:
                os.ftruncate(self._fd, self._good)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                    raise


class Stop:
    """A wish that the run end: `why` for people, the seconds its ranks have, the exit code that it gives."""

    def __init__(self, why, grace, code, retry=False):
        self.why, self.grace, self.code, self.retry = why, grace, code, retry


class Attempt:
    """One start of mpirun, to its end."""

    def __init__(self, run, launch, number, log):
        self.run, self.launch, self.number, self.log = run, launch, number, log
        self.policy = launch["policy"]
        self.places = launch["places"]
        # Servers and the scheduler of a parameter server: the ranks behind those of the places.
        self.helpers = launch.get("helpers") or []
        self.nodes = [self._node(place) for place in self.places]
        if launch["head"] not in [node.name for node in self.nodes]:
            # It has no ranks, but mpirun runs there.
            self.nodes.append(nodes.Here(launch["head"], run.id))
        self.stop = None
        self.lost = []
        self.up = {}
        self.ended = {}
        self.tails = {}
        self.words = deque(maxlen=LAST_LINES)
        self.first = None
        self.code = None
        self.left = {}
        self._splitter = frames.Splitter()
        self._plain = b""
        self._began = time.monotonic()
        self._spoke = self._began
        self._looked = 0.0
        self._guarded = False
        self._signal = 0
        self._cleaned = False

    def _node(self, place):
        if place["node"] == self.launch["head"]:
            return nodes.Here(place["node"], self.run.id)
        return nodes.Node(place["node"], place["address"], self.run.id)

    # Start and loop

    def go(self):
        """Run mpirun to its end; `code` is then its exit code."""
        environment = dict(os.environ)
        environment.update(self.launch["env"])
        store.overwrite(self.run.path("hostfile"), roles.hostfile(self.launch["hostfile"], self.helpers).encode())
        behind = {"roles": [helper["role"] for helper in self.helpers]} if self.helpers else {}
        self.note("attempt", number=self.number, np=self.np, **behind)
        holder = None
        try:
            holder = roles.hold_port(environment, self.helpers)
            process = subprocess.Popen(
                self.launch["argv"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            self.words.append("%s: %s" % (self.launch["argv"][0], error.strerror))
            if holder is not None:
                holder.close()
            self.log.write(frames.record(now_ms(), b"-", "m", (self.words[-1] + "\n").encode()))
            self.code = 127
            return
        self._process = process
        pipes = {process.stdout.fileno(): self._take_plain, process.stderr.fileno(): self._take}
        wake = child_pipe()
        while process.poll() is None:
            fds = {node.fd: node for node in self.nodes if node.fd is not None}
            for fd in nodes.ready([*pipes, *fds, wake], TICK_S):
                if fd in pipes:
                    data = os.read(fd, 262144)
                    if data:
                        pipes[fd](data)
                    else:
                        del pipes[fd]
                elif fd in fds:
                    fds[fd].read()
                else:
                    os.read(wake, 4096)
            self._tick()
        self._drain(pipes)
        status = process.returncode
        self._signal = -status if status < 0 else 0
        self.code = status if status >= 0 else 128 - status
        process.stdout.close()
        process.stderr.close()
        if holder is not None:
            holder.close()

    def _drain(self, pipes):
        """What mpirun's pipes still hold; whoever else has their other end is not waited for."""
        end = time.monotonic() + 1.0
        while pipes and time.monotonic() < end:
            ready = nodes.ready(pipes, 0.05)
            for fd in ready:
                data = os.read(fd, 262144)
                if data:
                    pipes[fd](data)
                else:
                    del pipes[fd]
            if not ready:
                break
        if self._plain:
            self.log.write(frames.record(now_ms(), b"-", "m", self._plain))
        out = []
        for rank, kind, more, body in self._splitter.end():
            self._entry(rank, kind, more, body, out)
        if out:
            self.log.write(b"".join(out))

    # What the run says

    def _take_plain(self, data):
        lines, newline, self._plain = (self._plain + data).rpartition(b"\n")
        if newline:
            self.log.write(frames.record(now_ms(), b"-", "m", lines + newline))

    def _take(self, data):
        out = []
        for rank, kind, more, body in self._splitter.feed(data):
            self._entry(rank, kind, more, body, out)
        if out:
            self.log.write(b"".join(out))

    def _entry(self, rank, kind, more, body, out):
        if rank is None:
            if HARMLESS in body:
                body = b"".join(line for line in body.splitlines(True) if HARMLESS not in line)
                if not body:
                    return
            self.words.extend(body.decode("utf-8", "replace").splitlines())
            out.append(frames.record(now_ms(), b"-", "m", body))
            return
        out.append(frames.record(now_ms(), rank, kind, body, more))
        if kind in "oe":
            self._spoke = time.monotonic()
            tail = self.tails.get((rank, kind), b"") + body
            self.tails[rank, kind] = tail[-TAIL:]
        elif kind == "u":
            self.up[int(rank)] = body.decode("utf-8", "replace").partition(" ")[0]
        elif kind == "x":
            self._rank_ended(int(rank), END.fullmatch(body.decode("utf-8", "replace")))

    def _rank_ended(self, rank, found):
        # A rank without kit-rank around it may write what it likes.
        if found is None:
            return
        host, code, sign = found.group(1), int(found.group(2)), int(found.group(3))
        self.ended[rank] = (host, code, sign)
        if (code or sign) and self.first is None and self.stop is None:
            self.first = {"rank": rank, "host": host, "code": code, "signal": sign, "oom": found.group(4) == "1"}

    # What ends it

    def _tick(self):
        now = time.monotonic()
        if not self._guarded and (now - self._began > GUARD_AFTER_S or self.stop):
            self.guard()
        if self._guarded:
            opened = 0
            for node in self.nodes:
                if opened < OPEN_AT_ONCE:
                    opened += node.fd is None
                    node.tend()
        for node in self.nodes:
            if node.lost and node not in self.lost:
                self.lost.append(node)
                self.note("lost", host=node.name)
        if self.stop is None:
            self.stop = self._wanted(now)
            if self.stop is not None:
                self._begin_stop(now)
        else:
            self._go_on_stopping(now)

    def _wanted(self, now):
        """The reason to end it, if there is one."""
        if self.lost:
            return Stop("%s went away" % self.lost[0].name, 0.0, HOST_LOST, retry=True)
        if now - self._looked < TICK_S:
            return None
        self._looked = now
        return self.asked() or self._limit(now)

    def asked(self):
        """The wish of a person that the run end, or of one who is gone."""
        asked = self.run.stop_asked
        if asked is not None:
            return Stop(asked.get("why") or "stopped", float(asked.get("grace", 10.0)), STOPPED)
        age = self.run.operator_age
        if self.policy.get("operator") == "stop" and age is not None and age > OPERATOR_S:
            return Stop("its operator went away", 5.0, STOPPED)
        return None

    def overdue(self, now):
        """The end of the time that all attempts have together."""
        whole = self.policy.get("timeout")
        if not whole or now - self.launch["began"] <= whole:
            return None
        return Stop("its time of %g s was over" % whole, 5.0, TIMED_OUT)

    def _limit(self, now):
        np = self.np + len(self.helpers)
        ran = now - self._began
        start, stall = (self.policy.get(name) for name in ("start_timeout", "stall_timeout"))
        stop = self.overdue(now)
        if start and len(self.up) < np and ran > start:
            stop = Stop("%d of %d ranks were up after %g s" % (len(self.up), np, start), 5.0, TIMED_OUT)
        elif stop is None and stall and now - self._spoke > stall:
            stop = Stop("no rank had said anything for %g s" % stall, 5.0, TIMED_OUT)
        if stop is not None:
            self._report(stop.why, np)
        return stop

    def _report(self, why, np):
        """What each rank is doing, for the person who asks why nothing happens."""
        if not self._guarded:
            self.guard()
        answers = nodes.ask(self.nodes, "stacks", "stacks", 10.0)
        doing = {}
        for host, found in answers.items():
            for each in found:
                doing[each["rank"]] = dict(each, host=host)
        told = []
        for rank in range(np):
            entry = doing.get(rank, {"rank": rank, "host": self.host_of(rank)})
            role = roles.name(rank, self.np, self.helpers)
            if role:
                entry["role"] = role
            if rank in self.ended:
                entry["ended"] = True
            elif rank not in self.up:
                entry["waiting"] = True
            entry["last"] = (self.last_lines(rank) or [""])[-1]
            told.append(entry)
        self.note("hang", why=why, ranks=told)

    @property
    def np(self):
        """The ranks of the command."""
        return sum(place["ranks"] for place in self.places)

    def host_of(self, rank):
        """By the order in which mpirun fills nodes."""
        if rank >= self.np:
            return self.helpers[rank - self.np]["node"] if rank - self.np < len(self.helpers) else ""
        for place in self.places:
            if rank < place["ranks"]:
                return place["node"]
            rank -= place["ranks"]
        return ""

    def _begin_stop(self, now):
        self.note("stopping", why=self.stop.why)
        if self.stop.grace > 0:
            if not self._guarded:
                self.guard()
            for node in self.nodes:
                node.said = []
                node.send("term")
        self._deadline = now + self.stop.grace
        self._asked = now
        self._counts = {}
        self._told = False

    def _go_on_stopping(self, now):
        """Ranks first, each in its own time; then mpirun; then mpirun by force."""
        if self._told:
            if now > self._deadline:
                self._process.kill()
            return
        for node in self.nodes:
            for said in node.said:
                if "count" in said:
                    self._counts[node.name] = said["count"]
            node.said = []
        living = [node for node in self.nodes if node not in self.lost]
        gone = all(self._counts.get(node.name) == 0 for node in living)
        # Whoever asks again, with less patience, is heard.
        asked = self.run.stop_asked
        hurry = asked is not None and float(asked.get("grace", 10.0)) <= 0
        if gone or hurry or now > self._deadline:
            self._told = True
            self._deadline = now + (MPIRUN_S if not hurry else min(MPIRUN_S, 3.0))
            self._process.terminate()
        elif now - self._asked > 0.2:
            self._asked = now
            for node in living:
                node.send("count")

    # Guards, and the end

    def guard(self):
        """From the next tick on there are guards; a few of many nodes at a time."""
        self._guarded = True
        for node in self.nodes[:OPEN_AT_ONCE]:
            node.open()

    def clean(self, patience):
        """End what is left on every node. A node that cannot be reached has a guard of its own, or no ranks."""
        if not self._guarded:
            self.guard()
        missed = self.lost_hosts()
        self.left = nodes.ask([node for node in self.nodes if node.name not in missed], "end", "left", patience)
        # Who is missed by mpirun alone may answer, but is not waited for.
        doubtful = [node for node in self.nodes if node.name in missed and node not in self.lost]
        self.left.update(nodes.ask(doubtful, "end", "left", min(patience, DOUBT_S)))
        self._cleaned = True

    @property
    def guarded(self):
        return self._guarded

    def close(self):
        for node in self.nodes:
            node.close()

    def last_lines(self, rank):
        key = str(rank).encode()
        for kind in "eo":
            lines = self.tails.get((key, kind), b"").decode("utf-8", "replace").splitlines()
            if any(line.strip() for line in lines):
                return lines[-LAST_LINES:]
        return []

    def lost_hosts(self):
        """The nodes that the guards or mpirun itself miss, at the start, later, or at the end."""
        names = [node.name for node in self.lost]
        if self._cleaned and self.first is None and self.stop is None:
            names += [n.name for n in self.nodes if n.name not in self.left and not n.helpless and n not in self.lost]
        text = "\n".join(self.words)
        by_word = {word: place["node"] for place in self.places for word in (place["node"], place["address"])}
        if UNSTARTED in text and not self.up:
            for one, other in UNREACHED.findall(text):
                name = by_word.get(one or other)
                if name and name not in names:
                    names.append(name)
        if LOST in text:
            for daemon, far, near in LOST_DAEMON.findall(text):
                name = by_word.get(far or near)
                # The head's own daemon is 0, and is named beside the one that is missed.
                if name and daemon != "0" and name not in names and name != self.launch["head"]:
                    names.append(name)
        return names

    def failure(self):
        """The first thing that went wrong, or None."""
        lost = self.lost_hosts()
        words = list(self.words)
        if lost:
            return {"kind": "host", "host": lost[0], "mpirun": words}
        if self.first is not None:
            first = self.first
            return {
                "kind": "rank",
                "rank": first["rank"],
                "role": roles.name(first["rank"], self.np, self.helpers),
                "host": first["host"],
                "exit_code": None if first["signal"] else first["code"],
                "signal": signal_name(first["signal"]),
                "oom": first["oom"],
                "lines": self.last_lines(first["rank"]),
                "mpirun": words,
            }
        if self.code and self.stop is None:
            return {
                "kind": "mpirun",
                "host": self.launch["head"],
                "exit_code": None if self._signal else self.code,
                "signal": signal_name(self._signal),
                "mpirun": words,
            }
        return None

    def note(self, name, **fields):
        self.log.write(frames.event(now_ms(), name, **fields))


def supervise(run, launch):
    """Run it to its end, with as many attempts as were asked for, and write down how it ended."""
    log = Log(run.path("log"))
    policy = launch["policy"]
    launch["began"] = time.monotonic()
    checkpoints = run.path("checkpoints")
    if not policy.get("checkpoints"):
        with contextlib.suppress(OSError):
            os.mkdir(checkpoints)
    number = 0
    while True:
        number += 1
        launch["env"]["KIT_ATTEMPT"] = str(number)
        attempt = Attempt(run, launch, number, log)
        attempt.go()
        failure = attempt.failure()
        good = attempt.code == 0 and attempt.stop is None
        if not good:
            attempt.clean(CLEAN_S)
            failure = attempt.failure()
        if good or not again(attempt, failure, number, policy):
            break
        attempt.close()
        wait = min(60.0, float(policy.get("backoff") or 1.0) * 2 ** (number - 1))
        attempt.note("again", number=number + 1, wait=wait, dropped=drop_lost(launch, attempt, policy))
        attempt.stop = pause(attempt, wait)
        if attempt.stop is not None:
            break
    with contextlib.suppress(OSError):
        # Gone where nobody put anything into it.
        os.rmdir(checkpoints)
    ending = {
        "ended": time.time(),
        "exit_code": code_of(attempt, failure),
        "stopped": attempt.stop.why if attempt.stop and not attempt.stop.retry else "",
        "failure": failure,
        "attempt": number,
        "left": attempt.left,
        "lost_bytes": log.lost,
    }
    run.finish(ending)
    if good and attempt.guarded and policy.get("clean", True):
        # Told already that it ended well: what it may have left in the background ends now.
        attempt.clean(10.0)
    attempt.close()
    store.prune(float(policy.get("keep_s", 30 * 86400)), int(policy.get("keep", 200)), os.path.dirname(run.folder))


def code_of(attempt, failure):
    if attempt.stop is not None:
        return attempt.stop.code
    return HOST_LOST if failure and failure["kind"] == "host" else attempt.code


def again(attempt, failure, number, policy):
    if number > int(policy.get("retries") or 0) or failure is None:
        return False
    if attempt.stop is not None and not attempt.stop.retry:
        return False
    return policy.get("retry_on") != "lost-host" or failure["kind"] == "host"


def drop_lost(launch, attempt, policy):
    """Take lost hosts out of the next attempt, where as many ranks as were asked for stay. Returns their names."""
    lost = [name for name in attempt.lost_hosts() if name != launch["head"]]
    kept = [place for place in launch["places"] if place["node"] not in lost]
    np = sum(place["ranks"] for place in kept)
    least = policy.get("min_np")
    if not lost or not least or np < int(least):
        return []
    gone = {place["address"] for place in launch["places"] if place["node"] in lost}
    lines = [line for line in launch["hostfile"].splitlines() if line.split()[0] not in gone]
    launch["hostfile"] = "".join(line + "\n" for line in lines)
    launch["places"] = kept
    argv = launch["argv"]
    argv[argv.index("-np") + 1] = str(np)
    return lost


def pause(attempt, seconds):
    """Wait before the next attempt. Returns the reason to end the run meanwhile, if there is one."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        stop = attempt.asked() or attempt.overdue(time.monotonic())
        if stop is not None:
            attempt.note("stopping", why=stop.why)
            return stop
        time.sleep(0.1)
    return None


def signal_name(number):
    if not number:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "SIG%d" % number


def now_ms():
    return int(time.time() * 1000)


def child_pipe():
    """A descriptor that can be read whenever a child ends."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    os.set_blocking(read_end, False)
    signal.set_wakeup_fd(write_end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read_end


def begin(run, launch, lock):
    """Become the supervisor of this run: called in a child of whoever started it. Does not return."""
    os.setsid()
    for sign in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(sign, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    complaints = os.open(run.path("supervisor"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, target in ((nowhere, 0), (nowhere, 1), (complaints, 2)):
        os.dup2(fd, target)
    os.set_inheritable(lock, False)
    code = 0
    try:
        supervise(run, launch)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
        run.finish({"ended": time.time(), "exit_code": 70, "stopped": "", "failure": None, "left": {}})
        procs.sweep(run.id)
    os._exit(code)
