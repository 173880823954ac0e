"""Elastic runs on the head and the nodes, without Horovod: hosts, the desk, kit-worker, and what ranks may report."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import io
import json
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import launcher, rendezvous
from tests.fakes.head import Door, Head, MakeHead, until
from tests.sockets import own_addresses
from tests.unit.images.test_decide import record

desk = launcher.load("kitelastic.desk")
elastic = launcher.load("kitrun.elastic")
plain = launcher.load("kitelastic.plain")
gate = launcher.load("kitqueue.gate")
line = launcher.load("kitqueue.line")
order = launcher.load("kitqueue.order")
crew = launcher.load("kitelastic.crew")
ending = launcher.load("kitelastic.ending")
oldest = launcher.load("kitelastic.oldest")
shim = launcher.load("kitelastic.shim")
idle: Any = launcher.load("kitrun.idle")
metrics = launcher.load("kitrun.metrics")
store = launcher.load("kitrun.store")
supervise = launcher.load("kitrun.supervise")


def place(number: int, *slots: int, **more: Any) -> dict[str, Any]:
    held = slots or (0,)
    return {"node": f"gpu{number}", "address": f"10.0.0.{number}", "ranks": len(held), "slots": [*held], **more}


# What ranks write


def world(name: str, *ranks: tuple[str, int]) -> bytes:
    hosts = [[host, sum(other == host for other, _ in ranks)] for host in dict.fromkeys(host for host, _ in ranks)]
    return json.dumps({"event": name, "hosts": hosts, "ranks": ranks}).encode() + b"\n"


def test_ranks_keep_their_lines_when_a_reset_gives_them_other_numbers() -> None:
    output = elastic.ElasticOutput()
    hosts = ("gpu1", "gpu2", "gpu3")
    output.errors(b"".join(record(rank, "u", host.encode() + b" 9") for rank, host in enumerate(hosts)))
    output.standard(world("formed", ("gpu1", 0), ("gpu2", 0), ("gpu3", 0)))
    output.errors(b"".join(record(rank, "e", host.encode()) for rank, host in enumerate(hosts)))
    output.standard(world("reset", ("gpu1", 0), ("gpu3", 0)))
    assert [output.last_lines(rank) for rank in range(3)] == [["gpu1"], ["gpu3"], []]
    # Another rank starts on a host that comes back. Its number was that of a rank that is gone.
    output.errors(record(2, "e", b"late") + record(2, "u", b"gpu2 10") + record(2, "e", b"new"))
    output.standard(world("reset", ("gpu1", 0), ("gpu3", 0), ("gpu2", 0)))
    assert [output.last_lines(rank) for rank in range(3)] == [["gpu1"], ["gpu3"], ["new"]]


# Hosts


def test_hosts_that_nobody_drops_cordons_or_has_lost_are_used() -> None:
    places = [place(1, 0, 1), place(2), place(3, leaving=True), place(4)]
    assert elastic.usable(places, {"gpu2": {"why": "slow"}}, ["gpu4"], []) == {
        "gpu1": {"address": "10.0.0.1", "slots": 2}
    }


def test_ranks_on_a_cordoned_host_go_on() -> None:
    cordons = {"gpu2": {"why": "slow"}}
    assert list(elastic.usable([place(1), place(2)], cordons, [], ["gpu1", "gpu2"])) == ["gpu1", "gpu2"]
    assert list(elastic.usable([place(1), place(2)], cordons, [], ["gpu1"])) == ["gpu1"]


def test_a_host_that_comes_later_has_its_own_gpus() -> None:
    later = desk.place_of(place(2, 1, of=2, env={"KIT_HELD_SLOTS": "gpu2=1", "LD_PRELOAD": "/tmp/x.so"}))
    assert later["env"] == {"KIT_HELD_SLOTS": "gpu2=1"}
    usable = elastic.usable([place(1), later], {}, [], [])
    assert ("env" in usable["gpu1"], usable["gpu2"]["env"]) == (False, later["env"])
    assert elastic.held_slots([place(1), later], "gpu1=0 gpu2=0") == "gpu1=0 gpu2=1"
    assert elastic.held_slots([place(2, 0, 1, env={"KIT_HELD_SLOTS": ""})], "gpu2=0") == ""
    # Two ranks with one GPU each hold the one slot that means both.
    assert desk.place_of({**place(2, 0, of=2), "ranks": 2})["ranks"] == 2


def test_hosts_come_and_leave() -> None:
    both, why = desk.changed([place(1)], [place(2, 0, 1)], [], least=1)
    assert (both, why) == ([place(1), place(2, 0, 1, out=True)], "")
    both = desk.in_world(both, ["gpu1", "gpu2"])
    assert both == [place(1), place(2, 0, 1)]
    left, why = desk.changed(both, [], ["gpu1"], least=2)
    assert (left, why) == ([place(1, leaving=True), place(2, 0, 1)], "")
    assert desk.changed(left, [place(1)], [], least=2) == (both, "")
    assert desk.in_world(left, ["gpu1", "gpu2"]) == left
    assert desk.in_world(left, ["gpu2"]) == [place(2, 0, 1)]


def test_hosts_without_ranks_leave_and_do_not_stand_in_for_others() -> None:
    places = desk.in_world([place(1), place(2), place(3)], ["gpu1"])
    assert places == [place(1), place(2, out=True), place(3, out=True)]
    assert desk.changed(places, [], ["gpu1"], least=1)[1] == "0 slots with ranks would be left, and --min-np is 1"
    assert desk.changed(places, [], ["gpu2"], least=2)[0][1] == place(2, out=True, leaving=True)


@pytest.mark.parametrize(
    ("drop", "least", "why"),
    [
        (["gpu9"], 1, "gpu9: not a host of the run"),
        (["gpu2"], 2, "1 slots with ranks would be left, and --min-np is 2"),
        (["gpu1", "gpu2"], 1, "0 slots with ranks would be left, and --min-np is 1"),
    ],
)
def test_hosts_that_must_stay(drop: list[str], least: int, why: str) -> None:
    assert desk.changed([place(1), place(2)], [], drop, least=least) == ([], why)


@pytest.mark.parametrize(
    "bad", [{}, place(1) | {"ranks": 0}, place(1) | {"ranks": 2}, place(1) | {"slots": ["x"]}, {"node": "gpu1"}]
)
def test_what_is_no_place(bad: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        desk.place_of(bad)


@pytest.fixture
def living(tmp_path: Path) -> Any:
    """Return a run that lives as long as this test, with gpu1 and gpu2."""
    run = store.Run("20261121-101500-0001", str(tmp_path))
    record = {"id": run.id, "places": [place(1), place(2)], "elastic": {"min_np": 1, "max_np": 4}}
    lock = run.create(record)
    yield run
    os.close(lock)


def test_the_desk_changes_the_record(living: Any, tmp_path: Path) -> None:
    request = {"add": [place(3) | {"more": "ignored"}], "drop": ["gpu2"]}
    answer = desk.change(living, request, str(tmp_path))
    assert [p["node"] for p in answer["changed"]["places"]] == ["gpu1", "gpu2", "gpu3"]
    assert living.record["places"] == [place(1), place(2, leaving=True), place(3, out=True)]
    # gpu3 starts ranks once those of gpu2 have left, so there were never three.
    living.change_places(desk.in_world(living.record["places"], ["gpu1", "gpu3"]))
    living.change_places([place(1)])
    assert living.record["most_np"] == 2


def test_a_run_whose_hosts_change_does_not_become_the_latest(living: Any, tmp_path: Path) -> None:
    other = store.Run("20261121-101500-0000", str(tmp_path))
    lock = other.create({"id": other.id, "places": [place(3)]})
    try:
        began = Path(living.path("record.json")).stat().st_mtime_ns
        os.utime(other.path("record.json"), ns=(began + 1, began + 1))
        assert "changed" in desk.change(living, {"add": [], "drop": ["gpu2"]}, str(tmp_path))
        assert store.find("", str(tmp_path)).id == other.id
    finally:
        os.close(lock)


def test_the_desk_gives_no_slot_twice(living: Any, tmp_path: Path) -> None:
    other = store.Run("20261121-101500-0002", str(tmp_path))
    lock = other.create({"id": other.id, "places": [place(3)]})
    try:
        answer = desk.change(living, {"add": [place(3)], "drop": []}, str(tmp_path))
    finally:
        os.close(lock)
    assert [holder["id"] for holder in answer["held"]] == [other.id]
    assert living.record["places"] == [place(1), place(2)]


def test_the_desk_adds_no_cordoned_host(living: Any, tmp_path: Path) -> None:
    (tmp_path / ".queue").mkdir()
    line.write_cordons({"gpu3": {"why": "slow"}}, str(tmp_path))
    answer = desk.change(living, {"add": [place(3)], "drop": ["gpu1"]}, str(tmp_path))
    assert answer == {"cordoned": {"gpu3": {"why": "slow"}}}
    assert living.record["places"] == [place(1), place(2)]


def test_a_dropped_host_without_ranks_does_not_come_back_while_it_is_cordoned(living: Any, tmp_path: Path) -> None:
    """It would hold its slots, and no rank would start there. A host whose ranks have not left keeps them."""
    (tmp_path / ".queue").mkdir()
    line.write_cordons({"gpu2": {"why": "slow"}}, str(tmp_path))
    living.change_places([place(1), place(2, leaving=True, out=True)])
    answer = desk.change(living, {"add": [place(2)], "drop": []}, str(tmp_path))
    assert answer == {"cordoned": {"gpu2": {"why": "slow"}}}
    assert living.record["places"] == [place(1), place(2, leaving=True, out=True)]
    living.change_places([place(1), place(2, leaving=True)])
    answer = desk.change(living, {"add": [place(2)], "drop": []}, str(tmp_path))
    assert answer["changed"]["places"] == [place(1), place(2)]


def test_the_desk_takes_no_slot_from_the_first_in_line(
    living: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = order.Reservation("20261121-101500-0009", {"gpu3": frozenset([0])}, None, ())
    monkeypatch.setattr(gate, "reserved", lambda _: first)
    answer = desk.change(living, {"add": [place(3)], "drop": []}, str(tmp_path))
    assert answer == {"reserved": {"id": first.id, "slots": {"gpu3": [0]}, "left": None}}
    # It holds these slots already.
    answer = desk.change(living, {"add": [place(2)], "drop": []}, str(tmp_path))
    assert answer["changed"]["places"] == [place(1), place(2)]


def test_only_an_elastic_run_changes(tmp_path: Path) -> None:
    run = store.Run("20261121-101500-0003", str(tmp_path))
    lock = run.create({"id": run.id, "places": [place(1)]})
    try:
        assert "not elastic" in desk.change(run, {"add": [], "drop": []}, str(tmp_path))["failed"]
    finally:
        os.close(lock)
    assert desk.change(run, {"add": [], "drop": []}, str(tmp_path))["over"]["id"] == run.id


# Which rank has the state


def test_rank_0_has_the_trainings_state() -> None:
    hosts = ["gpu2", "gpu3"]
    # At the start, and where every rank is equally old, Horovod's order stays.
    assert oldest.lead(hosts, {}) is None
    assert oldest.lead(hosts, {("gpu2", 0): 0, ("gpu2", 1): 0}) is None
    assert oldest.lead(hosts, {("gpu3", 0): 4, ("gpu2", 1): 4, ("gpu2", 0): 4}) == ("gpu2", 0)
    # A rank that started again in the first slot has no state.
    assert oldest.lead(hosts, {("gpu2", 0): 0, ("gpu2", 1): 4}) == ("gpu2", 1)
    assert oldest.lead(hosts, {("gpu2", 0): 1, ("gpu2", 1): 5}) == ("gpu2", 1)
    # It may be gone from the first host, or be on a host that leaves.
    assert oldest.lead(hosts, {("gpu2", 0): 1, ("gpu3", 1): 2, ("gpu9", 0): 7}) == ("gpu3", 1)
    assert oldest.first(hosts, "gpu3") == ["gpu3", "gpu2"]


def test_hosts_stay_where_ranks_failed_on_every_host() -> None:
    failed = {("gpu2", 0), ("gpu3", 1)}
    assert oldest.spared(failed, {("gpu2", 1), ("gpu3", 0)}) == {"gpu2", "gpu3"}
    assert oldest.spared({("gpu2", 0), ("gpu3", 0), ("gpu3", 1)}, {("gpu2", 1)}) == {"gpu2"}
    # One host has no failure, so the others may rest.
    assert oldest.spared(failed, {("gpu2", 1), ("gpu4", 0)}) == set()
    assert oldest.spared(failed, set()) == set()


def test_a_script_that_always_fails_everywhere_ends() -> None:
    spares = oldest.Spares()
    assert [spares.another(5.0) for _ in range(3)] == [True] * 3
    assert spares.why() == "ranks failed on every host"
    assert spares.another(oldest.STEADY_S)
    assert [spares.another(5.0) for _ in range(3)] == [True, True, False]
    assert "4 times in a row" in spares.why()


# What ranks may report


# What code in a report would leave.
MARK = Path(tempfile.gettempdir()) / f"kit-test-evil-{os.getpid()}"


@pytest.fixture
def unmarked() -> Iterator[None]:
    yield
    MARK.unlink(missing_ok=True)


def reported(value: object) -> bytes:
    return base64.b64encode(pickle.dumps(value))


def test_a_rank_reports_its_own_addresses_and_a_key() -> None:
    value = reported(({"eth0": [("10.0.0.2", 4000)], "docker0": [("172.17.0.1", 4000)]}, b"key"))
    assert plain.addresses_of(value, "10.0.0.2") == ({"kit": [("10.0.0.2", 4000)]}, b"key")


class Evil:
    """Runs code where it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {MARK}",)


