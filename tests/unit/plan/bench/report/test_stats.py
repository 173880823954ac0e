"""Summaries of made-up sessions: what counts, what is reported, what is compared with what."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

import pytest

from kit.model import values
from kit.model.bench import Sample, Session
from kit.model.benchsummary import CaseSummary, Summary
from kit.plan.bench.ladder import NEXT, PROVES
from kit.plan.bench.report.compare import compare
from kit.plan.bench.report.results_csv import HEADER, csv_text
from kit.plan.bench.report.stats import summarise
from tests import benchdata


def summed(measured: tuple[Session, Sequence[Sample]]) -> Summary:
    return summarise(*measured)


def one(*samples: Sample, repeats: int = 3, **given: Any) -> CaseSummary:
    """The summary of a session that has the case `a` alone."""
    case = benchdata.case("a", repeats=repeats, **given)
    return summarise(benchdata.session("egs", [case]), samples).cases[0]


def trained(repeat: int, rate: float, **given: Any) -> Sample:
    return benchdata.sample("a", repeat, benchdata.training(rate, 1), **given)


def rate(case: CaseSummary) -> tuple[float, ...]:
    measure = case.measure("images_per_s")
    assert measure is not None
    return measure.stat.values


def test_the_median_is_over_repeats_without_warmup_and_failures() -> None:
    case = one(
        trained(0, 10.0, warmup=True), trained(0, 100.0), trained(1, 103.0), trained(2, 1.0, failure="rank 0 ended")
    )
    assert rate(case) == (100.0, 103.0)
    assert (case.state, case.counted, case.warmups, case.failures) == ("measured", 2, 1, ("rank 0 ended",))


def test_disturbed_repeats_are_left_out_where_two_others_are_there() -> None:
    case = one(trained(0, 100.0), trained(1, 50.0, disturbed="another run"), trained(2, 102.0))
    assert rate(case) == (100.0, 102.0)
    assert (case.disturbed, case.disturbed_counted) == (("another run",), False)


def test_disturbed_repeats_count_where_too_few_others_are_there() -> None:
    case = one(trained(0, 100.0), trained(1, 50.0, disturbed="another run"), trained(2, 60.0, disturbed="load"))
    assert rate(case) == (100.0, 50.0, 60.0)
    assert case.disturbed_counted


def test_a_repeat_that_was_measured_again_counts_as_it_was_the_last_time() -> None:
    case = one(trained(0, 0.0, failure="cut off"), trained(1, 101.0), trained(0, 100.0))
    assert (rate(case), case.failures) == ((100.0, 101.0), ())


def test_a_case_that_only_failed_and_one_that_was_not_reached() -> None:
    assert one(trained(0, 1.0, failure="x"), trained(1, 1.0, failure="y")).state == "failed"
    assert one(trained(0, 1.0, failure="x", warmup=True)).failures == ("x",)
    assert one().state == "not run"


@pytest.mark.parametrize("broken", [None, "12", True, math.nan, math.inf, -math.inf, 1e308, [1], {"a": 1}, 10**400])
def test_what_is_no_number_is_no_figure(broken: object) -> None:
    case = one(benchdata.sample("a", 0, {"workload": "training", "img_sec_total": broken}))
    assert case.measure("images_per_s") is None
    case = one(benchdata.sample("a", 0, {"workload": "perf", "tests": [{"test": "latency", "rows": [broken]}, broken]}))
    assert [measure.metric for measure in case.measures] == ["wall_s"]
    case = one(benchdata.sample("a", 0, {"workload": broken, "steps": broken}))
    assert case.workload == "none"


def test_speed_up_and_efficiency_are_against_the_fewest_ranks() -> None:
    scaling = {case.np: case.scaling for case in summed(benchdata.egs()).cases}
    assert scaling[1] is not None
    assert (scaling[1].speedup.median, scaling[1].efficiency.median) == (1.0, 1.0)
    eight = scaling[8]
    assert eight is not None
    assert eight.speedup.median == pytest.approx(343 / 50)
    assert eight.efficiency.median == pytest.approx(343 / 50 / 8)
    # From the slowest repeat over the base's fastest to the fastest over its slowest.
    assert eight.speedup.low == pytest.approx(343 * 0.992 / (50 * 1.006))
    assert eight.speedup.high == pytest.approx(343 * 1.006 / (50 * 0.992))


def test_where_one_rank_was_not_measured_the_ideal_is_against_the_fewest_that_were() -> None:
    session, samples = benchdata.egs()
    summary = summarise(session, [sample for sample in samples if not sample.case.endswith("/1")])
    last = summary.cases[-1].scaling
    assert last is not None
    assert (last.base_np, last.ideal) == (2, 4.0)
    assert last.speedup.median == pytest.approx(343 / 97.1)
    assert "8 ranks do 3.5 times the work of 2 ranks" in summary.statements[0]


def test_the_ladder_in_words() -> None:
    summary = summed(benchdata.ladder())
    assert "8 ranks do 6.8 times the work of one rank, 85.4 % of ideal" in summary.statements[0]
    assert any("collectives: all-reduce reaches" in text for text in summary.statements)
    assert not summary.groups


def test_a_rung_that_failed_says_what_is_not_shown() -> None:
    session, _ = benchdata.ladder()
    samples = [
        benchdata.sample("reach", 0, {}),
        benchdata.sample("hello", 0, {}, failure="rank 1 on gpu1 ended with signal 9\nmore"),
    ]
    summary = summarise(session, samples)
    assert summary.statements == (
        "hello: 8 ranks failed: rank 1 on gpu1 ended with signal 9",
        f"So this is not proven: {PROVES['hello']}",
        "6 of 8 cases were not run",
    )
    assert summary.recommendations == (f"hello: 8 ranks failed; next step: {NEXT['hello']}",)


def test_settings_side_by_side_and_the_one_to_use() -> None:
    summary = summed(benchdata.compression())
    (group,) = summary.groups
    assert group.metric == "efficiency"
    assert [(choice.label, choice.verdict) for choice in group.choices] == [
        ("plain", "noise"),
        ("fp16", "better"),
        ("hierarchical", "noise"),
        ("top-k", "better"),
    ]
    assert "fp16 is 1.40 × plain (74.0 % against 53.0 %), beyond the noise" in summary.statements[0]
    (advice,) = summary.recommendations
    assert "use top-k" in advice
    assert "--compression topk" in advice
    assert "watch the accuracy" in advice


def test_every_sentence_about_simulated_figures_says_so() -> None:
    summary = summed(benchdata.compression())
    assert all("SIMULATED" in text for text in (*summary.statements, *summary.recommendations))
    session, samples = benchdata.compression()
    plain = values.replace(
        session, cases=tuple(values.replace(case, series="x", simulated=False) for case in session.cases)
    )
    # The program's own word is enough.
    assert all(text.startswith("SIMULATED") for text in summarise(plain, samples).statements)


def test_the_bare_wire_is_a_measure_and_no_choice() -> None:
    summary = summed(benchdata.networks())
    assert summary.recommendations == ("TCP: use host: nothing beats it beyond the noise",)
    assert "bridge is 0.93 × bare" in summary.statements[1]


def test_with_one_repeat_nothing_is_called_better() -> None:
    session, samples = benchdata.compression()
    summary = summarise(session, [item for item in samples if item.repeat == 0])
    assert {item.verdict for item in summary.groups[0].choices[1:]} == {"unknown"}
    assert "too few repeats" in summary.recommendations[0]


def test_variables_that_made_the_difference_are_reported() -> None:
    cases = [
        benchdata.case("default", x="default", series="s"),
        benchdata.case(
            "ring", x="ring", series="s", env=(("OMPI_MCA_x", "a b"),), settings={"mpi": {"bind_to": "core"}}
        ),
    ]
    rates = {"default": 100.0, "ring": 150.0}
    samples = [
        sample
        for case in cases
        for sample in benchdata.repeated(case, lambda f, n=case.id: benchdata.training(rates[n] * f, 8))
    ]
    summary = summarise(benchdata.session("tuning", cases), samples)
    assert (
        "kit run -x 'OMPI_MCA_x=a b' (or env: in kit.yaml) and mpi.bind_to: core in kit.yaml"
        in summary.recommendations[0]
    )


def advised(rates: dict[str, float], **cases: dict[str, Any]) -> str:
    """Return the advice on cases of these rates, which differ in the given fields."""
    made = [benchdata.case(name, x=name, series="s", **cases.get(name, {})) for name in rates]
    samples = [
        sample
        for case in made
        for sample in benchdata.repeated(case, lambda f, n=case.id: benchdata.training(rates[n] * f, 8))
    ]
    (advice,) = summarise(benchdata.session("tuning", made), samples).recommendations
    return advice


def test_a_setting_that_the_best_case_lacks_is_to_be_removed() -> None:
    bare = {"nccl.plugin": None, "nccl.require": "any"}
    advice = advised({"mpi": 100.0, "without": 150.0}, without={"settings": bare})
    assert advice.endswith("; to set it: no nccl.plugin, nccl.require: any in kit.yaml")


def test_without_the_ring_of_kit_tune_advice_says_to_remove_it() -> None:
    """mpirun's arguments win over variables, so `-x` alone would have no effect."""
    ring = {"env": (("OMPI_MCA_coll_tuned_allreduce_algorithm", "4"),), "own_algorithm": True}
    own = {"own_algorithm": True}
    remove = "; to set it: remove --mca coll_tuned_… and coll_han_… from mpi.args in kit.yaml"
    assert advised({"default": 100.0, "ring": 150.0}, default=own, ring=ring).endswith(
        f"{remove}, then kit run -x OMPI_MCA_coll_tuned_allreduce_algorithm=4 (or env: in kit.yaml)"
    )
    assert advised({"default": 150.0, "ring": 100.0}, default=own, ring=ring).endswith(remove)


