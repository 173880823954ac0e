"""A chart as data: drawn as SVG for the report by kit.plan.bench.report.svg, and as PNG by kit.remote.bench.plots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A figure with its spread, in the axes' own units. `text` is the figure in words."""

    x: float
    y: float
    low: float
    high: float
    text: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """`ideal`: what could be at best, not measured."""

    label: str
    points: tuple[Point, ...]
    ideal: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """`base` marks the reference of the others, `best` the best one."""

    label: str
    y: float
    low: float
    high: float
    text: str
    base: bool = False
    best: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
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
