"""kit metrics and a real Prometheus: it scrapes them, and answers every query of the dashboard."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.flows import metrics as flow
from kit.model.metrics import Address, Exported
from kit.plan.metrics import METRICS
from tests.fakes.loopback import Loopback
from tests.fakes.reporter import Remembering
from tests.integration.conftest import missing
from tests.integration.rig import until
from tests.sockets import free_port

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "docs" / "grafana" / "kit.json").read_text())
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: kit
    static_configs: [{{targets: ["{target}"]}}]
"""


@pytest.fixture(scope="module")
def programs() -> Path:
    """Return the folder of prometheus and promtool."""
    done = subprocess.run([ROOT / "scripts" / "prometheus"], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        missing("there is no prometheus on this machine", "scripts/prometheus")
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def metrics() -> Iterator[Exported]:
    """Metrics of two hosts that are addresses of this machine."""
    context = Loopback(2).context(Remembering())
    with flow.served(context, Address(host="127.0.0.1", port=0), every=1.0) as value:
        yield value


def uptime_s() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


class Prometheus:
    """A running server, and its HTTP API."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **words: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310  (a test's own address)
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.get("query", query=expr)["result"]
        return rows

    def answers(self) -> bool:
        try:
            return bool(self.query("up{job='kit'} == 1"))
        except OSError:
            return False


@pytest.fixture(scope="module")
def prometheus(programs: Path, metrics: Exported, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    target = metrics.url.removeprefix("http://").removesuffix("/metrics")
    (folder / "prometheus.yml").write_text(CONFIG.format(target=target))
    port = free_port("127.0.0.1")
    argv = [
        str(programs / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'db'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        server = Prometheus(port)
        try:
            until("Prometheus has scraped kit metrics", server.answers)
            # A rate needs two scrapes.
            until("it knows rates", lambda: server.query("rate(kit_host_cpu_seconds_total[30s])"))
            yield server
        finally:
            process.terminate()


def test_promtool_finds_no_fault_in_the_text(programs: Path, metrics: Exported) -> None:
    with urllib.request.urlopen(metrics.url, timeout=20) as answer:  # noqa: S310
        text = answer.read()
    done = subprocess.run([programs / "promtool", "check", "metrics"], input=text, capture_output=True, check=False)
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
    """What a machine without GPUs and ranks has gives rows; the others are read without an error."""
    empty = set()
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            expr = target["expr"].replace("$host", ".*").replace("$run", ".*").replace("$__rate_interval", "30s")
            if not prometheus.query(expr):
                empty.add(panel["title"])
    hosts = {"Hosts that answer", "GPUs", "Cores in use", "Memory in use", "File systems in use", "Received", "Sent"}
    assert not empty & hosts
