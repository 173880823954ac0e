"""What a stager on a host that somebody broke into answers, and what its lead asks of the operator's folder.

`read` may raise KitError only, and gives nothing of a file that is not in the folder.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from kit.errors import KitError
from kit.model import staging
from kit.model.answer import answer_of
from kit.model.data import is_data_folder
from kit.remote.data import state
from kit.remote.data.feed import Feed, Folder

SECRET = b"the operator's own"
_DONE = {"files": 3, "bytes": 99, "new": 3, "removed": 0, "read": 99, "seconds": 1.5, "hosts": ["gpu1"], "lost": []}


def _line(**words: object) -> bytes:
    return json.dumps(words).encode() + b"\n"


def _frame(**words: object) -> bytes:
    header = json.dumps(words).encode()
    return len(header).to_bytes(4, "big") + header


SAMPLES: tuple[bytes, ...] = (
    _line(hello={"version": 1, "staging": "20261123-101500-3fa2", "lead": True, "mounted": True}),
    _line(mounted={"already": False}),
    _line(joined={"port": 40001, "free": 10**12}),
    _line(request={"id": "20261123-101500-3fa2", "source": "s3://bucket/imagenet", "limit": 0}),
    _line(listing={"files": 10, "bytes": 10**9})
    + _line(plan={"files": 10, "bytes": 99, "new": 10, "removed": 1, "hosts": {"gpu1": {"need": 99, "have": 9}}})
    + _line(progress={"at": {"gpu1": 10, "gpu2": 20}, "read": 30}),
    _line(lost={"host": "gpu2", "text": "nothing for 15 s"}) + _line(done=_DONE),
    _line(wrong={"host": "gpu2", "file": "a/b.bin"}) + _line(changed={"file": "a/b.bin"}),
    _line(failed={"kind": "room", "host": "gpu2", "text": "1 GB is free of 2 GB"}),
    _line(checked={"bytes": 5, "of": 99})
    + _line(verified={"files": 3, "bytes": 99, "wrong": [{"file": "a", "why": "size"}], "more": 2}),
    json.dumps({
        "name": "imagenet", "source": "s3://bucket/imagenet", "stage": "disk", "split": "hosts", "files": 3,
        "bytes": 99, "id": "20261123-101500-3fa2", "among": "gpu1 gpu2", "at": 1_795_000_000.5,
    }).encode(),
    b'now 1795000000\nrecord {"kit": 1}\nset /mnt/nvme/kit-data/lab/imagenet\nstaged {"name": "imagenet", "files": 3}\n'
    b"coming\nend\n",
    _frame(list=1) + _frame(read="a.bin", offset=0, length=4, n=1),
    _frame(read="deep/b.bin", offset=2, length=4_194_304, n=2) + _frame(read="../secret", offset=0, length=99, n=3),
    _frame(read="out", offset=0, length=99, n=4) + _frame(read="/etc/hostname", offset=0, length=99, n=5),
)  # fmt: skip


def read(answer: bytes) -> None:
    """Give the answer to each reader. Raise the last error if none of them takes it."""
    failures: list[KitError] = []
    readers = (_lines, _summary, _state, _frames)
    for reader in readers:
        try:
            reader(answer)
        except KitError as error:
            failures.append(error)
    if len(failures) == len(readers):
        raise failures[-1]


def _lines(answer: bytes) -> None:
    for line in answer.splitlines()[:1000]:
        with answer_of("bad", "what its stager says"):
            staging.read(line)


def _summary(answer: bytes) -> None:
    with answer_of("bad", "its summary"):
        staging.read_summary(answer)


def _state(answer: bytes) -> None:
    with answer_of("bad", "its list of data sets"):
        sets = state.parse(answer.decode(errors="replace"), "lab").sets
    if not all(is_data_folder("lab", one.folder) for one in sets):
        raise AssertionError("a host named a folder that kit data rm must not delete")


def _frames(answer: bytes) -> None:
    sent: list[bytes] = []
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        (top / "secret").write_bytes(SECRET)
        (top / "data/deep").mkdir(parents=True)
        (top / "data/a.bin").write_bytes(b"0123456789")
        (top / "data/deep/b.bin").write_bytes(b"9876543210")
        (top / "data/out").symlink_to(top / "secret")
        feed = Feed("bad", Folder(str(top / "data")), sent.append)
        try:
            for at in range(0, len(answer), 50_000):
                feed.hear(answer[at : at + 50_000])
        finally:
            if any(SECRET in data for data in sent):
                raise AssertionError("a file from outside of the folder was sent")
