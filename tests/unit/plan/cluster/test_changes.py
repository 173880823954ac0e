"""What a new hosts file changes for a deployed cluster, by the last deploy's record."""

from __future__ import annotations

import pytest

from kit.model.launch import ClusterRecord
from kit.model.observed import Lease
from kit.model.values import replace
from kit.plan.cluster.changes import complete_deploy, host_changes, leavers, runs_on
from tests.fakes.facts import facts, host, node

RECORD = ClusterRecord(
    name="lab",
    image="kit:cpu-0123",
    network="10.0.0.0/24",
    ssh_port=2222,
    nodes=(node(1), node(2), node(3)),
    head_runs_ranks=True,
)
FILES = {"compose.yaml": "1f"}

# A host of the new hosts file: its name, the last number of its address, and whether it has files of the cluster.
Row = tuple[str, int, bool]


def changes(*rows: Row, record: ClusterRecord = RECORD, complete: bool = True) -> list[tuple[str, str, str, str]]:
    nodes = [node(number, name=name) for name, number, _ in rows]
    observed = [facts(n, host=host(n, name=name), files=FILES if files else {}) for name, n, files in rows]
    compared = host_changes(record, observed, nodes, complete=complete)
    return [(one.kind, one.host, one.before, one.after) for one in compared]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Nothing, a host more, and a host less.
        ([("gpu1", 1, True), ("gpu2", 2, True), ("gpu3", 3, True)], []),
        ([("gpu1", 1, True), ("gpu2", 2, True), ("gpu3", 3, True), ("gpu4", 4, False)], []),
        ([("gpu1", 1, True), ("gpu2", 2, True)], []),
        # Another head, whose predecessor stays or leaves.
        ([("gpu2", 2, True), ("gpu1", 1, True), ("gpu3", 3, True)], [("head", "gpu2", "gpu1", "gpu2")]),
        ([("gpu4", 4, False), ("gpu1", 1, True)], [("head", "gpu4", "gpu1", "gpu4")]),
        # Another name of the head is no other head.
        ([("top", 1, True), ("gpu2", 2, True)], [("renamed", "top", "gpu1", "top")]),
        # Nor is another address, of DHCP for example.
        ([("gpu1", 9, True), ("gpu2", 2, True)], [("address", "gpu1", "10.0.0.1", "10.0.0.9")]),
        ([("gpu1", 1, True), ("gpu2", 9, True)], [("address", "gpu2", "10.0.0.2", "10.0.0.9")]),
        # Another machine, at another address and at the same one.
        ([("gpu1", 1, True), ("gpu2", 9, False)], [("replaced", "gpu2", "10.0.0.2", "10.0.0.9")]),
        ([("gpu1", 1, True), ("gpu2", 2, False)], [("replaced", "gpu2", "10.0.0.2", "10.0.0.2")]),
        # Two names that were swapped: the addresses say which machine is which.
        (
            [("gpu1", 1, True), ("gpu3", 2, True), ("gpu2", 3, True)],
            [("renamed", "gpu3", "gpu2", "gpu3"), ("renamed", "gpu2", "gpu3", "gpu2")],
        ),
        (
            [("gpu1", 2, True), ("gpu2", 1, True)],
            [
                ("head", "gpu1", "gpu2", "gpu1"),
                ("renamed", "gpu1", "gpu2", "gpu1"),
                ("renamed", "gpu2", "gpu1", "gpu2"),
            ],
        ),
    ],
)
def test_changes(rows: list[Row], expected: list[tuple[str, str, str, str]]) -> None:
    assert changes(*rows) == expected


def test_a_host_that_an_incomplete_deploy_missed_is_no_other_machine() -> None:
    assert changes(("gpu1", 1, True), ("gpu2", 2, False), complete=False) == []
    assert complete_deploy(facts(1, files={"verified": "1f"}))
    assert not complete_deploy(facts(1, files=FILES))


def test_a_record_without_nodes() -> None:
    assert changes(("gpu1", 1, True), record=replace(RECORD, nodes=())) == []


@pytest.mark.parametrize(
    ("hosts", "addresses", "left"),
    [
        (["gpu1", "gpu2", "gpu3"], ["10.0.0.1", "10.0.0.2", "10.0.0.3"], []),
        (["gpu1", "gpu2"], ["10.0.0.1", "10.0.0.2"], ["gpu3"]),
        # A host with another name, or with another address, is still in the cluster.
        (["gpu1", "new"], ["10.0.0.1", "10.0.0.2"], ["gpu3"]),
        (["gpu1", "gpu2", "gpu3"], ["10.0.0.1", "10.0.0.2", "10.0.0.9"], []),
    ],
)
def test_who_left(hosts: list[str], addresses: list[str], left: list[str]) -> None:
    assert [one.name for one in leavers(RECORD, hosts, addresses)] == left


def test_what_follows_and_what_to_type() -> None:
    observed = [facts(2, files=FILES), facts(1, files=FILES)]
    (change,) = host_changes(RECORD, observed, [node(2), node(1)], complete=True)
    assert "earlier runs, and what they made, stay on gpu1" in change.text
    assert "kit pull RUN" in str(change.hint)


def test_a_run_without_a_lease_may_use_every_host() -> None:
    leases = [
        Lease(run=run, slots={host: frozenset({0}) for host in hosts})
        for run, hosts in {"a": ["gpu1", "gpu3"], "b": ["gpu1", "gpu2"], "ended": ["gpu3"]}.items()
    ]
    assert runs_on(["gpu3", "gpu4"], ["by-hand-7", "b", "a"], leases) == {"a": ("gpu3",), "by-hand-7": ()}
