"""What kit's elastic driver makes of the ends of ranks. Stand-ins take the place of Horovod's modules."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import elastic_driver, launcher

crew = launcher.load("kitelastic.crew")
main = launcher.load("kitelastic.main")

SLOT = SimpleNamespace(hostname="gpu2", rank=3, local_rank=1)
SLOT_FIELDS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
DISCOVERY = SimpleNamespace(doubt=lambda _name: None, trust=lambda _name: None, ordered=lambda *_: [])


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return kitelastic.driver."""
    for name, module in elastic_driver.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    yield launcher.load("kitelastic.driver")
    for name in ("kitelastic.driver", "kitelastic.hosts", "kitelastic.meeting"):
        # Another test may want Horovod's own.
        sys.modules.pop(name, None)


@pytest.fixture
def driver(made: Any) -> Any:
    """Return a driver none of whose ranks has used the elastic state."""
    return made.Driver(
        None, DISCOVERY, 1, None, timeout=1.0, launch=None, write=lambda _data: None, tell=lambda **_: None
    )


def test_a_failed_rank_without_state_ends_the_run(driver: Any) -> None:
    driver._handle_worker_exit(SLOT, 1, 0.0)
    assert (driver.refused, driver.first, driver.finished()) == (True, (3, "gpu2", 1), True)


def test_a_first_rank_that_did_not_start_says_nothing_about_the_script(driver: Any) -> None:
    """A host with a full disk cannot make the working folder. kit said that the script has no elastic state."""
    script = "cat >/dev/null & echo 'kit-code: gpu2: the disk is full' >&2; exit 4"
    driver._launch = lambda slot: crew.Worker(("gpu2", 1), slot.rank, ["sh", "-c", script], {})
    driver._handle_worker_exit(SLOT, *driver._create(SLOT, []))
    assert (driver.refused, driver.everywhere, driver.finished()) == (False, "rank 3 did not start on gpu2", True)


def test_ranks_that_a_person_ends_while_they_start_are_no_failure(driver: Any) -> None:
    """kit would say that the script has no elastic state, and would end the others before their grace is over."""
    driver.stopping = True
    driver._handle_worker_exit(SLOT, 143, 0.0)
    assert (driver.refused, driver.first, driver.finished()) == (False, None, False)
    assert driver.ends == [("gpu2", 143)]


def test_a_rank_gets_its_hosts_own_values(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """gpu2 came later: the run holds other slots there than on the hosts with which it began."""
    monkeypatch.setattr(crew, "argv_of", lambda *_: ["sh", "-c", "head -n 1 >&2; cat >/dev/null &"])
    gpu2 = {"address": "127.0.0.2", "slots": 1, "env": {"KIT_HELD_SLOTS": "gpu2=1", "KIT_CPU_SLOTS": ""}}
    hosts = {"gpu1": {"address": "127.0.0.1", "slots": 1}, "gpu2": gpu2}
    start = {"run": "r", "head": "gpu1", "address": "127.0.0.1", "hosts": hosts, "code": "", "began": 1.0}
    first = {"KIT_HELD_SLOTS": "gpu1=0", "KIT_CPU_SLOTS": "gpu1=0/2"}
    args = main.arguments(["--min-np", "1", *(word for name in first for word in ("-x", name)), "--", "true"])
    run = main.Elastic(args, start, SimpleNamespace(write=None, tell=None), first)
    run.driver._host_assignments = hosts
    try:
        for number, (host, expected) in enumerate((("gpu1", first), ("gpu2", {"KIT_HELD_SLOTS": "gpu2=1"}))):
            slot = SimpleNamespace(hostname=host, **dict.fromkeys(SLOT_FIELDS, 0))
            orders: list[bytes] = []
            run.driver._launch(slot).run([], orders.append)
            env = json.loads(b"".join(orders))["env"]
            assert {name: env[name] for name in first if name in env} == expected
            # From this, kit-rank sets NODE_RANK.
            assert env["GROUP_RANK"] == str(number)
    finally:
        run.server.stop()


RECORD = r"printf '\036kit-line 3 u . 8\ngpu2 71\n\036kit-line 3 x . 13\ngpu2 255 0 0\n' >&2; "


@pytest.mark.parametrize(
    ("script", "refused", "event"),
    [
        (RECORD + "exit 255", True, {"exit_code": 255, "reported": True}),
        ("exit 255", False, {"exit_code": 255, "reported": False}),
    ],
)
def test_a_rank_may_end_with_the_exit_code_of_ssh(
    made: Any, driver: Any, script: str, refused: bool, event: dict[str, Any]
) -> None:
    """sys.exit(-1) is 255. A run whose script did that was said to have lost its host."""
    driver._launch = lambda slot: crew.Worker(("gpu2", 1), slot.rank, ["sh", "-c", "cat >/dev/null & " + script], {})
    driver._handle_worker_exit(SLOT, *driver._create(SLOT, []))
    assert driver.refused is refused
    assert made.failed(driver.first) == {"failed": {"rank": 3, "host": "gpu2", **event}}
