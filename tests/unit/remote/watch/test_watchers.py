"""kit.remote.watch: the program runs for real, on addresses of this machine."""

from __future__ import annotations

import ast
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kit.errors import AnswerError, KitError, StepError, UnreachableError
from kit.model.answer import OddAnswer
from kit.model.host import Host
from kit.model.watch import Reading, Seen, SuspectReading
from kit.plan.watch import rows
from kit.remote.machine.assets import images_dir
from kit.remote.ssh.program import ARGV
from kit.remote.watch import watchers
from kit.remote.watch.answers import MOST_LINE, reading_of
from kit.remote.watch.program import MODULES, program
from kit.remote.watch.watchers import Watchers, answered
from tests.fakes.loopback import Loopback

FOLDER = images_dir() / "lib" / "kitwatch"
LONG_S = 60.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Loopback:
    monkeypatch.setattr(watchers, "AGAIN_S", (0.01,))
    return Loopback(2)


def error_of(seen: Seen) -> KitError:
    assert seen.error is not None
    return seen.error


def test_readings_of_two_hosts_until_the_end(machine: Loopback) -> None:
    with Watchers(machine.hosts, machine.connect, every=0.05, keep=3) as watched:
        assert watched.wait(lambda seen: all(one.number >= 4 for one in seen), LONG_S)
        first, second = watched.now()
        history = watched.history()["gpu1"]
    assert (first.host, second.host, first.error) == ("gpu1", "gpu2", None)
    assert first.reading is not None
    assert first.reading.cores == os.cpu_count()
    assert first.reading.cpu is not None
    assert first.age < LONG_S
    assert len(history) == 3
    assert history[0].at < history[2].at
    # Nothing is left on the hosts: their programs have ended by themselves.
    assert [process.wait() for process in machine.processes.values()] == [0, 0]


def test_readings_of_many_hosts_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1,000 hosts, a look after each reading takes longer than the readings."""
    hosts = [Host(name=f"gpu{n}", address="192.0.2.1") for n in range(1000)]
    watched = Watchers(hosts, Loopback(0).connect)
    now = 0.0
    looks: list[int] = []

    def passes(seconds: float) -> None:
        nonlocal now
        now += seconds

    class _Readings(threading.Condition):
        """A reading comes each millisecond."""

        def wait(self, timeout: float | None = None) -> bool:
            passes(0.001)
            return True

    class _Closed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            passes(timeout or 0)
            return False

    watched.changed, watched.closed = _Readings(), _Closed()
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def done(seen: Sequence[Seen]) -> bool:
        looks.append(len(seen))
        return now >= 1

    assert watched.wait(done, 60)
    assert len(looks) <= 15
    # No look comes after the time is over, but the last one.
    looks.clear()
    assert not watched.wait(lambda seen: bool(looks.append(len(seen))), 0.05)
    assert now < 1.3
    assert len(looks) <= 3


def test_a_number_of_readings(machine: Loopback) -> None:
    with Watchers(machine.hosts, machine.connect, every=0.05, count=2, threads=True, keep=9) as watched:
        assert watched.wait(lambda seen: all(one.number == 2 for one in seen), LONG_S)
        assert not watched.wait(lambda seen: any(one.number > 2 for one in seen), LONG_S)
        assert {name: len(readings) for name, readings in watched.history().items()} == {"gpu1": 2, "gpu2": 2}


def hosts_later(watched: Watchers, monkeypatch: pytest.MonkeyPatch) -> tuple[rows.HostRow, ...]:
    """Return the rows of the hosts 30 s after the first host's first reading."""
    assert watched.wait(lambda seen: seen[0].number == 1, LONG_S)
    now = time.monotonic()
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: now + 30)
        return tuple(rows.tables(watched.now(), rows.History()).hosts)


