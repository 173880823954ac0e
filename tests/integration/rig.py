"""What the integration tests hold: the real command line in front, and the hosts' own state behind it.

State is read over plain OpenSSH with the lab's key and strict checking: from /proc, ss, the files and the host's own
engine. Nothing here believes kit's words, and nothing here needs more on a host than a shell.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from kit.plan.bases import UNLOCKED
from kit.plan.run.mpi import RELAY
from kit.remote.engine.hiccups import nothing_began, persistently

T = TypeVar("T")
Done = subprocess.CompletedProcess[str]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0
LONGEST_PAUSE_S = 0.5
# The command line of a rank's relay begins so.
_RELAY = " ".join((*RELAY, ""))
# A connection to a host that disappears must end soon.
KEPT = {"ControlMaster": "auto", "ControlPersist": "20", "ServerAliveInterval": "2", "ServerAliveCountMax": "3"}

# Every process with a run's mark: PID, state, run, rank (or -), command line. A zombie has no environment left. Tests
# look again and again: this is one bash that forks nothing but one grep.
_MARKED = r"""
for environ in $(grep -lzs '^KIT_RUN=' /proc/[0-9]*/environ); do
  pid=${environ#/proc/}; pid=${pid%/environ}
  run= rank=- state=- agent= own=-
  while IFS= read -r -d '' word; do
    case $word in
      KIT_RUN=*) run=${run:-${word#KIT_RUN=}} ;;
      OMPI_COMM_WORLD_RANK=*) rank=${word#OMPI_COMM_WORLD_RANK=} ;;
      # Under torchrun, Open MPI's rank is that of the host's torchrun.
      KIT_AGENT=*) agent=yes ;;
      RANK=*) own=${word#RANK=} ;;
    esac
  done 2>/dev/null <"$environ"
  [ -n "$run" ] || continue
  [ -z "$agent" ] || rank=$own
  words=()
  mapfile -d '' -t words 2>/dev/null <"/proc/$pid/cmdline"
  while read -r name value _; do
    if [ "$name" = State: ]; then state=$value; break; fi
  done 2>/dev/null <"/proc/$pid/status"
  line="${words[*]}"
  echo "$pid $state $run $rank ${line//$'\n'/ } "
done
exit 0
"""


def kit_argv(*words: str) -> list[str]:
    """The console script of this environment. `env` gives Ctrl-C its meaning back where a shell had taken it away."""
    script = Path(sys.executable).with_name("kit")
    return ["env", "--default-signal=INT", str(script), *words]


def kit_environ(**more: str) -> dict[str, str]:
    """Return an environment without the settings of the person who runs the tests, and with this checkout first.

    Tests break hosts between two verbs: a connection that outlives a verb would hide that. KIT_SSH_KEEP=true keeps one.
    """
    inherited = {name: value for name, value in os.environ.items() if name == UNLOCKED or not name.startswith("KIT_")}
    return {**inherited, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "KIT_SSH_KEEP": "false", **more}


def kit(folder: Path, *words: str, **environ: str) -> Done:
    """Run the command line to its end."""
    return subprocess.run(
        kit_argv("-C", str(folder), *words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=kit_environ(**environ),
    )


@contextlib.contextmanager
def taken_down(folder: Path, name: str) -> Iterator[None]:
    """Take the lab down at the end of the block. If this process is killed in the block, its folder goes too.

    Another process does that: when this one ends, whatever ends it, the other one's standard input ends.
    """
    down = kit_argv("-C", str(folder), "lab", "down", "--name", name)
    script = 'trap "" INT TERM HUP; read -r word; [ "$word" = done ] || { "$@"; rm -rf -- "$0"; }'
    with subprocess.Popen(
        ["sh", "-c", script, str(folder), *down],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=kit_environ(),
        start_new_session=True,
    ) as watch:
        try:
            yield
        finally:
            kit(folder, "lab", "down", "--name", name)
            assert watch.stdin
            watch.stdin.write(b"done\n")


def objects(done: Done) -> list[dict[str, Any]]:
    """The objects of `--output json`, one a line of stdout."""
    return [json.loads(line) for line in done.stdout.splitlines()]


class _Connections:
    """Where OpenSSH keeps the tests' connections to lab hosts, so that most looks at a host need no new login."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kit-ssh-")
        self._generation = itertools.count()
        self.forget()

    def forget(self) -> None:
        """Connect again from now on. Call it before a host, its link or its sshd is stopped.

        The kept connections end by themselves when nobody uses them.
        """
        self._number = next(self._generation)

    def path(self, lab: Path) -> str:
        """Return ssh's ControlPath for the lab of this folder: another lab may get the same addresses later."""
        return f"{self._folder.name}/{self._number}-{zlib.crc32(bytes(lab))}-%C"


CONNECTIONS = _Connections()


def ssh_argv(folder: Path, address: str, *argv: str, user: str = "root", **options: str) -> list[str]:
    """The words of OpenSSH's own client with the key of the lab in `folder`.

    A kept connection answers quicker and costs both ends less; with `options`, it is always a new one.
    """
    settings = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(folder / ".kit/lab/known_hosts"),
        "GlobalKnownHostsFile": "/dev/null",
        "IdentitiesOnly": "yes",
        "IdentityFile": str(folder / ".kit/lab/id_ed25519"),
        **(options or {**KEPT, "ControlPath": CONNECTIONS.path(folder)}),
    }
    words = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-F", "none", *words, f"{user}@{address}", *argv]


