"""kit run -it with a real launcher: the command is a run of one rank, and the run ends with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kit.errors import Interrupted, UnreachableError
from kit.flows.context import Context
from kit.flows.run import follow
from kit.flows.run import terminal as flow
from kit.plan.run import terminal as plan
from tests.fakes import launcher
from tests.fakes.cluster import Cluster

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 and not shutil.which("sudo"), reason="needs root, or sudo without a password"
)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "kit-terminal"
    program.write_text(
        f"import sys\nsys.dont_write_bytecode = True\nsys.path.insert(0, {str(launcher.LIB)!r})\n"
        f"from kitrun import terminal\nterminal.FOLDER = {str(tmp_path / 'sockets')!r}\n"
        "sys.exit(terminal.main(sys.argv[1:]))\n"
    )
    words = (sys.executable, "-IS", str(program))
    monkeypatch.setattr(plan, "_PROGRAM", words)
    monkeypatch.setattr(plan, "HOLD", (*words, "hold"))


def in_container(context: Context, host: str | None, command: tuple[str, ...]) -> int:
    return subprocess.call(command)


def test_the_command_is_a_run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(flow, "exec_in_terminal", in_container)
    result = cluster.run(f'echo "$KIT_RUN $OMPI_COMM_WORLD_RANK" >{tmp_path}/seen; exit 7', np=1, terminal=True)
    assert (result.exit_code, result.stopped) == (7, "")
    assert (tmp_path / "seen").read_text() == f"{result.plan.run_id} 0\n"
    (record,) = cluster.records
    assert record["command"][:2] == ["sh", "-c"]
    assert [(place["node"], place["ranks"]) for place in record["places"]] == [("gpu1", 1)]
    cluster.head.nothing_left()


def test_a_shell_outlives_a_connection_to_the_head(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The head ends a run whose operator is away for a second here. kit must come back, and go on showing itself."""
    head, cut = cluster.head, tmp_path / "cut"
    head.values["decide_OPERATOR_S"] = 1.0
    cluster.reach(head.breaks_when(cut))
    monkeypatch.setattr(follow, "BEAT_S", 0.1)
    monkeypatch.setattr(flow, "exec_in_terminal", in_container)
    beat = f"touch {tmp_path}/mark; until [ {head.runs}/$KIT_RUN/operator -nt {tmp_path}/mark ]; do sleep 0.02; done"
    again = f"until [ $(grep -c x {head.folder}/dialled) = 2 ]; do sleep 0.02; done"
    script = f"touch {cut}; {again}; for n in 1 2 3; do {beat}; done; exit 7"
    result = cluster.run(script, np=1, terminal=True)
    assert (result.exit_code, result.stopped) == (7, "")
    # The shell had the screen.
    assert cluster.reporter.warnings == []
    head.nothing_left()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), UnreachableError("gone", host="gpu1")])
def test_a_lost_terminal_ends_the_run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def lost(context: Context, host: str | None, command: tuple[str, ...]) -> int:
        raise error

    monkeypatch.setattr(flow, "exec_in_terminal", lost)
    with pytest.raises(Interrupted, match="was stopped; ranks left: 0"):
        cluster.run("true", np=1, terminal=True)
    cluster.head.nothing_left()


def test_a_run_that_does_not_start_needs_no_terminal(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "exec_in_terminal", lambda *_: pytest.fail("there is no rank"))
    (cluster.head.folder / "bin" / "mpirun").write_text("#!/bin/sh\necho no >&2; exit 5\n")
    assert cluster.run("true", np=1, terminal=True).exit_code == 5
    cluster.head.nothing_left()
