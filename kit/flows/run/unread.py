"""Standard input that no rank gets."""

from __future__ import annotations

from kit.events import Reporter, Warned
from kit.model.launch import RunRequest
from kit.model.values import replace


def without_input(request: RunRequest, reporter: Reporter, *, ranks: str) -> RunRequest:
    """Return the request without standard input. Warn if that has data. `ranks` names those that do not get it.

    An open pipe without data is normal, for example in CI.
    """
    if request.stdin is None:
        return request
    from kit.remote.run.feed import holds_data  # noqa: PLC0415  (only where there is input)

    if holds_data(request.stdin):
        hint = "read a file in the script; if the input is not for the run, add </dev/null"
        reporter.report(Warned(text=f"{ranks} do not get your standard input", hint=hint))
    return replace(request, stdin=None)