def ssh(folder: Path, address: str, *argv: str, user: str = "root", stdin: str = "", **options: str) -> Done:
    """Run a command on a lab host to its end."""
    return subprocess.run(
        ssh_argv(folder, address, *argv, user=user, **options),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def change_settings(folder: Path, **changes: object) -> None:
    """Change kit.yaml as a person would: its first line, by which the lab knows its own file, stays."""
    path = folder / "kit.yaml"
    text = path.read_text()
    path.write_text(text.partition("\n")[0] + "\n" + yaml.safe_dump({**yaml.safe_load(text), **changes}))


def until(what: str, probe: Callable[[], T | None], *, patience_s: float = PATIENCE_S) -> T:
    """Return the first result of `probe` that is true. Fail with `what` when the patience is over.

    A look at four hosts takes cores away from what the test waits for, so the pauses grow.
    """
    deadline, pause_s = time.monotonic() + patience_s, 0.1
    while True:
        result = probe()
        if result:
            return result
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what}"
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LONGEST_PAUSE_S)


def begun(ask: Callable[[], Done]) -> Done:
    """A `docker exec`, `run` or `restart`, asked for again where the engine of a busy machine never began it."""
    return persistently(ask, lambda done: done.returncode != 0 and nothing_began(done.stdout + done.stderr))


def engine(*words: str) -> str:
    """This machine's engine: what it prints."""
    argv = ["docker", *words]
    done = begun(lambda: subprocess.run(argv, capture_output=True, text=True, check=False))
    assert done.returncode == 0, f"{argv}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


@dataclass(frozen=True, kw_only=True)
class Marked:
    """A process of a run, as a host's /proc shows it. `rank` is None for mpirun and the daemons."""

    pid: int
    run: str
    rank: int | None
    command: str


@dataclass(frozen=True, kw_only=True)
class VM:
    """A lab host, reached as anybody would reach a VM."""

    name: str
    address: str
    folder: Path

    def ssh(self, *argv: str, stdin: str = "", user: str = "root") -> Done:
        """`argv` are words, quoted here once."""
        return ssh(self.folder, self.address, shlex.join(argv), stdin=stdin, user=user)

    def text(self, *argv: str, stdin: str = "") -> str:
        """Standard output of a command that must succeed."""
        # An engine may report on either stream that it could not begin.
        done = begun(lambda: self.ssh(*argv, stdin=stdin)) if argv[0] == "docker" else self.ssh(*argv, stdin=stdin)
        assert done.returncode == 0, f"{self.name}: {argv}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def script(self, text: str, *arguments: str) -> str:
        return self.text("sh", "-c", text, "sh", *arguments)

    def restart_engine(self, *, daemon: Mapping[str, Any] | None) -> None:
        """Restart the engine with this daemon.json, or with none."""
        # The engine that ends answers for a while yet.
        again = (
            "pid=$(cat /run/docker.pid); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done; "
            "until docker info >/dev/null 2>&1; do sleep 0.2; done"
        )
        file = "/etc/docker/daemon.json"
        if daemon is None:
            self.script(f'rm "$1"; {again}', file)
        else:
            self.script(f'mkdir -p "${{1%/*}}"; printf %s "$2" >"$1"; {again}', file, json.dumps(daemon))

    def containers(self, cluster: str) -> list[dict[str, Any]]:
        """All that the host's engine knows of the cluster's containers, running or not."""
        inspect = 'docker ps -aq --no-trunc --filter "label=kit.cluster=$1" | xargs -r docker inspect'

        def look() -> str | None:
            done = self.ssh("sh", "-c", inspect, "sh", cluster)
            # One of them went between the list and the look at each: then once more.
            gone = done.returncode != 0 and "no such object" in done.stderr.lower()
            assert gone or done.returncode == 0, f"{self.name}: {done.stderr}"
            return None if gone else done.stdout.strip() or "[]"

        containers: list[dict[str, Any]] = json.loads(
            until(f"the containers of {self.name} stay the same for a moment", look)
        )
        return containers

    def files(self, cluster: str) -> dict[str, str]:
        """Path below the cluster's folder → mode, owner, group, time of the last change, inode, digest."""
        listing = self.script(
            '[ -d "/opt/kit/$1" ] || exit 0; cd "/opt/kit/$1"; find . -printf "%p %m %u %g %T@ %i\\n" | '
            'while read -r path rest; do [ -f "$path" ] && sum=$(sha256sum <"$path") || sum=-; '
            'echo "$path $rest ${sum%% *}"; done',
            cluster,
        )
        return dict(line.split(" ", 1) for line in listing.splitlines())

    def marked(self) -> list[Marked]:
        rows = (line.split(" ", 4) for line in self.text("bash", "-c", _MARKED).splitlines())
        return [
            Marked(pid=int(pid), run=run, rank=int(rank) if rank.isdigit() else None, command=command)
            for pid, state, run, rank, command in rows
            if state != "Z"
        ]

    def ranks(self) -> list[int]:
        """The numbers of the ranks here, each once, whatever children a rank has."""
        return sorted({process.rank for process in self.marked() if process.rank is not None})

    def started(self) -> list[int]:
        """The numbers of the ranks here that have begun with their command; before that, a rank is its relay alone."""
        processes = (process for process in self.marked() if not process.command.startswith(_RELAY))
        return sorted({process.rank for process in processes if process.rank is not None})

    def commands(self, command: Sequence[str]) -> list[tuple[str, int]]:
        """Run and number of each rank that has come to this command; before it, a rank is its relay alone."""
        line = " ".join(command)
        return sorted((p.run, p.rank) for p in self.marked() if p.rank is not None and p.command.strip() == line)

    def listeners(self, port: int) -> list[str]:
        """The addresses on which somebody listens on this port."""
        rows = self.text("ss", "-Hltn", f"sport = :{port}").splitlines()
        return sorted(row.split()[3].rpartition(":")[0] for row in rows)

    def bytes_of(self, interface: str) -> int:
        folder = f"/sys/class/net/{interface}/statistics"
        return sum(int(n) for n in self.text("cat", f"{folder}/rx_bytes", f"{folder}/tx_bytes").split())

    def peers(self, pids: Sequence[int]) -> set[str]:
        """The far addresses of all established TCP connections of these processes."""
        links = "for pid in $@; do ls -l /proc/$pid/fd 2>/dev/null; done; cat /proc/net/tcp"
        text = self.script(links, *(str(pid) for pid in pids))
        inodes = set(re.findall(r"socket:\[(\d+)\]", text))
        addresses = set()
        for line in text.splitlines():
            words = line.split()
            # sl local remote st tx:rx tr:when retrnsmt uid timeout inode; 01 is ESTABLISHED
            if len(words) > 9 and words[0].endswith(":") and words[3] == "01" and words[9] in inodes:
                raw = bytes.fromhex(words[2].partition(":")[0])[::-1]
                addresses.add(".".join(str(byte) for byte in raw))
        return addresses


