"""What the integration tests hold, as far as it needs no engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.integration import rig
from tests.integration.rig import until

ROOT = Path(__file__).parents[2]
HOLDS = """
import sys
from pathlib import Path
from tests.integration import rig

rig.kit_argv = lambda *words: ["sh", "-c", 'echo "$@" >>"$0"', sys.argv[2], *words]
with rig.taken_down(Path(sys.argv[1]), "lab1"):
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_a_lab_goes_with_the_process_that_made_it(tmp_path: Path, killed: bool) -> None:
    folder, calls = tmp_path / "lab", tmp_path / "told"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, folder, calls],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        assert not calls.exists()
        if killed:
            process.send_signal(signal.SIGKILL)
        else:
            process.communicate()
    until("the lab is down", lambda: calls.exists() and calls.read_text().endswith("\n"))
    assert calls.read_text() == f"-C {folder} lab down --name lab1\n"
    if killed:
        until("its folder is gone", lambda: not folder.exists())


def test_processes_of_runs_are_found_by_their_marks(tmp_path: Path) -> None:
    run = f"test-{uuid.uuid4().hex[:12]}"
    code = "import sys; print(flush=True); sys.stdin.read()  # two  words"
    marks = ({"KIT_RUN": run, "OMPI_COMM_WORLD_RANK": "3"}, {"KIT_RUN": run}, {"OMPI_COMM_WORLD_RANK": "5"})
    started = [
        subprocess.Popen(
            [sys.executable, "-IS", "-c", code],
            env={"PATH": os.environ["PATH"], **mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for mark in marks
    ]
    try:
        for process in started:
            assert process.stdout
            process.stdout.readline()
        vm = _Here(name="here", address="", folder=tmp_path)
        ranks = {item.pid: (item.rank, item.command.strip()) for item in vm.marked() if item.run == run}
    finally:
        for process in started:
            process.communicate()
    command = f"{sys.executable} -IS -c {code}"
    assert ranks == {started[0].pid: (3, command), started[1].pid: (None, command)}


class _Here(rig.VM):
    """This machine in the place of a lab host."""

    def text(self, *argv: str, stdin: str = "") -> str:
        return subprocess.run(argv, input=stdin, capture_output=True, text=True, check=True).stdout
