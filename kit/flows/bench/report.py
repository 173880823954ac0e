"""kit bench report and compare: from the folder of a session to its table, CSV, plots and page."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from kit.errors import InputError, KitError
from kit.events import Reporter, Warned
from kit.model.bench import CSV, META, REPORT, SAMPLES
from kit.model.benchsummary import Comparison, Summary
from kit.plan.bench.cases import LADDER
from kit.plan.bench.record import samples_of, session_of
from kit.plan.bench.report.charts import charts, side_by_side
from kit.plan.bench.report.compare import compare
from kit.plan.bench.report.page import heading, html
from kit.plan.bench.report.results_csv import csv_text
from kit.plan.bench.report.stats import summarise
from kit.remote.bench import report
from kit.remote.bench import session_folder as benchfolder
from kit.remote.bench.plots import png

PLOTS = "results.png"


class BenchReport(Struct, frozen=True, kw_only=True):
    """`files` are those that were written, in the session's folder."""

    folder: Path
    files: tuple[Path, ...]
    summary: Summary


def find(root: Path, wanted: str | None) -> Path:
    """The session of this id, or its beginning, or a folder; None for the latest. Raises InputError."""
    return benchfolder.find(root, wanted or "")


def load(folder: Path) -> Summary:
    """What the session in this folder comes to, as far as it went."""
    session = session_of(benchfolder.read(folder, META), str(folder / META))
    samples = samples_of(benchfolder.read(folder, SAMPLES), str(folder / SAMPLES))
    return summarise(session, samples)


def write(folder: Path, reporter: Reporter | None = None) -> BenchReport:
    """Writes results.csv, report.html and, where there is a chart, results.png into the session's folder.

    The same samples give the same bytes. With a `reporter`, a disk that refuses is a warning, and the report has no
    files: what was measured can be shown anyway.
    """
    summary = load(folder)
    drawn = charts(summary)
    files = {CSV: csv_text(summary).encode(), REPORT: html(summary, drawn, report.template()).encode()}
    if drawn:
        files[PLOTS] = png(drawn, title=heading(summary))
    written: tuple[Path, ...] = ()
    try:
        written = report.write(folder, files)
    except KitError as error:
        if reporter is None:
            raise
        reporter.report(Warned(text=error.message, hint=error.hint))
    return BenchReport(folder=folder, files=written, summary=summary)


def compare_folders(a: Path, b: Path) -> Comparison:
    """Raises InputError where the two have no case in common: an empty comparison would look like no change."""
    one, other = load(a), load(b)
    if not {case.id for case in one.cases} & {case.id for case in other.cases}:
        raise InputError(
            f"{a} and {b} have no case in common: one is of {_of(one)}, the other of {_of(other)}",
            hint="compare two sessions of the same preset; kit bench list shows them",
        )
    return compare(one, other)


def plot_both(a: Path, b: Path, file: Path) -> Path:
    """One PNG with both sessions' lines. Raises InputError where neither has what a line is made of."""
    names = (a.name, b.name) if a.name != b.name else (f"{a.name}, before", f"{b.name}, after")
    one, other = load(a), load(b)
    drawn = side_by_side((names[0], one), (names[1], other))
    if not drawn:
        raise InputError(
            f"there is nothing to plot: neither {a} nor {b} has training on two numbers of ranks, or collectives",
            hint="plots are of the ladder and of --preset egs",
        )
    (written,) = report.write(file.parent, {file.name: png(drawn, title=f"{names[0]} and {names[1]}")})
    return written


def _of(summary: Summary) -> str:
    return "the ladder" if summary.preset == LADDER else f"--preset {summary.preset}"
