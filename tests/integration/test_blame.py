"""kit blame and kit top on real hosts: ranks of Horovod that train, while one thing after another slows one of them.

Each fault is there before kit looks, and stays until kit has looked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scripts.blamed import HOSTS, Bench, Fault, words
from tests.integration.rig import Cluster, until

# What the other lanes do on the same cores would be to blame indeed.
pytestmark = pytest.mark.precise

FAULTS = (
    Fault(kind="busy-core", rank=1, strength=5),
    Fault(kind="link", rank=2, strength=12),
    Fault(kind="loader", rank=3, strength=0.2),
    Fault(kind="disk", rank=0, strength=6),
)


@pytest.fixture(scope="module")
def bench(cluster: Cluster) -> Bench:
    hosts = {host.name: host for host in cluster.hosts}

    def node(name: str, text: str) -> str:
        done = cluster.inside(hosts[name], "sh", "-c", text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def verb(*argv: str) -> str:
        done = cluster.kit(*argv)
        # kit blame names somebody: 3.
        assert done.returncode in ((0, 3) if argv[0] == "blame" else (0,)), done.stderr
        return done.stdout

    return Bench(
        host=lambda name, text: hosts[name].script(text),
        node=node,
        kit=verb,
        containers={name: cluster.container(host) for name, host in hosts.items()},
        lab=cluster.name,
    )


@pytest.fixture(scope="module")
def training(cluster: Cluster, bench: Bench) -> Iterator[str]:
    """The id of a run with a rank on each host, which trains until the tests are over."""
    run = bench.kit("run", *words()).strip()
    try:
        # Rank 0 says it when all ranks have joined.
        until("all ranks train", lambda: "training" in bench.kit("logs", run))
        yield run
    finally:
        cluster.kit("stop", run)
        cluster.wait_for_none()


def test_in_a_healthy_run_nobody_is_blamed(bench: Bench, training: str) -> None:
    result = bench.ask(training, None)
    assert (result["verdict"], result["culprit"]) == ("nobody", None), result
    assert [(row["rank"], row["host"]) for row in result["ranks"]] == list(enumerate(HOSTS))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
def test_a_fault_is_named_with_its_host_rank_and_cause(bench: Bench, training: str, fault: Fault) -> None:
    result = bench.ask(training, fault)
    assert fault.named_by(result), result
    assert result["culprit"]["gain"]["then"] < result["culprit"]["gain"]["now"]


def test_top_shows_each_rank_at_work_on_its_host(bench: Bench, training: str) -> None:
    before, now = (ranks(bench, training) for _ in range(2))
    assert [(rank["rank"], host) for host, rank in now] == list(enumerate(HOSTS))
    for (_, earlier), (host, rank) in zip(before, now, strict=True):
        assert rank["pid"] == earlier["pid"]
        assert rank["cpu_s"] > earlier["cpu_s"], host
        assert rank["last"] == ("training" if rank["rank"] == 0 else None)


def ranks(bench: Bench, run: str) -> list[tuple[str, dict[str, Any]]]:
    """Return host and figures of each rank of the run, by its number."""
    value = json.loads(bench.kit("top", run, "--once", "--json"))
    assert (value["run"], value["over"]) == (run, False)
    found = [(one["host"], rank) for one in value["hosts"] for rank in one["reading"]["ranks"]]
    assert {rank["run"] for _, rank in found} == {run}
    return sorted(found, key=lambda one: one[1]["rank"])
