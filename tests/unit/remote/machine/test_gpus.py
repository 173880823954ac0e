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
    nvidia_smi(f"echo '{printed}'", tmp_path, monkeypatch)
    facts = gpu_facts(Info())
    assert len(facts.gpus) == gpus
    assert facts.driver == ("535.104.05" if gpus else "")


OLD = """case $* in
  *mig*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2 ;;
  *) echo 'Tesla K80, 11441, GPU-77aa, 0, 00000000:00:1E.0, 440.64' ;;
esac"""
SPLIT = """case $* in
  *mig*) echo 'NVIDIA A100-SXM4-40GB, 40960, GPU-5c3b, 0, 00000000:17:00.0, 535.104.05, Enabled' ;;
  -L) echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c3b)'; echo '  MIG 3g.20gb     Device  0: (UUID: MIG-c7e5)' ;;
esac"""


@pytest.mark.parametrize(("script", "mig"), [(OLD, None), (SPLIT, ("MIG-c7e5",))])
def test_the_mig_devices_of_this_machine(
    script: str, mig: tuple[str, ...] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kit local --gpus device=MIG-c7e5` names one."""
    nvidia_smi(script, tmp_path, monkeypatch)
    facts = gpu_facts(Info())
    assert [gpu.mig for gpu in facts.gpus] == [mig]
    assert facts.gpu_fault == ""


def nvidia_smi(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this script be nvidia-smi."""
    folder = bare_path(tmp_path / "bin", ("sh", "cat", "grep", "head", "sed", "stat", "tr", "cut", "readlink"))
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
