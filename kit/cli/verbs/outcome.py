"""What the verbs that run or watch a job print at its end, and the exit code that it gives kit."""

# What a verb prints is imported only when it prints it.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kit.cli.session import Session
    from kit.model.result import RunResult
    from kit.model.run import RunRecord


def show_run(session: Session, record: RunRecord | None, result: RunResult | None = None, text: str = "") -> None:
    """Print a run: as JSON in one shape for all verbs, or this text."""
    if not session.json or record is None:
        session.show("run", result, text)
        return
    from kit.cli.screen.jsonout import run

    session.show("run", run(record, result))


def job_ended(session: Session, code: int | None, story: str = "") -> int:
    from kit.events import Note

    if story:
        session.terminal.tell(story)
    elif code:
        session.reporter.report(Note(text=f"kit: the job ended with exit code {code}"))
    return code or 0
