"""A chart as data: drawn as SVG for the report by kit.plan.bench.report.svg, and as PNG by kit.remote.bench.plots."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Point(Struct, frozen=True, kw_only=True):
    """A figure with its spread, in the axes' own units. `text` is the figure in words."""

    x: float
    y: float
    low: float
    high: float
    text: str = ""


class Line(Struct, frozen=True, kw_only=True):
    """`ideal`: what could be at best, not measured."""

    label: str
    points: tuple[Point, ...]
    ideal: bool = False


class Bar(Struct, frozen=True, kw_only=True):
    """`base` marks the reference of the others, `best` the best one."""

    label: str
    y: float
    low: float
    high: float
    text: str
    base: bool = False
    best: bool = False


class Tick(Struct, frozen=True, kw_only=True):
    at: float
    text: str


class Chart(Struct, frozen=True, kw_only=True):
    """Lines over x, or bars one below the other. y begins at 0 and ends at `top`; `log_x` is to the base of 2.

    `alt` describes the chart in a sentence or two; `note` is the text below it.
    """

    id: str
    kind: Literal["lines", "bars"]
    title: str
    top: float
    x_title: str = ""
    y_title: str = ""
    lines: tuple[Line, ...] = ()
    bars: tuple[Bar, ...] = ()
    x_ticks: tuple[Tick, ...] = ()
    y_ticks: tuple[Tick, ...] = ()
    log_x: bool = False
    simulated: bool = False
    alt: str = ""
    note: str = ""
