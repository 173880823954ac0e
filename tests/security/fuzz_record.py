"""The records that a head keeps: cluster.json, the list of its runs, and what the load's script says of runs."""

from __future__ import annotations

import json

from kit.flows.run.listing import read_list
from kit.model.answer import answer_of
from kit.model.launch import ClusterRecord, Node
from kit.plan.cluster.record import from_text, to_text
from kit.plan.run import leases
from kit.plan.run.records import parse, record_of

_CLUSTER = to_text(
    ClusterRecord(
        name="lab", image="kit:1", network="10.0.0.0/24", ssh_port=33, head_runs_ranks=True, settings={"slots": 8},
        nodes=(Node(name="gpu1", address="10.0.0.1", slots=8, cores=9), Node(name="gpu2", address="10.0.0.2", slots=8)),
    )
)  # fmt: skip
_RUN = {
    "id": "20261121-101500-3fa2", "cluster": "lab", "image": "kit:1", "command": ["python3", "train.py"],
    "places": [{"node": "gpu1", "address": "10.0.0.1", "ranks": 2, "slots": [0, 1]}], "helpers": [{"role": "server"}],
    "env": ["A"], "by": "ann@laptop", "started": 1763720100.5,
    "array": {"of": "20261121-101500-0000", "index": 3, "size": 9},
    "code": {"digest": "d" * 64, "folder": "/a", "files": 3, "size": 99, "commit": "c0ffee", "dirty": True},
}  # fmt: skip
_END = {
    "ended": 1763720200.5, "attempt": 1, "exit_code": 137, "stopped": "", "left": {"gpu1": 0},
    "metrics": {"every": 10.0, "readings": 3, "left_out": 0, "hosts": {"gpu1": {
        "memory_peak": 1, "host_memory_peak": 2, "host_memory_size": 3, "cpu_mean": 1.5, "cores": 4, "gpu_mean": None,
        "gpus": 2, "gpu_memory_peak": 5, "gpu_memory_size": 6, "received": 7, "sent": 8, "read": 9, "written": 10}}},
    "failure": {"kind": "rank", "host": "gpu1", "rank": 1, "signal": "SIGKILL", "oom": True, "lines": ["why"]},
}  # fmt: skip
_ROWS = (
    {"id": _RUN["id"], "live": False, "record": json.dumps(_RUN), "end": json.dumps(_END)},
    {"id": "20261121-101400-3fa2", "live": True, "record": json.dumps(_RUN), "end": ""},
    {"end": True, "more": 0, "now": 1800000000.5},
)
SAMPLES: tuple[bytes, ...] = (
    _CLUSTER.encode(),
    "".join(f"{json.dumps(row)}\n" for row in _ROWS).encode(),
    json.dumps(_RUN).encode(),
    json.dumps(_END).encode(),
)


def read(answer: bytes) -> None:
    """Read it as each of the records. It is one of them at most."""
    text = answer.decode(errors="replace")
    if text.lstrip().startswith('{\n "kit"'):
        record = from_text(text)
        leases.place_free(record.nodes, [], np=1, npernode=None)
        return
    if b'"live"' in answer:
        with answer_of("gpu1", "its list of runs"):
            read_list(answer)
        return
    parse(text)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = {}
    if isinstance(fields, dict):
        record_of(_RUN, fields)
        record_of(fields)
