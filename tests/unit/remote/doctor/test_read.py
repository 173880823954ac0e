"""What kit makes of a reader's answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit.errors import AnswerError, StepError
from kit.model.doctor import Command, Disk, File, Lookup, Mount, Mounts, Seen
from kit.model.host import Host
from kit.remote.doctor.read import NoPython, answered
from kit.remote.ssh.transport import Completed

HOST = Host(name="gpu1", address="192.0.2.1")
READS = (File(path="/a"), Command(argv=("x",)), Disk(path="/"), Lookup())


def read(*values: Any, missing: Any = (), look: Any = None, mark: str = "m") -> Seen:
    line = json.dumps({"reads": list(values), "missing": list(missing), "look": look})
    done = Completed(code=0, stdout=f"before\n@@ {mark} {line}\n".encode(), stderr=b"")
    return answered(HOST, READS, done, mark="m").seen


def test_a_whole_answer() -> None:
    host = read("text", [0, "out", "err"], [10, 5, 0, 0], ["127.0.1.1", "fe80::1%eth0"])
    assert host.file("/a") == "text"
    assert host.addresses[""] == ("127.0.1.1", "fe80::1%eth0")
    assert (host.ran("x"), host.room("/")) != (None, None)


def test_what_is_missing_is_not_asked() -> None:
    host = read(None, None, None, [], missing=[0, 3])
    assert (dict(host.files), dict(host.addresses)) == ({}, {})
    assert host.ran("x") is None


@pytest.mark.parametrize(
    "values",
    [
        ("text",),
        ("text", None, None, [], None),
        (1, None, None, []),
        ({"a": 1}, None, None, []),
        ("text", [0, "out"], None, []),
        ("text", [300, "", ""], None, []),
        ("text", ["0", "", ""], None, []),
        ("text", None, [1, 2, 3], []),
        ("text", None, [-1, 0, 0, 0], []),
        ("text", None, None, ["nowhere"]),
        ("text", None, None, "127.0.0.1"),
    ],
)
def test_odd_answers_are_errors_of_the_host(values: tuple[Any, ...]) -> None:
    with pytest.raises(AnswerError) as raised:
        read(*values)
    assert raised.value.host == "gpu1"


def mounts(value: Any, missing: Any = ()) -> Seen:
    line = json.dumps({"reads": [value], "missing": list(missing), "look": None})
    done = Completed(code=0, stdout=f"@@ m {line}\n".encode(), stderr=b"")
    return answered(HOST, (Mounts(kind="fuse.rclone"),), done, mark="m").seen


def test_mounts_by_their_folders() -> None:
    host = mounts({"/a b": ["0:61", ""], "/c": ["0:62", "ENOTCONN"], "/d": ["259:3", None]})
    assert host.mounted("fuse.rclone") == {
        "/a b": Mount(device="0:61"),
        "/c": Mount(device="0:62", fault="ENOTCONN"),
        "/d": Mount(device="259:3", fault=None),
    }
    assert mounts({}).mounted("fuse.rclone") == {}
    for unknown in (mounts(None), mounts(None, [0]), mounts({}, [0])):
        assert unknown.mounted("fuse.rclone") is None
    assert mounts({}).mounted("nfs") is None


@pytest.mark.parametrize(
    "value",
    [
        [],
        "text",
        {"/a": "0:61"},
        {"/a": ["0:61"]},
        {"/a": ["0:61", "", ""]},
        {"/a": ["0:61", 107]},
        {"/a": [61, ""]},
        {"/a": ["61", ""]},
        {"/a": ["0:61\n", ""]},
        {"/a": ["\u0660:61", ""]},
        {"/a": ["0:61", "not connected"]},
        {"/a": ["0:61", "E\x1b[2J"]},
        {"/a": ["0:61", "E" * 40]},
        {"/" + "a" * 4096: ["0:61", ""]},
    ],
)
def test_odd_mounts_are_errors_of_the_host(value: Any) -> None:
    with pytest.raises(AnswerError) as raised:
        mounts(value)
    assert raised.value.host == "gpu1"


def test_another_mark_is_no_answer() -> None:
    with pytest.raises(StepError, match="could not be read"):
        read("text", None, None, [], mark="n")


@pytest.mark.parametrize(
    ("code", "errors", "error", "text"),
    [
        (69, b"", NoPython, "no python3"),
        (127, b"sh: python3: not found", NoPython, "no python3"),
        (1, b'  File "<stdin>"\nSyntaxError: invalid syntax', NoPython, "older"),
        (1, b"sudo: a password is required", StepError, "cannot become it"),
        (137, b"", StepError, "exit 137"),
    ],
)
def test_why_there_is_no_answer(code: int, errors: bytes, error: type[StepError], text: str) -> None:
    with pytest.raises(error, match=text):
        answered(HOST, READS, Completed(code=code, stdout=b"", stderr=errors), mark="m")
