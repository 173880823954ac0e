"""Decides about the folders of runs: which ones a command means, what they hold together, and what `kit down` keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kit.errors import InputError, NotReadyError
from kit.model.results import RunFolder, RunSize, RunStart, Survey
from kit.plan.run.records import several

_STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-")


def sizes(survey: Survey) -> tuple[RunSize, ...]:
    """Return each run with its bytes on all hosts, the oldest first."""
    by_run: dict[str, dict[str, RunFolder]] = {}
    for host, folders in survey.folders.items():
        for folder in folders:
            by_run.setdefault(folder.id, {})[host] = folder
    return tuple(_size(run, by_run[run]) for run in sorted(by_run))


def _size(run: str, folders: Mapping[str, RunFolder]) -> RunSize:
    return RunSize(
        id=run,
        hosts=tuple(host for host, folder in folders.items() if folder.files),
        output=sum(folder.output for folder in folders.values()),
        checkpoints=sum(folder.checkpoints for folder in folders.values()),
        work=sum(folder.work for folder in folders.values()),
        log=sum(folder.log for folder in folders.values()),
    )


def split(survey: Survey) -> tuple[tuple[RunSize, ...], tuple[RunSize, ...]]:
    """Return the runs that made something, which `kit down` keeps, and those of which only a record and a log exist."""
    runs = sizes(survey)
    return tuple(run for run in runs if run.hosts), tuple(run for run in runs if not run.hosts)


def chosen(survey: Survey, words: Sequence[str], *, older_than: str | None = None) -> tuple[RunSize, ...]:
    """Return the runs that `words` name by id or by its beginning, and those that began before a stamp.

    `older_than` is a time as ids have it: 20261121-101500. Raises InputError for a word that names no run or several,
    and NotReadyError if one of the runs that are named lives.
    """
    runs = {run.id: run for run in sizes(survey)}
    ids = [named(word, runs) for word in words]
    living = frozenset(survey.living)
    active = [run for run in ids if run in living]
    if active:
        raise NotReadyError(
            f"the run {', '.join(active)} is active; nothing was removed",
            hint="wait for it (kit wait) or stop it (kit stop ID)",
        )
    if older_than is not None:
        began = _began(survey)
        ids += [run for run in runs if began[run] and began[run] < older_than and run not in living]
    return tuple(runs[run] for run in dict.fromkeys(ids))


def _began(survey: Survey) -> dict[str, str]:
    """Return when each run began, as ids have it; '' if nobody knows.

    The id has the time at which the run was planned. It may then have waited for hours.
    """
    began: dict[str, str] = {}
    for folder in (folder for folders in survey.folders.values() for folder in folders):
        stamp = folder.id[:15] if _STAMP.match(folder.id) else ""
        began[folder.id] = max(began.get(folder.id, ""), stamp, folder.began if stamp else "")
    return began


def latest(hosts: Iterable[Mapping[str, RunStart]]) -> str:
    """Return the run that the other verbs call the latest one: the last to start of those that live, or else of all.

    Without the head, nobody knows when runs started. Then it is the run that was planned last, by its id.
    """
    starts = [(start.live, start.started, run) for runs in hosts for run, start in runs.items()]
    return max(starts)[2]


def named(word: str, runs: Mapping[str, object]) -> str:
    """Return the only run whose id is, or begins with, this word. Raises InputError."""
    matches = [run for run in runs if run == word] or [run for run in runs if run.startswith(word)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise InputError(f"no run '{word}' on any host", hint="list the runs: kit runs")
    raise several(word, matches)
