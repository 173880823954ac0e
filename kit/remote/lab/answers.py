"""What this machine's engine answers about a lab, if it refuses or kit cannot read it: errors of kit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kit.errors import AnswerError, StepError
from kit.model.answer import beginning
from kit.remote.engine import sdk

# What the SDK and its callers raise for an answer of another shape, because the SDK checks none.
_ODD = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


@contextlib.contextmanager
def errors(doing: str, host: str | None = None) -> Iterator[None]:
    """Turn what goes wrong inside into errors of this host, or of this machine's engine if there is no host."""

    def refused(error: Any) -> StepError:
        # The engine is this machine's, also if the host is one of the lab.
        return StepError(f"{doing}: {sdk.reply(error)}", hint=sdk.next_step(error), host=host)

    with sdk.errors(refused=refused):
        try:
            yield
        except _ODD as error:
            odd = beginning(f"{type(error).__name__}: {error}")
            raise AnswerError(
                f"{doing}: kit cannot read the answer of this machine's engine: {odd}",
                hint="another program may answer on its socket; look: docker info",
                host=host,
            ) from error
