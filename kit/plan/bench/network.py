"""The commands of a network probe: a listener on one host, a caller on another, in containers or without. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from kit.model import names
from kit.model.launch import Node
from kit.plan.run.mpi import RUN_VARIABLE

# Below the kernel's ephemeral ports, so that no outgoing connection uses one of them.
PORTS = range(20000, 30000)
STREAM_S = 3.0
# A listener whose kit was killed ends by itself.
LIMIT_S = 60.0

Kind = Literal["bare", "host", "bridge", "overlay"]


class Probe(Struct, frozen=True, kw_only=True):
    """`prepare` on the head; then `listen` on one host, `connect` on the other, both with the secret as their input."""

    prepare: tuple[str, ...]
    listen: tuple[str, ...]
    connect: tuple[str, ...]


def probe(kind: Kind, *, mark: str, cluster: str, image: str, listener: Node, port: int, program: str) -> Probe:
    """The words for one probe. What it makes carries `mark`: containers and network as label, processes as KIT_RUN.

    The listener is on the cluster's address alone: bound to it, or published there. On the overlay network, which is
    made for the probe, nobody else is.
    """
    name = f"kit-bench-{mark}"
    python = ("-c", program)
    inside = "0.0.0.0" if kind in ("bridge", "overlay") else listener.address  # noqa: S104  (in a separate namespace)
    listen = (*python, "listen", inside, str(port), f"{LIMIT_S:g}")
    target = f"{name}-listen" if kind == "overlay" else listener.address
    connect = (*python, "connect", target, str(port), f"{STREAM_S:g}")
    if kind == "bare":
        own = ("env", f"{RUN_VARIABLE}={mark}", "python3")
        return Probe(prepare=(), listen=(*own, *listen), connect=(*own, *connect))
    labels = ("--label", f"{names.LABEL_CLUSTER}={cluster}", "--label", f"{names.LABEL_BENCH}={mark}")
    network = {"host": "host", "bridge": "bridge", "overlay": name}[kind]
    publish = ("--publish", f"{listener.address}:{port}:{port}") if kind == "bridge" else ()
    # An engine with userns-remap gives the VM's network only to users of the VM.
    users = ("--userns", "host") if kind == "host" else ()
    run = ("docker", "run", "--rm", "--interactive", "--network", network, *users)
    base = (*run, *labels, "--env", f"{RUN_VARIABLE}={mark}")
    end = ("--entrypoint", "python3", image)
    make = ("docker", "network", "create", "--driver", "overlay", "--attachable", *labels, name)
    return Probe(
        prepare=make if kind == "overlay" else (),
        listen=(*base, *publish, "--name", f"{name}-listen", *end, *listen),
        connect=(*base, "--name", f"{name}-connect", *end, *connect),
    )
