"""Charts as one PNG, by matplotlib. Only this module imports it, because its import reads and writes files."""

from __future__ import annotations

import io
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kit.model.benchchart import Chart

# These colors differ in grayscale and for color-blind readers; the marks differ, too.
_COLORS = ("#0b5cad", "#c2500a", "#0c7a5b", "#8d4a9e", "#8a6400", "#5a5f69")
_MARKS = ("o", "s", "^", "D", "v", "P")
_INK, _SOFT, _LINE, _BASE, _TRACK = "#1b1d21", "#5a5f69", "#dcdfe4", "#5a5f69", "#f4f5f7"
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 11, "text.color": _INK,
    "axes.edgecolor": _SOFT, "axes.labelcolor": _SOFT, "xtick.color": _SOFT, "ytick.color": _SOFT,
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
    "xtick.major.size": 0, "ytick.major.size": 0, "figure.facecolor": "white",
    "legend.framealpha": 0.9, "legend.edgecolor": "none", "legend.fancybox": False,
    # A name with dollar signs is not a formula.
    "text.parse_math": False,
}  # fmt: skip
_WARNING: dict[str, Any] = {"color": "#7a3b00", "fontweight": "bold", "backgroundcolor": "#fdf1e3"}
# The size of a panel in inches, and the maximum number of panels that a reader can take in.
_WIDTH, _HEIGHT, _DPI, MOST = 6.4, 4.4, 140, 6
_BAR_LABEL, _BAR_HEIGHT = 44, 0.5


def png(charts: Sequence[Chart], *, title: str) -> bytes:
    """The charts as panels, two side by side. The same charts give the same bytes (with the same matplotlib)."""
    with _private_folder():
        return _drawn(charts[:MOST], title)


@contextmanager
def _private_folder() -> Iterator[None]:
    """Keep matplotlib's list of fonts out of the user's home folder."""
    if "MPLCONFIGDIR" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="kit-plots-") as folder:
        os.environ["MPLCONFIGDIR"] = folder
        try:
            yield
        finally:
            del os.environ["MPLCONFIGDIR"]


def _drawn(charts: Sequence[Chart], title: str) -> bytes:
    import matplotlib as mpl  # noqa: PLC0415  (half a second)
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415

    columns = min(2, len(charts)) or 1
    with mpl.rc_context(), warnings.catch_warnings():
        # matplotlib draws missing letters as boxes; a warning on the terminal would not help.
        warnings.simplefilter("ignore")
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        rows = [charts[at : at + columns] for at in range(0, len(charts), columns)] or [()]
        heights = [max([_HEIGHT, *(1.3 + _BAR_HEIGHT * len(chart.bars) for chart in row)]) for row in rows]
        size = (_WIDTH * columns, sum(heights) + 0.5)
        figure = Figure(figsize=size, dpi=_DPI, layout=ConstrainedLayoutEngine(w_pad=0.18, h_pad=0.16))
        figure.suptitle(title, x=0.012, ha="left", fontsize=13, fontweight="bold")
        panels = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
        for axes, chart in zip(panels.flat, charts, strict=False):
            _bars(axes, chart) if chart.kind == "bars" else _lines(axes, chart)
        for axes in list(panels.flat)[len(charts) :]:
            axes.set_axis_off()
        picture = io.BytesIO()
        # Do not write a version into the file.
        figure.savefig(picture, format="png", metadata={"Software": None})
    return picture.getvalue()


def _heading(axes: Any, chart: Chart) -> None:
    axes.set_title(chart.title, loc="left", fontsize=11.5, fontweight="bold", pad=26)
    axes.text(0, 1.03, chart.y_title, transform=axes.transAxes, fontsize=10, color=_SOFT)
    if chart.simulated:
        axes.text(1, 1.03, "SIMULATED", transform=axes.transAxes, ha="right", fontsize=10, **_WARNING)


def _lines(axes: Any, chart: Chart) -> None:
    _heading(axes, chart)
    if chart.log_x:
        axes.set_xscale("log", base=2)
    index = 0
    for line in chart.lines:
        xs, ys = [point.x for point in line.points], [point.y for point in line.points]
        if line.ideal:
            axes.plot(xs, ys, color=_SOFT, linewidth=1, linestyle=(0, (3, 3)), label=line.label, zorder=1)
            continue
        color, mark = _COLORS[index % 6], _MARKS[index % 6]
        index += 1
        below = [max(0.0, point.y - point.low) for point in line.points]
        above = [max(0.0, point.high - point.y) for point in line.points]
        axes.errorbar(
            xs, ys, yerr=(below, above), color=color, marker=mark, markersize=5 if len(xs) <= 12 else 3.5,
            linewidth=1.8, elinewidth=1, capsize=2.5, label=line.label, zorder=3,
        )  # fmt: skip
        if sum(not other.ideal for other in chart.lines) == 1:
            for point in line.points:
                axes.annotate(
                    point.text, (point.x, point.low), textcoords="offset points", xytext=(0, -15), ha="center",
                    fontsize=9.5, fontweight="bold", color=_INK,
                )  # fmt: skip
    axes.set_ylim(0, chart.top * 1.04)
    axes.margins(x=0.07)
    ticks = chart.x_ticks[::-1][:: max(1, -(-len(chart.x_ticks) // 8))]
    axes.set_xticks([tick.at for tick in ticks], [tick.text for tick in ticks], minor=False)
    axes.set_xticks([], minor=True)
    axes.set_yticks([tick.at for tick in chart.y_ticks], [tick.text for tick in chart.y_ticks])
    axes.grid(axis="y", color=_LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(chart.x_title, loc="right")
    axes.legend(loc="best", fontsize=9.5, labelcolor=_INK)


def _bars(axes: Any, chart: Chart) -> None:
    _heading(axes, chart)
    places = list(range(len(chart.bars)))[::-1]
    values = [bar.y for bar in chart.bars]
    axes.barh(places, [chart.top] * len(places), color=_TRACK, height=0.5)
    axes.barh(places, values, color=[_BASE if bar.base else _COLORS[0] for bar in chart.bars], height=0.5)
    spreads = ([bar.y - bar.low for bar in chart.bars], [bar.high - bar.y for bar in chart.bars])
    axes.errorbar(values, places, xerr=spreads, fmt="none", ecolor=_INK, elinewidth=1, capsize=3)
    for place, bar in zip(places, chart.bars, strict=True):
        label = bar.label if len(bar.label) <= _BAR_LABEL else f"{bar.label[: _BAR_LABEL - 1]}…"
        axes.text(0, place + 0.31, label, va="bottom", fontsize=9.5)
        axes.text(
            chart.top,
            place + 0.31,
            bar.text,
            va="bottom",
            ha="right",
            fontsize=9.5,
            fontweight="bold" if bar.best else "normal",
        )
    axes.set_xlim(0, chart.top)
    # Keep a few bars as thin as many.
    axes.set_ylim(min(-0.5, len(places) - 4.5), max(len(places) - 0.3, 0.7))
    axes.set_axis_off()
