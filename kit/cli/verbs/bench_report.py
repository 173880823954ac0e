"""kit bench report and kit bench compare: show sessions that were measured."""

# Each handler imports its own flow, so that no verb and no --help pays for another's.
# ruff: noqa: PLC0415
from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli import candidates
from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import MEASURE
from kit.cli.verbs.values import png_file

if TYPE_CHECKING:
    from kit.cli.screen.terminal import Style
    from kit.cli.session import Session
    from kit.flows.bench.report import BenchReport

NOT_WRITTEN = 1


def report(session: Session) -> int:
    import shlex

    from kit.cli.text.bench_summary import summary_text
    from kit.flows.bench.report import find, write
    from kit.plan.bench.report.rows import not_run

    def text(written: BenchReport) -> str:
        shown = summary_text(written.summary, width=session.width)
        if not any(map(not_run, written.summary.cases)):
            return shown
        return f"{shown}\n\n→ to measure the rest: kit bench --resume --session {shlex.quote(str(written.folder))}"

    written = write(find(session.folder, session.args.session), session.reporter)
    session.show("bench-report", written, text)
    if not session.json and written.files:
        session.terminal.tell("\n".join(str(path) for path in written.files))
    return 0 if written.files else NOT_WRITTEN


def compare(session: Session) -> int:
    from kit.cli.text.bench_summary import comparison
    from kit.config.paths import expanded
    from kit.flows.bench.report import compare_folders, find, plot_both

    a, b = (find(session.folder, name) for name in (session.args.a, session.args.b))
    result = compare_folders(a, b)
    plot = plot_both(a, b, expanded(session.args.plot)) if session.args.plot else None
    terminal = session.terminal

    def paint(text: str, style: Style) -> str:
        return terminal.paint(text, style, terminal.out)

    session.show(
        "bench-comparison",
        result,
        lambda value: comparison(value, width=session.width, verbose=session.args.verbose, paint=paint),
    )
    if plot and not session.json:
        terminal.tell(str(plot))
    return 0


VERBS = (
    Verb(
        words=("bench", "report"),
        purpose="Show the results of a session, and write its CSV, plots and page again",
        handler=report,
        group=MEASURE,
        operands=(
            Operand(
                name="session",
                help="A session's folder, or its id in bench/ (default: the latest)",
                optional=True,
                complete=candidates.session,
            ),
        ),
        notes="kit writes results.csv, results.png and report.html, a page without other files, into the session's "
        "folder. The same samples always give the same files.",
        examples=("kit bench report", "kit bench report bench/20261121-101500-egs"),
        exits=(
            ("1", "the files cannot be written; kit shows the results anyway"),
            ("2", "there is no such session, or its files cannot be read"),
        ),
    ),
    Verb(
        words=("bench", "compare"),
        purpose="Show what changed between two sessions, and whether it is more than noise",
        handler=compare,
        group=MEASURE,
        operands=(
            Operand(name="a", help="The session before: a folder, or an id in bench/", complete=candidates.session),
            Operand(name="b", help="The session after", complete=candidates.session),
        ),
        options=(
            Option(
                flags=("--plot",), value="FILE", kind=png_file, help="Write a PNG with the lines of both sessions, too"
            ),
        ),
        notes="kit matches cases by id. A change is more than noise if a t-test at 1 % says so and it is at least 1 %. "
        "All cases of both sessions share one spread if they vary alike. If a change of that size could not have been "
        "detected, kit says how many repeats would. --verbose shows what did not change, too.",
        examples=(
            "kit bench compare bench/monday bench/friday",
            "kit bench compare bench/default bench/tuned --plot both.png",
        ),
        exits=(("2", "there is no such session, or its files cannot be read"),),
    ),
)