def test_all_variables_of_the_best_case_are_named() -> None:
    """kit.yaml may have another cycle time than both cases."""
    cases = {name: {"env": (("HOROVOD_CYCLE_TIME", "1"), ("A", value))} for name, value in (("x", "1"), ("y", "2"))}
    assert "; to set it: kit run -x HOROVOD_CYCLE_TIME=1 -x A=2 (or env: in kit.yaml)" in advised(
        {"x": 100.0, "y": 150.0}, **cases
    )
    assert "; to set it: kit run -x HOROVOD_CYCLE_TIME=1 -x A=1 (or env: in kit.yaml)" in advised(
        {"x": 150.0, "y": 100.0}, **cases
    )
    # kit.yaml as it is performs the same, so nothing is to be changed.
    assert "to set it" not in advised({"x": 100.0, "y": 100.0}, x=cases["x"])


def test_settings_on_unlike_numbers_of_ranks_say_so() -> None:
    cases = [
        benchdata.case("local", x="local", series="resnet-18", np=1),
        benchdata.case("horovod", x="horovod", series="resnet-18", np=8),
    ]
    samples = [
        sample
        for case in cases
        for sample in benchdata.repeated(case, lambda f, n=case.np: benchdata.training(50.0 * n**0.9 * f, n))
    ]
    summary = summarise(benchdata.session("kvstore", cases), samples)
    assert "horovod on 8 ranks is 6.50 × local on 1 rank" in summary.statements[0]


