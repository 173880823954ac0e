"""kit top on real hosts with ranks: what a person sees in tmux at two widths, the keys, and how often kit connects."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import missing
from tests.integration.rig import VM, Cluster, kit_argv, kit_environ, until

ALL = {"gpu1": [0, 1], "gpu2": [2, 3], "gpu3": [4, 5], "gpu4": [6, 7]}
ROWS = 40


class Tmux:
    """The only window of a separate tmux server. `lines` is what a person sees of it."""

    def __init__(self, name: str, columns: int, argv: list[str]) -> None:
        self._name = name
        # tmux itself does not always know the exit code.
        line = f"{shlex.join(argv)}; echo exit code $?; exec sleep 600"
        self("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(ROWS), line)

    def __call__(self, *words: str) -> str:
        argv = ["tmux", "-L", self._name, *words]
        return subprocess.run(
            argv, env=kit_environ(LC_ALL="C.UTF-8"), capture_output=True, text=True, check=True, timeout=60
        ).stdout

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self("capture-pane", "-p").split("\n")]

    def until(self, what: str, done: Callable[[list[str]], bool]) -> list[str]:
        return until(what, lambda: lines if done(lines := self.lines) else None)

    def type(self, *keys: str) -> None:
        self("send-keys", *keys)

    def code(self) -> int:
        """Wait until the command has ended, and return its exit code."""
        lines = self.until("it has ended", has("exit code"))
        (last,) = (line for line in lines if line.startswith("exit code"))
        return int(last.split()[-1])


@pytest.fixture
def tmux(cluster: Cluster) -> Iterator[Callable[..., Tmux]]:
    if shutil.which("tmux") is None:
        missing("there is no tmux on this machine", "scripts/shells")
    made: list[Tmux] = []

    def make(columns: int, *words: str) -> Tmux:
        made.append(Tmux(f"{cluster.name}-{len(made)}", columns, kit_argv("-C", str(cluster.folder), *words)))
        return made[-1]

    yield make
    for one in made:
        one("kill-server")


def has(*words: str) -> Callable[[list[str]], bool]:
    """Return whether some line has all of these words."""
    return lambda lines: any(all(word in line for word in words) for line in lines)


def test_a_run_at_two_widths(cluster: Cluster, tmux: Callable[..., Tmux]) -> None:
    with cluster.running("run", "--", "sh", "-c", "echo rank $RANK is up; exec sleep 311") as run:
        cluster.wait_for_ranks(run, ALL)
        for columns in (80, 200):
            shown = tmux(columns, "top", "latest")
            lines = shown.until(
                "all hosts and the last lines of all ranks",
                lambda lines: (
                    all(has(name, "%")(lines) for name in ALL)
                    and all(has(f"rank {rank} is up")(lines) for rank in range(8))
                ),
            )
            assert lines[0].startswith(f"kit top  {cluster.name}: 4 hosts")
            assert ("IOWAIT" in "".join(lines)) == (columns == 200)
            assert any(line.startswith("F1 Help") for line in lines)
            shown.type("\\", "gpu3", "Enter")
            lines = shown.until("only gpu3", has("only: gpu3"))
            assert not has("gpu1", "%")(lines[1:])
            shown.type("Escape")
            shown.until("all hosts again", lambda lines: all(has(name, "%")(lines) for name in ALL))
            shown.type("q")
            assert shown.code() == 0
            # The screen of before is back.
            assert not has("F1 Help")(shown.lines)


@pytest.fixture
def sockets() -> Iterator[Path]:
    """Return a folder in which kit keeps connections, which end with the test. Paths of sockets must be short."""
    with tempfile.TemporaryDirectory(prefix="kit-top-", dir="/tmp") as name:
        yield Path(name)
        for path in Path(name).glob("kit/*"):
            subprocess.run(["ssh", "-O", "exit", "-o", f"ControlPath={path}", "any"], capture_output=True, check=False)


def connections(host: VM) -> set[str]:
    """Return the far ends of all connections to the host's sshd."""
    rows = host.text("ss", "-Htn", "state", "established", "sport = :22").splitlines()
    return {row.split()[3] for row in rows}


def test_one_connection_to_each_host_shows_also_the_last_lines(cluster: Cluster, sockets: Path) -> None:
    with cluster.running("run", "--", "sh", "-c", "echo rank $RANK is up; exec sleep 312") as run:
        cluster.wait_for_ranks(run, ALL)
        before = {host.name: connections(host) for host in cluster.hosts}
        with cluster.running("top", "latest", "--json", KIT_SSH_KEEP="true", XDG_RUNTIME_DIR=str(sockets)) as shown:
            assert shown.stdout
            for line in shown.stdout:
                readings = [host["reading"] for host in json.loads(line)["hosts"]]
                ranks = [rank for reading in readings if reading for rank in reading["ranks"]]
                if len(ranks) == 8 and all(rank["last"] == f"rank {rank['rank']} is up" for rank in ranks):
                    break
            made = {host.name: len(connections(host) - before[host.name]) for host in cluster.hosts}
    assert made == dict.fromkeys(ALL, 1)
