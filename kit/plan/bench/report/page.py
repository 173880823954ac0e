"""report.html: one file with all that a session showed, from a template. Everything that is filled in is escaped."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from kit.model.benchchart import Chart
from kit.model.benchsummary import CaseSummary, Summary
from kit.plan.bench.cases import PROBE
from kit.plan.bench.report import rows, svg, words
from kit.plan.bench.report.key_figures import key_figures
from kit.plan.bench.report.used import use_rows

if TYPE_CHECKING:
    import jinja2

TITLES = {
    "ladder": "The ladder",
    "egs": "Scaling",
    "networks": "Networks",
    "kvstore": "Key-value stores",
    "compression": "Compression",
    "tuning": "Tuning",
}
# A page with more tables of sizes would be read by nobody; the CSV has them all.
MOST_SIZE_TABLES = 12


def heading(summary: Summary) -> str:
    """`Scaling on lab`."""
    return f"{TITLES.get(summary.preset, summary.preset)} on {summary.cluster}"


def html(summary: Summary, charts: Sequence[Chart], template: str) -> str:
    """The page. It asks for nothing from anywhere: style and charts are in it."""
    import markupsafe  # noqa: PLC0415  (not every start of kit renders)

    def drawn(chart: Chart, width: int) -> markupsafe.Markup:
        # svg escapes what it is given.
        return markupsafe.Markup(svg.svg(chart, width))  # noqa: S704

    def key(index: int) -> markupsafe.Markup:
        """The mark of a line, for the legend."""
        mark = svg.marker(index, 9, 7, 4.5)
        return markupsafe.Markup(  # noqa: S704
            f'<svg class="key" viewBox="0 0 18 14" width="18" height="14" aria-hidden="true"><g class="s{index}">'
            f'<path class="line" d="M0 7H18"/>{mark}</g></svg>'
        )

    return _compiled(template).render(
        summary=summary,
        title=heading(summary),
        charts=charts,
        drawn=drawn,
        key=key,
        keys=key_figures(summary),
        rows=rows.rows(summary.cases),
        uses=use_rows(summary.cases),
        size_tables=rows.size_tables(summary)[:MOST_SIZE_TABLES],
        marks=rows.marks,
        marked=any(rows.marks(case) for case in summary.cases),
        folded=rows.folded,
        climb=rows.climb(summary.cases) if summary.preset == "ladder" else [],
        words=words,
        # A network's probe is no program of the image: kit sends it to the hosts.
        commands=[(_changes(case), _command(case)) for case in summary.cases if case.command != PROBE],
    )


@lru_cache(maxsize=1)
def _compiled(template: str) -> jinja2.Template:
    """Return the template, compiled once: that takes longer than to fill it in."""
    import jinja2  # noqa: PLC0415  (not every start of kit renders)

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["firm"] = _firm
    return environment.from_string(template)


def _firm(text: str) -> str:
    """No break between a number and what it counts."""
    return re.sub(r"(?<=[0-9×±]) (?=[%×]|[^\W\d_])", "\N{NO-BREAK SPACE}", text)


def _changes(case: CaseSummary) -> str:
    """What kit.yaml must have for the case, or ''. A variable or a flag cannot remove a setting of it."""
    changes = [words.setting(name, text) for name, text in case.settings.items()]
    return ", ".join([*changes, *(["no --mca coll_tuned_… or coll_han_… in mpi.args"] if case.own_algorithm else [])])


def _command(case: CaseSummary) -> str:
    """The case by hand."""
    argv = ["kit", "run", "-np", str(case.np)]
    argv += ["-npernode", str(case.npernode)] if case.npernode is not None else []
    argv += ["--gpus-per-rank", str(case.gpus_per_rank)] if case.gpus_per_rank else []
    argv += ["--launcher", "ps", "--servers", str(case.servers)] if case.launcher == "ps" else []
    for name, value in case.env:
        argv += ["-x", f"{name}={value}"]
    return shlex.join([*argv, "--", *case.command])
