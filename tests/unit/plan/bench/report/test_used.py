"""What the runs of a benchmark used of their hosts, from a run's record to the rows of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kit.model.bench import Sample
from kit.model.benchsummary import Used
from kit.model.run import HostUse, RunUse
from kit.model.values import replace
from kit.plan.bench.report.page import html
from kit.plan.bench.report.stats import summarise
from kit.plan.bench.report.used import TOO_SHORT, UseRow, kept, use_rows, used_by
from kit.remote.bench.report import template
from tests import benchdata

GPU = HostUse(
    memory_peak=3 * 10**9, cpu_mean=1.5, cores=8, gpu_mean=90.0, gpu_memory_peak=7 * 10**9, gpu_memory_size=8 * 10**9,
    received=10, sent=20,
)  # fmt: skip
CPU = HostUse(memory_peak=4 * 10**9, cpu_mean=2.0, cores=4, received=1, sent=2)


def sample(used: Mapping[str, Any] | None, repeat: int = 0, **given: Any) -> Sample:
    return benchdata.sample("a", repeat, benchdata.training(1.0, 1), used=used, **given)


def test_a_sample_keeps_the_peaks_and_the_sums_over_its_hosts() -> None:
    assert kept(RunUse(hosts={"gpu1": GPU, "cpu1": CPU}, readings=4)) == {
        "memory": 4 * 10**9, "cores": 3.5, "of_cores": 12, "gpus": 0.9, "gpu_memory": 7 * 10**9, "received": 11,
        "sent": 22,
    }  # fmt: skip
    # Nobody knows what went over the network between one reading and no other.
    assert kept(RunUse(hosts={"cpu1": HostUse(memory_peak=5, cores=4)}, readings=1)) == {"memory": 5, "of_cores": 4}
    assert kept(RunUse(hosts={"gpu1": GPU, "gpu2": HostUse(gpu_mean=10.0, gpu_memory_peak=0)}))["gpus"] == 0.5


def test_each_gpu_counts_once_and_hosts_that_are_left_out_are_counted() -> None:
    use = kept(RunUse(hosts={"gpu1": replace(GPU, gpus=7), "gpu2": HostUse(gpu_mean=10.0, gpus=1)}, left_out=36))
    assert (use["gpus"], use["left_out"]) == (0.8, 36)
    (row,) = rows(sample(use))
    assert (row.title, row.gpus) == ("a (without 36 other hosts)", "80.0 %, 7.00 GB")


@pytest.mark.parametrize("use", [None, RunUse(hosts={})])
def test_a_short_run_used_nothing_that_somebody_saw(use: RunUse | None) -> None:
    assert kept(use) == {}


def test_a_case_has_the_greatest_peak_and_the_medians_of_its_long_repeats() -> None:
    values: Sequence[Mapping[str, Any]] = [
        {"memory": 5, "cores": 1.0, "of_cores": 8, "sent": 100},
        {"memory": 9, "cores": 3.0, "of_cores": 8, "sent": 300, "gpus": 0.25},
        {},
    ]
    used = used_by([sample(value, repeat) for repeat, value in enumerate(values)])
    assert used == Used(count=2, memory=9, cores=2.0, of_cores=8, gpus=0.25, sent=200)
    assert used_by([sample({})]) == Used()
    # A session of an earlier kit, and samples that were no run.
    assert used_by([sample(None)]) is None


@pytest.mark.parametrize("odd", ["5", None, True, -1, [1], 10**400, float("nan")])
def test_what_is_no_amount_is_left_out(odd: object) -> None:
    assert used_by([sample({"memory": odd, "sent": 1})]) == Used(count=1, sent=1)


def rows(*samples: Sample) -> list[UseRow]:
    case = benchdata.case("a", repeats=len(samples))
    return use_rows(summarise(benchdata.session("egs", [case]), samples).cases)


def test_a_row_has_what_is_known() -> None:
    assert rows(sample(kept(RunUse(hosts={"gpu1": GPU}, readings=2)))) == [
        UseRow(title="a", memory="3.00 GB", cores="1.5 of 8", gpus="90.0 %, 7.00 GB", network="10 B in, 20 B out")
    ]
    assert rows(sample({"memory": 5})) == [UseRow(title="a", memory="5 B")]
    assert rows(sample({})) == [UseRow(title="a", short=TOO_SHORT)]
    assert rows(sample(None)) == []


def test_repeats_that_do_not_count_used_nothing() -> None:
    warm_up, failed = sample({"memory": 99}, warmup=True), sample({"memory": 99}, 1, failure="rank 0 ended")
    assert rows(warm_up, sample({"memory": 5}), failed) == [UseRow(title="a", memory="5 B")]


def page(*used: Mapping[str, Any] | None) -> str:
    cases = [benchdata.case(f"case {number}", repeats=1) for number in range(len(used))]
    samples = [
        benchdata.sample(case.id, 0, benchdata.training(1.0, 1), used=value)
        for case, value in zip(cases, used, strict=True)
    ]
    return html(summarise(benchdata.session("egs", cases), samples), [], template())


def test_the_page_shows_it_and_says_where_a_run_was_too_short() -> None:
    text = page(kept(RunUse(hosts={"gpu1": GPU}, readings=2)), {}).replace("\N{NO-BREAK SPACE}", " ")
    assert "What the runs used" in text
    assert '<td class="n">90.0 %, 7.00 GB</td>' in text
    assert f'<th scope="row">case 1</th><td class="t" colspan="4">{TOO_SHORT}</td>' in text
    without_gpus = page(kept(RunUse(hosts={"cpu1": CPU}, readings=2)), {})
    assert "GPU use" not in without_gpus
    assert f'colspan="3">{TOO_SHORT}' in without_gpus
    assert "What the runs used" not in page(None)
