"""An engine's report that nothing began is distinguished from everything that a command may print or do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from docker.errors import APIError

from kit.remote.bench.probe import run_pair
from kit.remote.engine import hiccups
from kit.remote.lab.host import RunningHost
from kit.remote.ssh.transport import Completed
from tests.fakes.facts import host
from tests.fakes.vm import RESET

NO_EXEC = f"OCI runtime exec failed: exec failed: {RESET}: unknown\n"
NO_CONTAINER = f"""\
 Container kit-lab-mpihead  Starting
Error response from daemon: failed to create shim task: OCI runtime create failed: runc create failed: {RESET}: unknown
"""


def ended(code: int, *, out: str = "", err: str = "") -> Completed:
    return Completed(code=code, stdout=out.encode(), stderr=err.encode())


@pytest.mark.parametrize(
    ("done", "is_one"),
    [
        (ended(126, out=NO_EXEC), True),
        (ended(128, err=NO_EXEC), True),
        (ended(126, err=f"sudo: unable to resolve host gpu1\n{NO_EXEC}"), True),
        (ended(126, out=NO_EXEC, err="sudo: unable to resolve host gpu1\n"), True),
        (ended(126, err=f"sh: warning: setlocale: LC_ALL: cannot change locale (x)\nother\n{NO_EXEC}"), False),
        (ended(0, out=NO_EXEC), False),
        # A program that prints such a fault, and has done something.
        (ended(1, out=f"step 1\n{NO_EXEC}"), False),
        (ended(1, out=f"{NO_EXEC}step 2\n"), False),
        (ended(127, out='OCI runtime exec failed: exec: "nvcc": executable file not found in $PATH: unknown'), False),
        (ended(1, err="Error: No such container: kit-lab-mpihead"), False),
    ],
)
def test_an_exec_that_never_began(done: Completed, *, is_one: bool) -> None:
    assert hiccups.no_exec(done) is is_one


@pytest.mark.parametrize(
    ("done", "is_one"),
    [
        (ended(1, err=NO_CONTAINER), True),
        (ended(0, err=NO_CONTAINER), False),
        (ended(1, err="Error response from daemon: OCI runtime create failed: no such device: unknown"), False),
    ],
)
def test_a_container_that_never_began(done: Completed, *, is_one: bool) -> None:
    assert hiccups.no_container(done) is is_one


class Hiccuping:
    """A transport that answers with each of these in turn, the last one for good."""

    host = host(1)

    def __init__(self, *answers: Completed) -> None:
        self._answers = list(answers)
        self.commands: list[tuple[str, bytes]] = []

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        self.commands.append((" ".join(argv[4:]), stdin))
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hiccups, "PAUSE_S", 0.0)


def test_it_is_requested_again_with_the_same_input() -> None:
    transport = Hiccuping(ended(126, out=NO_EXEC), ended(126, err=NO_EXEC), ended(0, out="done\n"))
    done = hiccups.run_in_node(transport, "kit-lab-mpinode", ["cat"], stdin=b"data")
    assert done.text == "done\n"
    assert transport.commands == [("kit-lab-mpinode exec --interactive -- cat", b"data")] * 3


def test_one_that_stays_is_reported() -> None:
    transport = Hiccuping(ended(126, out=NO_EXEC))
    assert hiccups.run_in_node(transport, "kit-lab-mpinode", ["true"]).text == NO_EXEC
    assert len(transport.commands) == hiccups.ATTEMPTS


def test_a_failure_of_the_command_is_not_repeated() -> None:
    transport = Hiccuping(ended(1, err="no such file\n"))
    assert hiccups.run_in_node(transport, "kit-lab-mpinode", ["false"]).code == 1
    assert len(transport.commands) == 1


def refused(words: str) -> APIError:
    return APIError("500 Server Error", explanation=words)


def test_the_sdk_requests_it_again() -> None:
    answers: list[APIError | str] = [refused(NO_CONTAINER), refused(NO_EXEC), "begun"]

    def act() -> str:
        answer = answers.pop(0)
        if isinstance(answer, APIError):
            raise answer
        return answer

    assert hiccups.insist(act) == "begun"
    assert answers == []


@pytest.mark.parametrize(("words", "times"), [("no such device", 1), (NO_CONTAINER, hiccups.ATTEMPTS)])
def test_what_the_sdk_goes_on_raising_is_raised(words: str, times: int) -> None:
    calls = []

    def act() -> None:
        calls.append(words)
        raise refused(words)

    with pytest.raises(APIError, match="500"):
        hiccups.insist(act)
    assert len(calls) == times


class Exec:
    """The part of the SDK that runs commands in containers. The first one never begins."""

    def __init__(self) -> None:
        self.api = self
        self.made: list[list[str]] = []

    def exec_create(self, container: str, argv: list[str]) -> dict[str, int]:
        self.made.append(argv)
        return {"Id": len(self.made)}

    def exec_start(self, number: int) -> bytes:
        return NO_EXEC.encode() if number == 1 else b"17\n"

    def exec_inspect(self, number: int) -> dict[str, int]:
        return {"ExitCode": 126 if number == 1 else 0}


def test_in_a_host_of_the_lab() -> None:
    client = Exec()
    assert RunningHost(client, "kit-lab-gpu1", "gpu1").link() == 17
    assert len(client.made) == 2


def test_in_a_network_probe() -> None:
    listening = Hiccuping(ended(125, err=f"docker: {NO_CONTAINER}"), ended(0))
    calling = Hiccuping(ended(0, out="{}\n"))
    pair = {"gpu1": listening, "gpu2": calling}
    assert run_pair(lambda at: pair[at.name], (host(1), ["listen"]), (host(2), ["connect"])) == "{}\n"
