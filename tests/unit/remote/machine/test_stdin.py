"""The input of kit for many hosts: all of it for each, read once, and only as far as a host has taken it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest

from kit.errors import StepError
from kit.remote.machine import stdin
from kit.remote.machine.stdin import Input
from kit.remote.ssh.transport import Reader

TEXT = bytes(range(256)) * 1000


@pytest.fixture
def pipe() -> Iterator[tuple[FileIO, FileIO]]:
    """The ends of a pipe. They may be closed twice: that of a number could close a file of somebody else."""
    read_end, write_end = os.pipe()
    with FileIO(read_end, "rb") as reading, FileIO(write_end, "wb") as writing:
        yield reading, writing


def all_of(reader: Reader) -> bytes:
    return b"".join(iter(lambda: reader.read(1000), b""))


def write_all(end: FileIO, data: bytes) -> None:
    def write() -> None:
        view = memoryview(data)
        while view:
            view = view[end.write(view) or 0 :]
        end.close()

    threading.Thread(target=write, daemon=True).start()


@pytest.mark.parametrize("hosts", [1, 3])
def test_each_host_gets_all_of_a_pipe(pipe: tuple[FileIO, FileIO], hosts: int) -> None:
    write_all(pipe[1], TEXT)
    source = Input(pipe[0].fileno(), hosts=hosts)
    got: list[bytes] = []
    threads = [threading.Thread(target=lambda: got.append(all_of(source.reader()))) for _ in range(hosts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert got == [TEXT] * hosts


def test_a_file_is_read_from_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(TEXT)
    with (tmp_path / "f").open("rb", buffering=0) as file:
        file.read(10)
        source = Input(file.fileno(), hosts=2)
        assert [all_of(source.reader()), all_of(source.reader())] == [TEXT[10:]] * 2


def test_a_pipe_is_read_only_as_far_as_the_fastest_host(pipe: tuple[FileIO, FileIO]) -> None:
    pipe[1].write(b"abcdef")
    source = Input(pipe[0].fileno(), hosts=2)
    fast, slow = source.reader(), source.reader()
    assert (fast.read(2), slow.read(1), slow.read(9)) == (b"ab", b"a", b"b")
    assert pipe[0].read(9) == b"cdef"


def test_a_command_that_did_not_begin_reads_again(pipe: tuple[FileIO, FileIO]) -> None:
    write_all(pipe[1], b"abc")
    source = Input(pipe[0].fileno(), hosts=1)
    assert source.reader().read(2) == b"ab"
    assert all_of(source.reader()) == b"abc"


def test_a_single_hosts_long_input_is_not_kept(pipe: tuple[FileIO, FileIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdin, "KEPT", 3000)
    write_all(pipe[1], TEXT)
    source = Input(pipe[0].fileno(), hosts=1)
    assert all_of(source.reader()) == TEXT
    with pytest.raises(StepError, match="did not start"):
        source.reader()
    assert isinstance(source.error, StepError)


def test_a_reader_that_waits_for_another_can_be_closed(pipe: tuple[FileIO, FileIO]) -> None:
    source = Input(pipe[0].fileno(), hosts=2)
    first, second = source.reader(), source.reader()
    one = threading.Thread(target=first.read, args=(1,), daemon=True)
    one.start()
    got: list[bytes] = []
    two = threading.Thread(target=lambda: got.append(second.read(1)), daemon=True)
    two.start()
    second.close()
    two.join(30)
    pipe[1].write(b"x")
    one.join(30)
    assert got in ([b""], [b"x"])


def test_a_full_disk_is_an_error_and_not_an_early_end(
    pipe: tuple[FileIO, FileIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all(pipe[1], b"abc")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    source = Input(pipe[0].fileno(), hosts=2)
    assert all_of(source.reader()) == b""
    assert source.error is not None
    assert "No space left" in source.error.message
