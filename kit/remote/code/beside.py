"""A function that runs in a thread beside the caller. concurrent.futures takes 10 ms to import, and a run waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Beside(Generic[Made]):
    """Start `function` in a thread."""

    def __init__(self, function: Callable[[], Made]) -> None:
        self._function = function
        self._results: list[Made] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:
            self._error = error

    def result(self) -> Made:
        """Wait for the end of the function. Return its result, or raise its error."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]
