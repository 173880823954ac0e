"""kit bench report and kit bench compare: the verbs, and what is done for them."""

# ruff: noqa: PLC0415
from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from kit.cli.verbs.grammar import Operand, Option, Verb
from kit.cli.verbs.options import MEASURE

if TYPE_CHECKING:
    from kit.cli.screen.terminal import Style
    from kit.cli.session import Session


def png_file(text: str) -> str:
    """The name of a file that ends with .png."""
    if not text.lower().endswith(".png"):
        raise ValueError(f"'{text}' is no name of a PNG file, such as both.png")
    return text


VERBS = (
    Verb(
        words=("bench", "report"),
        purpose="Show what a session of kit bench came to, and write its CSV, plots and page anew.",
        handler="bench_report.report",
        group=MEASURE,
        operands=(
            Operand(name="session", help="Its folder, or its id in bench/ (default: the latest).", optional=True),
        ),
        notes="In the session's folder: results.csv, results.png, and report.html, which needs nothing but itself. "
        "The same samples make the same files.",
        examples=("kit bench report", "kit bench report bench/20261121-101500-egs"),
        exits=(("2", "there is no such session, or its files cannot be read"),),
    ),
    Verb(
        words=("bench", "compare"),
        purpose="Say what changed between two sessions of kit bench, and whether beyond the noise.",
        handler="bench_report.compare",
        group=MEASURE,
        operands=(
            Operand(name="a", help="The one before: a folder, or an id in bench/."),
            Operand(name="b", help="The one after."),
        ),
        options=(Option(flags=("--plot",), value="FILE", kind=png_file, help="Also a PNG with the lines of both."),),
        notes="Cases are matched by id. Beyond the noise: Welch's t-test at 1 %, and 1 % of difference at least; "
        "it takes two repeats on each side. --verbose also shows what did not change.",
        examples=(
            "kit bench compare bench/monday bench/friday",
            "kit bench compare bench/default bench/tuned --plot both.png",
        ),
        exits=(("2", "there is no such session, or its files cannot be read"),),
    ),
)


def report(session: Session) -> int:
    from kit.cli.text.bench_summary import summary_text
    from kit.flows.bench.report import find, write

    made = write(find(session.folder, session.args.session))
    session.close()
    text = "" if session.json else summary_text(made.summary, width=width(session))
    session.show("bench-report", made, text)
    if not session.json:
        session.terminal.tell("\n".join(str(path) for path in made.files))
    return 0


def compare(session: Session) -> int:
    from kit.cli.text.bench_summary import comparison
    from kit.flows.bench.report import compare_folders, find, plot_both

    a, b = (find(session.folder, name) for name in (session.args.a, session.args.b))
    found = compare_folders(a, b)
    plot = plot_both(a, b, session.folder / session.args.plot) if session.args.plot else None
    session.close()
    terminal = session.terminal

    def paint(text: str, style: Style) -> str:
        return terminal.paint(text, style, terminal.out)

    text = comparison(found, width=width(session), verbose=session.args.verbose, paint=paint)
    session.show("bench-comparison", found, "" if session.json else text)
    if plot and not session.json:
        terminal.tell(str(plot))
    return 0


def width(session: Session) -> int | None:
    """The terminal's, or None where none reads along: a file takes what comes."""
    return shutil.get_terminal_size().columns if session.terminal.is_terminal(session.terminal.out) else None
