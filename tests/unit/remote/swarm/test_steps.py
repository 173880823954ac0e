"""Steps on a manager, with a transport that answers as Swarm does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kit.errors import StepError
from kit.events import Warned
from kit.model.plan import Step
from kit.model.swarm import ForgetNodes, StackRemove, SwarmLeave, UnlabelNodes, WaitTasks
from kit.remote.cluster.execution import Execution
from kit.remote.ssh.transport import Completed, Live
from kit.remote.swarm.steps import ON_HOST, swarm_leave, wait_tasks
from tests.fakes.facts import host
from tests.fakes.reporter import Remembering


class Tasks:
    """Lists these tasks, and `down`, the nodes that are down. Fails the test if nobody stops asking."""

    host = host(1)

    def __init__(self, *lines: str, down: Sequence[str] = ()) -> None:
        self._lines, self._down, self._looks = lines, down, 0

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        if "kit-swarm_down" in argv:
            return Completed(code=0, stdout="".join(f"{line}\n" for line in self._down).encode(), stderr=b"")
        self._looks += 1
        if self._looks > 3:
            raise TimeoutError("still waiting")
        return Completed(code=0, stdout="".join(f"{line}\n" for line in self._lines).encode(), stderr=b"")

    def stream(self, argv: Sequence[str], live: Live) -> int:
        raise NotImplementedError

    def close(self) -> None:
        pass


def test_the_last_task_of_a_node_that_left_and_is_down_is_not_waited_for() -> None:
    """Swarm does not hear that it ended, and shows it as running."""
    tasks = Tasks("kit-lab_mpinode t1 n2 running running new", "kit-lab_mpinode t2 n9 shutdown running old")
    execution = Execution(cluster="lab", hosts={}, logins={}, connect=None, engine_of=None, reporter=Remembering())  # type: ignore[arg-type]
    services = (("kit-lab_mpinode", "new", 1),)
    wait_tasks(execution, tasks, WaitTasks(services=services, timeout_s=0, silent=("n9",), why=""))
    with pytest.raises(StepError, match="Swarm does not start"):
        wait_tasks(execution, tasks, WaitTasks(services=services, timeout_s=0, why=""))


@pytest.mark.parametrize(
    ("lines", "down", "limit_s", "error", "message"),
    [
        (["n2 running running new"], ["gpu3 (10.0.0.3)"], 0, StepError, r"no task on gpu3 \(10.0.0.3\), which is down"),
        # Its last task had been started when it went down.
        (["n2 running running new", "n3 shutdown assigned new"], ["gpu3 (10.0.0.3)"], 0, StepError, "no task on gpu3"),
        # It may have just started.
        (["n2 running running new"], ["gpu3 (10.0.0.3)"], 1000, TimeoutError, "still waiting"),
        # The other task may still start.
        (["n2 running preparing new"], ["gpu3 (10.0.0.3)"], 0, TimeoutError, "still waiting"),
        (["n2 running running new"], [], 0, TimeoutError, "still waiting"),
    ],
)
def test_a_wait_ends_early_if_only_tasks_of_nodes_that_are_down_are_missing(
    lines: list[str], down: list[str], limit_s: float, error: type[Exception], message: str, *,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("kit.remote.swarm.steps.DOWN_S", limit_s)
    monkeypatch.setattr("kit.remote.swarm.steps.POLL_S", 0)
    tasks = Tasks(*(f"kit-lab_mpinode t{number} {line}" for number, line in enumerate(lines)), down=down)
    execution = Execution(cluster="lab", hosts={}, logins={}, connect=None, engine_of=None, reporter=Remembering())  # type: ignore[arg-type]
    with pytest.raises(error, match=message):
        wait_tasks(execution, tasks, WaitTasks(services=(("kit-lab_mpinode", "new", 2),), timeout_s=1000, why=""))


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
    assert limits == [590.0]