def test_the_last_reading_that_is_wanted_does_not_age(machine: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    """kit top --once may wait 30 s for a host that does not answer: the figures of the other stay."""
    machine.altered["gpu2"] = ("sh", "-c", "read -r line; exec sleep 1000")
    with Watchers(machine.hosts, machine.connect, every=0.05, count=1) as watched:
        first, second = hosts_later(watched, monkeypatch)
    assert (first.trouble, first.cores) == ("", os.cpu_count())
    assert second.trouble == "waiting for its first reading"


def test_a_reading_ages_while_others_are_to_come(machine: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    with Watchers(machine.hosts, machine.connect, every=1000, count=2) as watched:
        first, _ = hosts_later(watched, monkeypatch)
    assert first.trouble.startswith("no reading for ")


def test_a_host_that_fails_delays_no_other_and_comes_back(machine: Loopback) -> None:
    machine.down.add("gpu1")
    with Watchers(machine.hosts, machine.connect, every=0.05) as watched:
        assert watched.wait(answered, LONG_S)
        assert watched.wait(lambda seen: seen[1].number >= 2, LONG_S)
        failed = watched.now()[0]
        assert isinstance(failed.error, UnreachableError)
        assert (failed.reading, failed.error.host) == (None, "gpu1")
        machine.down.clear()
        assert watched.wait(lambda seen: seen[0].number >= 1, LONG_S)
        assert watched.now()[0].error is None


def test_a_program_that_is_killed_is_started_again(machine: Loopback) -> None:
    with Watchers(machine.hosts, machine.connect, every=0.05) as watched:
        assert watched.wait(lambda seen: seen[0].number >= 1, LONG_S)
        one = machine.processes["gpu1"]
        one.kill()
        assert watched.wait(lambda _: machine.processes["gpu1"] is not one, LONG_S)
        before = watched.now()[0].number
        assert watched.wait(lambda seen: seen[0].number > before, LONG_S)


def test_readings_for_kit_blame_say_which_program_gave_them_and_when(machine: Loopback) -> None:
    with Watchers(machine.hosts, machine.connect, every=0.05, keep=4096, run="20261121-101500-3fa2") as watched:
        assert watched.wait(lambda seen: all(one.number >= 2 for one in seen), LONG_S)
        machine.processes["gpu1"].kill()
        read = watched.history
        assert watched.wait(lambda _: len({one.stream for one in suspects(read()["gpu1"])}) == 2, LONG_S)
        gpu1, gpu2 = (suspects(read()[name]) for name in ("gpu1", "gpu2"))
    assert [one.stream for one in gpu1] == sorted(one.stream for one in gpu1)
    assert {one.stream for one in gpu2} == {1}
    moments = [one.heard for one in gpu1]
    assert 0 < moments[0] < moments[-1] < time.monotonic()


def suspects(readings: Sequence[Reading]) -> list[SuspectReading]:
    return [one for one in readings if isinstance(one, SuspectReading)]


@pytest.mark.parametrize(
    ("argv", "kind", "text"),
    [
        (("sh", "-c", "echo 'sh: 1: python3: not found' >&2; exit 127"), StepError, "python3: not found"),
        (("sh", "-c", "exit 3"), StepError, "its readings ended: exit code 3"),
        (("sh", "-c", 'echo \'{"at": "x"}\'; read -r line'), AnswerError, "cannot read what kit reads there"),
        (("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x"), AnswerError, "it prints more than a reading"),
    ],
)
def test_what_a_host_does_instead(machine: Loopback, argv: tuple[str, ...], kind: type[KitError], text: str) -> None:
    machine.altered["gpu1"] = argv
    with Watchers(machine.hosts, machine.connect, every=0.05, count=1) as watched:
        assert watched.wait(answered, LONG_S)
        error = error_of(watched.now()[0])
    assert isinstance(error, kind)
    assert text in str(error)
    assert error.hint


def test_no_python_is_named_with_what_to_install(machine: Loopback) -> None:
    machine.altered["gpu1"] = ("sh", "-c", "echo 'sh: 1: python3: not found' >&2; exit 127")
    with Watchers(machine.hosts, machine.connect, count=1) as watched:
        assert watched.wait(answered, LONG_S)
        assert "install Python 3.6" in (error_of(watched.now()[0]).hint or "")


def test_a_bug_of_kit_leaves_nobody_waiting(machine: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_order: object) -> bytes:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(watchers, "program", broken)
    with Watchers(machine.hosts, machine.connect, count=1) as watched:
        assert watched.wait(answered, LONG_S)
        assert error_of(watched.now()[0]).message == "kit failed: ZeroDivisionError: division by zero"


@contextmanager
def started(order: dict[str, object], folder: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Start the program as a host does. `folder` is where it is, its home, and its place for temporary files."""
    argv = [sys.executable, "-Ic", ARGV[2]]
    environ = {**os.environ, **({"HOME": str(folder), "TMPDIR": str(folder)} if folder else {})}
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=folder, env=environ
    ) as process:
        assert process.stdin
        process.stdin.write(
            program({"every": 0.05, "count": 0, "threads": False, "paths": [], "patience": 600, **order})
        )
        yield process
        process.kill()


def test_it_ends_when_nobody_reads() -> None:
    with started({}) as process:
        assert process.stdout
        assert process.stdout.readline().startswith(b'{"at":')
        process.stdout.close()
        assert process.wait(LONG_S) == 0


def test_it_ends_when_nobody_is_heard_though_the_connection_stays() -> None:
    """A link was cut without notice. The pipe to sshd fills up."""
    with started({"patience": 0.2, "every": 0.001}) as process:
        assert process.wait(LONG_S) == 0


def test_it_listens_nowhere_and_writes_no_file(tmp_path: Path) -> None:
    with started({}, tmp_path) as process:
        assert process.stdout
        for _ in range(2):
            assert process.stdout.readline().startswith(b'{"at":')
        opened = {}
        for entry in Path(f"/proc/{process.pid}/fd").iterdir():
            # It reads files of /proc meanwhile.
            with suppress(OSError):
                facts = Path(f"/proc/{process.pid}/fdinfo/{entry.name}").read_text()
                flags = int(facts.split("flags:")[1].split()[0], 8)
                opened[int(entry.name)] = (str(entry.readlink()), flags & os.O_ACCMODE)
    assert {0, 1} <= set(opened)
    assert not [name for name, _ in opened.values() if name.startswith("socket:")]
    assert not [name for number, (name, mode) in opened.items() if number > 2 and mode != os.O_RDONLY]
    assert not [*tmp_path.rglob("*")]


def test_a_byte_now_and_then_keeps_it() -> None:
    with started({"patience": LONG_S}) as process:
        assert process.stdin
        assert process.stdout
        for _ in range(3):
            process.stdin.write(b"\n")
            assert select.select([process.stdout], [], [], LONG_S)[0]
            assert process.stdout.readline()
        process.terminate()
        assert process.wait(LONG_S) == 0


def test_all_modules_are_sent_each_after_those_that_it_imports() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} >= set(MODULES)
    for index, name in enumerate(MODULES):
        assert set(own_imports(FOLDER / f"{name}.py")) <= set(MODULES[:index])


def own_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "kitwatch":
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"at": 1, "cores": "4"}', "Expected `int`"),
        (b'{"at": 1e300}', "a number is above"),
        (b'{"at": 1, "ranks": [{"run": "' + b"x" * 300 + b'", "rank": 0, "pid": 1}]}', "a text is too long"),
        (
            b'{"at": 1, "ranks": [{"run": "r", "rank": 0, "pid": 1, "allowed": "' + b"1" * 5000 + b'"}]}',
            "text is too long",
        ),
        (b'{"at": 1, "per_core": [' + b"1," * 9000 + b"1]}", "more than 8192 entries"),
        (b" " * (MOST_LINE + 1), "bytes"),
    ],
)
def test_an_odd_reading_is_refused(line: bytes, text: str) -> None:
    with pytest.raises(OddAnswer, match=text):
        reading_of(line)


def test_a_port_that_has_carried_much() -> None:
    """A fast port passes 2**53 bytes in some days. The greatest amount is 2**64 - 1 words of 4 bytes."""
    most = 4 * (2**64 - 1)
    reading = reading_of(b'{"at": 1, "nics": {"mlx5_0/1": {"rx_bytes": %d, "rx": 5e10}}}' % most)
    assert reading.nics["mlx5_0/1"].rx_bytes == most


def test_a_rank_on_every_other_core_of_a_large_host() -> None:
    """The CPUs of two sockets may alternate."""
    cores = ",".join(map(str, range(0, 1024, 2)))
    reading = reading_of(b'{"at": 1, "ranks": [{"run": "r", "rank": 0, "pid": 1, "allowed": "%s"}]}' % cores.encode())
    assert reading.ranks[0].allowed == cores
