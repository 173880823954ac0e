"""A dry run of hosts whose slots only kit deploy knows: it refuses no number of ranks that they may have room for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.config.hosts import parse_hosts
from kit.config.validate import spec_from
from kit.errors import InputError
from kit.flows.context import Context
from kit.flows.run.planning import dry_run
from kit.model.launch import LaunchPlan, RunPolicy, RunRequest
from tests.fakes.reporter import Remembering


def planned(hosts: str, spec: dict[str, object] | None = None, **wish: Any) -> LaunchPlan:
    context = Context(
        inventory=parse_hosts(hosts, source="hosts"),
        spec=spec_from(spec or {}),
        folder=Path(),
        reporter=Remembering(),
        connect=lambda host: pytest.fail(f"contacts {host.name}"),
    )
    return dry_run(context, RunRequest(command=("true",), **wish))


@pytest.mark.parametrize(
    ("hosts", "wish", "counts", "slots", "assumed"),
    [
        ("g[1-2]", {}, (1, 1), (1, 1), ("g1", "g2")),
        ("g[1-2]", {"np": 7}, (4, 3), (4, 4), ("g1", "g2")),
        ("g[1-2]", {"np": 1}, (1,), (1,), ("g1",)),
        ("g[1-2]", {"npernode": 8}, (8, 8), (8, 8), ("g1", "g2")),
        ("g[1-2]", {"np": 9, "npernode": 8}, (8, 1), (8, 8), ("g1", "g2")),
        ("g1 slots=4\ng2", {"np": 8}, (4, 4), (4, 4), ("g2",)),
        ("g1 slots=4\ng2", {"np": 4}, (4,), (4,), ()),
        ("g[1-2]", {"np": 4, "gpus_per_rank": 2}, (2, 2), (4, 4), ("g1", "g2")),
        ("g[1-2]", {"np": 8, "oversubscribe": True}, (4, 4), (1, 1), ("g1", "g2")),
        ("g[1-2]", {"launcher": "elastic", "policy": RunPolicy(min_np=6)}, (3, 3), (3, 3), ("g1", "g2")),
    ],
)
def test_hosts_without_slots_have_room_for_the_ranks(
    hosts: str, wish: dict[str, Any], counts: tuple[int, ...], slots: tuple[int, ...], assumed: tuple[str, ...]
) -> None:
    plan = planned(hosts, **wish)
    assert plan.placement.counts == counts
    assert tuple(node.slots for node in plan.placement.nodes) == slots
    assert plan.assumed == assumed


@pytest.mark.parametrize(
    ("hosts", "spec", "wish"),
    [
        ("g[1-2] slots=2", {}, {"np": 5}),
        ("g[1-2]", {"slots": 2}, {"np": 5}),
        ("g1 slots=2\ng2", {}, {"npernode": 4}),
        ("g[1-2]", {}, {"np": 999_999_999}),
    ],
)
def test_known_slots_still_limit_the_ranks(hosts: str, spec: dict[str, object], wish: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="is more than the"):
        planned(hosts, spec, **wish)


@pytest.mark.parametrize(("launcher", "passed"), [("elastic", True), ("mpi", False)])
def test_an_elastic_run_on_one_host_can_check_nccl_on_others(launcher: str, passed: bool) -> None:
    plan = planned("g1", {"nccl": {"require": "IB"}}, launcher=launcher)
    assert (plan.env.get("KIT_NCCL_NETWORK") == "IB", "KIT_NCCL_NETWORK" in plan.argv) == (passed, passed)


@pytest.mark.parametrize(
    ("spec", "wish", "message"),
    [
        ({"code": "CODE/none"}, {}, "the code folder .* does not exist"),
        ({"code": "CODE"}, {"workdir": "none"}, "the code has no folder none"),
        ({}, {"workdir": "src"}, "--workdir src is a folder of the code, and this run has none"),
        ({}, {"data": ("web",)}, "kit.yaml names no data set"),
    ],
)
def test_what_is_missing_here_is_missing_in_a_dry_run(
    spec: dict[str, str], wish: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    with pytest.raises(InputError, match=message):
        planned("g1", {key: value.replace("CODE", str(tmp_path)) for key, value in spec.items()}, **wish)


def test_a_dry_run_accepts_code_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert planned("g1", {"code": str(tmp_path)}, workdir="src").argv
    assert planned("g1", {"code": "git+https://git.example.com/x@main"}, workdir="src").argv
