"""kit metrics: names by Prometheus' conventions, values in base units, and a dashboard that asks for what there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.errors import UnreachableError
from kit.model.metrics import Family, Metric
from kit.model.watch import Disk, Gpu, Nic, Pressure, RankReading, Reading, Room, Seen
from kit.plan.metrics import METRICS, STALE_S, families

DOCS = Path(__file__).parents[3] / "docs"
DASHBOARD = json.loads((DOCS / "grafana" / "kit.json").read_text())
BY_NAME = {metric.name: metric for metric in METRICS}

READING = Reading(
    at=1.0,
    cores=8,
    cpu_s={"user": 12.5, "idle": 90.0},
    load1=1.5,
    mem=Room(total=1000, used=250),
    psi={"cpu": Pressure(some=5.0, full=0.0)},
    disk={"/": Room(total=100, used=40)},
    disks={"sda": Disk(read_bytes=1, written_bytes=2, busy_s=3.0)},
    nics={"eth0": Nic(speed=1_250_000_000, rx_bytes=10, tx_bytes=20), "mlx5_0/1": Nic()},
    gpus=(
        Gpu(index=0, uuid="GPU-1", name="NVIDIA A100", use=93.0, mem_used=7, mem_total=10, temp=60.0, power=250.0,
            power_limit=400.0, sm_clock=1410.0, sm_clock_max=1410.0, throttle=("sw_power_cap",)),
        Gpu(index=1),
    ),
    ranks=(RankReading(run="20261121-101500-3fa2", rank=3, pid=9, cpu_s=4.0, rss=5, waited_s=0.5),),
)  # fmt: skip


def of(seen: Seen) -> dict[str, Family]:
    return {family.metric.name: family for family in families([seen], cluster="lab", version="0.1.0")}


def test_values_are_in_base_units() -> None:
    found = of(Seen(host="gpu1", reading=READING, number=1))
    rank = ("lab", "gpu1", "20261121-101500-3fa2", "3")
    expected = {
        "kit_info": {("lab", "0.1.0"): 1.0},
        "kit_host_up": {("lab", "gpu1"): 1.0},
        "kit_host_cores": {("lab", "gpu1"): 8.0},
        "kit_host_cpu_seconds_total": {("lab", "gpu1", "user"): 12.5, ("lab", "gpu1", "idle"): 90.0},
        "kit_host_pressure_ratio": {("lab", "gpu1", "cpu", "some"): 0.05, ("lab", "gpu1", "cpu", "full"): 0.0},
        "kit_host_memory_used_bytes": {("lab", "gpu1"): 250.0},
        "kit_host_filesystem_size_bytes": {("lab", "gpu1", "/"): 100.0},
        "kit_host_disk_busy_seconds_total": {("lab", "gpu1", "sda"): 3.0},
        "kit_host_network_receive_bytes_total": {("lab", "gpu1", "eth0"): 10.0, ("lab", "gpu1", "mlx5_0/1"): 0.0},
        # A device without a speed has no sample.
        "kit_host_network_speed_bytes": {("lab", "gpu1", "eth0"): 1.25e9},
        "kit_host_gpus": {("lab", "gpu1"): 2.0},
        "kit_gpu_info": {("lab", "gpu1", "0", "GPU-1", "NVIDIA A100"): 1.0, ("lab", "gpu1", "1", "", ""): 1.0},
        # What is [N/A] has no sample, and is never 0.
        "kit_gpu_use_ratio": {("lab", "gpu1", "0"): 0.93},
        "kit_gpu_sm_clock_hertz": {("lab", "gpu1", "0"): 1.41e9},
        "kit_gpu_throttled": {("lab", "gpu1", "0", "sw_power_cap"): 1.0},
        "kit_rank_cpu_seconds_total": {rank: 4.0},
        "kit_rank_memory_bytes": {rank: 5.0},
        "kit_rank_core_wait_seconds_total": {rank: 0.5},
        "kit_rank_disk_wait_seconds_total": {},
    }
    assert {name: dict(found[name].samples) for name in expected} == expected


@pytest.mark.parametrize(
    ("age", "every", "up"), [(31, 5, 0.0), (29, 5, 1.0), (65, 60, 1.0), (179, 60, 1.0), (181, 60, 0.0)]
)
def test_a_host_is_up_between_two_readings(age: float, every: float, up: float) -> None:
    seen = [Seen(host="gpu1", reading=READING, number=2, age=age)]
    samples = {one.metric.name: one.samples for one in families(seen, cluster="lab", version="0.1.0", every=every)}
    assert dict(samples["kit_host_up"]) == {("lab", "gpu1"): up}
    assert bool(samples["kit_host_cores"]) == bool(up)


@pytest.mark.parametrize(
    "seen",
    [
        Seen(host="gpu1", error=UnreachableError("gone")),
        Seen(host="gpu1", reading=READING, number=9, age=STALE_S + 1, error=UnreachableError("gone")),
    ],
)
def test_a_host_that_does_not_answer_is_down_and_has_no_old_values(seen: Seen) -> None:
    found = of(seen)
    assert dict(found["kit_host_up"].samples) == {("lab", "gpu1"): 0.0}
    assert {name for name, family in found.items() if family.samples} == {"kit_info", "kit_host_up"}


def test_gpus_that_nvidia_smi_does_not_report_are_not_zero_gpus() -> None:
    assert of(Seen(host="gpu1", reading=Reading(at=1.0, gpus=None)))["kit_host_gpus"].samples == ()
    assert dict(of(Seen(host="gpu1", reading=Reading(at=1.0, gpus=())))["kit_host_gpus"].samples) == {
        ("lab", "gpu1"): 0.0
    }


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"kit(_[a-z0-9]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search(r"_(ms|milliseconds|percent|mb|mib|kb|mhz|megahertz|kilobytes)(_|$)", metric.name)
    assert metric.help.endswith(".")
    assert metric.name == "kit_info" or metric.labels[:2] == ("cluster", "host")
    if metric.name.startswith("kit_gpu_"):
        assert metric.labels[2] == "gpu"
    if metric.name.startswith("kit_rank_"):
        assert metric.labels == ("cluster", "host", "run", "rank")


def test_hosts_of_two_clusters_share_no_series() -> None:
    """One node_exporter may read the files of both, and Prometheus gives all of it the same instance."""
    seen = [Seen(host="gpu1", reading=READING, number=1)]
    both = [
        (family.metric.name, labels)
        for name in ("train", "eval")
        for family in families(seen, cluster=name, version="0.1.0")
        for labels, _ in family.samples
    ]
    assert len(both) == len({*both}) > 40


def test_no_name_comes_twice() -> None:
    assert len(BY_NAME) == len(METRICS)


def test_the_page_lists_every_metric_with_its_labels() -> None:
    rows = re.findall(r"^\| `(kit_\w+)` \| (.*?) \| (.*?) \|$", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    assert rows == [(one.name, ", ".join(f"`{label}`" for label in one.labels), one.help) for one in METRICS]


def targets() -> Iterator[tuple[str, str, str]]:
    """Yield each query of the dashboard: the panel's title, the expression, the legend."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target["legendFormat"]