def test_the_probe_of_a_network_speaks_as_mpi_perf_does() -> None:
    rows = [{"bytes": size, "seconds": took} for size, took in ((8, 2e-5), (1024, 1e-5))]
    stream = {"bytes": 1 << 20, "seconds": 0.01, "algbw": 1.25e8}
    tests = [{"test": "latency", "rows": rows}, {"test": "bandwidth", "rows": [stream]}]
    case = one(benchdata.sample("a", 0, {"workload": "perf", "through": "tcp", "tests": tests}))
    assert case.workload == "network"
    # In bits a second, and of the smallest message.
    primary = {measure.metric: measure.stat.median for measure in case.measures if measure.primary}
    assert primary == {"rate": 1e9, "latency": 2e-5}


def test_samples_of_unknown_cases_are_reported_and_left_out() -> None:
    summary = summarise(benchdata.session("egs", [benchdata.case("a")]), [benchdata.sample("b", 0, {})])
    assert summary.cases[0].state == "not run"
    assert "b" in summary.notes[0]


def test_a_session_without_cases() -> None:
    assert summarise(benchdata.session("egs", []), []).cases == ()


def test_the_csv_has_a_row_for_each_case_metric_and_size() -> None:
    summary = summed(benchdata.ladder())
    rows = list(csv.DictReader(io.StringIO(csv_text(summary))))
    assert tuple(rows[0]) == HEADER
    keys = [(row["case"], row["metric"], row["bytes"]) for row in rows]
    assert len(set(keys)) == len(keys)
    row = next(row for row in rows if (row["ranks"], row["metric"]) == ("4", "images_per_s"))
    assert (float(row["median"]), row["repeats"], row["disturbed"]) == (pytest.approx(186.8589), "2", "1")
    assert next(row for row in rows if (row["ranks"], row["metric"]) == ("8", "efficiency"))["unit"] == "1"


