"""Slow a rank of a real Horovod run on a lab on purpose, and ask kit blame who it is.

This module defines the training and the faults, for scripts/measure-blame and the integration tests. One run lasts for
all faults: each rank reads a file on its node once a step, and faults of a host come and go while it trains.
"""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Runs a shell command on a host, or in its node, and returns what it prints.
Shell = Callable[[str, str], str]
KINDS = ("busy-core", "loader", "gpu-throttle", "link", "cgroup-throttle")
HOSTS = ("gpu1", "gpu2", "gpu3", "gpu4")
CONTROL = "/dev/shm/blame-control"  # noqa: S108  (in the node of a lab)
BURNERS = "/run/blame-burners"
# Each rank does the same in each step: it computes on a core, as for its data, and then waits for each layer, as for a
# GPU. All ranks of a lab share the cores of one machine, so they leave most of them idle.
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
        return dict(line.split() for line in open("{CONTROL}"))
    except (OSError, ValueError):
        return {{}}
if hvd.rank() == 0:
    print("training", flush=True)
while True:
    now = control()
    time.sleep(float(now.get("loader", 0)))
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
    """A fault of a rank or of its host. `strength` is a number of burners, seconds, a factor, Mbit/s, or percent."""

    kind: str
    rank: int
    strength: float

    @property
    def host(self) -> str:
        return HOSTS[self.rank]

    def named_by(self, result: dict[str, Any]) -> bool:
        """Whether kit blame names the rank, its host and the reason."""
        culprit = result["culprit"] or {}
        return (culprit.get("host"), culprit.get("reason")) == (self.host, self.kind) and self.rank in culprit["ranks"]


def drawn(chance: random.Random, kind: str) -> Fault:
    strengths: dict[str, Callable[[], float]] = {
        "busy-core": lambda: chance.randint(3, 6),
        "loader": lambda: chance.uniform(0.08, 0.25),
        "gpu-throttle": lambda: chance.uniform(2.0, 4.0),
        "link": lambda: chance.choice((8, 12, 20)),
        "cgroup-throttle": lambda: chance.choice((8, 12, 15)),
    }
    return Fault(kind=kind, rank=chance.randrange(len(HOSTS)), strength=strengths[kind]())


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
            return self._control(name, f"loader {fault.strength:.3f}")
        if fault.kind == "gpu-throttle":
            words, clear = self._control(name, f"gpu {fault.strength:.1f}")
            return (
                lambda: (words(), self.kit("lab", "gpu", name, "--fault", "throttle", "--name", self.lab)),
                lambda: (clear(), self.kit("lab", "gpu", name, "--mend", "--name", self.lab)),
            )
        if fault.kind == "link":
            rate = f"{fault.strength:g}mbit"
            return (
                lambda: self.kit("lab", "fault", name, "slow-link", rate, "--name", self.lab),
                lambda: self.kit("lab", "fault", name, "slow-link", "--mend", "--name", self.lab),
            )
        if fault.kind == "cgroup-throttle":
            quota = int(fault.strength * 1000)
            return (
                lambda: self.host(name, f"docker update --cpu-period 100000 --cpu-quota {quota} {container}"),
                lambda: self.host(name, f"docker update --cpu-quota -1 {container}"),
            )
        # They share what the engine of this machine gives to the host, so other hosts lose little.
        loops = f"for i in $(seq {int(fault.strength)}); do sh -c 'while :; do :; done' & echo $!; done"
        return (
            lambda: self.host(name, f"({loops}) </dev/null >{BURNERS} 2>&1"),
            lambda: self.host(name, f"xargs -r kill <{BURNERS}; rm -f {BURNERS}"),
        )

    def _control(self, name: str, line: str) -> tuple[Callable[[], object], Callable[[], object]]:
        return (
            lambda: self.node(name, f"echo {shlex.quote(line)} >{CONTROL}"),
            lambda: self.node(name, f"rm -f {CONTROL}"),
        )

    def ask(self, run: str, fault: Fault | None) -> dict[str, Any]:
        """Hold a fault, and return what kit blame says meanwhile. It watches for longer where steps are long."""
        with self.slowed(fault):
            text = self.kit("blame", run, "--json")
        result: dict[str, Any] = json.loads(text.splitlines()[-1])
        return result


def words() -> list[str]:
    """Return the words after `kit run` for the training, detached."""
    return ["--detach", "--np", str(len(HOSTS)), "--npernode", "1", "--", "python3", "-c", TRAINING]
