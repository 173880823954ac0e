"""Findings as text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

from kit.cli.text.doctor import findings, page
from kit.cli.text.doctor_page import AREAS, REFUSED
from kit.model.doctor import Area, DoctorResult, FailedCheck, Finding, Severity, Sight
from kit.plan.doctor.checks import CHECKS

ROOT = Path(__file__).resolve().parents[4]
HOSTS = tuple(f"gpu{n}" for n in range(1, 9))


def finding(*seen: Sight, area: Area = "host", severity: Severity = "slows", **fields: Any) -> Finding:
    return Finding(
        id="mtu-differs", title="The MTU differs", severity=severity, area=area, seen=seen,
        leads_to="The slowest link paces all.", fix="`ip link set DEV mtu 9001`", **fields,
    )  # fmt: skip


def result(*found: Finding, **fields: Any) -> DoctorResult:
    values: dict[str, Any] = {"pairs": 0, "checks": 30, "seconds": 1.25} | fields
    return DoctorResult(cluster="lab", hosts=HOSTS, deployed=False, pairing="none", findings=found, **values)


def test_nothing() -> None:
    assert findings(result(pairs=1)) == "No finding: 30 checks on 8 hosts: gpu[1-8], 1 pair, in 1.2 s."


def test_the_last_line_says_that_a_check_failed() -> None:
    failed = (FailedCheck(id="shm", error="KeyError: 'x'"),)
    last = findings(result(failed=failed)).splitlines()[-1]
    assert last == "No finding, but 1 check failed: 30 checks on 8 hosts: gpu[1-8], in 1.2 s."


def test_the_last_line_says_that_gpus_are_pretended() -> None:
    text = findings(result(gpu_models=("NVIDIA H200 (PRETENDED)",)))
    assert text == "No finding: 30 checks on 8 hosts: gpu[1-8], in 1.2 s; GPUs (PRETENDED)."
    assert "PRETENDED" not in findings(result(gpu_models=("NVIDIA H200",)))


def test_hosts_are_folded() -> None:
    text = findings(result(finding(Sight(hosts=HOSTS[:7], seen="9001"), Sight(hosts=HOSTS[7:], seen="1500"))))
    assert text.splitlines() == [
        "slows  mtu-differs  The MTU differs",
        "  gpu[1-7]: 9001",
        "  gpu8: 1500",
        "  leads to: The slowest link paces all.",
        "  → `ip link set DEV mtu 9001`",
        "",
        "1 finding (1 slows): 30 checks on 8 hosts: gpu[1-8], in 1.2 s.",
    ]


def test_a_sight_with_its_own_fix_and_severity() -> None:
    text = findings(result(finding(Sight(hosts=("gpu1",), seen="x", fix="do this", severity="watch"))))
    assert text.splitlines()[1:4] == ["  gpu1: x (watch)", "    → do this", "  leads to: The slowest link paces all."]
    assert text.count("ip link") == 1


def test_the_same_fix_is_printed_once() -> None:
    text = findings(result(finding(Sight(hosts=("gpu1",), seen="x", fix="`ip link set DEV mtu 9001`"))))
    assert text.count("ip link") == 1


def test_pairs_from_one_host_share_a_line() -> None:
    sights = [Sight(hosts=("gpu1", f"gpu{n}"), seen="timed out") for n in (2, 3, 4)]
    sights += [Sight(hosts=("gpu2", "gpu1"), seen="timed out"), Sight(hosts=("gpu8",), seen="all its links")]
    text = findings(result(finding(*sights, area="pair", severity="breaks"), pairs=56))
    assert text.splitlines()[1:4] == [
        "  gpu1 → gpu[2-4]: timed out",
        "  gpu2 → gpu1: timed out",
        "  gpu8: all its links",
    ]


def test_many_lines_are_cut_without_verbose() -> None:
    one = finding(*(Sight(hosts=(f"gpu{n}",), seen=f"{n} free") for n in range(1, 31)))
    assert "… and 22 more lines" in findings(result(one))
    assert "gpu30: 30 free" in findings(result(one), verbose=True)


def test_what_a_host_wrote_is_on_one_line() -> None:
    text = findings(result(finding(Sight(hosts=("gpu1",), seen="a\nb\x1b[2J"))))
    assert "  gpu1: a\\nb\\x1b[2J" in text


def test_a_failed_check_is_named() -> None:
    text = findings(result(failed=(FailedCheck(id="gpu-xid", error="ValueError: 'x\ny'"),)))
    assert text.startswith("The check gpu-xid failed, which is a bug in kit: ValueError: 'x\\ny'\n")


def test_colors_are_those_of_the_severity() -> None:
    text = findings(result(finding(Sight(hosts=("gpu1",), seen="x"))), paint=lambda word, style: f"<{style} {word}>")
    assert text.startswith("<yellow slows>  <bold mtu-differs>  The MTU differs\n")


def test_each_check_has_a_page() -> None:
    for check in CHECKS:
        assert check.leads_to in page(check)


def test_docs_have_every_check() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "docs-doctor", "--check"], check=False, timeout=60)
    assert done.returncode == 0, "docs/doctor.md is stale: run scripts/docs-doctor"
    assert set(AREAS) == set(get_args(Area))
    assert {check.id for check in CHECKS} >= REFUSED
