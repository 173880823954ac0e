"""Describe what can fail while data is staged, as data: how it happens, what the user sees, and what is left.

test_data_faults.py does each row on the lab, except those that name another test. faults.py writes them into
docs/fault-matrix.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SOURCE_DIES = "the source dies at 40 %"
HOST_DIES = "a host dies while it passes data on"
DISK_SMALL = "a disk is too small"
DISK_FULL = "a disk is full at 40 %"
CHANGED = "files change while they are read"
WRONG_BYTES = "a part arrives with wrong bytes"
TWO = "two stagings at once"
DOWN = "kit down meanwhile"
MEMORY = "more data than memory"
WRONG_KEYS = "wrong keys"
NO_BUCKET = "the bucket is missing"
OPERATOR_KILLED = "the operator killed at 40 %"
MOUNTER_KILLED = "the mounter of a store killed"


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the test does and expects.

    `how`: how the fault happens on the lab. `code`: the exit code of kit data stage; negative for the signal that ended
    it. `sees`: words that it prints. `then`: what is left. `test`: file::name below tests/, if the lab cannot do it;
    then there is neither `code` nor `sees`.
    """

    how: str
    code: int | None = None
    sees: tuple[str, ...] = ()
    then: str
    test: str = ""


ROWS: Mapping[str, Row] = {
    SOURCE_DIES: Row(
        how="the S3 server ends when 40 % of the files are read, and stays away",
        code=4,
        sees=("does not answer", "kit data stage pictures"),
        then="what came is kept; when the server is back, the next staging reads only the rest",
    ),
    HOST_DIES: Row(
        how="gpu3 is switched off",
        code=4,
        sees=("gpu3", "when it is back: kit data stage pictures"),
        then="the others are complete; when gpu3 is back, the next staging completes it without the source",
    ),
    DISK_SMALL: Row(
        how="8 MB for the data set on gpu2",
        code=4,
        sees=("gpu2", "free"),
        then="nothing was read from the source",
    ),
    DISK_FULL: Row(
        how="something else fills the disk of gpu2",
        code=4,
        sees=("gpu2", "No space left on device"),
        then="the other hosts are complete; when there is room, the next staging completes gpu2",
    ),
    CHANGED: Row(
        how="all files are overwritten at 40 %",
        code=0,
        sees=("changed",),
        then="all hosts have the same version of each file, whole; the next staging brings the newest of all",
    ),
    WRONG_BYTES: Row(
        how="a member passes other bytes on",
        then="the receiver asks another host or the source for them",
        test="unit/images/test_stager.py::test_a_piece_with_wrong_bytes_comes_again",
    ),
    TWO: Row(
        how="kit data stage in two terminals",
        code=0,
        sees=("pictures",),
        then="the second one shows the first one's progress; the source is read once",
    ),
    DOWN: Row(
        how="kit down --force at 40 %",
        code=4,
        sees=("its stager ended", "go on: kit data stage pictures"),
        then="no stager is left; the next deploy and staging complete every host",
    ),
    MEMORY: Row(
        how="stage: ram and size: 10mb for 26 MB",
        code=4,
        sees=("size: of in-memory",),
        then="nothing was read from the source",
    ),
    WRONG_KEYS: Row(how="another secret key", code=4, sees=("refuse", "keys"), then="nothing is on any host"),
    NO_BUCKET: Row(how="another bucket", code=4, sees=("from: of pictures",), then="nothing is on any host"),
    OPERATOR_KILLED: Row(
        how="KILL to kit data stage",
        code=-9,
        then="the staging goes on without it; the next kit data stage shows its progress to the end",
    ),
    MOUNTER_KILLED: Row(
        how="docker kill, with stage: none",
        then="a new run on this host fails at once, with its cause; kit data mount brings it back to running nodes",
        test="integration/test_data.py::test_a_store_is_read_in_place_and_comes_back_after_its_mounter_was_killed",
    ),
}

_HEAD = """\
## Data

`tests/integration/test_data_faults.py` does each row on the same four hosts, while `kit data stage` copies 26 MB from
an S3 server over TLS. It also checks that no stager is left and that the next staging completes every host, byte by
byte.
Rows without an exit code have another test: a lab cannot change bytes inside TLS, and a mount is no staging.

| fault | how | exit code | kit says | then |
|---|---|---|---|---|
"""


def section() -> str:
    """Return the part of docs/fault-matrix.md about data."""
    lines = []
    for fault, row in ROWS.items():
        says = ", ".join(f"`{words}`" for words in row.sees) or (f"see `tests/{row.test}`" if row.test else "")
        lines.append(f"| {fault} | {row.how} | {'' if row.code is None else row.code} | {says} | {row.then} |")
    return _HEAD + "\n".join(lines) + "\n"
