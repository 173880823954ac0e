"""kit bench list: the sessions below a folder, and how far each went."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from kit.errors import KitError
from kit.model.bench import META, SAMPLES
from kit.plan.bench.order import turns
from kit.plan.bench.record import samples_of, session_of
from kit.remote.bench import session_folder as benchfolder


class SessionRow(Struct, frozen=True, kw_only=True):
    """`left` launches were not made, or failed; a session with none is whole.

    `folder` is the name of its folder below bench/, by which verbs find it: the id, or what --dir chose.
    """

    id: str
    folder: str
    preset: str
    cluster: str
    started: str
    cases: int
    samples: int
    left: int


def sessions(root: Path) -> tuple[tuple[SessionRow, ...], list[KitError]]:
    """Return the sessions, the latest last, and an error for each that cannot be read."""
    rows, errors = [], []
    for path in benchfolder.sessions(root):
        try:
            rows.append(_row(path))
        except KitError as error:
            errors.append(error)
    return tuple(rows), errors


def _row(path: Path) -> SessionRow:
    session = session_of(benchfolder.read(path, META), str(path / META))
    samples = samples_of(benchfolder.read(path, SAMPLES), str(path / SAMPLES))
    return SessionRow(
        id=session.id,
        folder=path.name,
        preset=session.preset,
        cluster=session.cluster,
        started=session.started,
        cases=len(session.cases),
        samples=sum(sample.failure is None for sample in samples),
        left=len(turns(session.cases, samples)),
    )