@pytest.mark.usefixtures("unmarked")
@pytest.mark.parametrize(
    "value",
    [
        reported(Evil()),
        reported(({"eth0": [Evil()]}, b"key")),
        reported(({"eth0": [("10.0.0.9", 4000)]}, b"key")),
        reported(({"eth0": [("10.0.0.2", 4000)]}, "no bytes")),
        reported((["eth0"], b"key")),
        reported(({"eth0": [("10.0.0.2", 4000)]}, b"x" * plain.MOST)),
        b"not base64 of a pickle",
        b"",
    ],
    # Not from the values: some have this process's number, and all workers must have the same names.
    ids=["code", "code inside", "another address", "no key", "no addresses", "too long", "no pickle", "nothing"],
)
def test_what_a_rank_may_not_report(value: bytes) -> None:
    with pytest.raises(plain.Refused):
        plain.addresses_of(value, "10.0.0.2")
    assert not MARK.exists()


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return kitelastic.meeting, with stand-ins for Horovod's modules."""
    for name, module in rendezvous.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    yield launcher.load("kitelastic.meeting")
    # Another test may want Horovod's own.
    sys.modules.pop("kitelastic.meeting")


def test_the_rendezvous_server_has_one_address_and_answers_the_runs_hosts(meeting: Any) -> None:
    here, stranger, outside = own_addresses(3)
    driver = rendezvous.Driver()
    server = meeting.Server(here)
    port = server.start(meeting.handler_of(driver, {here}, lambda: None))
    try:
        other, own = (reported(({"eth0": [(at, 4000)]}, b"key")) for at in (stranger, here))
        for source, value, status in ((stranger, other, b""), (here, other, b""), (here, own, b"200")):
            with socket.create_connection((here, port), timeout=60, source_address=(source, 0)) as peer:
                head = b"PUT /worker_addresses/gpu2:0 HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(value)
                peer.sendall(head + value)
                answer = b""
                with contextlib.suppress(ConnectionResetError):
                    answer = peer.recv(100)
            assert answer.split()[1:2] == [status][: len(status)], (source, answer)
        assert driver.registered == [("gpu2", 0, {"kit": [(here, 4000)]}, b"key")]
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((outside, port), timeout=60)
    finally:
        server.stop()


