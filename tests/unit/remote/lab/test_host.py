"""A host of the lab: a command that the engine did not begin is repeated; a failure names the host."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from docker.errors import NotFound

from kit.errors import StepError
from kit.remote.engine import hiccups
from kit.remote.lab import fault
from kit.remote.lab.host import RunningHost
from tests.fakes.vm import RESET

NO_EXEC = f"OCI runtime exec failed: exec failed: {RESET}: unknown\r\n".encode()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hiccups, "PAUSE_S", 0.0)


def host(*answers: tuple[int, bytes]) -> RunningHost:
    """A host whose commands end so, one after the other."""
    left = list(answers)
    api = SimpleNamespace(
        exec_create=lambda container, argv: {"Id": "1"},
        exec_start=lambda _: left[0][1],
        exec_inspect=lambda _: {"ExitCode": left.pop(0)[0]},
    )
    return RunningHost(SimpleNamespace(api=api), "c", "gpu1")


def test_a_command_that_never_began_is_requested_again() -> None:
    assert host((126, NO_EXEC), (0, b"17\n")).link() == 17
    host((126, NO_EXEC), (0, b"")).shape_own_links("1gbit", 1)


def test_an_index_that_a_busy_engine_lost_is_read_again() -> None:
    assert host((0, b""), (0, b"17\n")).link() == 17


@pytest.mark.parametrize("answers", [[(1, b"no such file\n")], [(0, b"\n")] * hiccups.ATTEMPTS])
def test_a_link_that_cannot_be_read(answers: list[tuple[int, bytes]]) -> None:
    with pytest.raises(StepError, match="its link cannot be read") as caught:
        host(*answers).link()
    assert caught.value.host == "gpu1"


END = f"{fault.END}\n".encode()


def test_an_answer_about_faults_that_a_busy_engine_lost_is_requested_again() -> None:
    """A list that is lost is no list without faults."""
    assert host((0, b""), (0, b"swap\n"), (0, b"swap\nthp\n" + END)).fault([]) == "swap\nthp\n"
    assert host((0, END)).fault([]) == ""


def test_a_lost_answer_and_a_refusal_are_errors() -> None:
    with pytest.raises(StepError, match="lost the answer") as caught:
        host(*[(0, b"swap\n")] * hiccups.ATTEMPTS).fault([])
    assert caught.value.host == "gpu1"
    with pytest.raises(StepError, match="cannot have this fault: no room"):
        host((1, b"a line\nno room\n")).fault([])


def test_an_exit_code_comes_after_the_output() -> None:
    """Without one, a command that failed would be one that succeeded."""
    codes: list[int | None] = [None, None, 3]
    api = SimpleNamespace(
        exec_create=lambda container, argv: {"Id": "1"},
        exec_start=lambda _: b"no such device\n",
        exec_inspect=lambda _: {"ExitCode": codes.pop(0)},
    )
    with pytest.raises(StepError, match="no such device"):
        RunningHost(SimpleNamespace(api=api), "c", "gpu1").fault([])
    assert codes == []


def test_a_link_that_cannot_be_shaped() -> None:
    with pytest.raises(StepError, match="cannot be limited to 1gbit: no such device"):
        host((2, b"no such device\n")).shape_own_links("1gbit", 1)


def broken_off() -> Iterator[bytes]:
    yield b"a part"
    raise requests.exceptions.ChunkedEncodingError("it broke off")


@pytest.mark.parametrize("answer", [NotFound("none"), (iter([b"a part"]), {}), (broken_off(), {})])
def test_a_host_key_that_is_being_written_is_not_there_yet(answer: Any) -> None:
    def get_archive(_container: str, _path: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = SimpleNamespace(api=SimpleNamespace(get_archive=get_archive))
    assert RunningHost(client, "c1", "gpu1").public_host_key() is None


def test_a_bare_host_that_cannot_boot_is_not_alive() -> None:
    state = {"State": {"Running": True, "Restarting": True, "ExitCode": 1}}
    api = SimpleNamespace(inspect_container=lambda _: state, logs=lambda _, tail: b"mount: permission denied\n")
    with pytest.raises(StepError, match="exit code 1: mount: permission denied"):
        RunningHost(SimpleNamespace(api=api), "c", "gpu1").alive()