def unknown(expr: str, legend: str) -> set[str]:
    """Return what an expression and its legend ask for, and no metric of it has."""
    names = set(re.findall(r"\bkit_\w+", expr))
    known = {label for name in names & set(BY_NAME) for label in BY_NAME[name].labels}
    asked = set(re.findall(r"([a-z_]+)(?:=~|!~|!=|=)\"", expr)) | set(re.findall(r"{{(\w+)}}", legend))
    for group in groups(expr):
        asked |= group
    # Prometheus itself adds the instance.
    return (names - set(BY_NAME)) | (asked - known - {"instance"})


def groups(text: str) -> list[set[str]]:
    """Return the labels of each `by` and `on` in expressions."""
    found = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", text)
    return [{word.strip() for word in group.split(",")} for group in found]


@pytest.mark.parametrize(("title", "expr", "legend"), [pytest.param(*one, id=one[1][:60]) for one in targets()])
def test_the_dashboard_asks_for_metrics_and_labels_that_exist(title: str, expr: str, legend: str) -> None:
    assert re.search(r"\bkit_\w+", expr), title
    assert unknown(expr, legend) == set()
    # Counters are only ever used as rates, and gauges never.
    for name in re.findall(r"\bkit_\w+", expr):
        assert (f"rate({name}{{" in expr) == (BY_NAME[name].kind == "counter")


def test_hosts_with_the_same_name_in_two_clusters_are_kept_apart() -> None:
    """Otherwise Prometheus refuses to join them, or adds up what does not belong together.

    They have another instance, or only another cluster if one node_exporter reads the files of both.
    """
    texts = [*(expr for _, expr, _ in targets()), (DOCS / "metrics.md").read_text()]
    joins = [group for text in texts for group in groups(text)]
    of_hosts = [group for group in joins if "host" in group]
    assert len(of_hosts) == 5
    assert all({"instance", "cluster"} <= group for group in of_hosts)


def test_an_expression_with_a_wrong_name_is_found() -> None:
    assert unknown('kit_host_cpu{hots="a"}', "{{gpu}}") == {"kit_host_cpu", "hots", "gpu"}
    assert unknown("sum by (host, rank) (kit_host_up)", "{{host}}") == {"rank"}


def test_the_dashboards_variables_exist() -> None:
    variables: list[dict[str, Any]] = DASHBOARD["templating"]["list"]
    for query in (one["definition"] for one in variables if one["type"] == "query"):
        name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]
        assert label in BY_NAME[name].labels
    used = {word for _, expr, _ in targets() for word in re.findall(r"\$(\w+)", expr)}
    assert used <= {"__rate_interval", *(one["name"] for one in variables)}


def test_no_panel_covers_another() -> None:
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & places
        places |= cells
