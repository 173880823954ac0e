"""kit doctor on lab hosts: it names each fault with its host, is silent after the repair, and finds nothing before.

Faults are injected in rounds, many at once. Each check with a fault of the lab is a test, which reads what its round
found. A new check needs no change here.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kit.flows.lab.fault import lab_fault
from kit.flows.lab.lab import lab_gpu
from kit.plan.doctor.checks import CHECKS
from tests.integration.conftest import LAB
from tests.integration.rig import kit, objects, taken_down

NAME = f"{LAB}-doctor"
# The head is the reference where most hosts are not.
HOSTS = ("gpu2", "gpu3", "gpu4")
# A command of the lab that gives a host a fault, in `lab` of a check.
COMMAND = re.compile(r"kit lab (fault|gpu) HOST (?:--fault )?(\S+)")
COMMANDS = {check.id: match for check in CHECKS if (match := COMMAND.fullmatch(check.lab))}
# These need a deployed cluster: test_gpus.py has one.
DEPLOYED = ("shm", "head-ssh")
HERE = [name for name in COMMANDS if name not in DEPLOYED]
# Rounds of faults that hide others, or are measured between hosts.
APART = (
    {"gpu-driver-module": "gpu2", "engine": "gpu3", "python": "gpu4"},
    {"gpu-xid": "gpu2", "gpu-lost": "gpu2", "gpu-mode": "gpu3", "gpu-busy": "gpu4"},
    {"name-differs": "gpu2", "port-filtered": "gpu3", "path-mtu": "gpu4"},
    {"slow-link": "gpu2", "clock-offset": "gpu4"},
    {"one-way": "gpu3", "store-mount": "gpu2", "fuse-mount": "gpu4"},
)
# They contradict each other on one host.
PLACED = {
    "kernels": "gpu2",
    "gpu-next-kernel": "gpu4",
    "compose": "gpu3",
    "selinux": "gpu4",
    "infiniband": "gpu4",
    "gpu-peermem": "gpu3",
}
PAIRS = {check.id for check in CHECKS if check.measures}
# The finding also names hosts without the fault: those that share something with it, or are the other end.
SHARED = ("machine-id", "mac")

Findings = Mapping[str, Any]


class Round(NamedTuple):
    """What kit doctor found while hosts had these faults."""

    faults: Mapping[str, str]
    findings: Findings


def planned() -> list[Mapping[str, str]]:
    """Return rounds of faults, each with its host."""
    apart = {name for faults in APART for name in faults}
    together = [name for name in HERE if name not in apart]
    return [{name: PLACED.get(name, HOSTS[at % len(HOSTS)]) for at, name in enumerate(together)}, *APART]


def inject(folder: Path, name: str, host: str) -> None:
    kind, fault = COMMANDS[name].groups()
    if kind == "gpu":
        lab_gpu(host, NAME, folder=folder, fault=fault)
        return
    lab_fault(host, fault, name=NAME, folder=folder)
    if name == "machine-id":
        # It is that of another host.
        lab_fault(next(other for other in HOSTS if other != host), fault, name=NAME, folder=folder)


def repair(folder: Path, host: str) -> None:
    lab_fault(host, "all", name=NAME, folder=folder, mend=True)
    lab_gpu(host, NAME, folder=folder, mend=True)


def examine(folder: Path, *words: str) -> Findings:
    done = kit(folder, "doctor", "--json", *words)
    result = objects(done)[-1]
    assert result["kind"] == "doctor", done.stdout + done.stderr
    assert result["failed"] == []
    assert done.returncode == result["exit_code"]
    return {finding["id"]: finding for finding in result["findings"]}


@pytest.fixture(scope="module")
def folder(bases: object) -> Iterator[Path]:
    """Four hosts with pretended GPUs. Nothing is deployed, and no image is needed.

    At the rate of this machine's memory, a limit for what a host sends also slows what it receives: it sends answers.
    """
    with contextlib.ExitStack() as undo:
        here = Path(tempfile.mkdtemp(prefix=f"kit-{NAME}-"))
        undo.callback(shutil.rmtree, here, ignore_errors=True)
        undo.enter_context(taken_down(here, NAME))
        up = kit(here, "lab", "up", "--name", NAME, "--hosts", "4", "--gpus", "2", "--link-rate", "1gbit")
        assert up.returncode == 0, up.stderr
        yield here


@pytest.fixture(scope="module")
def clean(folder: Path) -> Findings:
    return examine(folder)


@pytest.fixture(scope="module")
def rounds(folder: Path, clean: Findings) -> Iterator[list[Round]]:
    """Each round's faults are repaired before the next one, and the last entry has no fault."""
    done: list[Round] = []
    with ThreadPoolExecutor(4) as pool:
        for faults in planned():
            list(pool.map(lambda pair: inject(folder, *pair), faults.items()))
            done.append(Round(faults, examine(folder, *([] if PAIRS & {*faults} else ["--pairs", "none"]))))
            list(pool.map(lambda host: repair(folder, host), HOSTS))
    done.append(Round({}, examine(folder)))
    yield done
    sys.stdout.write("\n| Check | Injected on | Named | After the repair |\n|---|---|---|---|\n")
    for one, after in pairwise(done):
        for name, host in one.faults.items():
            seen = one.findings.get(name, {"seen": ()})["seen"]
            named = "; ".join(f"{', '.join(sight['hosts'])}: {sight['seen']}" for sight in seen)
            sys.stdout.write(f"| `{name}` | {host} | {named} | {'named' if name in after.findings else 'silent'} |\n")


def test_clean_hosts_have_no_finding(clean: Findings) -> None:
    assert clean == {}, [finding["seen"] for finding in clean.values()]


@pytest.mark.parametrize("name", HERE)
def test_a_fault_is_named_with_its_host_and_not_after_its_repair(name: str, rounds: list[Round]) -> None:
    ((one, after),) = [(one, after) for one, after in pairwise(rounds) if name in one.faults]
    assert name in one.findings, f"found: {', '.join(one.findings)}"
    finding, host = one.findings[name], one.faults[name]
    named = {word for sight in finding["seen"] for word in sight["hosts"]}
    assert host in named
    if finding["area"] != "pair" and name not in SHARED:
        assert named == {host}, finding["seen"]
    assert name not in after.findings, after.findings[name]["seen"]


def test_nothing_is_left_of_the_faults(rounds: list[Round]) -> None:
    assert rounds[-1].findings == {}, [finding["seen"] for finding in rounds[-1].findings.values()]


def test_a_login_that_is_refused_is_a_finding(folder: Path) -> None:
    done = kit(folder, "doctor", "--ssh-user", "nobody", "--pairs", "none", "--json")
    (finding,) = objects(done)[-1]["findings"]
    assert (done.returncode, finding["id"]) == (4, "unreachable")
    assert [sight["hosts"] for sight in finding["seen"]] == [[f"gpu{n}"] for n in range(1, 5)]


def test_each_check_has_a_fault_here_or_another_test() -> None:
    """If this fails: what provokes the check is a command that this file does not know."""
    elsewhere = {"unreachable", "gpu-hook"}
    assert {check.id for check in CHECKS if check.lab} == {*COMMANDS, *elsewhere}
