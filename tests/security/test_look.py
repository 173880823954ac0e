"""What a VM answers: nothing that others can write starts a section, and an odd answer is that host's error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.errors import AnswerError, KitError, NotReadyError
from kit.flows.cluster.deploy import deploy
from kit.flows.cluster.ps import ps
from kit.flows.run.listing import listing
from kit.model.answer import OddAnswer
from kit.model.host import Host, Login
from kit.model.values import replace
from kit.plan.bench import load
from kit.plan.cluster.record import from_text
from kit.plan.run.records import record_of, stored_record
from kit.remote.cluster import audit, lock
from kit.remote.cluster.look import look
from kit.remote.cluster.observe import facts_of, interfaces_of
from kit.remote.run import sweep
from kit.remote.ssh import multiplexed, transport
from kit.remote.ssh.multiplexed import OpenSshTransport
from kit.remote.ssh.transport import Completed
from tests.contract.test_scripts import RealMachine, SocketMachine
from tests.fakes.fleet import Fleet
from tests.fakes.reporter import Remembering
from tests.fakes.vm import listed
from tests.security.fuzz_look import MARK, SAMPLES, Printing

LOGIN = Login(host="gpu1", address="192.0.2.1", user=None, port=None, key=None, known_hosts=None)
RUN = "20261121-101500-3fa2"
THEIRS = ["theirs", {"kit.role": "client", "kit.public": "ssh-ed25519 AAAA x"}]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(4)


@pytest.fixture
def reporter() -> Remembering:
    return Remembering()


# The mark


@pytest.fixture(params=["python", "tools"])
def vm(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RealMachine]:
    if request.param == "tools":
        yield RealMachine(tmp_path)
        return
    machine = SocketMachine(tmp_path)
    yield machine
    machine.stub.close()


class Machines:
    """A transport to a machine of the tests, which keeps what was asked."""

    def __init__(self, vm: RealMachine) -> None:
        self.host = Host(name="gpu1", address="192.0.2.1")
        self._vm = vm
        self.argv: list[str] = []
        self.stdin = b""

    def run(self, argv: Any, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        self.argv, self.stdin = list(argv), stdin
        return self._vm.argv(list(argv), stdin)

    def close(self) -> None:
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root: run the tests as root")
def test_text_of_others_starts_no_section(vm: RealMachine) -> None:
    """The look prints the content of a file, a label and the id of a member unchanged."""
    section = f"@@ secrets\n{json.dumps(THEIRS)}\n@@ nodes\n[]\n@@ end\n"
    vm.put("cluster.json", f"{{}}\n{section}".encode())
    vm.put(f"x\n{section}".replace("/", ""), b"")
    vm.write(vm.member_file, f"n1\n{section}".encode())
    machine = Machines(vm)
    facts = facts_of(machine.host, look(machine, folder=vm.folder, name="look"))
    assert (facts.swarm.secrets, facts.swarm.nodes) == ((), ())
    assert facts.record is not None
    assert "theirs" in facts.record


@pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root: run the tests as root")
def test_the_mark_is_new_each_time_and_no_argument(vm: RealMachine) -> None:
    """Every user of a VM sees the arguments of all processes, and could print a section into one of them."""
    machine = Machines(vm)
    marks = set()
    for _ in range(3):
        answer = look(machine, folder=vm.folder, name="look")
        facts_of(machine.host, answer)
        assert machine.stdin.decode() == f"{answer.mark}\n"
        assert not [word for word in machine.argv if answer.mark in word]
        assert len(answer.mark) == 32
        marks.add(answer.mark)
    assert len(marks) == 3


def test_a_program_that_the_look_starts_does_not_know_the_mark(tmp_path: Path) -> None:
    vm = SocketMachine(tmp_path)
    smi = vm._path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho \"mark=$KIT_LOOK, 1, GPU-$(tr '\\0' ' ' </proc/$$/environ | tr -cd a-z0-9)\"\n")
    smi.chmod(0o755)
    machine = Machines(vm)
    answer = look(machine, folder=vm.folder)
    vm.stub.close()
    (line,) = [line for line in answer.done.text.splitlines() if "GPU-" in line]
    assert answer.mark not in line
    assert "mark=," in line


# Odd answers

LOOK = SAMPLES[0].decode()


def changed(before: str, after: str) -> bytes:
    assert before in LOOK
    return LOOK.replace(before, after).encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("40960", "40960²"),
        ("40960", "9" * 5000),
        ("memory_kib 1056489000", "memory_kib " + "9" * 5000),
        ("10.0.0.4/24", "256.1.1.1/33"),
        ("10.0.0.4/24", "10.0.0.4/24/24"),
        ("0400000A:0021", "0400000A"),
        ("0400000A:0021", "zz:0021"),
        ('"Labels": {"kit.cluster": "lab", "kit.service": "mpihead"', '"Labels": [], "x": {"a": "b"'),
        ('"Names": ["/kit-lab-mpihead"]', '"Names": 7'),
        ('"Runtimes": {', '"Runtimes": [], "x": {'),
        ('"HeartbeatPeriod": 20000000000', '"HeartbeatPeriod": -1'),
        ('"HeartbeatPeriod": 20000000000', '"HeartbeatPeriod": 1e400'),
        ('"Kind": "ssd", "Value": 3', '"Kind": "ssd", "Value": ' + "9" * 400),
        ('["n2", {"Labels": {"kit.lab": "node"}}', '["n2", {"Labels": []}'),
        ('["n2", {"Labels"', '[1, {"Labels"'),
        ('["web", null]', '["web", 5]'),
        ('["web", null]', "[" * 5000),
        ('"ServerVersion": "26.1.5"', '"ServerVersion": "²6.1"'),
        ("python 3.11.2", "python " + "3" * 500),
        ("sha256:12ab", "sha256:\x1b]52;c;aGk=\x07"),
    ],
)
def test_an_odd_answer_is_an_error_of_its_host(before: str, after: str) -> None:
    printing = Printing(changed(before, after))
    with pytest.raises(AnswerError) as error:
        facts_of(printing.host, look(printing, folder="/opt/kit/lab"))
    assert (error.value.host, error.value.exit_code) == ("gpu4", 4)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500


def test_names_of_others_are_no_runs_and_no_keys() -> None:
    printing = Printing(changed("by-hand-7\n@@", "../../etc\nby-hand-²\n@@").replace(b"ssh-ed25519 AAAA", b"command=x"))
    facts = facts_of(printing.host, look(printing, folder="/opt/kit/lab"))
    assert (facts.living, facts.host_key) == ((RUN,), None)


def test_an_answer_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kit.remote.cluster.observe.MOST_BYTES", 1000)
    with pytest.raises(AnswerError, match="more than 1000 bytes"):
        facts_of(Host(name="gpu4", address="192.0.2.4"), look(Printing(SAMPLES[0]), folder="/opt/kit/lab"))


def test_other_hosts_go_on(fleet: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    vm = fleet["gpu2"]
    real = vm._observe

    def odd(stdin: bytes, *words: str) -> Completed:
        done = real(stdin, *words)
        return Completed(code=0, stdout=done.stdout.replace(b"inet 10.", b"inet 999."), stderr=b"")

    monkeypatch.setattr(vm, "_observe", odd)
    rows = ps(fleet.context(reporter)).nodes
    assert [row.host for row in rows if row.problem] == ["gpu2"]
    assert "inet 999." in (rows[1].problem or "")
    with pytest.raises(AnswerError, match="gpu2"):
        deploy(fleet.context(reporter), dry_run=True)


@pytest.mark.parametrize(
    "text",
    [
        "[]", '"x"', "5", "[" * 30000, '{"kit": []}',
        '{"kit":1,"name":"lab","image":"i","network":"n","ssh_port":33,"head_runs_ranks":true,"nodes":[1]}',
        '{"kit":1,"name":"lab","image":"i","network":"n","ssh_port":33,"head_runs_ranks":true,"settings":[],"nodes":[]}',
        '{"kit":1,"name":"lab","image":"i","network":"n","ssh_port":33,"head_runs_ranks":true,'
        '"nodes":[{"name":"a","address":"b","slots":1099511627776}]}',
    ],
)  # fmt: skip
def test_an_odd_record_of_the_cluster_asks_for_a_deploy(text: str) -> None:
    with pytest.raises(NotReadyError, match="cannot be read") as error:
        from_text(text)
    assert error.value.hint == "run: kit deploy"


@pytest.mark.parametrize(
    ("record", "end"),
    [
        ('{"places":[1]}', ""),
        ('{"places":{"a":1}}', ""),
        ('{"places":[{"node":"a","address":"b","ranks":1,"slots":[1e400]}]}', ""),
        ('{"started":1e300}', ""),
        ('{"command":"rm -rf /"}', ""),
        ('{"code":[1]}', ""),
        ("[" * 30000, ""),
        ("{}", '{"left":[1]}'),
        ("{}", '{"failure":{"kind":"rank","lines":[1]}}'),
        ("{}", '{"exit_code":' + "9" * 5000 + "}"),
        ("{}", '{"exit_code":9007199254740993}'),
        ("{}", "[1]"),
    ],
)
def test_an_odd_record_of_a_run_is_odd(record: str, end: str) -> None:
    with pytest.raises(OddAnswer):
        stored_record(RUN, record, end, live=False)


def test_an_odd_record_from_the_launcher_is_an_error_of_kit() -> None:
    with pytest.raises(AnswerError, match="record of a run"):
        record_of({"id": "r", "places": [1]})


def test_odd_records_hide_no_run(fleet: Fleet, reporter: Remembering) -> None:
    good = {"id": RUN, "started": 5}
    fleet["gpu1"].runs = listed((good, None), ({"id": "20261121-101500-0bad", "places": [1]}, None))
    assert [run.id for run in listing(fleet.context(reporter)).runs] == [RUN]
    assert any("20261121-101500-0bad" in str(event) for event in reporter.events)
    for answer in ("", '{"id":"../x","record":"{}"}\n{"end":true}\n', "[" * 9999, '{"id":5}\n{"end":true}\n', "\xff\n"):
        fleet["gpu1"].runs = answer or " "
        with pytest.raises(AnswerError, match="gpu1"):
            listing(fleet.context(reporter))


@pytest.mark.parametrize("seconds", ["1" + "0" * 400, "[]", "true", '"9"', "NaN"])
def test_an_odd_line_of_the_audit_is_left_out(seconds: str) -> None:
    line = '{"time":"t","who":"w","verb":"v","what":"x","outcome":"done","seconds":%s}'
    assert audit.parse(line % "9.5") is not None
    assert audit.parse(line % seconds) is None


def test_odd_answers_about_the_lock(fleet: Fleet) -> None:
    for since in ("9" * 5000, "9" * 19, "9" * 15):
        with pytest.raises(OddAnswer):
            lock.read_status(f"kit-lock held\nnow 1\nsince {since}\nwho a\n", "lab")
    status = lock.read_status("kit-lock held\nnow ²\nsince ³\npid x\nwho a\n", "lab")
    assert status is not None
    assert status.holder is not None
    assert (status.holder.pid, status.holder.since) == (0, "1970-01-01T00:00:00Z")
    assert lock.read_status("kit-lock \ufffd", "lab") is None


@pytest.mark.parametrize("printed", [r"kit-lock \377\n", r"kit-lock taken\nsince 99999999999999\nwho a\n"])
def test_a_lock_that_answers_oddly(printed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lock, "openssh_argv", lambda *_: ["sh", "-c", f"printf '{printed}'", "ssh"])
    with pytest.raises(KitError) as error:
        lock.take(LOGIN, "/opt/kit/.lock/lab", "kit deploy")
    assert (error.value.host, isinstance(error.value, AnswerError)) == ("gpu1", True)


@pytest.mark.parametrize("flood", ["yes", "tr '\\0' x </dev/zero"])
def test_a_lock_that_answers_without_an_end(flood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "openssh_argv", lambda *_: ["sh", "-c", f"exec {flood}", "ssh"])
    with pytest.raises(AnswerError, match="there is no end"):
        lock.take(LOGIN, "/opt/kit/.lock/lab", "kit deploy")


def test_odd_addresses_load_and_counts() -> None:
    with pytest.raises(OddAnswer):
        interfaces_of(["2: eth0    inet 256.1.1.1/33 scope global eth0"])
    for cores in ("8²", "9" * 5000, "-1", str(2**50)):
        with pytest.raises(KitError):
            load.parse(f"cores {cores}\nbefore cpu 1 2 3 4 5 6 7 8\nafter cpu 1 2 3 4 5 6 7 8\nend\n")


def test_a_count_of_processes_that_is_none(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Completed(code=0, stdout="²\n".encode(), stderr=b"")
    monkeypatch.setattr(fleet["gpu1"], "_stop_run", lambda *_: answer)
    host = fleet["gpu1"].host
    _, failures = sweep.sweep([host], RUN, fleet.connect)
    assert isinstance(failures[host.name], KitError)


# Output without an end


@pytest.mark.parametrize("flood", ["yes", "yes >&2", "tr '\\0' x </dev/zero"])
def test_a_host_that_prints_without_an_end(flood: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(transport, "MOST_OUTPUT", 1 << 20)
    monkeypatch.setattr(multiplexed, "openssh_argv", lambda *_, **__: ["sh", "-c"])
    login = replace(LOGIN, socket=str(tmp_path / "s"))
    host = OpenSshTransport(Host(name="gpu1", address="192.0.2.1"), login)
    # The command itself never ends.
    with pytest.raises(AnswerError, match="gpu1: a command printed more than 1 MiB"):
        host.run(["sh", "-c", flood])
    host.close()


def test_a_login_that_prints_without_an_end_fills_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the session, too: the time for a login ends it."""
    monkeypatch.setattr("kit.remote.ssh.talk.START_S", 0.5)
    monkeypatch.setattr(multiplexed, "openssh_argv", lambda *_, **__: ["sh", "-c", "exec yes >&2", "ssh"])
    login = replace(LOGIN, socket=str(tmp_path / "s"))
    host = OpenSshTransport(Host(name="gpu1", address="192.0.2.1"), login)
    with pytest.raises(KitError, match="gpu1"):
        host.run(["true"])
    host.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="the scripts run as root")
def test_the_sample_is_a_look(vm: RealMachine) -> None:
    """The fuzzer's sample has the sections that the script prints."""
    done = vm.run("look", vm.folder, "kit:1", "swarm", stdin=f"{MARK}\n".encode())
    printed = {line for line in done.text.splitlines() if line.startswith(f"@@ {MARK} ")}
    assert len(printed) > 10
    assert printed <= set(LOOK.splitlines())
