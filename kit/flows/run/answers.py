"""Reads the records of runs in the answers of the head's launcher. What does not fit is an error of the head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kit.errors import AnswerError, NotReadyError
from kit.model import names
from kit.model.answer import answer_of, convert
from kit.model.run import RunRecord
from kit.plan.run.records import record_of

# How often a run is planned if other runs that start beside it take its slots, or its id.
TRIES = 4


def run_of(head: str, record: object, ending: object = None, *, live: bool = True) -> RunRecord:
    """Return the run in an answer of this host (kit.plan.run.records.record_of). Raises AnswerError."""
    with answer_of(head, "the record of a run"):
        fields, end = convert(record, dict[str, Any]), convert(ending, dict[str, Any] | None)
    try:
        return record_of(fields, end, live=live)
    except AnswerError as error:
        error.host = head
        raise


def runs_of(head: str, records: object) -> list[RunRecord]:
    """Return the runs in a list of records of runs that hold slots. Raises AnswerError.

    A lost run also holds them for a while (images/lib/kitrun/leases.py).
    """
    with answer_of(head, "its list of runs"):
        listed = convert(records, list[dict[str, Any]])
    return [run_of(head, record, live=not record.get("lost")) for record in listed]


def lost_run(head: str, run: str, also: str = "") -> NotReadyError:
    """Return the error of a run whose supervisor was killed while kit waited for its end."""
    text = f"run {run} is lost: its supervisor on the head was stopped or killed{also}"
    return NotReadyError(text, hint=names.RESTORE, host=head)


def id_taken(head: str) -> NotReadyError:
    """Return the error of a run whose id, which has the second and four digits, is that of another run."""
    return NotReadyError("another run has this id: both began in the same second", hint="run the same again", host=head)


def outcome(head: str, record: object, ending: Mapping[str, Any] | None) -> RunRecord:
    """Return a run's record with its ending; without one, the run is still running. Raises AnswerError."""
    if ending is None:
        return run_of(head, record)
    if ending.get("lost"):
        return run_of(head, record, live=False)
    return run_of(head, record, ending)
