"""scripts/gpu-check, with an nvidia-smi that plays the captures. No GPU, no CUDA and no torch are here."""

from __future__ import annotations

import ast
import ctypes
import datetime
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.model.nvidia.listing import listed
from kit.model.nvidia.state import state
from kit.model.nvidia.tables import compute_apps, samples
from kit.model.nvidia.topology import topology
from kit.plan.image import CUDA
from scripts.gpucheck import choices, compared, measured, nccl
from scripts.gpucheck.anonymous import Names
from scripts.gpucheck.check import NO_GPU, Found, Part
from scripts.gpucheck.commands import Clock, Done, Running, run
from scripts.gpucheck.cuda import Cuda, CudaError
from scripts.gpucheck.needs import needs, numbers
from scripts.gpucheck.outcome import Failed, Skipped, cleaned
from scripts.gpucheck.report import name_of, page, write
from scripts.gpucheck.smi import COMMANDS, Smi, interpreted
from tests.fakes import launcher
from tests.unit.remote.ship.porter.test_language import newer

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/gpu-check"
CAPTURES = ROOT / "tests/captures/nvidia-smi"
MACHINES = sorted(path.name for path in CAPTURES.iterdir() if path.is_dir() and path.name != "failures")
PARTS = ["nvidia-smi", "driver", "kit-rank", "nccl", "pytorch", "kit tune"]

# The others are composed.
REAL = ["h200x1-580"]
machines = pytest.mark.parametrize("machine", MACHINES)


def answers(machine: str) -> dict[str, str]:
    return {file: (CAPTURES / machine / file).read_text() for file in COMMANDS}


def smi_of(machine: str, **other: str) -> Smi:
    return interpreted({**answers(machine), **{name.replace("_", "."): text for name, text in other.items()}}, [])


def played(folder: Path, files: Path) -> Path:
    """Write an nvidia-smi that prints these files, and return its folder."""
    program = f"""#!/bin/sh
case "$1 $2" in
  "-L "*) cat {files}/list.txt ;;
  "-q -x") cat {files}/state.xml ;;
  "topo -m") cat {files}/topology.txt ;;
  "dmon -c") cat {files}/samples.txt ;;
  "--query-gpu=uuid,name "*) tail -n +2 {files}/query.csv | awk -F ', ' '{{ print $3 ", " $2 }}' ;;
  --query-gpu=*) cat {files}/query.csv ;;
  --query-compute-apps=*) cat {files}/apps.csv ;;
  *) exit 2 ;;
esac
"""
    folder.mkdir()
    (folder / "nvidia-smi").write_text(program)
    (folder / "nvidia-smi").chmod(0o755)
    return folder


