"""Runs a live command in the VM's node, and ends it there. Its processes carry the mark of the command."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence

from kit.errors import StepError
from kit.model.values import replace
from kit.remote.engine.hiccups import no_exec, persistently
from kit.remote.scripts import in_node, script
from kit.remote.ssh.login_text import may_be_warning, without_warnings
from kit.remote.ssh.transport import Completed, Live, LiveTransport, Transport

# How the engine's own answers begin, in place of the command's output. Each is one line.
_ANSWERS = ("OCI runtime exec failed: ", "Error response from daemon: ", "Error: No such container: ")
# end_exec.sh gives the command 5 s, and the kernel 5 s.
_END_S = 30.0
_COUNT = re.compile(r"[0-9]{1,9}")


def new_mark() -> str:
    """Return a mark that no other command has."""
    return secrets.token_hex(8)


class Held:
    """Holds back what may be the engine's own answer, and passes on everything else as it comes."""

    def __init__(self, live: Live) -> None:
        self._sinks = {"out": live.out, "err": live.err}
        self._texts = {"out": b"", "err": b""}
        self._waiting: list[tuple[str, bytes]] | None = []

    def sink(self, stream: str) -> Callable[[bytes], None]:
        def take(data: bytes) -> None:
            if self._waiting is None:
                self._sinks[stream](data)
                return
            self._texts[stream] += data
            self._waiting.append((stream, data))
            if not all(may_be_answer(text) for text in self._texts.values()):
                self.release()

        return take

    def release(self) -> None:
        """Pass on what was held back."""
        waiting, self._waiting = self._waiting, None
        for stream, data in waiting or ():
            self._sinks[stream](data)

    def held(self, code: int) -> Completed:
        """Return the command's end with the text that is still held back, which is all that there was."""
        texts = self._texts if self._waiting else {"out": b"", "err": b""}
        return Completed(code=code, stdout=texts["out"], stderr=texts["err"])


def may_be_answer(text: bytes) -> bool:
    """Return whether this beginning of a stream can still become the engine's own answer, after warnings of the VM."""
    answer = without_warnings(text.decode(errors="replace"))
    if "\n" in answer.rstrip():
        return False
    return may_be_warning(answer) or any(answer[: len(begin)] == begin[: len(answer)] for begin in _ANSWERS)


def stream_in_node(
    transport: LiveTransport,
    name: str,
    argv: Sequence[str],
    live: Live,
    *,
    mark: str,
    answered: Callable[[Completed], None],
) -> int:
    """Run `argv` in the VM's node and return its exit code. `answered` gets the engine's own answer, and may raise."""
    command = in_node(name, argv, interactive=live.stdin is not None, mark=mark)

    def attempt() -> tuple[Completed, Held]:
        held = Held(live)
        code = transport.stream(command, replace(live, out=held.sink("out"), err=held.sink("err")))
        return held.held(code), held

    done, held = persistently(attempt, lambda ended: no_exec(ended[0]))
    answered(done)
    held.release()
    return done.code


def end_in_node(transport: Transport, mark: str) -> tuple[int, int]:
    """End the command with this mark on the VM. Return how many processes were ended, and how many are left."""
    done = transport.run(script("end_exec", mark), timeout_s=_END_S)
    words = done.text.split()
    if done.code != 0 or len(words) != 2 or not all(_COUNT.fullmatch(word) for word in words):
        raise StepError(
            f"its processes could not be ended: {done.error_text or f'exit {done.code}'}",
            hint=f"kit ssh {transport.host.name}; then: ps",
        )
    return int(words[0]), int(words[1])