def everywhere(hosts: Sequence[VM], work: Callable[[VM], T]) -> dict[str, T]:
    """`work` on all hosts side by side, by name."""
    with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        return dict(zip((host.name for host in hosts), pool.map(work, hosts), strict=True))


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A deployed cluster: its folder (hosts, kit.yaml), its name, its VMs in the order of the hosts file."""

    name: str
    folder: Path
    hosts: tuple[VM, ...]
    # All that kit printed while it was made.
    printed: str = field(default="", repr=False)

    @property
    def head(self) -> VM:
        return self.hosts[0]

    def container(self, host: VM) -> str:
        return f"kit-{self.name}-{'mpihead' if host == self.head else 'mpinode'}"

    def kit(self, *words: str, **environ: str) -> Done:
        return kit(self.folder, *words, **environ)

    def inside(self, host: VM, *argv: str, stdin: str = "") -> Done:
        """A command in the host's node, by the host's own engine."""
        return begun(lambda: host.ssh("docker", "exec", "--interactive", self.container(host), *argv, stdin=stdin))

    def marked(self) -> dict[str, list[Marked]]:
        """Processes of runs on the hosts that have any."""
        return {name: processes for name, processes in everywhere(self.hosts, VM.marked).items() if processes}

    def ranks(self) -> dict[str, list[int]]:
        return everywhere(self.hosts, VM.ranks)

    def commands(self, *command: str) -> dict[str, list[tuple[str, int]]]:
        """Run and number of the ranks whose command it is by now, by host."""
        return everywhere(self.hosts, lambda host: host.commands(command))

    def state(self) -> dict[str, tuple[list[tuple[str, str]], dict[str, str]]]:
        """What a deploy could change: each container with its start, each file with all its attributes."""

        def of(host: VM) -> tuple[list[tuple[str, str]], dict[str, str]]:
            containers = [(c["Id"], c["State"]["StartedAt"]) for c in host.containers(self.name)]
            # var is where runs and changes are written down: whatever happens, it grows.
            files = {
                path: rest for path, rest in host.files(self.name).items() if not path.startswith(("./var", "./tmp"))
            }
            return sorted(containers), files

        return everywhere(self.hosts, of)

    @contextlib.contextmanager
    def running(self, *words: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
        """`kit …` while the test looks at it; whatever happens, no rank is left afterwards."""
        process = subprocess.Popen(
            kit_argv("-C", str(self.folder), *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=kit_environ(**environ),
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
                process.kill()
            process.communicate()

    def wait_for_ranks(self, run: subprocess.Popen[str], wanted: Mapping[str, list[int]]) -> None:
        def there() -> bool:
            if run.poll() is not None:
                raise AssertionError(f"the run ended by itself: {run.communicate()}")
            return everywhere(self.hosts, VM.started) == wanted

        until(f"ranks {wanted}", there)

    def wait_for_none(self) -> None:
        until("no process of a run is left", lambda: not self.marked())
