"""Describe what can fail in an elastic run, as data: how it happens, what the user sees, and how the run goes on.

test_elastic.py does each row on the lab. faults.py writes them into docs/fault-matrix.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RANK_KILLED = "a rank killed"
NODE_KILLED = "a node container killed"
LINK_CUT = "a link cut"
LAST_RANK_KILLED = "a rank killed on the only host"
HOST_GONE = "a host gone"
LAST_NODE_KILLED = "the node container of the last host killed"
NO_STATE = "a rank killed, and the script keeps no state"


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the test does and expects.

    `how`: how the fault happens on the lab. `code`: kit's exit code, or None if the run goes on. `sees`: words of one
    line on its standard error. `then`: what happens to the run.
    """

    how: str
    code: int | None = None
    sees: tuple[str, ...]
    then: str


ROWS: Mapping[str, Row] = {
    RANK_KILLED: Row(
        how="KILL to a rank on gpu3, MXNet",
        sees=("reset: ", " s lost; rank ", "on gpu3 was killed by SIGKILL"),
        then="the other ranks go on from the last commit; gpu3 rests for some seconds and joins again",
    ),
    NODE_KILLED: Row(
        how="docker kill on gpu3, MXNet",
        sees=("reset: gpu3 left; 6 → 4 ranks",),
        then="the other hosts go on",
    ),
    LINK_CUT: Row(
        how="the interface of gpu4 goes down, MXNet",
        sees=("reset: gpu4 left; 4 → 2 ranks", "the connection to gpu4 broke"),
        then="the other hosts go on; when the link is back, gpu4 joins again",
    ),
    LAST_RANK_KILLED: Row(
        how="KILL to one of two ranks on gpu2, MXNet",
        sees=("reset: 2 ranks; ", " s lost; rank 0 on gpu2 was killed"),
        then="the rank that is left has the state, and a new one joins it at once",
    ),
    HOST_GONE: Row(
        how="gpu3 is switched off, TensorFlow",
        sees=("reset: gpu3 left; 4 → 2 ranks", "the connection to gpu3 broke"),
        then="the other host goes on",
    ),
    LAST_NODE_KILLED: Row(
        how="docker kill on gpu2 after that, TensorFlow",
        code=3,
        sees=("the elastic run cannot go on",),
        then="the run ends: nobody has its state",
    ),
    NO_STATE: Row(
        how="KILL to a rank on gpu3",
        code=137,
        sees=("no rank had reached hvd.elastic.run",),
        then="the run ends, and kit says what to write",
    ),
}

_HEAD = """\
## Elastic runs

`tests/integration/test_elastic.py` does each row on the same four hosts. It also checks that no committed step comes
again, that the sum is right at the end, and that no process of the run is left. A run without an exit code goes on.

| fault | how | exit code | kit says | then |
|---|---|---|---|---|
"""


def section() -> str:
    """Return the part of docs/fault-matrix.md about elastic runs."""
    lines = []
    for fault, row in ROWS.items():
        says = ", ".join(f"`{words.strip()}`" for words in row.sees)
        lines.append(f"| {fault} | {row.how} | {'' if row.code is None else row.code} | {says} | {row.then} |")
    return _HEAD + "\n".join(lines) + "\n"
