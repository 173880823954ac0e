"""Slow a rank of a real Horovod run on a lab on purpose, and ask kit blame who it is.

This module defines the training and the faults, for scripts/measure-blame and the integration tests. One run lasts for
all faults: each rank reads a file on its node once a step, and faults of a host come and go while it trains.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Runs a shell command on a host, or in its node, and returns what it prints.
Shell = Callable[[str, str], str]
KINDS = ("busy-core", "loader", "gpu-throttle", "link", "cgroup-throttle", "disk", "slow-mount")
# What kit blame says where it has another word.
REASONS = {"slow-mount": "disk"}
# Faults of one rank. The others are faults of a host, and with several ranks there, any of them may be the latest.
OF_A_RANK = frozenset({"loader", "gpu-throttle", "slow-mount"})
HOSTS = ("gpu1", "gpu2", "gpu3", "gpu4")
CONTROL = "/dev/shm/blame-control-%d"  # noqa: S108  (in the node of a lab)
BURNERS = "/run/blame-burners"
# Each rank has a folder with a file, and reads a part of it in each step, from the disk and not from memory.
FOLDER, PART, PARTS = "/var/tmp/blame-%d", 1 << 17, 64  # noqa: S108  (in the node of a lab)
# Limits how fast a container reads from the disk of the host's engine: container, bytes per second, 0 for no limit.
# With partitions, the kernel limits the whole disk.
LIMIT = """
set -e
id=$(docker inspect --format '{{.Id}}' "$1")
number=$(stat --format '%Hd:%Ld' /var/lib/docker)
disk=$number
if [ -e "/sys/dev/block/$number/partition" ]; then disk=$(cat "/sys/dev/block/$number/../dev"); fi
v1=$(find /sys/fs/cgroup -path "*$id/blkio.throttle.read_bps_device")
v2=$(find /sys/fs/cgroup -path "*$id*/io.max" | head -n 1)
if [ -n "$v1" ]; then echo "$disk $2" >"$v1"
elif [ "$2" = 0 ]; then echo "$disk rbps=max" >"$v2"
else echo "$disk rbps=$2" >"$v2"; fi
"""
# Mounts over a folder in a container: container, folder, program, bytes, seconds for each request.
MOUNTED = "/run/blame-mount.pid"
MOUNT = f"""
set -e
pid=$(docker inspect --format '{{{{.State.Pid}}}}' "$1")
exec 3<>/dev/fuse
nsenter --target "$pid" --mount python3 -c "$3" "$2" "$4" "$5" </dev/null >/run/blame-mount 2>&1 &
echo $! >{MOUNTED}
until grep -q " $2 fuse.slow " "/proc/$pid/mounts"; do
  kill -0 $! 2>/dev/null || {{ cat /run/blame-mount >&2; exit 1; }}
  sleep 0.1
done
"""
SERVER = Path(__file__).with_name("slow_mount.py")
# Each rank does the same in each step: it reads a part of a file and computes on a core, as for its data. Then it waits
# for each layer, as for a GPU. All ranks of a lab share the cores of one machine, so they leave most of them idle.
TRAINING = f"""
import os, time
os.environ["HOROVOD_CYCLE_TIME"] = "3"
import horovod.mxnet as hvd
import mxnet as mx
hvd.init()
gradients = [mx.nd.ones((16384,)) for _ in range(8)]
names = {{id(gradient): "gradient.%d" % i for i, gradient in enumerate(gradients)}}
def control():
    try:
        return dict(line.split() for line in open("{CONTROL}" % hvd.rank()))
    except (OSError, ValueError):
        return {{}}
folder, step = "{FOLDER}" % hvd.rank(), 0
os.makedirs(folder, exist_ok=True)
with open(folder + "/data", "wb") as file:
    file.write(os.urandom({PARTS * PART}))
    file.flush()
    os.fsync(file.fileno())
