"""kit exec on VMs in memory: output as it comes, input for each host, and Ctrl-C."""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Sequence
from functools import partial

import pytest

from kit.errors import Interrupted, UnreachableError
from kit.events import Event, Note, Stream
from kit.flows.cluster import exec as exec_flow
from kit.flows.cluster.deploy import deploy
from kit.flows.cluster.exec import exec_hosts, folded
from kit.model.result import ExecResult, OutputGroup
from kit.model.values import replace
from kit.remote.ssh import retry
from kit.remote.ssh.transport import Completed, Live
from tests.fakes.fleet import FakeTransport, Fleet
from tests.fakes.head import until
from tests.fakes.reporter import Remembering


class Chunks:
    """Output as it came."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.chunks: list[tuple[str, Stream, bytes]] = []
        self.ended: list[str] = []

    def begin(self, hosts: Sequence[str]) -> None:
        self.hosts = list(hosts)

    def write(self, host: str, stream: Stream, data: bytes) -> None:
        if data:
            self.chunks.append((host, stream, data))

    def end(self, host: str) -> None:
        self.ended.append(host)


@pytest.fixture
def deployed(fleet: Fleet, reporter: Remembering) -> Fleet:
    deploy(fleet.context(reporter))
    fleet.forget_changes()
    return fleet


def test_output_is_passed_on_and_not_kept(deployed: Fleet, reporter: Remembering) -> None:
    for vm in deployed.vms.values():
        vm.answers["x"] = Completed(code=0, stdout=b"\xffsame", stderr=b"e")
    deployed["gpu3"].answers["x"] = Completed(code=9, stdout=b"", stderr=b"")
    deployed["gpu4"].faults.add("unreachable")
    output = Chunks()
    result = exec_hosts(deployed.context(reporter), None, ["x"], output=output)
    assert output.hosts == ["gpu1", "gpu2", "gpu3", "gpu4"]
    assert sorted(output.chunks) == [
        ("gpu1", "stderr", b"e"), ("gpu1", "stdout", b"\xffsame"),
        ("gpu2", "stderr", b"e"), ("gpu2", "stdout", b"\xffsame"),
    ]  # fmt: skip
    assert sorted(output.ended) == ["gpu1", "gpu2", "gpu3", "gpu4"]
    assert [(g.hosts, g.exit_code, g.output, g.failed) for g in result.groups] == [
        (("gpu1", "gpu2"), 0, "", False), (("gpu3",), 9, "", False),
        (("gpu4",), 3, "no SSH connection\n  → is the VM up?\n", True),
    ]  # fmt: skip
    again = folded(result, lambda host, stream: b"a\n" if stream == "stdout" and host != "gpu3" else b"")
    assert [(g.hosts, g.exit_code, g.output) for g in again.groups] == [
        (("gpu1", "gpu2"), 0, "a\n"), (("gpu3",), 9, ""),
        (("gpu4",), 3, "a\nno SSH connection\n  → is the VM up?\n"),
    ]  # fmt: skip


def test_what_a_host_printed_before_it_failed_is_not_lost() -> None:
    group = OutputGroup(hosts=("gpu1", "gpu2", "gpu3"), exit_code=3, output="it broke\n", failed=True)
    printed = {("gpu2", "stdout"): b"step 1\n", ("gpu2", "stderr"): b"step"}
    again = folded(ExecResult(groups=(group,)), lambda host, stream: printed.get((host, stream), b""))
    assert [(g.hosts, g.output, g.failed) for g in again.groups] == [
        (("gpu1", "gpu3"), "it broke\n", True), (("gpu2",), "step 1\nstep\nit broke\n", True),
    ]  # fmt: skip


def test_output_that_is_kept_does_not_fill_the_memory(
    deployed: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all hosts together. A command that goes on printing is ended, as nobody reads it any more."""
    monkeypatch.setattr(exec_flow, "Collected", partial(exec_flow.Collected, 10))
    deployed["gpu1"].answers["x"] = Completed(code=0, stdout=b"123456789", stderr=b"")
    deployed["gpu2"].answers["x"] = Completed(code=0, stdout=b"", stderr=b"")
    assert exec_hosts(deployed.context(reporter), "gpu[1-2]", ["x"]).exit_code == 0
    deployed["gpu1"].answers["x"] = Completed(code=0, stdout=b"123456789ab", stderr=b"")
    result = exec_hosts(deployed.context(reporter), "gpu[1-2]", ["x"])
    assert [(group.hosts, group.failed) for group in result.groups] == [(("gpu2",), False), (("gpu1",), True)]
    assert "leave out --json" in result.groups[1].output
    assert dict(deployed.changes) == {"gpu1": ["end exec"]}


