"""The facts that kit tune reads from a host, the bare rate of TCP between hosts, and the atomic change of kit.yaml."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from kit.errors import InputError, KitError, StepError
from kit.model.answer import MOST, OddAnswer, answer_of, decode, number, within
from kit.model.host import Host
from kit.model.launch import Node
from kit.model.nvidia.topology import topology
from kit.model.tune import Machine
from kit.remote.cluster.observe import interfaces_of
from kit.remote.engine.hiccups import run_in_node
from kit.remote.machine.regular import read_regular
from kit.remote.scripts import script
from kit.remote.ssh import fanout
from kit.remote.ssh.transport import Completed, Connect, Transport

FACTS_S = 60.0
# Added to the probe's own time: Python's start, and a neighbor that is late.
PROBE_S = 60.0
PORTS = (20000, 32000)
# What the probe prints is a short line.
_MOST_BYTES = 4096
# How much of its last line an error quotes.
_LONGEST = 300


def machine(transport: Transport, node: Node) -> Machine:
    """Read one host's facts for the rules. Raises UnreachableError or StepError."""
    done = transport.run(script("tune_facts", node.address), timeout_s=FACTS_S)
    if done.text.splitlines()[-1:] != ["end"]:
        raise StepError(
            f"reading the host's facts failed (exit {done.code}): {done.error_text or done.text[-200:]}",
            hint=f"check that a POSIX shell answers: kit ssh {node.name}",
            host=node.name,
        )
    with answer_of(node.name, "its facts for kit tune"):
        return parse(node, done.text)


def parse(node: Node, text: str) -> Machine:
    """Parse the output of tune_facts.sh."""
    words: dict[str, list[str]] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        words.setdefault(word, []).append(rest)
    nics = [_nic(rest) for rest in words.get("nic", ())]
    others = [_nic(rest) for rest in words.get("other", ())]
    name, speed, mtu = nics[0] if nics else ("", None, None)
    threads, cores = _whole(words.get("threads", ["0"])[0]), len(words.get("core", ()))
    return Machine(
        name=node.name,
        slots=node.slots,
        threads=threads,
        # A container may see more cores than it may use.
        cores=min(cores, threads or cores),
        sockets=max(1, len(words.get("socket", ()))),
        numa=max(1, len(words.get("numa", ()))),
        gpus=tuple(words.get("gpu", ())),
        gpu_links=topology("\n".join(words.get("topo", ()))).between_gpus(),
        nic=name,
        nic_mbit=speed,
        mtu=mtu,
        congestion=words.get("congestion", [""])[0],
        others=tuple((other, rate) for other, rate, _ in others if rate),
        address=node.address,
        addresses=interfaces_of(words.get("address", ())),
        up=tuple(nic for nic, _, _ in (*nics, *others)),
    )


def _nic(rest: str) -> tuple[str, int | None, int | None]:
    """Parse `eth0 10000 1500`: name, Mbit/s and MTU. A speed of -1 means unknown."""
    name, speed, mtu = [*rest.split(), "", "", ""][:3]
    return name, _whole(speed) or None, _whole(mtu) or None


def _whole(word: str) -> int:
    return number(word) if word.isascii() and word.isdigit() else 0


def probe_program(secret: str) -> bytes:
    """Return the probe with its secret, which all hosts of one measurement share."""
    return f"SECRET = {secret!r}\n".encode() + (Path(__file__).parent / "wire_probe.py").read_bytes()


def wire_rates(
    nodes: Sequence[Node],
    hosts: Mapping[str, Host],
    connect: Connect,
    *,
    seconds: float,
    inside: Callable[[Node], str] | None = None,
) -> Mapping[str, float]:
    """Return the bytes/s that each host receives while each one sends to the next: all links, both directions at once.

    The probe runs on the VMs' python3, or in the container that `inside` returns. Raises the hosts' errors.
    """
    probe = probe_program(secrets.token_hex(16))
    # A different port for each host: a leftover listener then affects only one, which is reported.
    numbers = random.sample(range(PORTS[0], PORTS[1] + 1), len(nodes))
    ports = {node.name: number for node, number in zip(nodes, numbers, strict=True)}
    after = {node.name: nodes[(at + 1) % len(nodes)] for at, node in enumerate(nodes)}
    by_name = {node.name: node for node in nodes}

    def work(host: Host) -> float:
        node, peer = by_name[host.name], after[host.name]
        argv = [
            "python3",
            # Isolated: it imports nothing from the folder in which it starts.
            "-I",
            "-",
            node.address,
            str(ports[node.name]),
            peer.address,
            str(ports[peer.name]),
            f"{seconds:g}",
        ]
        limit = seconds + PROBE_S
        with closing(connect(host)) as transport:
            if inside is None:
                done = transport.run(argv, stdin=probe, timeout_s=limit)
            else:
                done = run_in_node(transport, inside(node), argv, stdin=probe, timeout_s=limit)
        return rate_of(done, host.name)

    return fanout.each([hosts[node.name] for node in nodes], work, width=len(nodes)).or_raise("measuring TCP")


class _Totals(Struct, frozen=True, kw_only=True):
    """What the probe prints: the bytes that arrived, and the time in which they did."""

    received: float
    seconds: float


def rate_of(done: Completed, host: str) -> float:
    """Return the bytes/s in the probe's output. Raises StepError if it has none."""
    try:
        totals: _Totals = decode(done.stdout, _Totals, most=_MOST_BYTES)
        within(totals.received, 0, MOST, "the number of bytes")
        within(totals.seconds, 1e-9, MOST, "the time")
        return totals.received / totals.seconds
    except OddAnswer as odd:
        *_, cause = done.error_text.splitlines() or [str(odd)]
        raise StepError(
            f"TCP could not be measured between {host} and its neighbors: {cause[:_LONGEST]}",
            hint=f"open ports {PORTS[0]} to {PORTS[1]} between the hosts; MPI needs them too",
            host=host,
        ) from None


def read_text(path: Path) -> str:
    """Return the file as text with its line ends, or '' if it is missing."""
    try:
        return read_regular(path).decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be read: {why}", hint="check its permissions", file=str(path)) from error


def replace_text(path: Path, *, before: str, after: str) -> None:
    """Replace `before` by `after` atomically: a reader sees one or the other.

    Raises InputError if the file has changed in the meantime, and KitError if it cannot be written.
    """
    # A symbolic link stays; its target changes.
    target = path.resolve()
    if read_text(target) != before:
        raise InputError(
            "changed while kit tune measured, so kit left it alone", hint="run kit tune again", file=str(path)
        )
    name = ""
    try:
        with tempfile.NamedTemporaryFile("wb", dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            name = file.name
            file.write(after.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o644)
        Path(name).replace(target)
    except OSError as error:
        raise KitError(
            f"{path} cannot be written: {error.strerror}", hint=f"check the folder's permissions: ls -ld {path.parent}"
        ) from error
    finally:
        if name:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()
