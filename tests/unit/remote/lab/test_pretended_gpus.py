"""What a lab host answers about its pretended GPUs: read with limits, and an error of that host if it is odd."""

from __future__ import annotations

import json

import pytest

from kit.errors import AnswerError, StepError
from kit.model.lab import LabGpu
from kit.remote.lab.host import RunningHost
from kit.remote.ssh.transport import Completed

STATE = {"name": "NVIDIA H200 (PRETENDED)", "driver": "550.54.15", "lost": 1, "uuids": ["GPU-1", "GPU-2"]}


class Host(RunningHost):
    """A host whose program answers this."""

    def __init__(self, stdout: str, code: int = 0) -> None:
        super().__init__(None, "c", "gpu1")
        self.answer, self.argv = Completed(code=code, stdout=stdout.encode(), stderr=b""), list[str]()

    def _run(self, argv: list[str]) -> Completed:
        self.argv = argv
        return self.answer


def test_the_state_of_the_gpus() -> None:
    host = Host(json.dumps({**STATE, "faults": {"1": ["ecc"]}, "model": "h200"}))
    gpus = host.pretended_gpus(["fault", "1", "ecc"])
    assert host.argv == ["/usr/local/sbin/pretended-gpus", "fault", "1", "ecc"]
    assert gpus.gpus == (LabGpu(number=0, uuid="GPU-1"), LabGpu(number=1, uuid="GPU-2", faults=("ecc",)))
    assert (gpus.name, gpus.driver, gpus.lost) == ("NVIDIA H200 (PRETENDED)", "550.54.15", 1)


def test_a_refusal_names_the_host() -> None:
    with pytest.raises(StepError, match="no MIG") as caught:
        Host("a Tesla T4 has no MIG\n", code=1).pretended_gpus(["fault", "0", "mig"])
    assert caught.value.host == "gpu1"


@pytest.mark.parametrize(
    "answer",
    ["", "[]", "{}", json.dumps({**STATE, "faults": {"1": "ecc"}}), json.dumps({**STATE, "faults": [], "lost": "1"})],
)
def test_an_odd_answer_is_an_error_of_the_host(answer: str) -> None:
    with pytest.raises(AnswerError) as caught:
        Host(answer).pretended_gpus(["show"])
    assert caught.value.host == "gpu1"