@pytest.mark.parametrize("begins", [False, True])
def test_a_connection_that_breaks_may_leave_the_command(
    deployed: Fleet, reporter: Remembering, *, begins: bool
) -> None:
    class Broken(FakeTransport):
        def stream(self, argv: Sequence[str], live: Live) -> int:
            assert live.begin is not None
            if begins:
                live.begin()
            raise UnreachableError("the connection broke", hint="run the same again")

    context = replace(deployed.context(reporter), connect=lambda host: Broken(deployed[host.name]))
    with pytest.raises(UnreachableError) as caught:
        exec_hosts(context, "gpu2", ["train"])
    hint = "the command may still run there. When the host answers: kit exec gpu2 -- ps aux"
    assert caught.value.hint == (hint if begins else "run the same again")


def press_when_begun(fleet: Fleet, names: Sequence[str]) -> None:
    """Press Ctrl-C when the command runs on these VMs."""

    def press() -> None:
        begun.wait(30)
        _thread.interrupt_main()

    begun = threading.Event()
    left = set(names)

    class Watched(threading.Event):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def wait(self, timeout: float | None = None) -> bool:
            left.discard(self.name)
            if not left:
                begun.set()
            return super().wait(timeout)

    for name in names:
        fleet[name].endless = Watched(name)
    threading.Thread(target=press, daemon=True).start()


def test_ctrl_c_ends_the_command_on_every_host_and_counts(deployed: Fleet, reporter: Remembering) -> None:
    names = ["gpu1", "gpu2", "gpu3", "gpu4"]
    press_when_begun(deployed, names)
    with pytest.raises(Interrupted) as caught:
        exec_hosts(deployed.context(reporter), None, ["sleep", "1000"])
    assert caught.value.message == "interrupted; not done: gpu[1-4]; ended 8 processes on gpu[1-4]"
    assert caught.value.hint is None
    assert caught.value.exit_code == 130
    assert dict(deployed.changes) == {name: ["end exec"] for name in names}


def test_a_command_that_does_not_end_begins_on_every_host(
    deployed: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only logins take turns. A host that cannot be reached ends its turn, too."""
    monkeypatch.setattr(retry, "width", lambda _: 1)
    deployed["gpu1"].faults.add("unreachable")
    press_when_begun(deployed, ["gpu2", "gpu3", "gpu4"])
    with pytest.raises(Interrupted) as caught:
        exec_hosts(deployed.context(reporter), None, ["sleep", "1000"])
    assert caught.value.message == "interrupted; not done: gpu[2-4]; ended 6 processes on gpu[2-4]"


def test_ctrl_c_says_where_it_cannot_tell(
    deployed: Fleet, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    press_when_begun(deployed, ["gpu1", "gpu2"])
    deployed["gpu2"].faults.add("no ps")
    monkeypatch.setattr(exec_flow, "LAST_OUTPUT_S", 0.1)
    with pytest.raises(Interrupted) as caught:
        exec_hosts(deployed.context(reporter), "gpu[1-2]", ["sleep", "1000"])
    assert caught.value.message == (
        "interrupted; not done: gpu[1-2]; ended 2 processes on gpu1; cannot tell what is left on gpu2"
    )
    assert caught.value.hint is not None
    assert "kit exec HOST -- ps" in caught.value.hint
    assert "run the same again" not in caught.value.hint


def test_ctrl_c_ends_the_command_though_kit_cannot_print_that(deployed: Fleet) -> None:
    """less keeps running after Ctrl-C, and reads no more. Then a message waits, up to the second Ctrl-C."""

    class Stuck(Remembering):
        def report(self, event: Event) -> None:
            if isinstance(event, Note):
                raise KeyboardInterrupt
            super().report(event)

    names = ["gpu1", "gpu2"]
    press_when_begun(deployed, names)
    with pytest.raises(Interrupted) as caught:
        exec_hosts(deployed.context(Stuck()), "gpu[1-2]", ["sleep", "1000"])
    assert caught.value.hint == "the command may still run on gpu[1-2]: kit exec HOST -- ps aux"
    until(lambda: dict(deployed.changes) == {name: ["end exec"] for name in names})


def test_after_ctrl_c_no_command_begins_any_more(deployed: Fleet, reporter: Remembering) -> None:
    connecting, pressed, refused = threading.Event(), threading.Event(), threading.Event()

    class Late(FakeTransport):
        def stream(self, argv: Sequence[str], live: Live) -> int:
            connecting.set()
            assert pressed.wait(30)
            try:
                return super().stream(argv, live)
            finally:
                refused.set()

    def press() -> None:
        connecting.wait(30)
        _thread.interrupt_main()

    threading.Thread(target=press, daemon=True).start()
    context = replace(deployed.context(reporter), connect=lambda host: Late(deployed[host.name]))
    with pytest.raises(Interrupted, match="runs on no host"):
        exec_hosts(context, "gpu1", ["true"])
    pressed.set()
    assert refused.wait(30)
    assert deployed["gpu1"].mark == ""


def test_each_host_gets_the_input(deployed: Fleet, reporter: Remembering) -> None:
    read, write = os.pipe()
    os.write(write, b"some\xff\n")
    os.close(write)
    exec_hosts(deployed.context(reporter), "gpu[2-4]", ["sh", "-c", "cat > f"], stdin=read)
    os.close(read)
    assert [vm.inputs for vm in deployed.vms.values()] == [[], *[[b"some\xff\n"]] * 3]
