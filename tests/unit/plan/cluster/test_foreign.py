"""Hosts of other clusters with the same name."""

from __future__ import annotations

import hashlib

import pytest

from kit.model import names
from kit.model.launch import ClusterRecord
from kit.model.values import replace
from kit.plan.cluster import ssh
from kit.plan.cluster.foreign import foreign_problems, not_recorded, ranks_of_others
from tests.fakes.facts import facts, host, node

RUN, OTHER = "20261121-101500-3fa2", "20261121-101500-4fa2"
RECORD = ClusterRecord(
    name="lab",
    image="kit:1",
    network="10.0.0.0/24",
    ssh_port=4444,
    nodes=(node(1), node(2)),
    head_runs_ranks=True,
)


def test_a_recorded_host_is_known_by_its_name_or_an_address() -> None:
    renamed = replace(host(2), name="b", address="10.0.0.2")
    behind = replace(host(2), name="c", address="203.0.113.2", internal="10.0.0.2")
    stranger = replace(host(3), name="gpu3", address="10.0.0.3")
    hosts = [replace(host(1), name="gpu1", address="203.0.113.1"), renamed, behind, stranger]
    assert not_recorded(hosts, RECORD) == [stranger]
    assert not_recorded(hosts, None) == hosts


@pytest.mark.parametrize(
    ("runs", "living", "start"),
    [
        ({}, (), None),
        ({"gpu3": ()}, (), None),
        ({"gpu3": (RUN,)}, (RUN,), None),
        ({"gpu3": (RUN, OTHER), "gpu4": ()}, (RUN,), "gpu3 runs ranks of a cluster called lab"),
        ({"gpu3": (RUN,), "gpu4": ("by-hand-7",)}, (), "gpu[3-4] run ranks of a cluster called lab"),
    ],
)
def test_ranks_of_runs_that_no_head_has(
    runs: dict[str, tuple[str, ...]], living: tuple[str, ...], start: str | None
) -> None:
    text = ranks_of_others(runs, living, cluster="lab", source="team/hosts")
    assert text == (None if start is None else f"{start} whose head is not in team/hosts")


def test_the_logins_of_many_new_hosts_are_compared_with_each_address_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    authorized_keys = ssh.authorized_keys

    def counted(key: str, address: str) -> bytes:
        made.append(address)
        return authorized_keys(key, address)

    monkeypatch.setattr(ssh, "authorized_keys", counted)
    key = "ssh-ed25519 AAAA"
    ours = {names.AUTHORIZED_KEYS: hashlib.sha256(authorized_keys(key, "10.0.0.2")).hexdigest()}
    theirs = {names.AUTHORIZED_KEYS: "1f"}
    observed = [facts(1, client_key=key)] + [facts(n, files=ours if n == 50 else theirs) for n in range(2, 51)]
    nodes = [node(n) for n in range(1, 51)]
    problems = foreign_problems(observed, nodes, "lab", RECORD)
    assert [problem.host for problem in problems] == [f"gpu{n}" for n in range(3, 50)]
    assert sorted(made) == sorted(one.address for one in nodes)
