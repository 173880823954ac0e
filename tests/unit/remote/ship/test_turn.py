"""What a ship of code orders hosts to keep: the snapshots that runs need."""

from __future__ import annotations

from kit.model.code import Needed
from kit.remote.ship.turn import Turn


def test_an_order_has_the_list_and_its_age() -> None:
    turn = Turn(head="head", store="code", needed=Needed(digests=("a", "b"), at=100.0), renewed=lambda: Needed(at=0.0))
    assert turn.order(160.0) == {"needed": {"digests": ["a", "b"], "age_s": 60.0}}
    # This machine's clock was set back.
    assert turn.order(40.0) == {"needed": {"digests": ["a", "b"], "age_s": 0.0}}


def test_a_newer_list_adds_to_the_older_one_which_stays_as_old() -> None:
    newer = Needed(digests=("b", "c"), at=150.0)
    turn = Turn(head="head", store="code", needed=Needed(digests=("a", "b"), at=100.0), renewed=lambda: newer)
    turn.renew()
    assert turn.order(160.0) == {"needed": {"digests": ["a", "b", "c"], "age_s": 60.0}}
