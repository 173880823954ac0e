"""kit logs of nodes, on hosts that are addresses of this machine."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from kit.errors import NotReadyError, UnreachableError
from kit.events import Event, OutputLine
from kit.flows.cluster import logs as flow
from kit.model import names
from kit.model.host import Host
from kit.model.values import replace
from kit.remote.ssh import retry
from kit.remote.ssh.transport import Lasting, Live
from tests.fakes.loopback import Loopback
from tests.fakes.reporter import Remembering


def test_the_logs_of_the_hosts_that_answer(reporter: Remembering) -> None:
    machine = Loopback(3, down={"gpu2"})
    machine.altered = {
        "gpu1": ("sh", "-c", r"printf 'one\r\ntwo'; printf 'caf\351' >&2; exit 5"),
        "gpu3": ("echo", "three"),
    }
    assert flow.logs(machine.context(reporter), None, tail=None, live=False) == 5
    assert sorted((one.source, one.stream, one.text, one.raw) for one in reporter.lines) == [
        # Not UTF-8.
        ("gpu1", "stderr", "caf\ufffd", b"caf\xe9"),
        ("gpu1", "stdout", "one", None),
        ("gpu1", "stdout", "two", None),
        ("gpu3", "stdout", "three", None),
    ]
    assert [(one.text, one.hint) for one in reporter.warnings] == [("gpu2: no SSH connection", "is the VM up?")]
    assert flow.logs(machine.context(reporter), "gpu[2-3]", tail=None, live=False) == 3


def test_an_only_host_that_fails_is_an_error(reporter: Remembering) -> None:
    with pytest.raises(UnreachableError, match="gpu1: no SSH connection"):
        flow.logs(Loopback(2, down={"gpu1"}).context(reporter), "gpu1", tail=None, live=False)
    assert reporter.events == []


@pytest.mark.parametrize(
    "answer",
    ["Error response from daemon: No such container: kit-lab-mpihead", "Error: No such container: kit-lab-mpihead"],
)
def test_a_host_without_a_node_names_the_next_step(reporter: Remembering, answer: str) -> None:
    machine = Loopback(2)
    machine.altered = {"gpu1": ("sh", "-c", f"echo '{answer}' >&2; exit 1"), "gpu2": ("echo", "two")}
    context = machine.context(reporter)
    with pytest.raises(NotReadyError, match="no node of the cluster runs here") as caught:
        flow.logs(context, "gpu1", tail=None, live=False)
    hint = f"run: kit deploy. {names.OTHER_HEAD}"
    assert (caught.value.host, caught.value.hint, reporter.lines) == ("gpu1", hint, [])
    assert flow.logs(context, None, tail=None, live=False) == NotReadyError.exit_code
    assert [(one.text, one.hint) for one in reporter.warnings] == [("gpu1: no node of the cluster runs here", hint)]
    assert [(one.source, one.text) for one in reporter.lines] == [("gpu2", "two")]


class Following:
    """Hosts whose logs do not end before all of them are followed."""

    def __init__(self, count: int) -> None:
        self.commands: list[Sequence[str]] = []
        self._together = threading.Barrier(count)
        self._login = threading.Lock()

    def __call__(self, host: Host) -> Any:
        return self

    def stream(self, argv: Sequence[str], live: Live) -> int:
        assert self._login.acquire(blocking=False), "two hosts log in at once"
        # Others would come meanwhile.
        time.sleep(0.01)
        self.commands.append(argv)
        self._login.release()
        assert live.begin
        assert live.begin()
        assert live.stdin is Lasting
        self._together.wait(60)
        return 0

    def close(self) -> None:
        """Do nothing."""


def test_hosts_log_in_a_few_at_a_time_and_are_followed_all_at_once(
    reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A jump host drops connections where too many log in at once."""
    monkeypatch.setattr(retry, "width", lambda _cores: 1)
    hosts = Following(3)
    context = replace(Loopback(3).context(reporter), connect=hosts)
    assert flow.logs(context, None, tail=3, live=True) == 0
    assert [command[-5:] for command in hosts.commands] == [["logs", "--tail", "3", "--follow", "--"]] * 3


def test_ctrl_c_ends_what_runs_on_the_hosts() -> None:
    machine = Loopback(2)
    machine.altered = dict.fromkeys(("gpu1", "gpu2"), ("sh", "-c", "echo up; exec sleep 1000"))
    main = threading.get_ident()

    class Pressing(Remembering):
        def report(self, event: Event) -> None:
            super().report(event)
            if len(self.of(OutputLine)) == 2:
                signal.pthread_kill(main, signal.SIGINT)

    reporter = Pressing()
    with pytest.raises(KeyboardInterrupt):
        flow.logs(machine.context(reporter), None, tail=None, live=True)
    assert [process.wait(60) for process in machine.processes.values()] == [-9, -9]
    assert reporter.warnings == []
