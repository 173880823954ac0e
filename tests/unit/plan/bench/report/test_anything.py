"""Whatever programs print and hosts are called: a summary, a table, a CSV, charts and a page come of it."""

from __future__ import annotations

import csv
import io
from typing import Any
from xml.etree import ElementTree

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.cli.text.bench_summary import comparison, summary_text
from kit.model import values
from kit.model.bench import RUNGS, Case, Sample
from kit.model.benchsummary import Used
from kit.plan.bench.report.charts import charts
from kit.plan.bench.report.compare import compare
from kit.plan.bench.report.page import html
from kit.plan.bench.report.results_csv import csv_text
from kit.plan.bench.report.stats import summarise
from kit.plan.bench.report.svg import NARROW, WIDE, svg
from kit.remote.bench.report import template
from tests import benchdata

TEMPLATE = template()
# What an XML reader takes, so that the test can read it back; HTML's readers are more patient.
text = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), max_size=12)
number = st.one_of(
    st.floats(),
    st.floats(0, 1e12),
    st.integers(-(10**30), 10**30),
    st.sampled_from([0, 0.0, -1, 1, 100, 5e-324, 1e308]),
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), number, text),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(text, inner, max_size=3)),
    max_leaves=6,
)
row = st.fixed_dictionaries(
    {"bytes": st.one_of(st.integers(0, 1 << 30), number), "seconds": number, "algbw": number, "busbw": number}
)
test = st.fixed_dictionaries(
    {"test": st.sampled_from(["latency", "bandwidth", "allreduce", "new"]), "rows": st.lists(row, max_size=4)}
)
result = st.one_of(
    st.fixed_dictionaries({"workload": st.just("training"), "img_sec_total": number}),
    st.fixed_dictionaries({"workload": st.just("perf"), "tests": st.lists(test, max_size=3)}),
    st.fixed_dictionaries(
        {"workload": st.just("perf"), "through": st.just("tcp"), "tests": st.lists(test, max_size=3)}
    ),
    st.fixed_dictionaries({"workload": st.just("paced"), "efficiency": number, "steps": st.lists(number, max_size=3)}),
    st.fixed_dictionaries({"workload": st.just("network"), "rate": number, "latency_s": number}),
    st.dictionaries(st.sampled_from(["workload", "tests", "steps", "img_sec_total", "rate", "simulated"]), anything),
    anything,
)
USED = list(values.fields(Used))


@st.composite
def sessions(draw: st.DrawFn) -> tuple[Any, list[Sample]]:
    cases, samples = [], []
    for index in range(draw(st.integers(0, 5))):
        ranks = draw(st.integers(1, 64))
        case = Case(
            id=f"case {index}", rung=draw(st.sampled_from(RUNGS)), title=draw(text), proves=draw(text),
            command=tuple(draw(st.lists(text, max_size=2))), np=ranks, series=draw(st.sampled_from(["", "a", "b<"])),
            x=draw(st.one_of(st.just(ranks), text)), repeats=draw(st.integers(1, 4)),
        )  # fmt: skip
        cases.append(case)
        kind = draw(result)
        for repeat in range(draw(st.integers(0, 3))):
            samples.append(
                Sample(
                    case=case.id, repeat=repeat, at="", seconds=draw(number), warmup=draw(st.booleans()),
                    result=draw(st.one_of(st.just(kind), result)), failure=draw(st.one_of(st.none(), text)),
                    disturbed=draw(st.one_of(st.none(), text)),
                    used=draw(st.one_of(st.none(), st.dictionaries(st.sampled_from(USED), anything))),
                )
            )  # fmt: skip
    session = benchdata.session(
        "tuning", cases, cluster=draw(text), facts=draw(st.dictionaries(text, anything, max_size=3))
    )
    return session, samples


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(sessions(), sessions())
def test_something_comes_of_everything(a: Any, b: Any) -> None:
    summary, other = summarise(*a), summarise(*b)
    rows = list(csv.DictReader(io.StringIO(csv_text(summary), newline="")))
    assert {row["case"] for row in rows} == {case.id for case in summary.cases}
    drawn = charts(summary)
    for chart in drawn:
        for width in (WIDE, NARROW):
            picture = svg(chart, width)
            assert "nan" not in picture.lower().split("aria-label")[0]
            ElementTree.fromstring(picture)  # noqa: S314  (ours)
    page = html(summary, drawn, TEMPLATE)
    assert page.count("<figure") == len(drawn)
    assert summary_text(summary, width=80)
    assert comparison(compare(summary, other), verbose=True)
