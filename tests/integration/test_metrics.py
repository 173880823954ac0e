"""kit metrics and a real Prometheus: it scrapes them, and answers every query of the dashboard."""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.flows import metrics as flow
from kit.model.metrics import Address, Exported
from kit.plan.metrics import METRICS
from tests.fakes.loopback import Loopback
from tests.fakes.reporter import Remembering
from tests.integration.prometheus import Prometheus, programs, scraping


@pytest.fixture(scope="module")
def metrics() -> Iterator[Exported]:
    """Metrics of two hosts that are addresses of this machine."""
    context = Loopback(2).context(Remembering())
    with flow.served(context, Address(host="127.0.0.1", port=0), every=1.0) as value:
        yield value


def uptime_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


@pytest.fixture(scope="module")
def prometheus(metrics: Exported, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with scraping(metrics.url, tmp_path_factory.mktemp("prometheus")) as server:
        yield server


def test_promtool_finds_no_fault_in_the_text(metrics: Exported) -> None:
    with urllib.request.urlopen(metrics.url, timeout=20) as answer:  # noqa: S310
        text = answer.read()
    done = subprocess.run([programs() / "promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_prometheus_has_hosts_and_values(prometheus: Prometheus) -> None:
    up = prometheus.query("kit_host_up")
    assert {row["metric"]["host"]: row["value"][1] for row in up} == {"gpu1": "1", "gpu2": "1"}
    (memory,) = prometheus.query('kit_host_memory_size_bytes{host="gpu1"}')
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert int(memory["value"][1]) == int(total.split()[1]) * 1024
    cores = prometheus.query("kit_host_cores")
    assert [row["value"][1] for row in cores] == [str(os.cpu_count())] * 2
    # Seconds since the boot, of all cores.
    idle = prometheus.query('kit_host_cpu_seconds_total{mode="idle"}')
    assert all(0 < float(row["value"][1]) <= uptime_s() * (os.cpu_count() or 1) for row in idle)
    assert len(idle) == 2


def test_prometheus_knows_the_kind_and_help_of_each_metric(prometheus: Prometheus) -> None:
    known = prometheus.get("metadata")
    # OpenMetrics, for which this Prometheus asks, names a counter without _total in its metadata.
    wanted = {one.name.removesuffix("_total"): (one.kind, one.help) for one in METRICS}
    found = {name: (known[name][0]["type"], known[name][0]["help"]) for name in wanted if name in known}
    assert found == wanted


def test_prometheus_answers_every_query_of_the_dashboard(prometheus: Prometheus) -> None:
    """What a machine without GPUs and ranks has gives rows. test_gpus.py looks at the other queries."""
    hosts = {"Hosts that answer", "GPUs", "Cores in use", "Memory in use", "File systems in use", "Received", "Sent"}
    assert not prometheus.empty_panels() & hosts
