"""kit local's container on this machine's real engine: lines, exit code, limits, Ctrl-C, and nothing left behind."""

from __future__ import annotations

import _thread
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from kit.errors import Interrupted, NotReadyError, StepError
from kit.events import Event, OutputLine
from kit.flows.image.build import ImageResult
from kit.model.local import LocalContainer
from kit.remote.engine.container import LABEL, LocalEngine
from tests.integration.rig import kit

BASE = "debian:bookworm-slim"


class Collected:
    """Keeps events. At the first line that says `ready`, presses Ctrl-C when asked to."""

    def __init__(self, *, interrupts: bool = False) -> None:
        self.events: list[Event] = []
        self.interrupts = interrupts

    def report(self, event: Event) -> None:
        self.events.append(event)
        if self.interrupts and isinstance(event, OutputLine) and event.text == "ready":
            self.interrupts = False
            _thread.interrupt_main()

    @property
    def lines(self) -> list[tuple[str, str, str]]:
        return [(e.stream, e.source, e.text) for e in self.events if isinstance(e, OutputLine)]


@pytest.fixture
def engine(bases: docker.DockerClient) -> Iterator[LocalEngine]:
    local_engine = LocalEngine()
    yield local_engine
    local_engine.close()
    assert bases.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True) == []


def shell(script: str, **more: object) -> LocalContainer:
    return LocalContainer(image=BASE, argv=("sh", "-c", script), **more)  # type: ignore[arg-type]


def test_lines_and_exit_code(engine: LocalEngine) -> None:
    seen = Collected()
    assert engine.run(shell("echo one; echo two >&2; printf '\\n\\377 three'; exit 7"), seen) == 7
    assert [text for stream, _, text in seen.lines if stream == "stdout"] == ["one", "", "\ufffd three"]
    assert [text for stream, _, text in seen.lines if stream == "stderr"] == ["two"]


def test_not_a_line_is_lost(engine: LocalEngine) -> None:
    seen = Collected()
    assert engine.run(shell("seq 1 20000"), seen) == 0
    assert [text for _, _, text in seen.lines] == [str(n) for n in range(1, 20001)]


def test_ranks_become_sources(engine: LocalEngine) -> None:
    seen = Collected()
    engine.run(shell("printf '\\036kit-line 3 o . 3\\nhi\\n' >&2; echo plain >&2"), seen, tagged=True)
    assert seen.lines == [("stdout", "3", "hi"), ("stderr", "", "plain")]


BUSY = """
import os
import sys

for n in range(3000):
    sys.stdout.write(f"rank {os.environ['RANK']} line {n} {'x' * (n % 60)} end\\n")
    sys.stdout.flush()
"""


def test_the_lines_of_busy_ranks_are_whole(image: ImageResult, tmp_path: Path) -> None:
    """mpirun mixed about one line in a hundred, because it moves pieces without regard for lines."""
    (tmp_path / "kit.yaml").write_text("name: whole\nulimits: {memlock: default}\n")
    done = kit(tmp_path, "local", "--np", "4", "--code", "none", "--", "python3", "-c", BUSY)
    assert done.returncode == 0, done.stderr
    wanted = [f"rank {rank} line {n} {'x' * (n % 60)} end" for rank in range(4) for n in range(3000)]
    lines = done.stdout.splitlines()
    assert sorted(lines) == sorted(wanted)
    for rank in range(4):
        own = [line for line in lines if line.startswith(f"rank {rank} ")]
        assert own == [line for line in wanted if line.startswith(f"rank {rank} ")]


def test_what_kit_yaml_says_holds_inside(engine: LocalEngine) -> None:
    seen = Collected()
    script = "echo $A; df -k /dev/shm | tail -n 1 | awk '{print $2}'; ulimit -s; touch /data/x 2>/dev/null || echo ro"
    container = shell(
        script, env={"A": "b  $c"}, volumes=("/usr:/data:ro",), shm_size="96mb", ulimits={"stack": 67108864}
    )
    assert engine.run(container, seen) == 0
    assert [text for _, _, text in seen.lines] == ["b $c", str(96 * 1024), "65536", "ro"]


def test_ctrl_c_ends_all_of_it(engine: LocalEngine) -> None:
    # A child that ignores TERM, and one that would go on writing: neither may outlive the return.
    seen = Collected(interrupts=True)
    with pytest.raises(Interrupted):
        engine.run(shell("(trap '' TERM; sleep 300) & echo ready; sleep 300"), seen)


def test_no_such_image_and_no_such_command(engine: LocalEngine) -> None:
    with pytest.raises(NotReadyError) as caught:
        engine.run(LocalContainer(image="kit:never-built", argv=("true",)), Collected())
    assert caught.value.hint == "run: kit image build"
    assert engine.run(LocalContainer(image=BASE, argv=("no-such-command",)), Collected()) == 127


def test_a_bad_mount_is_named(engine: LocalEngine) -> None:
    with pytest.raises(StepError) as caught:
        engine.run(shell("true", volumes=("/usr:relative",)), Collected())
    assert "relative" in caught.value.message
