"""kit metrics on hosts that are addresses of this machine: the program runs for real."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kit.cli.verbs import metrics as verb
from kit.errors import HostsFailed, InputError, StepError
from kit.flows import metrics as flow
from kit.model.metrics import Address, Exported
from kit.plan.forward import listeners
from kit.remote.watch import prometheus, watchers
from tests.fakes.loopback import Loopback
from tests.fakes.reporter import Remembering

LOOPBACK = Address(host="127.0.0.1", port=0)
ALL = "0.0.0.0"  # noqa: S104  (what the tests are about)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Loopback:
    monkeypatch.setattr(watchers, "AGAIN_S", (0.01,))
    return Loopback(2)


def never(_value: object) -> None:
    raise AssertionError("nothing may be opened")


def samples(text: str) -> dict[tuple[str, str], float]:
    """Return the values of metrics by name and host."""
    families = text_string_to_metric_families(text)
    return {(one.name, one.labels.get("host", "")): one.value for family in families for one in family.samples}


def while_open(work: Callable[[Callable[[Any], None]], None], look: Callable[[Any], None]) -> None:
    """Do the work, look at what it opened in another thread, then press Ctrl-C. What the look raises is raised."""
    errors: list[BaseException] = []
    main = threading.get_ident()

    def check(value: Any) -> None:
        try:
            look(value)
        except BaseException as error:
            errors.append(error)
        signal.pthread_kill(main, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        work(lambda value: threading.Thread(target=check, args=(value,), daemon=True).start())
    if errors:
        raise errors[0]


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310  (a test's own address)
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return str(answer.read().decode())


def test_the_metrics_are_served_on_the_loopback_until_ctrl_c(machine: Loopback, reporter: Remembering) -> None:
    ports: list[int] = []

    def look(value: Exported) -> None:
        found = samples(get(value.url))
        assert found["kit_host_up", "gpu1"] == found["kit_host_up", "gpu2"] == 1.0
        assert found["kit_host_cores", "gpu2"] == os.cpu_count()
        assert ("kit_info", "") in found
        # Nothing of kit's own process.
        assert all(name.startswith("kit_") for name, _ in found)
        ports.append(int(value.url.rpartition(":")[2].partition("/")[0]))
        assert listeners(Path("/proc/net/tcp").read_text().splitlines(), ports[0]) == ["127.0.0.1"]

    context = machine.context(reporter)
    while_open(lambda ready: flow.serve(context, LOOPBACK, every=0.1, anywhere=False, ready=ready), look)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", ports[0]), timeout=5)
    assert [process.wait() for process in machine.processes.values()] == [0, 0]
    assert reporter.warnings == []


def test_hosts_that_are_read_rarely_are_up_all_the_time(
    machine: Loopback, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    with flow.served(machine.context(reporter), LOOPBACK, every=60) as exported:
        now = time.monotonic()
        with monkeypatch.context() as patched:
            patched.setattr(time, "monotonic", lambda: now + 55)
            values = samples(get(exported.url))
    assert (values["kit_host_up", "gpu1"], values["kit_host_up", "gpu2"]) == (1.0, 1.0)


def test_a_host_that_fails_is_0_and_reported_once(machine: Loopback, reporter: Remembering) -> None:
    machine.down.add("gpu1")
    found = samples(flow.text(machine.context(reporter)))
    assert (found["kit_host_up", "gpu1"], found["kit_host_up", "gpu2"]) == (0.0, 1.0)
    assert ("kit_host_cores", "gpu1") not in found
    (warning,) = reporter.warnings
    assert warning.text.startswith("gpu1: ")
    assert warning.text.endswith("; its kit_host_up is 0")


def test_hosts_that_fail_alike_are_one_warning(reporter: Remembering) -> None:
    machine = Loopback(3)
    machine.down |= {"gpu2", "gpu3"}
    flow.text(machine.context(reporter))
    (warning,) = reporter.warnings
    assert warning.text == "gpu[2-3]: no SSH connection; their kit_host_up is 0"


def test_hosts_that_all_fail_are_an_error(machine: Loopback, reporter: Remembering) -> None:
    machine.down |= {"gpu1", "gpu2"}
    with pytest.raises(HostsFailed, match="all 2 hosts failed") as caught:
        flow.serve(machine.context(reporter), LOOPBACK, every=1, anywhere=False, ready=never)
    assert caught.value.exit_code == 3


def test_a_host_that_gives_nothing_in_time_has_failed(
    machine: Loopback, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers.Watchers, "wait", lambda _self, _done, _within_s: False)
    machine.altered = dict.fromkeys(("gpu1", "gpu2"), ("sh", "-c", "cat >/dev/null"))
    with pytest.raises(HostsFailed, match="all 2 hosts failed") as caught:
        flow.text(machine.context(reporter))
    assert [str(error) for error in caught.value.failures] == [
        "gpu1: no reading within 60 s",
        "gpu2: no reading within 60 s",
    ]


# The system reads what ipaddress does not.
@pytest.mark.parametrize("host", [ALL, "::", "0:0::0", "0", "0x0", "000.0.0.0", "::ffff:0.0.0.0"])
def test_all_addresses_need_a_word(machine: Loopback, reporter: Remembering, host: str) -> None:
    with pytest.raises(InputError, match="every address of this machine") as caught:
        flow.serve(machine.context(reporter), Address(host=host, port=9400), every=1, anywhere=False, ready=never)
    assert "--all-addresses" in (caught.value.hint or "")
    assert machine.processes == {}
    flow.check_address(Address(host=host, port=9400), anywhere=True)


# The system looks up no name with an empty part, and none that ends in .invalid exists.
@pytest.mark.parametrize("host", ["a..b", "gpu1.invalid"])
def test_a_name_without_an_address_is_refused_before_any_host_is_read(
    machine: Loopback, reporter: Remembering, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    look_up = socket.getaddrinfo

    def without_network(name: str, *words: Any, **more: Any) -> Any:
        if name.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(name, *words, **more)

    monkeypatch.setattr(socket, "getaddrinfo", without_network)
    with pytest.raises(InputError, match=f"this machine knows no address of '{host}'") as caught:
        flow.serve(machine.context(reporter), Address(host=host, port=9400), every=1, anywhere=False, ready=never)
    assert caught.value.hint == "name an address of this machine: --listen 127.0.0.1:9400"
    assert machine.processes == {}
    assert reporter.warnings == []


def test_an_address_that_others_reach_is_a_warning(machine: Loopback, reporter: Remembering) -> None:
    def look(value: Exported) -> None:
        assert get(value.url)

    context, everywhere = machine.context(reporter), Address(host=ALL, port=0)
    while_open(lambda ready: flow.serve(context, everywhere, every=0.1, anywhere=True, ready=ready), look)
    (warning,) = reporter.warnings
    assert "there is no password" in warning.text


def test_a_taken_port_is_named_before_any_host_is_read(machine: Loopback, reporter: Remembering) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address(host="127.0.0.1", port=taken.getsockname()[1])
        with pytest.raises(InputError, match=rf"is in use by .* \(pid {os.getpid()}\)"):
            flow.serve(machine.context(reporter), address, every=1, anywhere=False, ready=never)
    assert machine.processes == {}


def test_an_address_of_another_machine_is_an_error(machine: Loopback, reporter: Remembering) -> None:
    address = Address(host="192.0.2.1", port=9400)
    with pytest.raises(StepError, match=r"cannot listen on 192\.0\.2\.1:9400: .*assign requested address"):
        flow.serve(machine.context(reporter), address, every=1, anywhere=False, ready=never)


def test_a_file_is_replaced_whole(machine: Loopback, reporter: Remembering, tmp_path: Path) -> None:
    file = tmp_path / "kit.prom"
    seen: list[Exported] = []
    flow.write(machine.context(reporter), file, every=1, once=True, ready=seen.append)
    assert samples(file.read_text())["kit_host_up", "gpu1"] == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["kit.prom"]
    assert seen == [Exported(file=str(file), hosts=("gpu1", "gpu2"))]


def test_a_file_that_is_written_once_waits_for_no_ctrl_c(
    machine: Loopback, reporter: Remembering, tmp_path: Path
) -> None:
    file = tmp_path / "kit.prom"
    args = {"listen": None, "textfile": str(file), "once": True, "every": None, "all_addresses": False, "quiet": False}
    shown: list[str] = []
    session: Any = SimpleNamespace(
        args=SimpleNamespace(**args),
        json=False,
        context=lambda: machine.context(reporter),
        show=lambda _kind, value, text: shown.append(text(value)),
        terminal=SimpleNamespace(tell=shown.append),
    )
    assert verb.metrics(session) == 0
    assert shown == [f"{file}: metrics of 2 hosts"]


def test_a_file_is_written_again(machine: Loopback, reporter: Remembering, tmp_path: Path) -> None:
    file = tmp_path / "kit.prom"

    def look(_value: Exported) -> None:
        inode = file.stat().st_ino
        # The writer is another thread: what it writes next is another file.
        held = file.open()
        while file.stat().st_ino == inode:
            threading.Event().wait(0.01)
        held.close()

    context = machine.context(reporter)
    while_open(lambda ready: flow.write(context, file, every=0.05, once=False, ready=ready), look)


def test_a_disk_that_is_full_for_a_while_ends_nothing(
    machine: Loopback, reporter: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, wrong = "No space left on device", "Read-only file system"
    answers = ["", full, full, wrong, "", wrong]
    main = threading.get_ident()

    def write(_now: object, file: Path) -> None:
        if not answers:
            signal.pthread_kill(main, signal.SIGINT)
        elif why := answers.pop(0):
            raise StepError(f"{file} cannot be written: {why}", hint="choose another: --textfile FILE")

    monkeypatch.setattr(prometheus, "write", write)
    with pytest.raises(KeyboardInterrupt):
        flow.write(machine.context(reporter), Path("kit.prom"), every=0.001, once=False, ready=lambda _value: None)
    assert [one.text.split(": ")[1] for one in reporter.warnings] == [
        f"{full}; kit tries again",
        f"{wrong}; kit tries again",
        f"{wrong}; kit tries again",
    ]


def test_a_folder_that_does_not_exist_is_named(machine: Loopback, reporter: Remembering, tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"no/kit\.prom cannot be written: No such file"):
        flow.write(machine.context(reporter), tmp_path / "no" / "kit.prom", every=1, once=True, ready=never)
