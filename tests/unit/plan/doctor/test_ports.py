"""The ports that must be open between hosts."""

from __future__ import annotations

import pytest

from kit.config.validate import spec_from
from kit.plan.doctor.ports import spans


def numbers(**spec: object) -> list[tuple[int, int]]:
    return [(span.first, span.last) for span in spans(spec_from({"name": "lab", **spec}))]


def test_the_default_ports() -> None:
    """Open MPI's ranks listen from 1024 on. Each probe has an ephemeral port anyway."""
    assert numbers() == [(33, 33), (1024, 1088)]
    assert numbers(ssh_port=2233)[0] == (2233, 2233)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("--mca btl_tcp_port_min_v4 20000", [(20000, 20064)]),
        ("--mca btl_tcp_port_min_v4 20000 --mca btl_tcp_port_range_v4 8", [(20000, 20007)]),
        ("-mca oob_tcp_dynamic_ipv4_ports 46000-46031,47000", [(1024, 1088), (46000, 46031)]),
        ("--mca oob_tcp_static_ipv4_ports 46000", [(1024, 1088), (46000, 46000)]),
        ("--mca oob_tcp_dynamic_ipv4_ports none --mca btl_tcp_port_min_v4 x", [(1024, 1088)]),
        ("--mca btl_tcp_port_min_v4 65530", [(65530, 65535)]),
        ("--mca btl_tcp_port_min_v4 99999", []),
        ("--mca oob_tcp_dynamic_ipv4_ports", [(1024, 1088)]),
    ],
)
def test_a_range_of_mpi(args: str, expected: list[tuple[int, int]]) -> None:
    assert numbers(mpi={"args": args.split()})[1:] == expected


def test_swarm_needs_its_own() -> None:
    assert numbers(orchestrator="swarm")[2:] == [(2377, 2377), (7946, 7946)]


def test_only_programs_of_the_cluster_may_have_taken_a_port() -> None:
    assert [span.taken for span in spans(spec_from({"name": "lab", "orchestrator": "swarm"}))] == [
        True,
        False,
        True,
        True,
    ]
