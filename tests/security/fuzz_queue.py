"""What the head answers about the line of waiting runs, a run in it, and cordoned hosts."""

from __future__ import annotations

from typing import Any

from kit.cli.text import queue as text
from kit.model.answer import answer_of, decode
from kit.plan.queue import answers

_ENTRY = (
    b'{"id":"20261121-101500-3fa2","place":4,"priority":1,"need":{"counts":[2,1],"hosts":["gpu1","gpu2"]},"np":3,'
    b'"limit":60.0,"after":[["20261121-101400-3fa2","ok"]],"held":false,"queued":1763720200.5,"by":"ann@pc",'
    b'"command":["python","train.py"],"array":{"of":"20261121-101500-3fa1","index":3,"size":9},"data":["images"]}'
)
_REASON = b'{"kind":"slots","ids":["20261121-101400-3fa2"],"at":1763720260.0}'

SAMPLES: tuple[bytes, ...] = (
    b'{"line":[' + _ENTRY + b'],"state":{"looked":1763720201.0,"reasons":{"20261121-101500-3fa2":' + _REASON + b"}},"
    b'"living":[],"cordons":{"gpu3":{"why":"its fan is loud","by":"ann@pc","at":1763720100.0}},"now":1763720202.5}',
    b'{"queued":' + _ENTRY + b',"reason":' + _REASON + b"}",
    b'{"queued":' + _ENTRY + b',"reason":{"kind":"gone","more":3,"out":{"gpu1":"gone","gpu2":"silent"}}}',
    b'{"queued":' + _ENTRY + b',"reason":{"kind":"error","why":"No space left on device"}}',
)


def read(answer: bytes) -> None:
    with answer_of("gpu1", "its line of runs"):
        said: dict[str, Any] = decode(answer, dict[str, Any])
        if "queued" in said:
            answers.waiting(said["queued"], said.get("reason"))
            return
        line, _ = answers.line("lab", said)
    text.line(line)
