"""Steps on a manager, with a transport that answers as Swarm does."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from kit.errors import StepError
from kit.events import Warned
from kit.model.plan import Step
from kit.model.swarm import ForgetNodes, StackRemove, SwarmLeave, UnlabelNodes, WaitTasks
from kit.remote.cluster.execution import Execution
from kit.remote.scripts import script
from kit.remote.ssh.transport import Completed, Live
from kit.remote.swarm.steps import ON_HOST, POLL_S, swarm_leave, wait_tasks
from tests.fakes.facts import host
from tests.fakes.reporter import Remembering


class Tasks:
    """Lists these tasks, and `down`, the nodes that are down. Fails the test if nobody stops asking."""

    host = host(1)

    def __init__(self, *lines: str, down: Sequence[str] = (), looks: int = 3) -> None:
        self._lines, self._down, self._looks = lines, down, looks
        self.questions = 0

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        if "kit-swarm_down" in argv:
            self.questions += 1
            return Completed(code=0, stdout="".join(f"{line}\n" for line in self._down).encode(), stderr=b"")
        self._looks -= 1
        if self._looks < 0:
            raise TimeoutError("still waiting")
        return Completed(code=0, stdout="".join(f"{line}\n" for line in self._lines).encode(), stderr=b"")

    def stream(self, argv: Sequence[str], live: Live) -> int:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Clock:
    """Passes only while somebody sleeps."""

    def __init__(self) -> None:
        self._now = 1000.0

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


def test_the_last_task_of_a_node_that_left_and_is_down_is_not_waited_for() -> None:
    """Swarm does not hear that it ended, and shows it as running."""
    tasks = Tasks("kit-lab_mpinode t1 n2 running running new", "kit-lab_mpinode t2 n9 shutdown running old")
    execution = Execution(cluster="lab", hosts={}, logins={}, connect=None, engine_of=None, reporter=Remembering())  # type: ignore[arg-type]
    services = (("kit-lab_mpinode", "new", 1),)
    wait_tasks(execution, tasks, WaitTasks(services=services, timeout_s=0, silent=("n9",), why=""))
    with pytest.raises(StepError, match="Swarm does not start"):
        wait_tasks(execution, tasks, WaitTasks(services=services, timeout_s=0, why=""))


@pytest.mark.parametrize(
    ("lines", "down", "wait_s", "error", "message"),
    [
        (["n2 running running new"], ["gpu3 (10.0.0.3)"], 70, StepError, r"on gpu3 \(10.0.0.3\), which is down"),
        # Its last task had been started when it went down.
        (["n2 running running new", "n3 shutdown assigned new"], ["gpu3 (10.0.0.3)"], 70, StepError, "no task on gpu3"),
        # It may have just started.
        (["n2 running running new"], ["gpu3 (10.0.0.3)"], 59, TimeoutError, "still waiting"),
        # The other task may still start.
        (["n2 running preparing new"], ["gpu3 (10.0.0.3)"], 150, TimeoutError, "still waiting"),
        (["n2 running running new"], [], 150, TimeoutError, "still waiting"),
    ],
)
def test_a_wait_ends_early_if_only_tasks_of_nodes_that_are_down_are_missing(
    lines: list[str], down: list[str], wait_s: float, error: type[Exception], message: str, *,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("kit.remote.swarm.steps.time", Clock())
    words = [f"kit-lab_mpinode t{number} {line}" for number, line in enumerate(lines)]
    tasks = Tasks(*words, down=down, looks=int(wait_s / POLL_S))
    execution = Execution(cluster="lab", hosts={}, logins={}, connect=None, engine_of=None, reporter=Remembering())  # type: ignore[arg-type]
    with pytest.raises(error, match=message):
        wait_tasks(execution, tasks, WaitTasks(services=(("kit-lab_mpinode", "new", 2),), timeout_s=1000, why=""))


def test_a_long_wait_asks_seldom_which_nodes_are_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one more command on the manager, and each look at the tasks is two already."""
    monkeypatch.setattr("kit.remote.swarm.steps.time", Clock())
    tasks = Tasks("kit-lab_mpinode t1 n2 running running new", looks=int(145 / POLL_S))
    execution = Execution(cluster="lab", hosts={}, logins={}, connect=None, engine_of=None, reporter=Remembering())  # type: ignore[arg-type]
    with pytest.raises(TimeoutError, match="still waiting"):
        wait_tasks(execution, tasks, WaitTasks(services=(("kit-lab_mpinode", "new", 2),), timeout_s=1000, why=""))
    assert 15 <= tasks.questions <= 20


@pytest.mark.parametrize(
    ("lines", "thing"),
    [("keeps secret mine\n", "the secret mine"), ("keeps network a\nkeeps config b\n", "the network a and 1 more")],
)
def test_a_host_that_stays_in_a_swarm_says_why(lines: str, thing: str) -> None:
    class Keeping(Tasks):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            return Completed(code=0, stdout=lines.encode(), stderr=b"")

    reporter = Remembering()
    execution = Execution(cluster="lab", hosts={}, logins={}, connect=None, engine_of=None, reporter=reporter)  # type: ignore[arg-type]
    swarm_leave(execution, Keeping(), SwarmLeave(others=(), why=""))
    (warning,) = (event for event in reporter.events if isinstance(event, Warned))
    assert warning.text == f"gpu1 stays in its swarm, which has something that kit did not make: {thing}"
    assert "docker swarm leave --force" in str(warning.hint)


@pytest.mark.parametrize(
    "step",
    [
        UnlabelNodes(key="kit.lab", ids=tuple(f"n{number}" for number in range(1000)), why=""),
        ForgetNodes(ids=tuple(f"n{number}" for number in range(1000)), why=""),
        StackRemove(cluster="lab", why=""),
    ],
    ids=lambda step: type(step).__name__,
)
def test_a_large_swarm_has_more_time(step: Step) -> None:
    """A manager changes one node after another."""
    limits = []

    class Manager(Tasks):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
            limits.append(timeout_s)
            return super().run(argv, stdin=stdin, timeout_s=timeout_s)

    hosts = {f"gpu{number}": host(number) for number in range(1000)}
    execution = Execution(cluster="lab", hosts=hosts, logins={}, connect=None, engine_of=None, reporter=Remembering())  # type: ignore[arg-type]
    ON_HOST[type(step)](execution, Manager(), step)
    # The script that removes a stack may wait for an earlier one first.
    (lock_s,) = re.findall(r"flock -w (\d+) ", script("node_lock")[2])
    assert limits == [590.0 + (float(lock_s) if isinstance(step, StackRemove) else 0.0)]


def test_the_nodes_that_stay_are_those_of_all_managers() -> None:
    execution = Execution(cluster="lab", hosts={}, logins={}, connect=None, engine_of=None, reporter=Remembering())  # type: ignore[arg-type]
    for line in ("stay n1", "manager", "stay all"):
        ON_HOST[StackRemove](execution, Tasks(line), StackRemove(cluster="lab", why=""))
    assert execution.swarm.stay == ["n1", "all"]
