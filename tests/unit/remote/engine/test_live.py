"""The engine's own answer is held back, and a command's output is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kit.errors import StepError
from kit.remote.engine import hiccups, live
from kit.remote.engine.live import end_in_node, may_be_answer, stream_in_node
from kit.remote.ssh.transport import Completed, Live
from tests.fakes.facts import host
from tests.fakes.vm import RESET

NO_EXEC = f"OCI runtime exec failed: exec failed: {RESET}\n".encode()
WARNING = b"sudo: unable to resolve host gpu1: Name or service not known\n"
LOCALE = b"bash: line 1: warning: setlocale: LC_ALL: cannot change locale (de_DE.UTF-8)\n"
Chunk = tuple[str, bytes]


class Chunks:
    """A transport that passes on these chunks, of one attempt after the other."""

    host = host(1)

    def __init__(self, *attempts: tuple[int, Sequence[Chunk]], look: Callable[[bytes], None] = lambda _: None) -> None:
        self._attempts = list(attempts)
        self.look = look
        self.commands: list[Sequence[str]] = []

    def stream(self, argv: Sequence[str], live: Live) -> int:
        self.commands.append(argv)
        code, chunks = self._attempts.pop(0)
        for stream, data in chunks:
            (live.out if stream == "out" else live.err)(data)
            self.look(data)
        return code

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        code, chunks = self._attempts.pop(0)
        return Completed(code=code, stdout=b"".join(data for _, data in chunks), stderr=b"")

    def close(self) -> None:
        pass


def streamed(transport: Chunks, answers: list[Completed] | None = None) -> tuple[int, list[Chunk]]:
    got: list[Chunk] = []
    code = stream_in_node(
        transport,
        "kit-lab-mpinode",
        ["x"],
        Live(out=lambda data: got.append(("out", data)), err=lambda data: got.append(("err", data))),
        mark="m1",
        answered=(answers if answers is not None else []).append,
    )
    return code, got


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hiccups, "PAUSE_S", 0.0)


@pytest.mark.parametrize(
    ("text", "may_be"),
    [
        (b"", True), (b"O", True), (b"OCI runtime exec failed: exec: \"x\": no such file\n", True),
        (b"Error response from daemon: container 1f is not running\n", True), (b"Error", True),
        (b"Error: it failed", False), (b"OCI runtime exec failed: a\nb", False), (b"hello", False), (b" OCI", False),
        (b"\n", False),
        # Warnings before the answer, whole and in part.
        (WARNING, True), (WARNING + NO_EXEC, True), (LOCALE + WARNING + b"Err", True), (LOCALE[:10], True),
        (WARNING[:9], True), (b"bash: line 1", True), (b"bash: line 12: warning: setl", True), (WARNING[:-1], True),
        (WARNING + b"hello", False), (b"bash: line 1: x: not found", False), (b"sudo: a password", False),
        (WARNING + NO_EXEC + b"and more", False),
    ],
)  # fmt: skip
def test_what_may_become_the_engines_answer(text: bytes, may_be: bool) -> None:
    assert may_be_answer(text) is may_be


def test_output_is_passed_on_as_it_comes_and_unchanged() -> None:
    chunks = [("out", b"\xff1"), ("err", b"e"), ("out", b"2\n")]
    got: list[Chunk] = []
    seen: list[int] = []
    transport = Chunks((3, chunks), look=lambda _: seen.append(len(got)))
    take = Live(out=lambda data: got.append(("out", data)), err=lambda data: got.append(("err", data)))
    assert stream_in_node(transport, "n", ["x"], take, mark="m", answered=lambda _: None) == 3
    assert got == chunks
    assert seen == [1, 2, 3]


def test_a_command_that_never_began_is_tried_again_unseen() -> None:
    transport = Chunks(
        (126, [("out", NO_EXEC[:20]), ("out", NO_EXEC[20:])]), (126, [("err", NO_EXEC)]), (0, [("out", b"x")])
    )
    assert streamed(transport) == (0, [("out", b"x")])
    assert len(transport.commands) == 3


def test_a_warning_before_the_engines_answer_does_not_hide_it() -> None:
    transport = Chunks((126, [("err", WARNING[:5]), ("err", WARNING[5:]), ("err", NO_EXEC)]), (0, [("out", b"x")]))
    assert streamed(transport) == (0, [("out", b"x")])


def test_a_warning_is_shown_with_the_commands_output() -> None:
    chunks = [("err", WARNING), ("out", b"x\n")]
    assert streamed(Chunks((0, chunks))) == (0, chunks)


def test_the_engines_answer_is_shown_if_nobody_refuses_it() -> None:
    text = b'OCI runtime exec failed: exec failed: exec: "x": executable file not found in $PATH\n'
    answers: list[Completed] = []
    assert streamed(Chunks((127, [("out", text)])), answers) == (127, [("out", text)])
    assert [answer.stdout for answer in answers] == [text]


def test_a_command_that_prints_such_words_and_goes_on_is_not_the_engine() -> None:
    answers: list[Completed] = []
    chunks = [("out", b"Error response from daemon: x\n"), ("out", b"and more\n")]
    assert streamed(Chunks((1, chunks)), answers) == (1, chunks)
    assert [answer.stdout for answer in answers] == [b""]


def test_a_command_that_prints_nothing() -> None:
    assert streamed(Chunks((0, []))) == (0, [])


def test_the_command_carries_its_mark() -> None:
    transport = Chunks((0, []))
    streamed(transport)
    (argv,) = transport.commands
    assert list(argv)[4:] == ["kit-lab-mpinode", "exec", "--env", "KIT_EXEC=m1", "--", "x"]
    assert live.new_mark() != live.new_mark()


def test_ending_returns_both_counts() -> None:
    assert end_in_node(Chunks((0, [("out", b"3 1\n")])), "m") == (3, 1)
    with pytest.raises(StepError, match="could not be ended"):
        end_in_node(Chunks((1, [("out", b"")])), "m")
