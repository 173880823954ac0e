"""How findings are folded and sorted, and what every check must have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from kit.config.validate import spec_from
from kit.model.doctor import Check, DoctorResult, Examined, File, Lookup, Lost, Seen, Sight
from kit.model.host import Host
from kit.model.values import replace
from kit.plan.doctor.checks import CHECKS
from kit.plan.doctor.judge import judge, reads_of

SPEC = spec_from({"name": "lab"})


def hosts(count: int) -> tuple[Seen, ...]:
    return tuple(Seen(host=Host(name=f"gpu{n}", address=f"10.0.0.{n}")) for n in range(1, count + 1))


def check(*sights: Sight, **fields: Any) -> Check:
    one = Check(
        id="one",
        title="One",
        area="host",
        severity="slows",
        judge=lambda _: sights,
        leads_to="It is slow.",
        fix="Mend it.",
    )
    return replace(one, **fields)


def test_hosts_with_the_same_text_are_one_sight() -> None:
    sights = [Sight(hosts=(f"gpu{n}",), seen="9001" if n < 8 else "1500") for n in range(1, 9)]
    (finding,), _ = judge(Examined(spec=SPEC, hosts=()), [check(*sights)])
    assert [(one.hosts, one.seen) for one in finding.seen] == [
        (tuple(f"gpu{n}" for n in range(1, 8)), "9001"),
        (("gpu8",), "1500"),
    ]


def test_pairs_stay_pairs() -> None:
    sights = [Sight(hosts=("gpu1", "gpu2"), seen="x"), Sight(hosts=("gpu1", "gpu3"), seen="x")]
    (finding,), _ = judge(Examined(spec=SPEC, hosts=()), [check(*sights, area="pair")])
    assert [one.hosts for one in finding.seen] == [("gpu1", "gpu2"), ("gpu1", "gpu3")]


def test_the_worst_comes_first_and_a_sight_may_be_worse_than_its_check() -> None:
    watch = check(Sight(hosts=("gpu1",), seen="w"), id="w", severity="watch")
    slows = check(Sight(hosts=("gpu1",), seen="s"), id="s")
    breaks = check(
        Sight(hosts=("gpu1",), seen="a"), Sight(hosts=("gpu2",), seen="b", severity="breaks"), id="b", severity="watch"
    )
    findings, _ = judge(Examined(spec=SPEC, hosts=()), [watch, slows, check(id="none"), breaks])
    assert [(one.id, one.severity) for one in findings] == [("b", "breaks"), ("s", "slows"), ("w", "watch")]


def test_a_check_that_raises_hides_no_other() -> None:
    def broken(_examined: Examined) -> Iterator[Sight]:
        yield Sight(hosts=("gpu1",), seen="before")
        raise ValueError("no number: '\x1b[2J'")

    findings, failed = judge(
        Examined(spec=SPEC, hosts=()), [check(id="bad", judge=broken), check(Sight(hosts=("a",), seen="x"))]
    )
    assert [one.id for one in findings] == ["one"]
    assert [(one.id, one.error[:10]) for one in failed] == [("bad", "ValueError")]


def test_each_read_is_asked_once() -> None:
    both = [check(reads=(Lookup(), File(path="/a"))), check(reads=(File(path="/a"),))]
    assert reads_of(both) == (Lookup(), File(path="/a"))


@pytest.mark.parametrize(
    ("severities", "code"), [((), 0), (("watch",), 0), (("watch", "slows"), 3), (("slows", "breaks"), 4)]
)
def test_exit_codes(severities: tuple[str, ...], code: int) -> None:
    checks = [check(Sight(hosts=("gpu1",), seen="x"), id=word, severity=word) for word in severities]
    findings, _ = judge(Examined(spec=SPEC, hosts=()), checks)
    result = DoctorResult(
        cluster="lab", hosts=("gpu1",), deployed=False, pairing="none", pairs=0, checks=1, findings=findings
    )
    assert result.exit_code == code


def test_a_host_that_kit_could_not_examine_is_a_finding() -> None:
    lost = (
        Lost(host="gpu2", message="no route", hint="is it up?"),
        Lost(host="gpu3", message="no route", hint="is it up?"),
    )
    findings, failed = judge(Examined(spec=SPEC, hosts=hosts(1), lost=lost), CHECKS)
    assert not failed
    (finding,) = [one for one in findings if one.id == "unreachable"]
    assert finding.severity == "breaks"
    assert finding.seen == (Sight(hosts=("gpu2", "gpu3"), seen="no route", fix="is it up?"),)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_hosts_of_which_nothing_is_known_have_no_finding(count: int) -> None:
    """No read came back, as from a host that is slow: no check may raise, or find something."""
    findings, failed = judge(Examined(spec=SPEC, hosts=hosts(count)), CHECKS)
    assert failed == ()
    assert [one.id for one in findings] == []


# What every check must have.


def test_each_id_is_there_once() -> None:
    assert len({one.id for one in CHECKS}) == len(CHECKS)


@pytest.mark.parametrize("one", CHECKS, ids=lambda one: one.id)
def test_each_check_says_what_users_need(one: Check) -> None:
    """If this fails: name what provokes it on a lab's host, or why the lab cannot."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one.id)
    assert bool(one.lab) != bool(one.untested), "a check has a fault of the lab, or the reason why it has not"
    assert one.title[0].isupper() or one.title.startswith("kit ")
    assert not one.title.endswith(".")
    assert one.leads_to.endswith(".")
    assert one.fix


@pytest.mark.parametrize("one", CHECKS, ids=lambda one: one.id)
def test_each_check_is_in_the_file_of_its_name(one: Check) -> None:
    assert one.judge.__module__.rpartition(".")[2] == one.id.replace("-", "_")
