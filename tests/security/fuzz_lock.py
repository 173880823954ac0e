"""The answers about the cluster's lock, lines of its audit, the load of a host, and its facts for kit tune."""

from __future__ import annotations

from kit.errors import StepError
from kit.model.answer import answer_of
from kit.model.launch import Node
from kit.plan.bench import load
from kit.remote.cluster import audit
from kit.remote.cluster.lock import not_taken, read_status
from kit.remote.tune import wire

SAMPLES: tuple[bytes, ...] = (
    b"kit-lock held\nnow 1763720200\npid 4711\nsince 1763720100\nwho ann@laptop\nwhat kit deploy\n",
    b"kit-lock taken\nnow 1763720200\npid 4711\nsince 1763720100\nwho ann@laptop\nwhat kit deploy\n",
    b"kit-lock free\n",
    b'{"time":"2026-11-21T10:15:00Z","who":"ann@pc","verb":"deploy","what":"2 hosts","outcome":"done","seconds":9.5}\n',
    b"cores 8\nbefore cpu  10 0 10 900 0 0 0 0 0 0\nafter cpu  20 0 20 960 0 0 0 0 0 0\n"
    b"living 20261121-101500-3fa2\nover 20261121-101400-3fa2\nend\n",
    b"threads 8\ncore 0:1\nsocket 0\nnuma 0\naddress 2: eth0    inet 10.0.0.4/24 brd 10.0.0.255 scope global eth0\n"
    b"nic eth0 10000 1500\nother eth1 -1 1500\ncongestion cubic\ngpu Tesla T4\ntopo GPU0 X NV4 0-7\nend\n",
)


def read(answer: bytes) -> None:
    """Read it as the kind of answer that its first word shows."""
    text = answer.decode(errors="replace")
    if text.startswith("{"):
        audit.parse(text)
    elif text.startswith("cores"):
        load.parse(text)
    elif text.startswith("threads"):
        with answer_of("gpu1", "its facts"):
            wire.parse(Node(name="gpu1", address="10.0.0.4", slots=2), text)
    elif text.startswith("kit-lock taken"):
        raise not_taken(text, "gpu1")
    else:
        with answer_of("gpu1", "its lock"):
            if read_status(text, "lab") is None:
                raise StepError("the lock could not be looked at", host="gpu1")
