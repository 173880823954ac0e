"""kit top whole: real ssh to an sshd of this test, the real program, and a real terminal with a person's keys."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.cli.verbs import top
from kit.errors import KitError, StepError
from kit.flows.watch import Watching
from kit.model.watch import Reading, Seen
from kit.remote.ssh.program import BOOTSTRAP
from tests.fakes.head import until
from tests.fakes.sshd import Sshd
from tests.processes import files_of_processes
from tests.terminals import Terminal

SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()=>][A-Z0-9]?")
ALTERNATE, NORMAL, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
PROMPT = "prompt-of-the-shell> "


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with hosts and kit.yaml: gpu1 and gpu2 are this machine, and gpu3 does not answer."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    sshd = Sshd(tmp_path / "host")
    public = (tmp_path / "host.pub").read_text().strip()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        silent = closed.getsockname()[1]
        (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{sshd.port},[localhost]:{sshd.port} {public}\n")
        (tmp_path / "hosts").write_text(
            f"127.0.0.1 port={sshd.port} name=gpu1 internal=10.0.0.1\n"
            f"localhost port={sshd.port} name=gpu2 internal=10.0.0.2\n"
            f"127.0.0.1 port={silent} name=gpu3 internal=10.0.0.3\n"
        )
        (tmp_path / "kit.yaml").write_text("name: lab\nssh:\n  key: user\n  known_hosts: known_hosts\n  keep: false\n")
        yield tmp_path
    sshd.close()


def argv(site: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "kit.cli.main", "-C", str(site), "top", *words]


def run(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv(site, *words), capture_output=True, text=True, timeout=120, check=False)


def programs() -> list[int]:
    """Return the programs of kit top that the sshd of this test has started."""
    found = []
    for path in files_of_processes("cmdline"):
        try:
            if BOOTSTRAP.encode() in path.read_bytes().split(b"\0") and os.getpid() in ancestors(int(path.parent.name)):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid


class Screen:
    """kit top in a terminal."""

    def __init__(self, site: Path, columns: int, *words: str, typed: bool = False) -> None:
        env = {**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "50", "LINES": "10", "PYTHONPATH": str(Path.cwd())}
        env["PS1"] = PROMPT
        self.columns = columns
        command = ["bash", "--norc", "--noprofile", "-i"] if typed else argv(site, *words)
        self.terminal = Terminal(command, env, rows=24, columns=columns)
        if typed:
            self.terminal.type(f"{shlex.join(argv(site, *words))}\n")

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def lines(self) -> list[str]:
        """Return the lines of the newest whole screen."""
        for frame in reversed(self.terminal.text.split("\x1b[H")):
            lines = [line.rstrip() for line in SEQUENCE.sub("", frame).replace("\r", "").split("\n")]
            if lines[-1].startswith(("F1 Help", "Filter:")) or "Any key goes back." in lines:
                return lines
        return [""]

    def until(self, done: Callable[[list[str]], bool]) -> list[str]:
        self.terminal.read_until(lambda _: done(self.lines()), patience_s=60)
        return self.lines()


@pytest.fixture
def screen(site: Path) -> Iterator[Callable[..., Screen]]:
    made: list[Screen] = []

    def make(columns: int, *words: str, typed: bool = False) -> Screen:
        made.append(Screen(site, columns, *words, typed=typed))
        return made[-1]

    yield make
    for one in made:
        one.terminal.close()


def has(*words: str) -> Callable[[list[str]], bool]:
    """Return whether some line has all of these words."""
    return lambda lines: any(all(word in line for word in words) for line in lines)


@pytest.mark.parametrize("columns", [80, 200])
def test_a_screen_with_keys(screen: Callable[..., Screen], columns: int) -> None:
    shown = screen(columns)
    first = "kit top  lab: 3 hosts, 1 without figures"
    lines = shown.until(lambda lines: lines[0].startswith(first) and has("gpu3", "no SSH")(lines))
    assert has("gpu1", "%")(lines)
    assert has("gpu2", "%")(lines)
    assert max(map(len, lines)) <= columns
    assert ("IOWAIT" in "".join(lines)) == (columns == 200)
    shown.resize(280 - columns)
    shown.until(lambda lines: ("IOWAIT" in "".join(lines)) == (columns == 80))
    shown.resize(columns)
    shown.terminal.type("\\gpu2\r")
    lines = shown.until(lambda lines: has("HOSTS 1")(lines) and has("only: gpu2")(lines))
    assert not has("gpu1")(lines[1:])
    shown.terminal.type("\x1b")
    shown.until(has("HOSTS 3"))
    shown.terminal.type("P")
    shown.until(has("HOSTS 3 by CPU"))
    shown.terminal.type("\x1bOP")
    shown.until(has("Any key goes back."))
    shown.terminal.type(" ")
    shown.until(has("HOSTS 3 by CPU"))
    shown.terminal.type("q")
    shown.terminal.read_until(lambda text: text.rstrip().endswith((NORMAL, CURSOR)), patience_s=60)
    assert shown.terminal.code() == 0
    clean(shown)


def clean(shown: Screen) -> None:
    """Check that the terminal is as it was before."""
    text = shown.terminal.text
    assert text.count(ALTERNATE) == text.count(NORMAL) == 1
    assert text.rindex(CURSOR) > text.rindex("\x1b[?25l")
    assert termios.tcgetattr(shown.terminal.fd)[3] & (termios.ECHO | termios.ICANON) == termios.ECHO | termios.ICANON


def test_ctrl_c_leaves_a_clean_terminal_and_nothing_on_the_hosts(screen: Callable[..., Screen]) -> None:
    shown = screen(80, "-H", "gpu1,gpu2")
    shown.until(lambda lines: has("gpu1", "%")(lines) and has("gpu2", "%")(lines))
    assert len(programs()) == 2
    shown.terminal.type("\x03")
    shown.terminal.read_until(lambda text: "interrupted" in text, patience_s=60)
    assert shown.terminal.code() == 130
    clean(shown)
    # sshd passes on the end of the connection, and the programs end with it.
    until(lambda: not programs())


def test_a_closed_window_is_no_bug(
    screen: Callable[..., Screen], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shown = screen(80, "-H", "gpu1")
    shown.until(has("gpu1", "%"))
    shown.terminal.close()
    assert shown.terminal.code() == KitError.exit_code
    # The fixture closes it, too.
    shown.terminal.fd = -1
    assert list(tmp_path.rglob("kit-bug-*")) == []
    until(lambda: not programs())


def test_suspended_and_continued(screen: Callable[..., Screen]) -> None:
    shown = screen(80, "-H", "gpu1", typed=True)
    shown.until(has("gpu1", "%"))
    shown.terminal.type("\x1a")
    # What is typed before the shell's prompt is for kit top's screen, which drops it at its end.
    shown.terminal.read_until(lambda text: PROMPT in text.partition(NORMAL)[2], patience_s=60)
    assert "Stopped" in shown.terminal.text.partition(NORMAL)[2]
    shown.terminal.type("fg\n")
    shown.terminal.read_until(lambda text: text.count(ALTERNATE) == 2, patience_s=60)
    shown.terminal.type("q")
    shown.terminal.read_until(
        lambda text: text.count(NORMAL) == 2 and PROMPT in text.rpartition(NORMAL)[2], patience_s=60
    )
    shown.terminal.type("exit\n")
    assert shown.terminal.code() == 0


def test_ctrl_z_where_no_shell_could_continue_it(screen: Callable[..., Screen]) -> None:
    """As in `ssh -t HOST kit top`: the terminal would hang."""
    shown = screen(80, "-H", "gpu1")
    shown.until(has("gpu1", "%"))
    shown.terminal.type("\x1a")
    shown.terminal.read_until(lambda text: text.count(ALTERNATE) == 2, patience_s=60)
    shown.terminal.type("q")
    assert shown.terminal.code() == 0


def test_once_as_text_and_as_json(site: Path) -> None:
    done = run(site, "--once")
    assert done.returncode == 3
    assert "gpu1" in done.stdout
    assert "gpu3              no SSH connection" in done.stdout
    assert done.stdout.isprintable() or "\x1b" not in done.stdout
    done = run(site, "--once", "--json", "-H", "gpu1")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert (value["kind"], value["run"], value["hosts"][0]["host"]) == ("top", None, "gpu1")
    assert value["hosts"][0]["reading"]["cores"] == os.cpu_count()
    assert value["hosts"][0]["error"] is None


@pytest.mark.parametrize(
    ("silent", "trouble", "code"),
    [
        (Seen(host="gpu2"), "no reading within 30 s", 3),
        (Seen(host="gpu2", error=StepError("its readings ended", host="gpu2")), "its readings ended", 4),
        (Seen(host="gpu2", reading=Reading(at=1.0)), None, 0),
    ],
)
def test_a_host_that_gives_no_figures_at_once_is_a_failure(silent: Seen, trouble: str | None, code: int) -> None:
    class Watchers:
        def wait(self, _done: object, _within_s: float) -> bool:
            return False

        def now(self) -> tuple[Seen, ...]:
            return Seen(host="gpu1", reading=Reading(at=1.0)), silent

    shown: list[dict[str, Any]] = []
    session: Any = SimpleNamespace(close=lambda: None, json=True, emit=lambda _kind, value: shown.append(value))
    watchers: Any = Watchers()
    assert top._once(session, Watching(cluster="lab", watchers=watchers)) == code
    (value,) = shown
    assert [host["trouble"] for host in value["hosts"]] == [None, trouble]
    assert (value["hosts"][1]["error"] is None) == (code == 0)


def test_without_a_terminal_there_is_no_screen(site: Path) -> None:
    done = run(site)
    assert done.returncode == 2
    assert "kit top --once" in done.stderr


def test_json_each_second_until_the_reader_goes(site: Path) -> None:
    with subprocess.Popen(argv(site, "--json", "-H", "gpu1"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert second["hosts"][0]["reading"]["at"] >= first["hosts"][0]["reading"]["at"]
    assert process.returncode == 130
