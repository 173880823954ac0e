"""mpi_perf and kit tune on the deployed cluster: real sums over real links, and a kit.yaml that a run takes."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import docker.errors
import pytest
import yaml

from kit.model.lab import network_name
from kit.plan import lab
from kit.remote.lab.engine import LabEngine
from tests.integration.rig import Cluster, objects

TESTS = ["latency", "bandwidth", "ring", "allreduce", "bcast", "allgather"]
BUS = {"allreduce": 2 * 7 / 8, "allgather": 7 / 8}


def test_every_test_of_mpi_perf_has_its_rows(cluster: Cluster) -> None:
    done = cluster.kit("run", "--", "mpi_perf", "--sizes", "8,64K", "--repeats", "3", "--seconds", "0.05", "--json")
    assert done.returncode == 0, done.stderr
    assert "# allreduce, 8 ranks" in done.stderr
    report = json.loads(done.stdout)
    assert (report["workload"], report["simulated"], report["through"]) == ("perf", False, "mpi")
    assert (report["ranks"], report["hosts"]) == (8, 4)
    assert [part["test"] for part in report["tests"]] == TESTS
    for part in report["tests"]:
        between = part["test"] in ("latency", "bandwidth")
        assert part["ranks"] == (2 if between else 8)
        sizes = [row["bytes"] for row in part["rows"]]
        # An all-gather's result has a whole part of each rank.
        assert sizes == ([32, 65536] if part["test"] == "allgather" else [8, 65536])
        for row in part["rows"]:
            assert 0 < row["min_s"] <= row["seconds"] <= row["max_s"]
            assert 1 <= row["repeats"] == len(row["samples"])
            assert math.isclose(row["algbw"], row["bytes"] / row["seconds"], rel_tol=1e-6)
            assert math.isclose(row["busbw"], row["algbw"] * BUS.get(part["test"], 1.0), rel_tol=1e-6)
        if between:
            pairs = [(pair["from"], pair["to"]) for pair in part["pairs"]]
            assert pairs == [("gpu1", "gpu2"), ("gpu2", "gpu3"), ("gpu3", "gpu4"), ("gpu4", "gpu1")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("latncy",), "there is no test 'latncy'; there are: latency, bandwidth, ring, allreduce, bcast, allgather"),
        (("--sizes", "8:2G"), "'2G' is not a size: from 1 to 1G"),
        (("--through", "rdma"), "there is no 'rdma'; there are: mpi, nccl"),
        (("--through", "nccl"), "--through nccl needs GPUs, and gpu1 shows its container none"),
    ],
    ids=lambda words: words[-1] if isinstance(words, tuple) else "",
)
def test_what_cannot_be_measured_is_said(cluster: Cluster, words: tuple[str, ...], message: str) -> None:
    done = cluster.kit("run", "--np", "2", "--npernode", "1", "--", "mpi_perf", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.fixture
def settings(cluster: Cluster) -> Iterator[str]:
    """kit.yaml as it was, and is again afterwards."""
    path = cluster.folder / "kit.yaml"
    before = path.read_text()
    yield before
    path.write_text(before)


def test_tune_writes_what_a_run_takes(cluster: Cluster, settings: str) -> None:
    dry = cluster.kit("tune", "--minutes", "1", "--dry-run", "--output", "json")
    assert dry.returncode == 0, dry.stderr
    assert (cluster.folder / "kit.yaml").read_text() == settings
    report = objects(dry)[-1]
    assert [item["name"] for item in report["machines"]] == ["gpu1", "gpu2", "gpu3", "gpu4"]
    assert all(item["nic"] == "eth0" and item["mtu"] and item["cores"] for item in report["machines"])
    assert report["wire"] > 1e6
    assert report["before"]["timing"]["ranks"] == 8
    assert len(report["before"]["timing"]["seconds"]) >= 3
    assert not report["written"]
    changed = {item["path"]: item for item in report["changed"]}
    assert changed["env.OMP_NUM_THREADS"]["acts"] == "deploy"
    assert all(item["reason"] for item in changed.values())
    assert all(f"+  # kit tune: {item['reason'][:40]}" in report["diff"] for item in changed.values())


# Bytes a second that the shaped links of the first network carry at most.
SLOW = 100e6 / 8


@pytest.fixture
def second(cluster: Cluster, settings: str, client: Any) -> Iterator[str]:
    """A second network of all hosts, and links of 100 Mbit/s in the first; kit.yaml says nothing of a network.

    Afterwards the cluster is deployed as it was, and the network is gone.
    """
    network, cidr = network_of_its_own(f"{cluster.name}-second", client)
    containers = [f"{network_name(cluster.name)}-{host.name}" for host in cluster.hosts]
    # Undone from the last to the first, each whatever became of the others: all further tests are on this cluster.
    with contextlib.ExitStack() as afterwards:
        afterwards.callback(network.remove)
        for container in containers:
            network.connect(container)
            afterwards.callback(network.disconnect, container, force=True)
        afterwards.callback(deployed, cluster, settings)
        afterwards.callback(rated, cluster, "none")
        rated(cluster, "100mbit")
        signed = settings.partition("\n")[0]
        rest = {key: value for key, value in yaml.safe_load(settings).items() if key != "network"}
        (cluster.folder / "kit.yaml").write_text(f"{signed}\n{yaml.safe_dump(rest)}")
        yield cidr


def network_of_its_own(name: str, client: Any) -> tuple[Any, str]:
    """Make a network whose addresses nobody else has, and return it with its CIDR."""
    with contextlib.closing(LabEngine()) as engine:
        free = [str(subnet) for subnet in itertools.islice(lab.candidates(engine.taken_subnets()), 8)]
    for cidr in free:
        pool = {"Driver": "default", "Config": [{"Subnet": cidr}]}
        # Another test may have taken these addresses just now.
        with contextlib.suppress(docker.errors.APIError):
            # Internal: it brings no default route, and the first network stays what ssh goes over.
            return client.networks.create(name, driver="bridge", internal=True, ipam=pool), cidr
    pytest.fail(f"none of these networks could be made: {free}")


def deployed(cluster: Cluster, settings: str) -> None:
    (cluster.folder / "kit.yaml").write_text(settings)
    done = cluster.kit("deploy")
    assert done.returncode == 0, done.stderr


def rated(cluster: Cluster, rate: str) -> None:
    done = cluster.kit("lab", "link-rate", rate, "--name", cluster.name)
    assert done.returncode == 0, done.stderr


def test_a_faster_network_is_written_and_a_run_goes_over_it(cluster: Cluster, second: str, settings: str) -> None:
    tuned = cluster.kit("tune", "--minutes", "1", "--output", "json")
    assert tuned.returncode == 0, tuned.stderr
    report = objects(tuned)[-1]
    (other,) = report["networks"]
    assert (other["network"], other["nics"], other["failure"]) == (second, ["eth1"], None)
    assert report["wire"] < SLOW < 1.1 * SLOW < other["rate"]
    changed = {setting["path"]: setting for setting in report["changed"]}
    assert (changed["network"]["value"], changed["network"]["acts"]) == (second, "deploy")
    # What MPI makes of the network that is left would be of no use.
    assert (report["before"], report["written"]) == (None, True)
    text = (cluster.folder / "kit.yaml").read_text()
    assert "# kit tune: with TCP on all links at once, the slowest link" in text
    assert f"\nnetwork: {second}\n" in text

    deploy = cluster.kit("deploy")
    assert deploy.returncode == 0, deploy.stderr
    plan = cluster.kit("run", "--dry-run", "--", "true")
    assert f"btl_tcp_if_include {second}" in plan.stdout
    before = [host.bytes_of("eth1") for host in cluster.hosts]
    sizes = ("--sizes", "4M", "--repeats", "10", "--seconds", "2", "--json")
    run = cluster.kit("run", "--npernode", "1", "--", "mpi_perf", "allreduce", *sizes)
    assert run.returncode == 0, run.stderr
    (row,) = json.loads(run.stdout)["tests"][0]["rows"]
    # More than the links of the first network carry, in the quickest: what else the machine does makes them slower. And
    # each host did send over the second.
    assert row["busbw"] * row["seconds"] / row["min_s"] > SLOW
    assert all(host.bytes_of("eth1") - was > 4 << 20 for host, was in zip(cluster.hosts, before, strict=True))
    _data_over_both(cluster, yaml.safe_load(settings)["network"], second)


def _data_over_both(cluster: Cluster, first: str, second: str) -> None:
    """Check that the data of a run goes over both cards if kit.yaml says so, and that NCCL would use both."""
    path = cluster.folder / "kit.yaml"
    path.write_text(f"{path.read_text()}interfaces: [{first}, {second}]\n")
    deploy = cluster.kit("deploy")
    assert deploy.returncode == 0, deploy.stderr
    before = [(host.bytes_of("eth0"), host.bytes_of("eth1")) for host in cluster.hosts]
    sizes = ("--sizes", "4M", "--repeats", "10", "--seconds", "2", "--json")
    run = cluster.kit("run", "--npernode", "1", "--", "mpi_perf", "allreduce", *sizes)
    assert run.returncode == 0, run.stderr
    for host, was in zip(cluster.hosts, before, strict=True):
        grown = [host.bytes_of(name) - old for name, old in zip(("eth0", "eth1"), was, strict=True)]
        assert min(grown) > 4 << 20, grown
    names = cluster.kit("run", "--npernode", "1", "--", "printenv", "NCCL_SOCKET_IFNAME")
    assert set(names.stdout.split()) == {"=eth0,eth1"}, names.stderr


@pytest.mark.parametrize(
    ("words", "compression", "source"), [((), "fp16", "KIT_COMPRESSION"), (("--compression", "none"), "none", None)]
)
def test_the_benchmark_goes_by_the_variable_unless_a_flag_says_otherwise(
    cluster: Cluster, words: tuple[str, ...], compression: str, source: str | None
) -> None:
    paced = ("paced_benchmark", "--parameters", "1m", "--step-ms", "20", "--num-iters", "2", "--json", *words)
    done = cluster.kit("run", "--np", "2", "--npernode", "1", "-x", "KIT_COMPRESSION=fp16", "--", *paced)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["options"]["compression"], report["options"].get("compression_from")) == (compression, source)
    assert report["gradient_bytes"] == (2_000_000 if compression == "fp16" else 4_000_000)
    assert ("KIT_COMPRESSION=fp16 chose --compression fp16" in done.stderr) is (source is not None)
