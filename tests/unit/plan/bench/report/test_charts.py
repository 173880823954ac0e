"""Charts of made-up sessions: which there are, what they hold, and the SVG that is drawn of them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from kit.model.benchchart import Chart
from kit.plan.bench.report import charts as charts_module
from kit.plan.bench.report.charts import MOST_BARS, charts, side_by_side
from kit.plan.bench.report.rows import size_tables
from kit.plan.bench.report.stats import summarise
from kit.plan.bench.report.svg import NARROW, WIDE, svg
from tests import benchdata

SVG = "{http://www.w3.org/2000/svg}"


def of(name: str) -> dict[str, Chart]:
    return {chart.id: chart for chart in charts(summarise(*getattr(benchdata, name)()))}


def test_a_training_has_speed_up_and_efficiency() -> None:
    by_id = of("egs")
    assert list(by_id) == ["speedup", "efficiency"]
    ideal, measured = by_id["speedup"].lines
    assert ideal.ideal
    assert [(point.x, point.y) for point in ideal.points] == [(1, 1), (8, 8)]
    assert [round(point.y, 2) for point in measured.points] == [1.0, 1.94, 3.73, 6.86]
    assert all(point.low <= point.y <= point.high for point in measured.points)
    assert "6.86 at 8 ranks" in by_id["speedup"].alt
    assert by_id["efficiency"].lines[1].points[-1].y == pytest.approx(0.8575)


def test_series_with_different_bases_share_the_ideal_line() -> None:
    """One that did not run on one rank begins on the ideal line, at its own fewest ranks."""
    rates = {"small": {1: 10.0, 2: 18.0, 4: 32.0}, "large": {2: 4.0, 4: 7.0, 8: 12.0}}
    cases = [
        benchdata.case(f"{name}/{ranks}", series=name, x=ranks, np=ranks) for name in rates for ranks in rates[name]
    ]
    samples = [
        benchdata.sample(case.id, repeat, benchdata.training(rates[case.series][case.np], case.np))
        for case in cases
        for repeat in range(3)
    ]
    chart = charts(summarise(benchdata.session("egs", cases), samples))[0]
    ideal, small, large = chart.lines
    assert [(point.x, point.y) for point in ideal.points] == [(1, 1), (8, 8)]
    assert [(point.x, round(point.y, 2)) for point in small.points] == [(1, 1.0), (2, 1.8), (4, 3.2)]
    assert [(point.x, point.y, point.text) for point in large.points] == [
        (2, 2, "2.00×"),
        (4, 3.5, "3.50×"),
        (8, 6, "6.00×"),
    ]
    assert all(point.low == point.y == point.high for point in large.points)
    assert chart.y_title == "times the images/s of one rank"
    assert chart.note == "A series that begins at more ranks begins on the ideal line."
    assert "large: 2.00 at 2 ranks" in chart.alt


def test_the_ladder_has_bandwidth_by_size_too() -> None:
    by_id = of("ladder")
    assert list(by_id) == ["speedup", "efficiency", "bandwidth-1"]
    chart = by_id["bandwidth-1"]
    assert [line.label for line in chart.lines] == ["bandwidth", "all-reduce", "broadcast", "all-gather"]
    assert (chart.x_ticks[0].text, chart.x_ticks[-1].text) == ("8 B", "16 MiB")


def test_two_sessions_share_their_charts() -> None:
    one, other = summarise(*benchdata.ladder()), summarise(*benchdata.ladder())
    by_id = {chart.id: chart for chart in side_by_side(("before", one), ("after", other))}
    assert list(by_id)[:2] == ["speedup", "efficiency"]
    ideal, before, after = by_id["speedup"].lines
    assert ideal.ideal
    assert before.label.startswith("before: ")
    assert (after.label, after.points) == (before.label.replace("before", "after"), before.points)
    reduce = next(chart for chart in by_id.values() if chart.title.startswith("All-reduce by message size, "))
    assert [line.label for line in reduce.lines] == ["before", "after"]
    # A training has no sizes, and no chart of them with one line.
    both = side_by_side(("a", summarise(*benchdata.egs())), ("b", one))
    assert {chart.id for chart in both} == {"speedup", "efficiency"}


def test_settings_are_bars_and_marked_where_simulated() -> None:
    (chart,) = of("compression").values()
    assert [(bar.label, bar.base) for bar in chart.bars] == [
        ("plain", True),
        ("fp16", False),
        ("hierarchical", False),
        ("top-k", False),
    ]
    assert chart.simulated
    # A share is a part of the whole.
    assert chart.top == 1.0


def test_of_hundreds_of_settings_the_base_and_the_best_are_drawn() -> None:
    (chart,) = of("many").values()
    assert len(chart.bars) == MOST_BARS
    assert chart.bars[0].base
    assert {round(bar.y) for bar in chart.bars[1:]} == {106}
    assert chart.note == "288 more settings are in the tables."


def test_all_reduce_by_algorithm_is_drawn_by_size_too() -> None:
    cases = [benchdata.case(name, x=name, series="all-reduce", np=8) for name in ("default", "ring")]
    samples = [
        sample
        for case, rate in zip(cases, (2e7, 3e7), strict=True)
        for sample in benchdata.repeated(case, lambda f, rate=rate: benchdata.perf(rate * f, 1e-4))
    ]
    summary = summarise(benchdata.session("tuning", cases), samples)
    (table,) = size_tables(summary)
    assert table.columns == ("default", "ring")
    assert (len(table.rows), table.rows[0][0], table.rows[-1][0]) == (22, "8 B", "16 MiB")
    by_id = {chart.id: chart for chart in charts(summary)}
    assert list(by_id) == ["settings-1", "sizes-1"]
    assert [line.label for line in by_id["sizes-1"].lines] == ["default", "ring"]


def test_a_session_without_figures_has_no_chart() -> None:
    assert charts(summarise(benchdata.session("egs", [benchdata.case("a")]), [])) == ()
    assert charts(summarise(benchdata.session("egs", []), [])) == ()


def test_one_number_of_ranks_is_no_scaling() -> None:
    session, samples = benchdata.egs()
    assert charts(summarise(session, [sample for sample in samples if sample.case.endswith("/4")])) == ()


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", ["ladder", "compression", "networks", "many"])
def test_the_svg_is_whole_and_within_its_frame(name: str, width: int) -> None:
    for chart in of(name).values():
        text = svg(chart, width)
        root = ElementTree.fromstring(text)  # noqa: S314  (ours)
        assert root.get("aria-label") == chart.alt
        _, _, right, bottom = map(float, str(root.get("viewBox")).split())
        marks = root.findall(f".//{SVG}circle") + root.findall(f".//{SVG}rect")
        assert marks
        for mark in marks:
            x, y = (float(mark.get("cx") or mark.get("x") or -1), float(mark.get("cy") or mark.get("y") or -1))
            assert 0 <= x <= right
            assert 0 <= y <= bottom
        assert "nan" not in text
        # The same figures give the same text: no more than one decimal anywhere.
        assert not re.search(r"\d\.\d\d+[ \"VHL]", "".join(re.findall(r' (?:d|x|y|points)="[^"]*"', text)))


def test_a_higher_figure_is_drawn_higher() -> None:
    root = ElementTree.fromstring(svg(of("egs")["speedup"], WIDE))  # noqa: S314  (ours)
    heights = [float(str(circle.get("cy"))) for circle in root.findall(f".//{SVG}circle")]
    assert heights == sorted(heights, reverse=True)
    assert len(heights) == 4


def test_sizes_and_figures_that_cannot_be_are_no_reason_to_fail() -> None:
    rows = [{"bytes": size, "busbw": rate} for size, rate in ((-8, 1e6), (0, 1e6), (8, -1.0), (64, -2.0))]
    case = benchdata.case("c", rung="collectives", x=8, series="c", np=8)
    sample = benchdata.sample("c", 0, {"workload": "perf", "tests": [{"test": "allreduce", "rows": rows}]})
    (chart,) = charts(summarise(benchdata.session("ladder", [case]), [sample]))
    assert [point.x for point in chart.lines[0].points] == [8, 64]
    ElementTree.fromstring(svg(chart, WIDE))  # noqa: S314  (ours)


def test_names_are_escaped() -> None:
    session, samples = benchdata.compression()
    evil = '"><script>&'
    cases = [benchdata.case(case.id, x=f"{case.x}{evil}", series=evil, np=8) for case in session.cases]
    (chart,) = charts(summarise(benchdata.session("compression", cases), samples))
    assert "<script>" not in svg(chart, WIDE)
    ElementTree.fromstring(svg(chart, WIDE))  # noqa: S314  (ours)


@pytest.mark.parametrize("top", [0.0, 5e-324, 1e-310])
def test_an_axis_for_figures_that_are_as_good_as_zero(top: float) -> None:
    ticks = charts_module._ticks(top, str)
    assert [tick.at for tick in ticks] == [0.0]