def started(path: Path, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run gpu-check with this folder before the others of the PATH, and with no package that pip installed."""
    env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}", "OUT": str(tmp_path / "out")}
    command = [sys.executable, "-S", str(SCRIPT), *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_without_a_driver_it_says_so_with_an_exit_code_of_its_own(tmp_path: Path) -> None:
    env = {**os.environ, "PATH": "/nonexistent"}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == NO_GPU == 3
    assert done.stderr == "gpu-check: no GPU here: nvidia-smi is missing, so no NVIDIA driver is installed\n"
    assert not done.stdout


def test_nvidia_smi_that_reads_no_gpu_is_no_gpu(tmp_path: Path) -> None:
    for path in sorted((CAPTURES / "failures").iterdir()):
        folder = tmp_path / path.stem
        folder.mkdir()
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\ncat {path}\nexit 9\n")
        (folder / "nvidia-smi").chmod(0o755)
        done = started(folder, tmp_path)
        assert done.returncode == NO_GPU
        assert done.stderr == f"gpu-check: no GPU here: {path.read_text().splitlines()[0]}\n"
    assert not (tmp_path / "out").exists()


def test_the_report_and_what_did_not_run(tmp_path: Path) -> None:
    done = started(played(tmp_path / "bin", CAPTURES / "h200x2-570"), tmp_path)
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith(tuple(f"{part} " for part in PARTS))]
    assert [line[:12].strip() for line in table] == PARTS
    assert [line[13:22].strip() for line in table] == ["ran", "ran", "not here", "not here", "not here", "ran"]
    folder = tmp_path / "out/gpu-nvidia-h200-x2-570"
    assert done.stdout.endswith(f"The report is {folder / 'README.md'}\n")
    text = (folder / "README.md").read_text()
    assert text.startswith("# GPU check: 2 × NVIDIA H200\n")
    assert "| cuda-pytorch | 13.0 | 580.65.06 | too old |" in text
    assert "| GPU1 | 48-95,144-191 | 1 | mlx5_1 |" in text
    assert sorted(path.name for path in folder.iterdir()) == sorted(["README.md", *COMMANDS])
    # A second machine's parser reads what was kept.
    assert interpreted({file: (folder / file).read_text() for file in COMMANDS}, []).problems == ()
    kept = "".join(path.read_text() for path in folder.iterdir())
    for name in ("GPU-000000a1", "1650000000001", "/usr/bin/python3", "train.py", ":19:00.0", ":3B:00.0"):
        assert name not in kept


def test_a_format_that_kit_cannot_read_fails_and_is_kept(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for file, text in answers("t4-450").items():
        (files / file).write_text(text.replace("<total>15109 MiB", "<total>14.7 GiB"))
    done = started(played(tmp_path / "bin", files), tmp_path, "--report", str(tmp_path / "here"))
    assert done.returncode == 1
    assert "failed    state.xml: this is not an amount in MiB: '14.7 GiB'" in done.stdout
    assert "14.7 GiB" in (tmp_path / "here/gpu-unknown-x1/state.xml").read_text()


@machines
def test_all_formats_agree(machine: str) -> None:
    assert smi_of(machine).problems == ()


def test_formats_that_disagree_are_problems() -> None:
    other = answers("t4-450")
    smi = smi_of("h200x2-570", list_txt=other["list.txt"], samples_txt="", topology_txt=other["topology.txt"])
    assert [problem.split(":")[0] for problem in smi.problems] == ["list.txt", "samples.txt", "topology.txt"]


def test_dmon_may_refuse_a_gpu_with_mig_devices() -> None:
    assert smi_of("a100-mig-470", samples_txt="Not supported on the device(s)\n").problems == ()
    assert smi_of("t4-450", samples_txt="Not supported on the device(s)\n").problems


@pytest.mark.parametrize("machine", REAL)
def test_a_capture_of_a_real_machine_has_no_name_left_to_replace(machine: str) -> None:
    smi = smi_of(machine)
    assert {file: cleaned(text, Names({}), smi.programs) for file, text in smi.answers.items()} == smi.answers


@pytest.mark.parametrize("machine", sorted({*MACHINES} - {*REAL}))
def test_a_capture_without_names_reads_like_the_original(machine: str) -> None:
    names, smi = Names({"gpubox": "host", "alice": "user"}), smi_of(machine)
    clean = {file: cleaned(text, names, smi.programs) for file, text in smi.answers.items()}
    assert all(clean.values())
    before, after = state(smi.answers["state.xml"]), state(clean["state.xml"])
    same = ("index", "name", "memory_mib", "watts", "reasons", "link_width", "ecc", "mig", "fabric", "limit_watts")
    for one, other in zip(before.gpus, after.gpus, strict=True):
        assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]
        assert one.uuid != other.uuid
        assert [process.pid for process in one.processes] == [process.pid for process in other.processes]
    assert [gpu.uuid for gpu in listed(clean["list.txt"])] == [gpu.uuid for gpu in after.gpus]
    assert {app.gpu for app in compute_apps(clean["apps.csv"])} <= {gpu.uuid for gpu in after.gpus}
    assert samples(clean["samples.txt"]) == samples(smi.answers["samples.txt"])
    assert topology(clean["topology.txt"]) == topology(smi.answers["topology.txt"])
    for gpu in before.gpus:
        assert all(
            gpu.uuid not in text and gpu.bus not in text.replace("00000000:01:00.0", "") for text in clean.values()
        )


def test_names_are_replaced_the_same_way_everywhere() -> None:
    names = Names({"gpubox": "host", "gpubox.example.org": "host", "alice": "user", "ab": "user"})
    first = names.replace(
        "<serial>165</serial><pdi>0x64a2</pdi><uuid>GPU-5c3b-1</uuid><process_name>/home/alice/a.out</process_name>"
    )
    assert first == (
        "<serial>001</serial><pdi>000002</pdi><uuid>GPU-00000000-0000-0000-0000-000000000001</uuid><process_name>program-1</process_name>"
    )
    assert names.replace("GPU-5c3b-1, 12, 5 MiB, /home/alice/a.out", programs=["/home/alice/a.out"]) == (
        "GPU-00000000-0000-0000-0000-000000000001, 12, 5 MiB, program-1"
    )
    assert names.replace("gpubox.example.org: GPU 0000:3b:00.0 of alice in /home/alice; about ab") == (
        "host: GPU 0000:01:00.0 of user in /home/user; about ab"
    )
    again = names.replace(first)
    assert again == first
    assert names.replace("MIG-GPU-5c3b-1/7/0 MIG-0a0b0c0d-1") == (
        "MIG-GPU-00000000-0000-0000-0000-000000000001/7/0 MIG-00000000-0000-0000-0000-000000000001"
    )


def test_a_capture_in_which_a_name_would_stay_is_left_out() -> None:
    names = Names({})
    names.replace("<serial>1650000000001</serial>")
    assert cleaned("<note>1650000000001</note>", names, ()) == ""
    found = Found(smi_of("t4-450"), (), {"state.xml": ""})
    assert "`state.xml`: left out" in page(found, day=datetime.date(2026, 11, 23))


def test_a_lab_is_never_taken_for_a_gpu() -> None:
    smi = smi_of("t4-450", list_txt=answers("t4-450")["list.txt"] + "PRETENDED by a lab of kit\n")
    found = Found(smi, (Part("driver", "ran", "a | b"),))
    assert name_of(found).startswith("gpu-pretended-")
    text = page(found, day=datetime.date(2026, 11, 23))
    assert text.startswith("# GPU check: PRETENDED: 1 × Tesla T4")
    assert "a \\| b" in text


def test_the_table_of_drivers_is_kits_own() -> None:
    assert needs(ROOT) == {flavor: (need.cuda, need.driver) for flavor, need in CUDA.items()}
    assert numbers("450.80.02") < numbers("525.60.13") < numbers("525.105")


def test_an_old_driver_is_reported() -> None:
    summary, lines = compared.driver(ROOT, smi_of("p100x2-418"))
    assert summary == "418.87.00, CUDA 10.1; new enough for no flavor of kit"
    assert all(line.endswith("too old |") for line in lines[2:])


def test_kit_rank_starts_a_rank_and_its_output_is_read() -> None:
    seen, error = choices._as_rank(ROOT, Clock(60), {"CUDA_VISIBLE_DEVICES": "1"})
    assert not error
    assert seen["visible"] == "1"
    assert "devices" in seen or seen["error"].startswith("libcuda.so.1 is missing")


def test_records_of_kit_rank() -> None:
    records = b"\x1ekit-line 0 u . 3\nh 1\x1ekit-line 0 o + 2\nab\n\x1ekit-line 0 e . 2\nx\n\x1ekit-line 0 o . 3\nc\n\n"
    assert choices.printed(records, b"o") == "abc\n\n"
    assert choices.printed(records, b"e") == "x\n"


def chosen(monkeypatch: pytest.MonkeyPatch, visible: dict[str, list[int]]) -> tuple[str, Any]:
    """Let CUDA show these GPUs of the H200 machine, by held slots or local rank."""
    smi = smi_of("h200x2-570")

    def as_rank(_root: Path, _clock: Clock, more: dict[str, str]) -> tuple[dict[str, Any], str]:
        held = more.get("KIT_HELD_SLOTS", "").partition("=")[2] or f"local {more.get('OMPI_COMM_WORLD_LOCAL_RANK')}"
        devices = [{"uuid": smi.gpus[index].uuid.removeprefix("GPU-")} for index in visible[held]]
        return {"visible": held, "devices": devices}, ""

    monkeypatch.setattr(choices, "CONTROL", CAPTURES)
    monkeypatch.setattr(choices, "_as_rank", as_rank)
    return choices.choices(ROOT, Clock(60), smi)


RIGHT = {"0": [0], "1": [1], "local 0": [0], "local 1": [1]}


def test_cuda_shows_the_gpu_that_kit_rank_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    summary, lines = chosen(monkeypatch, RIGHT)
    assert "each rank sees the GPU" in summary
    assert len(lines) == 6


@pytest.mark.parametrize("wrong", [{"0": [1]}, {"1": [0, 1]}, {"1": []}, {"local 1": [0]}])
def test_another_gpu_than_kit_rank_chose_is_a_failure(
    wrong: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Failed) as caught:
        chosen(monkeypatch, {**RIGHT, **wrong})
    # The report shows what each rank saw.
    assert len(caught.value.lines) == 6


def test_without_a_device_node_kit_rank_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(choices, "CONTROL", tmp_path / "nvidiactl")
    with pytest.raises(Skipped, match="no /dev/nvidiactl"):
        choices.choices(ROOT, Clock(60), smi_of("t4-450"))


def test_without_cudas_library_kit_rank_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "CONTROL", CAPTURES)
    missing = {"visible": "0", "error": "libcuda.so.1 is missing: cannot open shared object file"}
    monkeypatch.setattr(choices, "_as_rank", lambda *_words: (missing, ""))
    with pytest.raises(Skipped, match=r"libcuda\.so\.1 is missing"):
        choices.choices(ROOT, Clock(60), smi_of("t4-450"))


class FakeCuda:
    """The driver's library for two GPUs whose memory is in this process."""

    def __init__(self) -> None:
        self.buffers: list[Any] = []
        self.fails = ""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *words: 2 if name == self.fails else 0

    def cuGetErrorName(self, _code: Any, text: Any) -> int:  # noqa: N802
        text._obj.value = b"CUDA_ERROR_OUT_OF_MEMORY"
        return 0

    def cuDeviceGetCount(self, number: Any) -> int:  # noqa: N802
        number._obj.value = 2
        return 0

    def cuMemAlloc_v2(self, pointer: Any, size: Any) -> int:  # noqa: N802
        if self.fails:
            return 2
        self.buffers.append(ctypes.create_string_buffer(size.value))
        pointer._obj.value = ctypes.addressof(self.buffers[-1])
        return 0

    def cuMemcpyHtoD_v2(self, to: Any, values: Any, size: Any) -> int:  # noqa: N802
        ctypes.memmove(to.value, values, size.value)
        return 0

    def cuMemcpyDtoH_v2(self, values: Any, start: Any, size: Any) -> int:  # noqa: N802
        ctypes.memmove(values, start.value, size.value)
        return 0


class FakeNccl:
    """NCCL that sums the buffers of a group. `adds` is an error in its arithmetic."""

    def __init__(self, adds: float = 0.0) -> None:
        self.adds, self.calls = adds, []  # type: float, list[Any]
        self.code = 22304

    def ncclGetVersion(self, number: Any) -> int:  # noqa: N802
        number._obj.value = self.code
        return 0

    def ncclCommInitAll(self, ranks: Any, count: Any, numbers: Any) -> int:  # noqa: N802
        assert list(numbers) == list(range(count.value))
        for index in range(count.value):
            ranks[index] = 100 + index
        return 0

    def ncclGroupStart(self) -> int:  # noqa: N802
        self.calls = []
        return 0

    def ncclAllReduce(self, send: Any, receive: Any, count: Any, kind: Any, *more: Any) -> int:  # noqa: N802
        assert kind.value == nccl.FLOAT32
        self.calls.append((send.value, receive.value, count.value))
        return 0

    def ncclGroupEnd(self) -> int:  # noqa: N802
        count = self.calls[0][2]
        sends = [(ctypes.c_float * count).from_address(send) for send, _, _ in self.calls]
        sums = [sum(values) + self.adds for values in zip(*sends, strict=True)]
        for _, receive, _ in self.calls:
            (ctypes.c_float * count).from_address(receive)[:] = sums
        return 0


def test_all_reduces_are_measured_and_their_sums_checked() -> None:
    sizes = (8, 4096, 20000)
    group = nccl.Group(Cuda(FakeCuda()), FakeNccl(), max(sizes))
    rows = nccl.measure(group, sizes, 0.01)
    assert [row["bytes"] for row in rows] == [8, 4096, 20000]
    assert all(row["right"] for row in rows)
    # Two GPUs: the rate on the bus is that of the algorithm.
    assert all(row["busbw"] == row["algbw"] == row["bytes"] / row["seconds"] for row in rows)
    assert group.version() == "2.23.4"
    wrong = nccl.Group(Cuda(FakeCuda()), FakeNccl(adds=1.0), 4096)
    assert not nccl.measure(wrong, (4096,), 0.01)[0]["right"]


def test_an_old_version_of_nccl_has_two_digits_less() -> None:
    library = FakeNccl()
    library.code = 2708
    assert nccl.Group(Cuda(FakeCuda()), library, 8).version() == "2.7.8"


def test_a_call_of_cuda_that_fails_is_named() -> None:
    library = FakeCuda()
    library.fails = "cuMemAlloc_v2"
    with pytest.raises(CudaError, match="cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"):
        nccl.Group(Cuda(library), FakeNccl(), 8)


def test_nccl_that_is_missing_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(nccl.NcclError, match=r"libnccl\.so\.2 is missing"):
        nccl.load(["/nonexistent/libnccl.so.2"])
    monkeypatch.setattr(measured, "_horovod", lambda _clock: False)
    with pytest.raises(Skipped, match="is missing"):
        measured.all_reduces(ROOT, Clock(60), smi_of("t4-450"), Names({}), {})


def torch_that_prints(monkeypatch: pytest.MonkeyPatch, done: Done) -> None:
    monkeypatch.setattr(measured, "run", lambda *_words, **_more: done)


def test_pytorch_that_is_missing_broken_or_without_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_that_prints(monkeypatch, Done(1, "", "ModuleNotFoundError: No module named 'torch'"))
    with pytest.raises(Skipped, match="no torch"):
        measured.torch_steps(Clock(60))
    torch_that_prints(monkeypatch, Done(1, "", "ImportError: libcudnn.so.9: cannot open shared object file"))
    with pytest.raises(Failed, match=r"import torch: ImportError: libcudnn\.so\.9"):
        measured.torch_steps(Clock(60))
    torch_that_prints(monkeypatch, Done(0, '{"version": "2.13.0", "cuda": "13.0", "gpus": 0}'))
    with pytest.raises(Failed, match="sees no GPU"):
        measured.torch_steps(Clock(60))


def test_the_facts_of_kit_tune_must_agree_with_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = played(tmp_path / "bin", CAPTURES / "p100x2-418")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    summary, lines = compared.facts(ROOT, Clock(60), smi_of("p100x2-418"))
    assert summary.endswith("GPUs are connected by SYS")
    assert "| GPU0 | 0-13,28-41 | ? | no NIC |" in lines
    with pytest.raises(Failed, match="other GPUs"):
        compared.facts(ROOT, Clock(60), smi_of("t4-450"))


def until(condition: Callable[[], bool]) -> None:
    """Wait for a state, for 20 s at most."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def ended(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_command_that_hangs_is_ended_with_all_that_it_started() -> None:
    process = Running(["sh", "-c", "sleep 100 & echo $!; echo load; wait"])
    until(lambda: process.wrote("load"))
    done = process.wait(0)
    assert (done.code, done.last) == (124, "it did not end within 0 s")
    pid = done.text.splitlines()[0]
    assert pid.isdigit()
    until(lambda: ended(pid))


def test_the_time_of_all_parts_is_limited() -> None:
    clock = Clock(0.2)
    assert clock.left(100) <= 0.2
    process = Running(["sh", "-c", "echo load; sleep 100"])
    until(lambda: process.wrote("load"))
    assert not process.wrote("oad")
    assert process.runs()
    until(lambda: clock.left(100) == 0)
    assert process.wait(clock.left(100)).code == 124


def test_a_missing_command_is_127() -> None:
    assert run(["/nonexistent/nvidia-smi"], 1).code == 127


def test_the_report_has_no_name_of_this_machine(tmp_path: Path) -> None:
    host = socket.gethostname()
    done = started(played(tmp_path / "bin", CAPTURES / "t4-450"), tmp_path)
    assert done.returncode == 0
    kept = "".join(path.read_text() for path in (tmp_path / "out").rglob("*.*"))
    assert len(host) < 3 or host not in kept


def test_a_second_report_replaces_the_first(tmp_path: Path) -> None:
    found = Found(smi_of("t4-450"), (), {"list.txt": "a\n"})
    assert write(found, tmp_path) == write(found, tmp_path) == tmp_path / "gpu-tesla-t4-x1-450"


@pytest.mark.parametrize(
    "path", [SCRIPT, *sorted((ROOT / "scripts/gpucheck").glob("*.py"))], ids=lambda path: path.stem
)
def test_each_module_is_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), str(path), feature_version=(3, 8))
    assert set(newer(path)) <= {
        "dataclasses.dataclass",
        "dataclasses.field",
        "dataclasses",
        ":=",
        "__future__.annotations",
    }
    assert "kw_only" not in path.read_text()


def test_what_a_machine_needs_of_the_repository_is_small() -> None:
    """A machine may take 64 MiB, and these folders are all that gpu-check reads."""
    files = [path for name in ("kit", "scripts", "images") for path in (ROOT / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files if "__pycache__" not in path.parts) < 32 * 2**20


@pytest.mark.parametrize("model", ["h200", "p100"])
def test_it_knows_the_gpus_of_a_lab(model: str) -> None:
    lab = launcher.IMAGES / "lab"
    states, machine, smi = (launcher.load(f"pretended.{name}", lab) for name in ("state", "machine", "smi"))
    host = states.State(host="gpu1", model=model, total=2)
    of = machine.Machine(state=host, gpus=machine.gpus(host, [0, 1], []), processes=())
    played = {file: str(smi.answer(*smi.words(list(words)), of)) for file, words in COMMANDS.items()}
    found = interpreted(played, [])
    assert found.problems == ()
    assert found.pretended
    assert name_of(Found(found, ())).startswith("gpu-pretended-")
