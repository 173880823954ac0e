"""What verbs print for 256 hosts: equal hosts once, and few lines."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kit.cli.main import _error_text
from kit.cli.screen.plain import Plain
from kit.cli.screen.terminal import Terminal
from kit.cli.text import cluster as text
from kit.cli.text import plan as plantext
from kit.cli.text import ps as pstext
from kit.cli.text import queue as queuetext
from kit.cli.text import tune as tunetext
from kit.errors import HostsFailed, Interrupted, KitError
from kit.events import Note
from kit.flows.cluster.concerns import warn_of_gpus
from kit.flows.cluster.deploy import deploy
from kit.flows.cluster.exec import exec_hosts
from kit.flows.cluster.ps import ps
from kit.flows.image.content import content
from kit.flows.run import shipping
from kit.flows.run.pull import _of_the_run
from kit.flows.run.ready import _cordoned
from kit.flows.run.run import _clean_up, run
from kit.flows.setup.setup import SetupRequest, report_remarks
from kit.model.host import Host, Login
from kit.model.launch import Node, RunRequest
from kit.model.plan import Plan
from kit.model.queue import Cordon, Line
from kit.model.setup.result import Draft, Remark
from kit.model.spec import SshSpec
from kit.model.tune import Machine, TuneResult
from kit.plan.cluster.ssh import login
from kit.plan.tune.candidates import by_facts
from kit.remote.ssh import retry
from kit.remote.ssh.transport import Completed
from tests.fakes.facts import facts, gpus, host
from tests.fakes.fleet import FakeTransport, Fleet
from tests.fakes.reporter import Remembering

COUNT = 256


@pytest.fixture(scope="module")
def many() -> Fleet:
    """256 VMs. The tests of this module share them, and only look."""
    return Fleet(COUNT)


def lose(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let these hosts refuse with their own address in the message, as real ones do."""
    answer = FakeTransport.run

    def run(self: FakeTransport, argv: list[str], **options: object) -> Completed:
        if self.host.name in names:
            message, hint = f"the host key of root@{self.host.address} is not known here", f"ssh {self.host.address}"
            raise KitError(message, hint=f"connect once: {hint}", host=self.host.name)
        return answer(self, argv, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeTransport, "run", run)


def test_deploy_dry_run(fleet: Fleet, many: Fleet) -> None:
    """`fleet` replaces what takes this machine's engine."""
    err = io.StringIO()
    reporter = Plain(Terminal(out=io.StringIO(), err=err, environ={}))
    plan = deploy(many.context(reporter), dry_run=True).plan
    reporter.close()
    lines = plantext.plan(plan).splitlines()
    tag = content(many.context(reporter).spec).tag
    assert lines[:4] == [
        "Plan for cluster lab",
        "First, ship:",
        "gpu[1-256]  (256 hosts)",
        f"  ship  {tag} (1.90 GB)  because the host does not have it",
    ]
    assert "gpu[2-256]  (255 hosts)" in lines
    assert len(lines) < 40
    assert len(err.getvalue().splitlines()) < 10
    assert fleet.changes == many.changes == {}


def test_ps(many: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, "gpu7", "gpu8", "gpu200")
    value = ps(many.context(reporter))
    printed = pstext.ps(value, width=90).splitlines()
    *rows, note = printed[3:]
    assert [row.split()[:2] for row in rows] == [["gpu[1-6,9-199,201-256]", "253"], ["gpu[7-8,200]", "3"]]
    assert note == "gpu[1-6,9-199,201-256]: the cluster is not deployed here; run: kit deploy"
    assert max(map(len, printed)) <= 90
    assert "not known here" in pstext.ps(value)
    assert value.exit_code == 5


