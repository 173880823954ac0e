"""A chart as SVG text for a page. Colors are classes of the page's style, so that it fits light and dark mode.

Positions have one decimal, so that the same figures always give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

from kit.model.benchchart import Bar, Chart, Line, Point, Tick

WIDE, NARROW = 720, 343
# Approximate width of a letter, at the size that the style gives to text in a chart.
_LETTER = 7.2
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 18, 30, 46
_BAR, _ROW = 16, 46


def svg(chart: Chart, width: int) -> str:
    if chart.kind == "bars":
        height, body = _bars(chart, width)
    else:
        height, body = _lines(chart, width)
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(chart.alt)}" xmlns="http://www.w3.org/2000/svg">{"".join(body)}</svg>'
    )


class _Frame:
    """The axes, and the position of a figure on the page."""

    def __init__(self, chart: Chart, width: int) -> None:
        xs = [point.x for line in chart.lines for point in line.points] or [0.0, 1.0]
        self._log = chart.log_x and min(xs) > 0
        self._first, self._last = self._scaled(min(xs)), self._scaled(max(xs))
        self._high = chart.top or 1.0
        self.left, self.right = _LEFT, width - _RIGHT
        self.top, self.bottom = _TOP, _TOP + (250 if width >= WIDE else 220)
        # Keep points away from the axes.
        self._pad = 22

    def _scaled(self, x: float) -> float:
        return math.log2(x) if self._log else x

    def x(self, value: float) -> float:
        span = self._last - self._first
        share = (self._scaled(value) - self._first) / span if span else 0.5
        return self.left + self._pad + share * (self.right - self.left - 2 * self._pad)

    def y(self, value: float) -> float:
        return self.bottom - value / self._high * (self.bottom - self.top)


def _lines(chart: Chart, width: int) -> tuple[int, list[str]]:
    frame = _Frame(chart, width)
    parts = [_text(2, 14, chart.y_title, "axis")]
    for tick in chart.y_ticks:
        y = frame.y(tick.at)
        parts.append(_rule(frame.left, y, frame.right, y, "zero" if tick.at == 0 else "grid"))
        parts.append(_text(frame.left - 8, y + 4, tick.text, "tick end"))
    for tick in _thinned(chart.x_ticks, frame):
        parts.append(_text(frame.x(tick.at), frame.bottom + 20, tick.text, "tick mid"))
    parts.append(_text(frame.right, frame.bottom + 38, chart.x_title, "axis end"))
    measured = [line for line in chart.lines if not line.ideal]
    parts += [_ideal(line, frame) for line in chart.lines if line.ideal]
    # The first line is drawn last, on top.
    for index, line in reversed(list(enumerate(measured))):
        parts.append(_line(line, index, frame, with_figures=len(measured) == 1))
    return frame.bottom + _BOTTOM, parts


def _ideal(line: Line, frame: _Frame) -> str:
    last = line.points[-1]
    x, y = frame.x(last.x), frame.y(last.y)
    return f'<path class="ideal" d="{_path(line.points, frame)}"/>' + _text(x, y - 8, line.label, "axis end")


def _line(line: Line, index: int, frame: _Frame, *, with_figures: bool) -> str:
    parts = [f'<g class="s{index}"><path class="line" d="{_path(line.points, frame)}"/>']
    # With many points, large marks would form a thick line.
    sparse = len(line.points) <= 12
    for point in line.points:
        x = frame.x(point.x)
        low, high = frame.y(point.low), frame.y(point.high)
        if low - high >= 1:
            parts.append(f'<path class="spread" d="M{x:.1f} {low:.1f}V{high:.1f}"/>')
        parts.append(marker(index, x, frame.y(point.y), 4.5 if sparse else 3.0))
    parts.append("</g>")
    if with_figures:
        parts += [_figure(point, frame) for point in line.points if point.text]
    return "".join(parts)


def _figure(point: Point, frame: _Frame) -> str:
    """Put the figure below the point and its spread, or above it near the axis, and inside the axes."""
    half = len(point.text) * _LETTER / 2
    x = min(max(frame.x(point.x), frame.left + half + 4), frame.right - half + _RIGHT)
    below = max(frame.y(point.low), frame.y(point.y)) + 20
    above = min(frame.y(point.high), frame.y(point.y)) - 10
    return _text(x, above if below > frame.bottom - 3 else below, point.text, "figure mid halo")


def marker(index: int, x: float, y: float, r: float) -> str:
    """Return a different shape for each line, so that they differ without color."""
    match index % 6:
        case 0:
            return f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>'
        case 1:
            return f'<rect class="mark" x="{x - r:.1f}" y="{y - r:.1f}" width="{2 * r:.1f}" height="{2 * r:.1f}"/>'
        case 2:
            corners = [(x, y - 1.25 * r), (x + 1.2 * r, y + r), (x - 1.2 * r, y + r)]
        case 3:
            corners = [(x, y - 1.4 * r), (x + 1.4 * r, y), (x, y + 1.4 * r), (x - 1.4 * r, y)]
        case 4:
            corners = [(x, y + 1.25 * r), (x + 1.2 * r, y - r), (x - 1.2 * r, y - r)]
        case _:
            arm = r / 2.4
            corners = [
                (x - arm, y - r), (x + arm, y - r), (x + arm, y - arm), (x + r, y - arm), (x + r, y + arm),
                (x + arm, y + arm), (x + arm, y + r), (x - arm, y + r), (x - arm, y + arm), (x - r, y + arm),
                (x - r, y - arm), (x - arm, y - arm),
            ]  # fmt: skip
    return f'<polygon class="mark" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in corners)}"/>'


def _bars(chart: Chart, width: int) -> tuple[int, list[str]]:
    """Draw each bar with its name and figure above it, because names are long and pages narrow."""
    parts: list[str] = []
    for index, bar in enumerate(chart.bars):
        y = index * _ROW + 16
        room = width - len(bar.text) * _LETTER - 16
        parts.append(_text(0, y, _cut(bar.label, int(room / _LETTER)), "name"))
        parts.append(_text(width, y, bar.text, "figure end" if bar.best else "tick end"))
        parts.append(_bar(chart, bar, y + 8, width))
    return len(chart.bars) * _ROW + 4, parts


def _bar(chart: Chart, bar: Bar, y: float, width: int) -> str:
    def at(value: float) -> float:
        return max(0.0, value) / (chart.top or 1.0) * (width - 4)

    middle = y + _BAR / 2
    parts = [
        f'<rect class="track" x="0" y="{y:.1f}" width="{width - 4}" height="{_BAR}" rx="2"/>',
        f'<rect class="{"base" if bar.base else "bar"}" x="0" y="{y:.1f}" width="{max(1.0, at(bar.y)):.1f}" '
        f'height="{_BAR}" rx="2"/>',
    ]
    low, high = at(bar.low), at(bar.high)
    if high - low >= 2:
        ends = "".join(f"M{x:.1f} {middle - 4:.1f}V{middle + 4:.1f}" for x in (low, high))
        way = f"M{low:.1f} {middle:.1f}H{high:.1f}{ends}"
        parts.append(f'<path class="under" d="{way}"/><path class="whisker" d="{way}"/>')
    return "".join(parts)


def _thinned(ticks: Sequence[Tick], frame: _Frame) -> list[Tick]:
    """Return the last tick and every second, third … one before it, so that all fit; uneven ticks if they fit."""
    for step in range(1, 9):
        kept = list(ticks[::-1][::step][::-1])
        if all(_apart(a, b, frame) for a, b in pairwise(kept)):
            return kept
    kept = []
    for tick in reversed(ticks):
        if not kept or _apart(tick, kept[0], frame):
            kept.insert(0, tick)
    return kept


def _apart(a: Tick, b: Tick, frame: _Frame) -> bool:
    return frame.x(b.at) - frame.x(a.at) >= (len(a.text) + len(b.text)) * _LETTER / 2 + 10


def _path(points: Sequence[Point], frame: _Frame) -> str:
    return "M" + "L".join(f"{frame.x(point.x):.1f} {frame.y(point.y):.1f}" for point in points)


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(1, room - 1)] + "…"
