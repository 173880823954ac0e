"""Which hosts a new run may have, and what a refusal says about cordoned ones."""

from __future__ import annotations

import pytest

from kit.errors import NotReadyError
from kit.model.host import Host
from kit.model.queue import Cordon
from kit.plan.queue import cordons

HOSTS = [Host(name=f"gpu{number}", address=f"10.0.0.{number}") for number in range(1, 4)]


def cordon(number: int, *, why: str = "fan", by: str = "ann") -> Cordon:
    return Cordon(host=f"gpu{number}", why=why, by=by, at=0.0)


def test_cordoned_hosts_are_left_out() -> None:
    # gpu9 is no host of this run.
    left, out = cordons.usable(HOSTS, [cordon(2), cordon(9)], named=False)
    assert [host.name for host in left] == ["gpu1", "gpu3"]
    assert out == (cordon(2),)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_hosts_without_a_cordon_are_all_left(*, named: bool, waits: bool) -> None:
    assert cordons.usable(HOSTS, [cordon(9)], named=named, waits=waits) == (HOSTS, ())


def test_a_host_that_the_command_line_names_must_not_be_cordoned() -> None:
    with pytest.raises(NotReadyError) as caught:
        cordons.usable(HOSTS, [cordon(2)], named=True)
    assert caught.value.message == "gpu2 is cordoned: fan, by ann"
    assert "kit hosts uncordon gpu2" in str(caught.value.hint)
    with pytest.raises(NotReadyError):
        cordons.usable(HOSTS, [cordon(2)], named=True, waits=True)


def test_only_a_run_in_line_waits_for_cordoned_hosts() -> None:
    every = [cordon(number) for number in (1, 2, 3)]
    with pytest.raises(NotReadyError) as caught:
        cordons.usable(HOSTS, every, named=False)
    assert caught.value.message == "gpu1 is cordoned: fan, by ann; so are gpu[2-3]"
    assert cordons.usable(HOSTS, every, named=False, waits=True) == ([], tuple(every))


def test_cordons_of_one_person_for_one_reason_are_one_sentence() -> None:
    other, unnamed = cordon(2, why="disk"), cordon(4, by="")
    groups = cordons.alike([cordon(1), other, cordon(3), unnamed])
    assert groups == ((cordon(1), cordon(3)), (other,), (unnamed,))
    assert [cordons.text(*group) for group in groups] == [
        "gpu[1,3] are cordoned: fan, by ann", "gpu2 is cordoned: disk, by ann", "gpu4 is cordoned: fan",
    ]  # fmt: skip