def read():
    with open(folder + "/data", "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.pread(file.fileno(), {PART}, step % {PARTS} * {PART})
if hvd.rank() == 0:
    print("training", flush=True)
while True:
    now = control()
    time.sleep(float(now.get("loader", 0)))
    read()
    step += 1
    until = time.thread_time() + 0.03
    while time.thread_time() < until:
        pass
    for gradient in reversed(gradients):
        time.sleep(0.012 * float(now.get("gpu", 1)))
        hvd.allreduce_(gradient, op=hvd.Sum, name=names[id(gradient)])
    for gradient in gradients:
        gradient.wait_to_read()
        gradient[:] = 1
"""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of a rank or of its host. `strength` is a number of burners, seconds, a factor, Mbit/s, or percent.

    `per_host` is how many ranks each host has.
    """

    kind: str
    rank: int
    strength: float
    per_host: int = 1

    @property
    def host(self) -> str:
        return HOSTS[self.rank // self.per_host]

    def named_by(self, result: dict[str, Any]) -> bool:
        """Whether kit blame names the rank, its host and the reason. Of a fault of the host, any of its ranks."""
        culprit = result["culprit"] or {}
        if (culprit.get("host"), culprit.get("reason")) != (self.host, REASONS.get(self.kind, self.kind)):
            return False
        return self.kind not in OF_A_RANK or culprit["ranks"] == [self.rank]


def drawn(chance: random.Random, kind: str, *, hosts: int = len(HOSTS), per_host: int = 1) -> Fault:
    strengths: dict[str, Callable[[], float]] = {
        "busy-core": lambda: chance.randint(3, 6),
        "loader": lambda: chance.uniform(0.08, 0.25),
        "gpu-throttle": lambda: chance.uniform(2.0, 4.0),
        "link": lambda: chance.choice((8, 12, 20)),
        "cgroup-throttle": lambda: chance.choice((8, 12, 15)),
        "disk": lambda: chance.choice((4, 6, 10)),
        "slow-mount": lambda: chance.uniform(0.03, 0.08),
    }
    rank = chance.randrange(hosts * per_host)
    return Fault(kind=kind, rank=rank, strength=strengths[kind](), per_host=per_host)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What the faults need: `host` runs a shell command on a host, `node` in its node, and `kit` a verb of kit."""

    host: Shell
    node: Shell
    kit: Callable[..., str]
    containers: dict[str, str]
    lab: str

    @contextmanager
    def slowed(self, fault: Fault | None) -> Iterator[None]:
        """Hold a fault while the block runs, and take it back."""
        if fault is None:
            yield
            return
        inject, mend = self._words(fault)
        try:
            inject()
            yield
        finally:
            mend()

    def _words(self, fault: Fault) -> tuple[Callable[[], object], Callable[[], object]]:
        name, container = fault.host, self.containers[fault.host]
        if fault.kind == "loader":
            return self._control(fault, f"loader {fault.strength:.3f}")
        if fault.kind == "gpu-throttle":
            slower, clear = self._control(fault, f"gpu {fault.strength:.1f}")
            gpu = ("--gpu", str(fault.rank % fault.per_host), "--name", self.lab)
            return (
                lambda: (slower(), self.kit("lab", "gpu", name, "--fault", "throttle", *gpu)),
                lambda: (clear(), self.kit("lab", "gpu", name, "--mend", "--name", self.lab)),
            )
        if fault.kind == "link":
            rate = f"{fault.strength:g}mbit"
            return (
                lambda: self.kit("lab", "fault", name, "slow-link", rate, "--name", self.lab),
                lambda: self.kit("lab", "fault", name, "slow-link", "--mend", "--name", self.lab),
            )
        inject, mend = _scripts(fault, container)
        return lambda: self.host(name, inject), lambda: self.host(name, mend)

    def _control(self, fault: Fault, line: str) -> tuple[Callable[[], object], Callable[[], object]]:
        path = CONTROL % fault.rank
        return (
            lambda: self.node(fault.host, f"echo {shlex.quote(line)} >{path}"),
            lambda: self.node(fault.host, f"rm -f {path}"),
        )

    def ask(self, run: str, fault: Fault | None) -> dict[str, Any]:
        """Hold a fault, and return what kit blame says meanwhile. It watches for longer where steps are long."""
        with self.slowed(fault):
            text = self.kit("blame", run, "--json")
        result: dict[str, Any] = json.loads(text.splitlines()[-1])
        return result


def _scripts(fault: Fault, container: str) -> tuple[str, str]:
    """Return the shell commands that make and mend a fault on its host."""

    def script(text: str, *arguments: str) -> str:
        return shlex.join(["sh", "-c", text, "sh", container, *arguments])

    if fault.kind == "cgroup-throttle":
        update = "docker update --cpu-period 100000 --cpu-quota"
        return f"{update} {int(fault.strength * 1000)} {container}", f"{update} -1 {container}"
    if fault.kind == "disk":
        return script(LIMIT, str(int(fault.strength * 125_000))), script(LIMIT, "0")
    if fault.kind == "slow-mount":
        mount = script(MOUNT, FOLDER % fault.rank, SERVER.read_text(), str(PARTS * PART), f"{fault.strength:.3f}")
        return mount, f"xargs -r kill <{MOUNTED}; rm -f {MOUNTED}"
    # They share what the engine of this machine gives to the host, so other hosts lose little.
    loops = f"for i in $(seq {int(fault.strength)}); do sh -c 'while :; do :; done' & echo $!; done"
    return f"({loops}) </dev/null >{BURNERS} 2>&1", f"xargs -r kill <{BURNERS}; rm -f {BURNERS}"


def words(*, hosts: Sequence[str] = HOSTS, per_host: int = 1) -> list[str]:
    """Return the words after `kit run` for the training, detached."""
    ranks = ["--np", str(len(hosts) * per_host), "--npernode", str(per_host), "--host", ",".join(hosts)]
    return ["--detach", *ranks, "--", "python3", "-c", TRAINING]
