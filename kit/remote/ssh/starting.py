"""Why ssh cannot be started on this machine."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from kit.errors import StepError
from kit.remote.ssh import open_files


@contextmanager
def starting(host: str) -> Iterator[None]:
    """Raise StepError if ssh cannot be started in this context: it is missing, or the system refuses."""
    try:
        yield
    except FileNotFoundError as error:
        raise StepError(
            "this machine has no ssh client", hint="install OpenSSH: apt-get install openssh-client"
        ) from error
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise StepError(
                "the command is too long: with its arguments, it may have at most about 128 KiB",
                hint="write it to a file, and give that as the input: -- sh < FILE",
                host=host,
            ) from error
        raise open_files.no_connection(error, host) from error
