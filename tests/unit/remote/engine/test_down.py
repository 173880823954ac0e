"""What Docker's client prints if its engine is down, and what only looks like it."""

from __future__ import annotations

import pytest

from kit.remote.doctor.read import _no_node
from kit.remote.engine.down import engine_down, is_down

DOWN = [
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    # Docker 29.
    "failed to connect to the docker API at unix:///var/run/docker.sock; check if the daemon is running: dial unix",
    'error during connect: Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.51/containers/x/json": EOF',
    "Error response from daemon: connection error: dial unix /run/containerd/containerd.sock: connection refused",
]


@pytest.mark.parametrize("text", DOWN)
def test_an_engine_that_is_down(text: str) -> None:
    error = engine_down(f"a warning of ssh\n{text}\n", "gpu1")
    assert error is not None
    assert (error.message, error.host, error.exit_code) == (f"no Docker Engine answers: {text}", "gpu1", 5)
    assert is_down(text)
    # kit doctor then calls the node missing, and not broken.
    assert _no_node(text)


def test_an_engine_that_restarted() -> None:
    error = engine_down("Error response from daemon: No such exec instance: 1a2b", "gpu1")
    assert error is not None
    assert error.message.startswith("the Docker Engine restarted, or the container was stopped or removed: ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Error response from daemon: No such container: kit-lab-mpihead",
        "Error response from daemon: container 1a2b is not running",
        "my program: Cannot connect to the Docker daemon at home",
    ],
)
def test_other_errors(text: str) -> None:
    assert engine_down(text, "gpu1") is None
    assert not is_down(text)