def test_exec(many: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(self: FakeTransport, _argv: list[str], **_: object) -> Completed:
        number = int(self.host.name.removeprefix("gpu"))
        return Completed(code=3 if number == 256 else 0, stdout=b"odd\n" if number == 9 else b"even\n", stderr=b"")

    monkeypatch.setattr(FakeTransport, "run", answer)
    lose(monkeypatch, "gpu2", "gpu3", "gpu4")
    result = exec_hosts(many.context(reporter), None, ["nvidia-smi"])
    assert text.groups(result).splitlines() == [
        "── 251 hosts: gpu[1,5-8,10-255]",
        "even",
        "── 1 host: gpu9",
        "odd",
        "── 1 host: gpu256  (exit code 3)",
        "even",
        "── 3 hosts: gpu[2-4]  (exit code 1)",
        "the host key of root@10.0.0.[2-4] is not known here",
        "  → connect once: ssh 10.0.0.2 (and the same for 2 more hosts)",
    ]


def test_an_error_of_all_hosts_is_one(many: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, *many.vms)
    with pytest.raises(HostsFailed) as caught:
        deploy(many.context(reporter), dry_run=True)
    printed = _error_text(caught.value, Terminal(out=io.StringIO(), err=io.StringIO(), environ={})).splitlines()
    assert printed == [
        "kit: error: nothing was changed: 256 problems",
        "  gpu[1-256]: the host key of root@10.0.0.[1-249],10.0.1.[0-6] is not known here",
        "    → connect once: ssh 10.0.0.1 (and the same for 255 more hosts)",
    ]


def test_ranks_that_may_be_left_on_many_hosts_are_one_warning(
    many: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = many.context(reporter)
    plan = run(context, RunRequest(np=512, dry_run=True, command=("true",))).plan

    def answer(_self: FakeTransport, _argv: list[str], **_: object) -> Completed:
        return Completed(code=0, stdout=b"0\n", stderr=b"")

    monkeypatch.setattr(FakeTransport, "run", answer)
    lose(monkeypatch, *(f"gpu{number}" for number in range(100, 201)))
    assert _clean_up(context, plan) == "not known on gpu[100-200]"
    (warning,) = reporter.warnings
    assert warning.text == (
        "gpu[100-200]: cannot tell whether ranks are left: the host key of root@10.0.0.[100-200] is not known here"
    )


def test_ctrl_c_names_the_hosts_that_are_not_done(
    many: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = threading.Semaphore(0)
    stopped = threading.Event()

    def answer(self: FakeTransport, _argv: list[str], **_: object) -> Completed:
        if int(self.host.name.removeprefix("gpu")) > 20:
            blocked.release()
            stopped.wait()
        return Completed(code=0, stdout=b"", stderr=b"")

    really_join = threading.Thread.join

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        if threading.current_thread() is not threading.main_thread():
            # A thread that an earlier test left may end now.
            return really_join(thread, timeout)
        # When every worker is at a host that hangs, the results of the others are there.
        for _ in range(retry.width(2)):
            blocked.acquire()
        raise KeyboardInterrupt

    monkeypatch.setattr("kit.remote.ssh.fanout.os.cpu_count", lambda: 2)
    monkeypatch.setattr(FakeTransport, "run", answer)
    monkeypatch.setattr("kit.remote.ssh.fanout.threading.Thread.join", join)
    try:
        with pytest.raises(Interrupted) as caught:
            exec_hosts(many.context(reporter), None, ["true"])
    finally:
        stopped.set()
    assert caught.value.message == "interrupted; not done: gpu[21-256]"


def failures(*numbers: int) -> dict[str, KitError]:
    return {f"gpu{n}": KitError(f"gpu{n} is down", hint=f"kit ssh gpu{n}", host=f"gpu{n}") for n in numbers}


def texts(reporter: Remembering) -> list[tuple[str, str | None]]:
    return [(warning.text, warning.hint) for warning in reporter.warnings]


def test_setup_warns_once_of_what_many_hosts_have(many: Fleet, reporter: Remembering) -> None:
    remarks = [Remark(host=name, text=f"the clock of {name} is behind", hint="set it") for name in many.vms]
    waiting = dict.fromkeys(many.vms, ("2 pages of 1 GiB",)) | {"gpu9": ("the driver",)}
    draft = Draft(plan=Plan(cluster="lab", hosts=()), remarks=tuple(remarks), waiting=waiting)
    report_remarks(many.context(reporter), draft, SetupRequest(reboot=True))
    assert texts(reporter) == [
        ("gpu[1-256]: the clock of gpu[1-256] is behind", "set it"),
        ("gpu[1-8,10-256] need a reboot: 2 pages of 1 GiB", None),
        ("gpu9 needs a reboot: the driver", None),
    ]


def test_pull_warns_once_of_hosts_that_are_down(many: Fleet, reporter: Remembering) -> None:
    known: Any = SimpleNamespace(final=True, names=tuple(f"gpu{n}" for n in range(1, 129)))
    missed = _of_the_run(many.context(reporter), "r", failures(3, 4, 100, 200, 201), known)
    assert list(missed) == ["gpu3", "gpu4", "gpu100"]
    assert texts(reporter) == [("gpu[3-4,100]: gpu[3-4,100] is down", "run the same again to fetch the rest")]
    assert reporter.of(Note) == [Note(text="gpu[200-201] cannot be asked, and did not take part in run r")]


def test_code_that_many_hosts_cannot_take_is_two_failures(many: Fleet, reporter: Remembering) -> None:
    down = failures(*range(1, 101))
    with pytest.raises(KitError, match="gpu1 is down"):
        shipping.raise_first(many.context(reporter), down, list(down))
    hint = "kit ssh gpu2 (and the same for 98 more hosts)"
    assert texts(reporter) == [("gpu[2-100]: gpu[2-100] is down", hint)]
    # As ssh spells them.
    down = {name: KitError(f"{many.vms[name].host.address} does not answer") for name in down}
    with pytest.raises(KitError, match="does not answer"):
        shipping.raise_first(many.context(reporter), down, list(down))
    assert texts(reporter)[1:] == [("gpu[2-100]: 10.0.0.[2-100] does not answer", None)]


def test_code_for_many_hosts_computes_the_login_of_each_once(
    many: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each of 1,000 hosts, computing all 1,000 logins took 10 s."""
    calls: list[str] = []

    def counted(host: Host, ssh: SshSpec) -> Login:
        calls.append(host.name)
        return login(host, ssh)

    monkeypatch.setattr("kit.flows.context.login", counted)
    nodes = tuple(Node(name=vm.host.name, address=vm.internal, slots=2) for vm in many.vms.values())
    cluster: Any = SimpleNamespace(nodes=nodes)
    targets = shipping._targets(many.context(reporter), cluster, list(many.vms))
    assert [target.login.host for target in targets] == calls == list(many.vms)


def test_tune_prints_hosts_that_are_equal_once() -> None:
    machines = tuple(
        Machine(
            name=f"gpu{n}", slots=8, threads=64, cores=16 if n == 77 else 32, nic_mbit=10_000 if n > 192 else 25_000
        )
        for n in range(1, COUNT + 1)
    )
    result = TuneResult(
        machines=machines, wire=None, before=None, after=None, tried=(), small_s=None, changed=(), kept=(),
        advice=by_facts(machines).advice, diff="", written=False, file="kit.yaml", seconds=3.0,
    )  # fmt: skip
    header, *rows = tunetext.text(result).split("\n\n")[0].splitlines()
    assert header.startswith("HOST")
    assert [row.split()[:3] for row in rows] == [
        ["gpu[1-76,78-192]", "8", "32"], ["gpu77", "8", "16"], ["gpu[193-256]", "8", "32"],
    ]  # fmt: skip
    assert "Consider: gpu[193-256]: a NIC of 10000 Mbit/s where others have 25000" in tunetext.text(result)


def test_deploy_warns_once_of_slots_that_many_hosts_lack_gpus_for(many: Fleet, reporter: Remembering) -> None:
    observed = [
        facts(1, host=host(number, slots=2), gpus=gpus(1 if number != 9 else 2)) for number in range(1, COUNT + 1)
    ]
    warn_of_gpus(many.context(reporter, image={"flavour": "cuda-pytorch"}), observed)
    (few,) = texts(reporter)
    assert few[0].startswith("gpu[1-8,10-256] has 1 GPU and slots=2 in the hosts file")


@pytest.mark.parametrize("waits", [True, False])
def test_a_run_names_cordoned_hosts_once(many: Fleet, reporter: Remembering, waits: bool) -> None:
    out = [Cordon(host=f"gpu{n}", why="moved" if n < 40 else "gpu-lost", by="ann@desk") for n in range(1, 42)]
    nodes = tuple(Node(name=vm.host.name, address=vm.internal, slots=2) for vm in many.vms.values())
    cluster: Any = SimpleNamespace(nodes=nodes)
    _cordoned(many.context(reporter), [], out, cluster, waits=waits)
    first = "gpu[1-39] are cordoned: moved, by ann@desk; the run "
    if waits:
        assert reporter.of(Note)[0].text == f"{first}may use them after: kit hosts uncordon 'gpu[1-39]'"
    else:
        assert [text for text, _ in texts(reporter)] == [
            f"{first}does not use them", "gpu[40-41] are cordoned: gpu-lost, by ann@desk; the run does not use them",
        ]  # fmt: skip
    assert len(reporter.of(Note)) == 2 * waits


def test_the_queue_names_cordoned_hosts_once() -> None:
    out = tuple(Cordon(host=f"gpu{n}", why="moved") for n in range(1, COUNT + 1))
    assert queuetext.line(Line(cluster="lab", runs=(), cordons=out)).splitlines() == [
        "No run waits in line on cluster lab.", "gpu[1-256] are cordoned: moved.",
    ]  # fmt: skip
