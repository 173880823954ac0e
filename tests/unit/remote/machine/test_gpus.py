"""The GPUs of your own machine, as kit local sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.remote.cluster.forms import Info, Runtime
from kit.remote.machine.gpus import gpu_facts
from tests.fakes.shell import bare_path


def test_a_machine_without_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = gpu_facts(Info(ServerVersion="26.1.5", Runtimes={"nvidia": Runtime(path="nvidia-container-runtime")}))
    assert (facts.gpus, facts.gpu_engine.hook, facts.engine) == ((), "", "26.1.5")


@pytest.mark.parametrize(
    ("printed", "gpus"),
    [
        ("Tesla T4, 15360, GPU-77aa, 0, 00000000:00:1E.0, 535.104.05", 1),
        ("No devices were found", 0),
        ("a, b, GPU-1", 0),
    ],
)
def test_a_machine_with_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, gpus: int) -> None:
    folder = bare_path(tmp_path / "bin", ("sh", "cat", "grep", "head", "sed", "stat", "tr", "cut", "readlink"))
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{printed}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    facts = gpu_facts(Info())
    assert len(facts.gpus) == gpus
    assert facts.driver == ("535.104.05" if gpus else "")