def answered(key: bytes, value: object) -> io.BytesIO:
    """Return what the notification service of a rank that has this key would send."""
    message = pickle.dumps(value)
    return io.BytesIO(rendezvous.digest(key, message) + struct.pack("i", len(message)) + message)


@pytest.mark.usefixtures("unmarked")
def test_an_answer_of_a_rank_is_plain_data_or_one_of_horovods(meeting: Any) -> None:
    """The rank chose the key itself, so it can sign anything."""
    wire = meeting.Wire(b"key")
    for bad in (answered(b"key", Evil()), answered(b"other", "x"), answered(b"key", "x" * meeting.MOST)):
        with pytest.raises(meeting.Refused):
            wire.read(bad)
    assert not MARK.exists()
    assert wire.read(answered(b"key", rendezvous.PingResponse("rank", "10.0.0.1"))).service_name == "rank"


# kit-worker


class Slot:
    hostname, rank, size, local_rank, local_size, cross_rank, cross_size = "gpu2", 3, 4, 1, 2, 1, 2


def test_an_order_has_the_ranks_numbers_and_where_they_meet() -> None:
    start = {"run": "r", "env": {"MINE": "x"}, "argv": ["python", "train.py"], "wdir": "", "code": "", "began": 1.0}
    order = crew.order_of(start, Slot(), {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1"}, ["gpu1", "gpu2"])
    expected = {"MINE": "x", "HOROVOD_RANK": "3", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_HOSTNAME": "gpu2", "RANK": "3"}
    assert expected.items() <= order["env"].items()
    assert order["env"]["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "10.0.0.1"
    assert (order["run"], order["argv"], order["env"]["GROUP_RANK"]) == ("r", ["python", "train.py"], "1")


def test_an_order_says_where_a_rank_runs_and_in_which_code() -> None:
    start = {"run": "r", "env": {}, "argv": ["true"]}
    more = {"wdir": "/data/a b", "code": "1f2e3d", "began": 7.5}
    assert crew.order_of({**start, **more, "other": 1}, Slot(), {}, ["gpu2"]).items() >= more.items()
    order = crew.order_of(start, Slot(), {}, ["gpu2"])
    assert order.keys() == {"run", "env", "argv"}


@pytest.mark.parametrize(
    ("hosts", "watched"), [(["gpu2"], False), (["gpu1", "gpu2"], True), (["gpu1", "gpu2", "gpu3"], True)]
)
def test_the_nccl_of_a_rank_is_watched_from_the_second_host_on(hosts: list[str], watched: bool) -> None:
    """On one host, NCCL names a network that it does not use. That may be one which the run refuses."""
    start = {"run": "r", "env": {"KIT_NCCL_NETWORK": "IB"}, "argv": ["python", "train.py"]}
    order = crew.order_of(start, Slot(), {}, hosts)
    assert ("KIT_NCCL_NETWORK" in order["env"]) == watched
    # Other ranks of the run get it from the same start.
    assert start["env"] == {"KIT_NCCL_NETWORK": "IB"}


def test_the_head_needs_no_ssh_and_nothing_secret_is_an_argument() -> None:
    assert crew.argv_of("gpu1", "10.0.0.1", "gpu1")[0] == "python3"
    words = crew.argv_of("gpu2", "10.0.0.2", "gpu1")
    assert words[0] == "ssh"
    assert words[words.index("--") + 1 :] == ["10.0.0.2", "python3", "-IS", "/opt/kit/bin/kit-worker"]
    assert not [word for word in words if "StrictHostKeyChecking" in word]


def test_a_ranks_variables_come_through_standard_input() -> None:
    """Every user of the VM can read the arguments of a process."""
    script = "tr '\\0' ' ' </proc/$$/cmdline >&2; echo / >&2; head -n 1 >&2"
    worker = crew.Worker(("gpu2", 0), 0, ["sh", "-c", script], {"env": {"TOKEN": "s3cret"}})
    said: list[bytes] = []
    assert worker.run([], said.append) == 0
    arguments, _, order = b"".join(said).partition(b" /\n")
    assert b"s3cret" not in arguments
    assert json.loads(order) == {"env": {"TOKEN": "s3cret"}}


WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from kitelastic import shim
shim.BIN = sys.argv[2]
sys.exit(shim.main())
"""


def worker(run: str, *argv: str, **env: str) -> subprocess.Popen[bytes]:
    """Start kit-worker with an order for this command."""
    order = {"run": run, "env": {"KIT_RUN": run, "KIT_AGENT": "elastic", "RANK": "2", **env}, "argv": argv}
    process = subprocess.Popen(
        [sys.executable, "-IS", "-c", WORKER, str(launcher.LIB), str(launcher.BIN)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "KIT_NODE": "gpu2", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert process.stdin
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    return process


@pytest.mark.parametrize("network", ["IB", None])
def test_only_its_order_says_whether_the_nccl_of_a_rank_on_the_head_is_watched(
    network: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kit-worker is a child of kit-elastic, which has the variables of the run from the supervisor."""
    monkeypatch.setenv("KIT_NCCL_NETWORK", "IB")
    env = {"RANK": "0"} if network is None else {"RANK": "0", "KIT_NCCL_NETWORK": network}
    order = {"run": "elastic-2", "env": env, "argv": ["sh", "-c", "echo ${KIT_NCCL_NETWORK-none}"]}
    argv = [sys.executable, "-IS", "-c", WORKER, str(launcher.LIB), str(launcher.BIN)]
    output: list[bytes] = []
    assert crew.Worker(("gpu1", 0), 0, argv, order).run([], output.append) == 0
    assert b"".join(output) == f"{network or 'none'}\n".encode()


def test_a_worker_runs_its_rank_and_ends_with_its_code() -> None:
    process = worker("elastic-1", "sh", "-c", "echo $MINE $RANK; exit 7", MINE="a 'b")
    assert process.stderr
    said = process.stderr.read()
    assert process.wait(60) == 7
    assert b"kit-line 2 o . 7\na 'b 2\n" in said
    assert b"gpu2 7 0 0" in said


def test_the_end_of_its_input_ends_the_rank() -> None:
    process = worker("elastic-2", "sh", "-c", "trap 'echo saved; exit 3' TERM; echo up; while :; do sleep 0.1; done")
    assert process.stderr
    assert process.stdin
    said = b""
    while b"up\n" not in said:
        said += os.read(process.stderr.fileno(), 4096)
    process.stdin.close()
    assert b"saved\n" in process.stderr.read()
    assert process.wait(60) == 3


def test_a_rank_that_ignores_it_is_killed() -> None:
    process = worker("elastic-3", "sh", "-c", "trap '' TERM; echo $$ here; while :; do sleep 0.1; done")
    assert process.stderr
    assert process.stdin
    said = b""
    while b" here\n" not in said:
        said += os.read(process.stderr.fileno(), 4096)
    pid = int(said.partition(b" here\n")[0].split()[-1])
    process.stdin.close()
    process.stderr.read()
    assert process.wait(60) == 128 + signal.SIGKILL
    until(lambda: not Path(f"/proc/{pid}").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z")


def test_a_rank_that_is_there_does_not_hold_up_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store.Run("elastic-4", str(tmp_path))
    monkeypatch.setattr(store, "ROOT", str(tmp_path))
    Path(run.folder).mkdir()
    rank = os.open(run.folder, os.O_RDONLY)
    try:
        fcntl.flock(rank, fcntl.LOCK_SH)
        said = shim.seed({"run": run.id, "code": "0" * 64, "began": 1.0})
    finally:
        os.close(rank)
    assert said, "a snapshot that is not here was found"


@pytest.mark.parametrize("text", [b"[]\n", b"{}\n", b"no json\n", b'{"env": 3}\n'])
def test_what_is_no_order(text: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-IS", "-c", WORKER, str(launcher.LIB), str(launcher.BIN)],
        input=text,
        capture_output=True,
        check=False,
    )
    assert (done.returncode in (0, 2), b"Traceback" in done.stderr) == (True, False)


# The supervisor's side


FAKE = """
import json, os, subprocess, sys, time

def tell(**event):
    os.write(1, json.dumps(event).encode() + b"\\n")

def record(rank, kind, body):
    os.write(2, b"\\x1ekit-line %d %s . %d\\n%s" % (rank, kind, len(body), body))

def words():
    return json.loads(sys.stdin.readline())

start = words()["start"]
assert "TOKEN" in os.environ
tell(event="formed", hosts=[["gpu1", 1], ["gpu2", 1]], np=2)
record(1, b"x", b"gpu2 1 0 0")
tell(event="reset", hosts=[["gpu1", 1]], joined=[], left=["gpu2"], np_before=2, np=1, seconds=0.5)
print("no event")
tell(event="strange")
os.write(2, b"hosts %s\\n" % json.dumps(sorted(start["hosts"])).encode())
"""


def elastic_run(head: Head, rest: str, *, begin: str = FAKE) -> tuple[Door, dict[str, Any]]:
    program = head.folder / "kit-elastic.py"
    program.write_text(begin + rest)
    places = [place(1), place(2)]
    settings = {"address": "10.0.0.1", "min_np": 1, "max_np": 4}
    info = {"command": ["true"], "elastic": settings}
    return head.run(
        sys.executable, str(program), places=places, elastic=settings, info=info, env={"TOKEN": "s3cr3t"}
    )  # fmt: skip


def test_a_rank_that_failed_before_a_reset_is_no_failure_of_the_run(head: Head) -> None:
    head.ssh()
    door, _ = elastic_run(head, "")
    story = door.story()
    assert (story.code, story.ending["failure"]) == (0, None)
    assert story.events("reset")[0]["left"] == ["gpu2"]
    assert not story.events("strange")
    assert 'hosts ["gpu1", "gpu2"]' in story.mpirun


def test_the_end_of_all_hosts_is_the_failure(head: Head) -> None:
    head.ssh()
    door, _ = elastic_run(head, 'tell(event="over", why="no host is left", host="gpu2"); sys.exit(3)')
    story = door.story()
    failure = story.ending["failure"]
    assert (story.code, failure["kind"], failure["host"], failure["lines"]) == (3, "host", "gpu2", ["no host is left"])


def test_changed_hosts_reach_the_driver_and_dropped_ones_give_their_slots_back(head: Head) -> None:
    head.ssh()
    rest = """
words()
tell(event="reset", hosts=[["gpu1", 1], ["gpu3", 1]], joined=["gpu3"], left=[], np_before=1, np=2, seconds=0.5)
hosts = words()["hosts"]
os.write(2, b"then %s\\n" % json.dumps(sorted(hosts)).encode())
tell(event="reset", hosts=[["gpu3", 1]], joined=[], left=["gpu1"], np_before=2, np=1, seconds=0.5)
while words() != {"stop": True}: pass
os.write(2, b"asked to stop\\n")
"""
    door, answer = elastic_run(head, rest)
    run = answer["started"]
    until(lambda: b'"reset"' in head.log())
    changed = head.door().ask({"op": "hosts", "id": run, "add": [place(3)], "drop": []})
    assert len(changed["changed"]["places"]) == 3
    until(lambda: head.log().count(b'"reset"') == 2)
    head.door().ask({"op": "hosts", "id": run, "add": [], "drop": ["gpu1", "gpu2"]})
    record = head.runs / run / "record.json"
    until(lambda: [p["node"] for p in json.loads(record.read_text())["places"]] == ["gpu3"])
    stop = head.door().ask({"op": "stop", "id": run, "grace": 0.1})
    assert stop["stopping"]["id"] == run
    story = door.story()
    assert {'then ["gpu3"]', "asked to stop"} <= set(story.mpirun)
    assert story.ending["stopped"]


def test_a_lost_host_that_is_dropped_gives_its_slots_back_at_once(make_head: MakeHead) -> None:
    head = make_head(attempt_GUARD_AFTER_S=0.0, nodes_LOST_S=0.6, elastic_LOOK_S=0.05)
    head.ssh("exec sleep 600")
    door, answer = elastic_run(head, 'while words() != {"stop": True}: pass')
    until(lambda: b'"reset"' in head.log() and b'"lost"' in head.log())
    record = head.runs / answer["started"] / "record.json"
    until(lambda: json.loads(record.read_text())["places"][1].get("out"))
    head.door().ask({"op": "hosts", "id": answer["started"], "add": [], "drop": ["gpu2"]})
    until(lambda: [p["node"] for p in json.loads(record.read_text())["places"]] == ["gpu1"])
    door.stop(grace=0.0)
    assert door.story().ending["stopped"]


def test_a_full_disk_of_the_head_ends_no_run_at_a_reset(make_head: MakeHead) -> None:
    head = make_head(elastic_LOOK_S=0.05)
    head.ssh()
    # No record can be written where a folder has the name of the new file.
    blocked = f"start = words()['start']\nos.mkdir('{head.runs}/%s/record.json.new' % start['run'])"
    begin = FAKE.replace('start = words()["start"]', blocked)
    door, answer = elastic_run(head, 'while words() != {"stop": True}: pass', begin=begin)
    until(lambda: b'"reset"' in head.log())
    folder = head.runs / answer["started"]
    assert "out" not in json.loads((folder / "record.json").read_text())["places"][1]
    (folder / "record.json.new").rmdir()
    until(lambda: json.loads((folder / "record.json").read_text())["places"][1].get("out"))
    door.stop(grace=0.0)
    assert door.story().ending["stopped"]


def attempt(folder: Path, **policy: Any) -> Any:
    """Return an attempt on gpu1 and gpu2 that nobody has started, and whose log is a list."""
    launch = supervise.launch_of(
        {"argv": ["kit-elastic"], "env": {}, "hostfile": "", "places": [place(1), place(2)], "head": "gpu1",
         "elastic": {"address": "10.0.0.1"}}
    )  # fmt: skip
    (folder / "r").mkdir(exist_ok=True)
    return elastic.ElasticAttempt(
        store.Run("r", str(folder)), launch, policy, SimpleNamespace(write=list[bytes]().append),
        number=1, run_began=0.0, ports=set(), recorder=metrics.Recorder(str(folder / "metrics.jsonl"), ""),
    )  # fmt: skip


def event(name: str, *hosts: tuple[str, int]) -> bytes:
    return json.dumps({"event": name, "hosts": hosts, "np": sum(count for _, count in hosts)}).encode() + b"\n"


def test_a_run_that_has_started_may_have_fewer_ranks_later(tmp_path: Path) -> None:
    """--start-timeout is about the start, and no host that fails hours later ends the run by it."""
    running, late = attempt(tmp_path, start_timeout=60.0), time.monotonic() + 3600
    running.output.standard(event("formed", ("gpu1", 1), ("gpu2", 1)) + event("reset", ("gpu1", 1)))
    assert running._reason_to_stop(late) is None
    silent = attempt(tmp_path, start_timeout=60.0)
    silent._report = lambda why: None
    assert "0 of 2 ranks were up" in silent._reason_to_stop(late).why


def test_why_the_driver_ends_counts_also_if_it_is_read_after_the_last_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver wrote it and ended during a look, so it was read after the end. The failure had no reason."""

    def watch(running: Any, _: object) -> None:
        running.output.standard(b'{"event": "over", "why": "no host is left", "host": "gpu2"}\n')
        running.code = 3

    running = attempt(tmp_path)
    monkeypatch.setattr(elastic.Attempt, "_watch", watch)
    running._watch(SimpleNamespace(stdin=None))
    failure = running.failure()
    assert (failure["kind"], failure["host"], failure["lines"]) == ("host", "gpu2", ["no host is left"])


def test_idle_gpus_are_those_of_the_present_hosts(tmp_path: Path) -> None:
    """A run that worked on new hosts was ended, because the GPUs of its first ones did nothing."""
    running = attempt(tmp_path, idle_gpu=30.0)
    running.guarded = True
    names = ("gpu1", "gpu2", "gpu3")
    running.nodes = [SimpleNamespace(name=name, gpus=None, over=0, send=lambda _: True) for name in names]
    running.output.standard(event("formed", ("gpu1", 1), ("gpu2", 1)) + event("reset", ("gpu3", 1)))
    began = time.monotonic()
    for turn, (use, ends) in enumerate([(90.0, False), (90.0, False), (90.0, False), (0.0, False), (0.0, True)]):
        for node in running.nodes:
            node.gpus = [[0, use if node.name == "gpu3" else 0.0]]
        assert (running._reason_to_stop(began + 60 + turn * 2 * idle.EVERY_S) is not None) is ends, turn


def test_a_dropped_host_adds_nothing_to_what_the_run_used(tmp_path: Path) -> None:
    """Its guard goes on, and so did its readings: other runs there counted."""
    running = attempt(tmp_path)
    running.nodes = [
        SimpleNamespace(name=f"gpu{number}", reading=None, sent=[], open=lambda: None) for number in (1, 2)
    ]
    for node in running.nodes:
        node.send = node.sent.append
    sizes = dict.fromkeys(("memory", "cores", "host_memory", "host_memory_size", *metrics._COUNTERS), 1)
    turns = [([place(1), place(2)], 10, 1), ([place(1)], 1000, 9), ([place(1), place(2)], 2000, 2), (None, 2030, 3)]
    for turn, (places, received, memory) in enumerate(turns):
        if places is not None:
            (tmp_path / "r" / "record.json").write_text(json.dumps({"places": places}))
        running._look_at_hosts(turn * 60.0 + 60.0)
        for node in running.nodes:
            node.reading = {**sizes, "cpu": None, "gpus": [], "received": received, "memory": memory}
        running._recorder.tick(turn * 60.0, running.nodes, running._dropped)
    used = running._recorder.summary()["hosts"]
    # Neither what others received on gpu2 meanwhile, nor what they used there.
    assert [(used[name]["received"], used[name]["memory_peak"]) for name in ("gpu1", "gpu2")] == [(2020, 9), (30, 3)]
    assert [len(node.sent) for node in running.nodes] == [4, 3]


def test_the_use_of_a_new_host_is_that_of_the_runs_own_gpus(tmp_path: Path) -> None:
    """The GPUs of other runs there counted, too."""
    running = attempt(tmp_path)
    # Its only slot means two of three GPUs.
    fields = {"places": [place(1, 0), place(2, 0), {**place(3, 0), "env": {"KIT_HELD_SLOTS": "gpu3=1,2"}}]}
    (tmp_path / "r" / "record.json").write_text(json.dumps(fields))
    running._look_at_hosts(time.monotonic())
    sizes = dict.fromkeys(("memory", "cores", "host_memory", "host_memory_size", *metrics._COUNTERS), 1)
    gpus = [{"index": index, "use": use, "memory": 1, "size": 2} for index, use in ((0, 90), (1, 10), (2, 20))]
    new = next(node for node in running.nodes if node.name == "gpu3")
    new.reading = {**sizes, "cpu": 1.0, "gpus": gpus}
    running._recorder.tick(0.0, running.nodes)
    used = running._recorder.summary()["hosts"]["gpu3"]
    assert (used["gpus"], used["gpu_mean"]) == (2, 15.0)


def test_a_report_has_the_ranks_of_the_present_world(tmp_path: Path) -> None:
    """Each rank's own number is that of its start: one that joined later had that of another, or was left out."""
    running = attempt(tmp_path)
    noted: list[dict[str, Any]] = []
    running.note = lambda _name, **fields: noted.append(fields)
    running.guarded = True
    # gpu1 failed and gpu3 came. The first rank of gpu3 had number 0 at its start, and is number 1 now.
    ranks = [("gpu2", 1), ("gpu2", 0), ("gpu3", 0)]
    reset = json.dumps({"event": "reset", "hosts": [["gpu2", 2], ["gpu3", 1]], "ranks": ranks}).encode() + b"\n"
    running.output.standard(event("formed", ("gpu1", 1), ("gpu2", 2)) + reset)
    running._reason_to_stop(time.monotonic())
    stacks = {
        "gpu2": [{"rank": 1, "local": "0", "pid": 7}, {"rank": 2, "local": "1", "pid": 8}],
        "gpu3": [{"rank": 0, "local": "0", "pid": 9}],
    }
    running.nodes = []
    assert {entry["rank"]: entry["pid"] for entry in running._numbered(stacks)} == {0: 8, 1: 7, 2: 9}
    running._report("no rank had said anything")
    assert [(entry["rank"], entry["host"]) for entry in noted[-1]["ranks"]] == [(0, "gpu2"), (1, "gpu2"), (2, "gpu3")]


FIRST = (3, "gpu3", 9)
LOST = (2, "gpu2", crew.BROKEN)


@pytest.mark.parametrize(
    ("first", "more", "code", "event"),
    [
        (None, {}, 0, {}),
        (FIRST, {}, 9, {}),
        (FIRST, {"everywhere": "all failed"}, 9, {"name": "over", "why": "all failed", "failed": True}),
        (FIRST, {"refused": True}, 9, {"name": "refused", "rank": 3, "host": "gpu3", "exit_code": 9}),
        # The connection to a host broke first, and then another rank failed.
        (LOST, {"refused": True}, 3, {"name": "over", "why": "no host is left that runs its ranks", "host": "gpu2"}),
        ((3, "gpu3", 255), {}, 255, {}),
        (FIRST, {"why": "too few"}, 3, {"name": "over", "why": "too few", "host": "gpu3"}),
        (None, {"why": "too few"}, 3, {"name": "over", "why": "too few"}),
        (
            LOST,
            {"everywhere": "all failed"},
            3,
            {"name": "over", "why": "no host is left that runs its ranks", "host": "gpu2"},
        ),
    ],
)
def test_how_it_ended(first: Any, more: dict[str, Any], code: int, event: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"why": "", "refused": False, "everywhere": "", **more}
    assert ending.of(first, **settings) == (code, event)


def test_ranks_that_failed_on_every_host_are_the_failure(head: Head) -> None:
    head.ssh()
    rest = """
record(0, b"u", b"gpu1 7")
record(0, b"e", b"it is full")
record(0, b"x", b"gpu1 9 0 0")
tell(event="over", why="ranks failed on every host", failed=True)
sys.exit(9)
"""
    # Without the rank that failed before the reset, whose record comes on another pipe.
    door, _ = elastic_run(head, rest, begin=FAKE.replace('record(1, b"x"', '0 and record(1, b"x"'))
    story = door.story()
    failure = story.ending["failure"]
    assert (story.code, failure["kind"], failure["rank"], failure["lines"]) == (9, "rank", 0, ["it is full"])