def test_the_csv_names_cases_without_figures() -> None:
    summary = summarise(benchdata.session("egs", [benchdata.case("a")]), [])
    (row,) = csv.DictReader(io.StringIO(csv_text(summary)))
    assert (row["case"], row["state"], row["metric"]) == ("a", "not run", "")


def test_compare_sees_what_changed_and_what_did_not() -> None:
    before, after = summed(benchdata.egs()), summed(benchdata.egs(0.9, id="after"))
    comparison = compare(before, after)
    assert [(change.case, change.verdict) for change in comparison.changes] == [
        (case.id, "worse") for case in before.cases
    ]
    assert comparison.changes[0].percent == pytest.approx(-10)
    assert not comparison.differences
    assert {change.verdict for change in compare(before, before).changes} == {"noise"}


def test_compare_goes_by_what_is_better() -> None:
    def latency(factor: float) -> Summary:
        case = benchdata.case("n", x="host", series="TCP")
        return summarise(
            benchdata.session("networks", [case]),
            list(benchdata.repeated(case, lambda f: benchdata.network(1e8, 2e-4 * factor * f))),
        )

    verdicts = {change.metric: change.verdict for change in compare(latency(1.0), latency(1.5)).changes}
    assert verdicts == {"rate": "noise", "latency": "worse"}


def test_compare_reports_what_else_differs() -> None:
    session, samples = benchdata.egs()
    other = values.replace(
        session,
        facts={**session.facts, "image": "kit:cpu-fedcba987654", "settings": {"mpi.bind_to": "core"}},
        cases=(*session.cases[:-1], values.replace(session.cases[-1], env=(("A", "1"),))),
    )
    comparison = compare(
        summarise(session, samples), summarise(other, [sample for sample in samples if "/4" not in sample.case])
    )
    assert comparison.differences["image"] == ("kit:cpu-0123456789ab", "kit:cpu-fedcba987654")
    assert comparison.differences["settings.mpi.bind_to"] == ("none", "core")
    assert comparison.differences[f"{session.cases[-1].id}: A"] == ("–", "1")
    assert comparison.only_a == {"egs/mxnet-resnet18_v1/4": "in the other it was not run"}
    assert comparison.by_chance == pytest.approx(0.03)
