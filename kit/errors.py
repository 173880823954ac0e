"""The whole error tree, with the exit code of each branch.

    KitError                1   something failed; message, hint, and the host where it happened
    ├── InputError          2   a flag, the hosts file or kit.yaml: file, line, what is wrong, what to write
    │   └── ArrayMeant          the id of an array, where one run is wanted
    ├── UnreachableError    3   a host or this machine's engine cannot be reached, or a host is not the expected one
    │   └── LoginRefusedError   the host answers, and refuses this login
    ├── StepError           4   a host was reached, and a step failed on it
    │   ├── SlowError           the step did not end within its time limit
    │   └── AnswerError         the host answered something that kit cannot read
    ├── NotReadyError       5   the cluster is not in the state that the verb needs (not deployed, for example)
    │   └── EngineDownError     a host's Docker Engine does not answer; its containers may still run
    ├── ImageError          6   an image cannot be built, found or shipped
    │   └── RegistryLoginError  a registry requires a login, or refuses this one
    ├── HostsFailed         *   several hosts failed; the highest of their exit codes
    └── Interrupted       130   Ctrl-C, after the clean-up

kit passes a run's own exit code on; that is not an error of kit. 70 is a bug in kit itself.
"""

from __future__ import annotations

from collections.abc import Sequence

EXIT_BUG = 70


class KitError(Exception):
    """What happened (`message`), where (`host`, if on one), and what to do next (`hint`).

    `address` is how the text may spell the host, so that kit can print the same failure of many hosts once.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None, host: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.host = host
        self.address: str | None = None

    def __str__(self) -> str:
        return f"{self.host}: {self.message}" if self.host else self.message


class InputError(KitError):
    """Bad input. `file` and `line` (from 1) say where; `hint` says what to write."""

    exit_code = 2

    def __init__(
        self, message: str, *, hint: str | None = None, file: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.file = file
        self.line = line

    def __str__(self) -> str:
        if self.file is None:
            return self.message
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.message}"


class InputErrors(InputError):
    """Several problems of one file or command line, reported together, so that a person fixes it once."""

    def __init__(self, problems: Sequence[InputError]) -> None:
        first = problems[0]
        super().__init__(first.message, hint=first.hint, file=first.file, line=first.line)
        self.problems = tuple(problems)


class ArrayMeant(InputError):
    """A word means an array, where one run is wanted. `array` is its id, `runs` are those of it that are known."""

    def __init__(self, array: str, runs: Sequence[str]) -> None:
        super().__init__(
            f"{array} is an array of several runs, and one run is wanted here",
            hint=f"name a run of it: {', '.join(runs[:3]) or 'kit runs'}",
        )
        self.array = array
        self.runs = tuple(runs)


class UnreachableError(KitError):
    exit_code = 3


class LoginRefusedError(UnreachableError):
    """The host answers, and refuses this login. Each further try counts against this address there."""


class StepError(KitError):
    exit_code = 4


class SlowError(StepError):
    """A command began on the host and did not end within its time limit."""


class AnswerError(StepError):
    """A host, its engine or a container answered something that kit cannot read."""


class NotReadyError(KitError):
    exit_code = 5


class EngineDownError(NotReadyError):
    """A host's Docker Engine does not answer. With live-restore, its containers still run, and so do ranks."""

    def __init__(self, message: str, *, host: str) -> None:
        start = f"start it: kit ssh {host} -- sudo systemctl start docker"
        why = f"see why it stopped: kit ssh {host} -- sudo journalctl -u docker -n 50"
        super().__init__(message, hint=f"{start}; {why}", host=host)


class NoNodeError(NotReadyError):
    """The container of the head's node is down or missing, so no supervisor runs there."""


class ImageError(KitError):
    exit_code = 6


class RegistryLoginError(ImageError):
    """A registry requires a login, or refuses the one that it got."""


class HostsFailed(KitError):
    """Some hosts failed while others went on. `failures` holds one error a host."""

    def __init__(self, message: str, failures: Sequence[KitError], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.failures = tuple(failures)
        self.exit_code = max((f.exit_code for f in failures), default=1)


class Interrupted(KitError):
    exit_code = 130
