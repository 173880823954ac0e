"""What kit tune reads of a host, the bare rate of TCP between hosts, and how kit.yaml is changed in one piece."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kit.errors import InputError, KitError, StepError
from kit.model.host import Host
from kit.model.launch import Node
from kit.model.tune import Machine
from kit.remote.cluster.observe import interfaces_of
from kit.remote.engine.hiccups import run_in_node
from kit.remote.scripts import script
from kit.remote.ssh import fanout
from kit.remote.ssh.transport import Connect, Transport

FACTS_S = 60.0
# Beyond the time of the probe itself: a Python that starts, and a neighbour that is late.
PROBE_S = 60.0
PORTS = (20000, 32000)
_LINK = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS")


def machine(transport: Transport, node: Node) -> Machine:
    """One host's facts for the rules. Raises UnreachableError, or StepError where it cannot be looked at."""
    done = transport.run(script("tune_facts", node.address), timeout_s=FACTS_S)
    if done.text.splitlines()[-1:] != ["end"]:
        raise StepError(
            f"the host could not be looked at (exit {done.code}): {done.error_text or done.text[-200:]}",
            hint=f"does a POSIX shell answer there? try: kit ssh {node.name}",
            host=node.name,
        )
    return parse(node, done.text)


def parse(node: Node, text: str) -> Machine:
    """The output of tune_facts.sh."""
    words: dict[str, list[str]] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        words.setdefault(word, []).append(rest)
    nics = [_nic(rest) for rest in words.get("nic", ())]
    others = [_nic(rest) for rest in words.get("other", ())]
    name, speed, mtu = nics[0] if nics else ("", None, None)
    matrix = (line.split()[1:] for line in words.get("topo", ()) if line.startswith("GPU"))
    links = {word for row in matrix for word in row if _LINK.fullmatch(word)}
    return Machine(
        name=node.name,
        slots=node.slots,
        threads=_whole(words.get("threads", ["0"])[0]),
        cores=len(words.get("core", ())),
        sockets=max(1, len(words.get("socket", ()))),
        numa=max(1, len(words.get("numa", ()))),
        gpus=tuple(words.get("gpu", ())),
        gpu_links=tuple(sorted(links)),
        nic=name,
        nic_mbit=speed,
        mtu=mtu,
        congestion=words.get("congestion", [""])[0],
        others=tuple((other, rate) for other, rate, _ in others if rate),
        address=node.address,
        addresses=interfaces_of(words.get("address", ())),
        up=tuple(each for each, _, _ in (*nics, *others)),
    )


def _nic(rest: str) -> tuple[str, int | None, int | None]:
    """`eth0 10000 1500`; a speed of -1 is one that is not known."""
    name, speed, mtu = [*rest.split(), "", "", ""][:3]
    return name, _whole(speed) or None, _whole(mtu) or None


def _whole(word: str) -> int:
    return int(word) if word.isdigit() else 0


def wire_rates(
    nodes: Sequence[Node],
    hosts: Mapping[str, Host],
    connect: Connect,
    *,
    seconds: float,
    inside: Callable[[Node], str] | None = None,
) -> Mapping[str, float]:
    """Bytes/s that TCP brings to each host while each sends to the next: every link in both directions at once.

    By the VMs' own python3, or that of the container whose name `inside` tells. Raises the hosts' errors.
    """
    probe = (Path(__file__).parent / "wire_probe.py").read_bytes()
    # Each its own, so that what still listens from another time hits one host and is told.
    numbers = random.sample(range(PORTS[0], PORTS[1] + 1), len(nodes))
    ports = {node.name: number for node, number in zip(nodes, numbers, strict=True)}
    after = {node.name: nodes[(at + 1) % len(nodes)] for at, node in enumerate(nodes)}
    by_name = {node.name: node for node in nodes}

    def work(host: Host) -> float:
        node, peer = by_name[host.name], after[host.name]
        argv = [
            "python3",
            "-",
            node.address,
            str(ports[node.name]),
            peer.address,
            str(ports[peer.name]),
            f"{seconds:g}",
        ]
        transport = connect(host)
        limit = seconds + PROBE_S
        try:
            if inside is None:
                done = transport.run(argv, stdin=probe, timeout_s=limit)
            else:
                done = run_in_node(transport, inside(node), argv, stdin=probe, timeout_s=limit)
        finally:
            transport.close()
        try:
            found = json.loads(done.text)
            return float(found["received"]) / float(found["seconds"])
        except (ValueError, KeyError, TypeError, ZeroDivisionError):
            said = (done.error_text or done.text).splitlines()[-1:] or [f"exit {done.code}"]
            raise StepError(
                f"TCP could not be measured between {host.name} and its neighbours: {said[0]}",
                hint=f"are ports {PORTS[0]} to {PORTS[1]} open among the hosts, as MPI needs them?",
                host=host.name,
            ) from None

    return fanout.each([hosts[node.name] for node in nodes], work, width=len(nodes)).or_raise("measuring TCP")


def read_text(path: Path) -> str:
    """The file's bytes as text, line ends as they are; '' where there is none."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", hint="look at it", file=str(path)) from error


def replace_text(path: Path, *, before: str, after: str) -> None:
    """Put `after` in the place of `before` in one step: whoever reads sees one or the other.

    Raises InputError where somebody has changed the file meanwhile, KitError where it cannot be written.
    """
    # A link stays one, and its target is changed.
    target = path.resolve()
    if read_text(target) != before:
        raise InputError(
            "was changed while kit tune measured, and is left as it is", hint="run kit tune again", file=str(path)
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
            f"{path} cannot be written: {error.strerror}", hint="may you write there? ls -ld its folder"
        ) from error
    finally:
        if name:
            with contextlib.suppress(FileNotFoundError):
                Path(name).unlink()
