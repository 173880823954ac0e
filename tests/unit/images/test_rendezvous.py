"""Where the ranks of a run meet, as the supervisor chooses it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes import launcher
from tests.fakes.head import place

rendezvous: Any = launcher.load("kitrun.rendezvous")
ports: Any = launcher.load("kitrun.ports")
HERE = [place("gpu1", 2), place("gpu2", 1)]


def prepare(used: set[int], **environment: str) -> tuple[dict[str, str], Any]:
    holder = rendezvous.prepare(environment, HERE, head="gpu1", used=used)
    return environment, holder


def test_two_runs_at_once_meet_at_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ports.random.randrange(1000)
    monkeypatch.setattr(ports.random, "sample", lambda numbers, _: list(numbers)[chosen : chosen + 100])
    (one, first), (two, second) = prepare(set()), prepare(set())
    assert one["MASTER_PORT"] != two["MASTER_PORT"]
    assert (one["MASTER_ADDR"], one["KIT_PLACES"]) == ("10.0.0.1", "gpu1=2 gpu2=1")
    first.close()
    # Now the port is free again, but not for a retry of the run that had it.
    used = {int(one["MASTER_PORT"])}
    three, third = prepare(used)
    assert used == {int(one["MASTER_PORT"]), int(three["MASTER_PORT"])}
    for holder in (second, third):
        holder.close()


def test_a_users_values_stay_and_empty_ones_do_not_count() -> None:
    environment, holder = prepare(set(), MASTER_ADDR="10.9.9.9", MASTER_PORT="4711")
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"], holder) == ("10.9.9.9", "4711", None)
    environment, holder = prepare(set(), MASTER_ADDR="", MASTER_PORT="")
    assert environment["MASTER_ADDR"] == "10.0.0.1"
    assert environment["MASTER_PORT"]
    holder.close()


def test_a_run_without_ranks_meets_nowhere() -> None:
    environment: dict[str, str] = {}
    assert rendezvous.prepare(environment, [], head="gpu1", used=set()) is None
    assert environment == {}
