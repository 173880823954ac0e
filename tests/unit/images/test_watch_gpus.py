"""kitwatch.gpus: nvidia-smi's lines, and an nvidia-smi that fails, hangs, or knows other words."""

from __future__ import annotations

import csv
import fcntl
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.remote.ssh import open_files
from tests.fakes import launcher
from tests.fakes.head import until

gpus: Any = launcher.load("kitwatch.gpus")
CAPTURES = Path(__file__).resolve().parents[2] / "captures" / "nvidia-smi"
H200 = "1, 0, GPU-000000a1-1111, NVIDIA H200, 97, 90210, 143771, 61, 694.12, 700.00, 1755, 1980, 0x0000000000000004"
Smi = Callable[[str], Any]


def lines(machine: str, mask: str) -> list[str]:
    """Return what --query-gpu prints with kitwatch's fields on a captured machine."""
    rows = list(csv.reader((CAPTURES / machine / "query.csv").read_text().splitlines(), skipinitialspace=True))
    names = [name.split(" [")[0] for name in rows[0]]
    chosen = []
    for row in rows[1:]:
        values = {"count": str(len(rows) - 1), **dict(zip(names, row, strict=True))}
        # nounits leaves the units out.
        shown = [values[name] if name == "name" else values[name].split(" ")[0] for name in gpus.FIELDS]
        chosen.append(", ".join([*shown, mask]))
    return chosen


def test_a_gpu_that_reports_everything() -> None:
    total, gpu = gpus.parse(lines("h200x2-570", "0x0000000000000004")[0])
    assert total == 2
    assert gpu == {
        "index": 0,
        "uuid": "GPU-000000a1-1111-2222-3333-0000000000a1",
        "name": "NVIDIA H200",
        "use": 97.0,
        "mem_used": 90210 << 20,
        "mem_total": 143771 << 20,
        "temp": 61.0,
        "power": 694.12,
        "power_limit": 700.0,
        "sm_clock": 1755.0,
        "sm_clock_max": 1980.0,
        "throttle": ["sw_power_cap"],
    }


def test_a_value_that_a_gpu_does_not_have_is_none() -> None:
    assert gpus.parse(lines("a100-mig-470", "[N/A]")[0])[1]["use"] is None
    laptop = gpus.parse(lines("rtx3060-laptop-580", "[Not Supported]")[0])[1]
    assert (laptop["power_limit"], laptop["throttle"], laptop["power"]) == (None, None, 17.02)


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        ("0x0000000000000000", []),
        ("0x0000000000000001", ["gpu_idle"]),
        ("0x0000000000000048", ["hw_slowdown", "hw_thermal_slowdown"]),
        # A bit that nobody knows yet.
        ("0x8000000000000020", ["sw_thermal_slowdown"]),
    ],
)
def test_what_holds_the_clocks_down(mask: str, names: list[str]) -> None:
    assert gpus.reasons(mask) == names


@pytest.mark.parametrize("path", sorted((CAPTURES / "failures").iterdir()), ids=lambda path: path.stem)
def test_a_sentence_of_a_failure_is_no_gpu(path: Path) -> None:
    assert [gpus.parse(line) for line in path.read_text().splitlines()] == [None] * len(path.read_text().splitlines())


def test_a_name_with_a_comma_and_odd_lines() -> None:
    assert gpus.parse(H200.replace("NVIDIA H200", "Odd, Inc. GPU"))[1]["name"] == "Odd, Inc. GPU"
    assert gpus.parse(H200.replace("97", "99999999999999999999"))[1]["use"] is None
    for line in ("", "x", ",".join("0" * 12), H200.rpartition(",")[0]):
        assert gpus.parse(line) is None


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Smi]:
    """Make an nvidia-smi of a shell script, and return a Gpus that uses it."""
    made = []

    def make(script: str) -> Any:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\necho \"$@\" >> '{tmp_path}/arguments'\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        made.append(gpus.Gpus())
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_newest_answer_of_one_that_goes_on(smi: Smi, tmp_path: Path) -> None:
    fifo = tmp_path / "next"
    os.mkfifo(fifo)
    one, other = H200.replace("1, 0", "2, 0"), H200.replace("1, 0", "2, 1")
    source = smi(f"echo '{one}'; echo '{other}'; cat '{fifo}'; exec sleep 1000")
    first = source.read(wait=60)
    assert [gpu["index"] for gpu in first] == [0, 1]
    # Nothing new: the answer before still holds, and nothing waits.
    assert source.read() == first
    fifo.write_text(one.replace("97", "5") + "\n" + other + "\n")
    while (newest := source.read()) == first:
        pass
    assert [gpu["use"] for gpu in newest] == [5.0, 97.0]
    assert (tmp_path / "arguments").read_text().count("--loop=1") == 1


def test_a_container_sees_fewer_gpus_than_there_are(smi: Smi) -> None:
    one = H200.replace("1, 0", "8, 0")
    source = smi(f"echo '{one}'; echo '{one.replace('97', '5')}'; exec sleep 1000")
    assert [gpu["use"] for gpu in source.read(wait=60)] == [97.0]


def test_close_ends_it(smi: Smi, tmp_path: Path) -> None:
    source = smi(f"echo $$ > '{tmp_path}/pid'; echo '{H200}'; exec sleep 1000")
    source.read(wait=60)
    source.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_driver_that_knows_the_new_word_only(smi: Smi, tmp_path: Path) -> None:
    source = smi(
        f"""case "$*" in *event*) echo '{H200}'; exec sleep 1000;; esac
        echo 'Field "clocks_throttle_reasons.active" is not a valid field to query.'; exit 2"""
    )
    assert source.read(wait=60) is None
    assert source.read(wait=60)[0]["throttle"] == ["sw_power_cap"]
    assert source.fault == ""


def test_a_failure_is_said_and_not_repeated(smi: Smi, tmp_path: Path) -> None:
    source = smi("echo 'NVIDIA-SMI has failed because it could not communicate with the driver.'; exit 9")
    assert source.read(wait=60) is None
    assert source.fault.startswith("NVIDIA-SMI has failed")
    assert source.read(wait=60) is None
    assert (tmp_path / "arguments").read_text().count("--loop") == 1
    assert smi("exit 3").read(wait=60) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error", "No devices were found"),
        ("Failed to initialize NVML: Driver/library version mismatch", "NVML library version: 535.183"),
    ],
)
def test_the_first_sentence_of_a_failure_is_the_cause(smi: Smi, first: str, second: str) -> None:
    source = smi(f"echo '{first}'; echo '{second}'; exit 6")
    assert source.read(wait=60) is None
    assert source.fault == first
    # A host whose GPU is lost has GPUs, also the next time.
    assert source.read() is None


def test_a_failure_after_another_one_has_its_own_cause(smi: Smi, tmp_path: Path) -> None:
    source = smi(f"[ -e '{tmp_path}/again' ] && exit 3; touch '{tmp_path}/again'; echo 'GPU is lost'; exit 9")
    assert source.read(wait=60) is None
    assert source.fault == "GPU is lost"
    source._again = 0.0
    assert source.read(wait=60) is None
    assert source.fault == "nvidia-smi ended with exit code 3"


def test_a_host_without_gpus(smi: Smi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert smi("echo 'No devices were found'; exit 6").read(wait=60) == []
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    source = gpus.Gpus()
    assert (source.read(wait=60), source.fault) == ([], "")


def test_a_supervisor_with_more_than_1023_open_files(smi: Smi) -> None:
    open_files.allow(128)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200:
        pytest.skip("the system permits no more open files")
    source = smi(f"echo '{H200}'; exec sleep 1000")
    source._start(0.0)
    low = source._process.stdout
    source._process.stdout = os.fdopen(fcntl.fcntl(low.fileno(), fcntl.F_DUPFD, 1100), "rb")
    low.close()
    os.set_blocking(source._process.stdout.fileno(), False)
    assert source.read(wait=60)


@pytest.mark.parametrize(
    ("first", "answer", "fault"),
    [
        (f"echo '{H200}'; echo 'GPU is lost'; exit 15", None, "GPU is lost"),
        (f"echo '{H200}'; exit 0", None, "No devices were found"),
        ("echo 'GPU is lost'; exit 15", None, "GPU is lost"),
        # That says nothing of a GPU.
        ("exit 3", [], ""),
    ],
)
def test_a_host_whose_only_gpu_is_lost_has_gpus(
    smi: Smi, tmp_path: Path, first: str, answer: object, fault: str
) -> None:
    """The driver may know the GPU no more when nvidia-smi is started again."""
    source = smi(
        f"[ -e '{tmp_path}/again' ] && echo 'No devices were found' && exit 6; touch '{tmp_path}/again'\n{first}"
    )
    until_ended(source)
    source._again = 0.0
    until_ended(source)
    assert (source.read(), source.fault) == (answer, fault)


def until_ended(source: Any) -> None:
    source.read(wait=60)
    while source._process is not None:
        source.read(wait=60)


@pytest.mark.parametrize("path", ["{folder}:{before}", "{folder}/empty"], ids=["without GPUs", "without nvidia-smi"])
def test_a_gpu_that_comes_later_is_seen(smi: Smi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str) -> None:
    before = os.environ["PATH"]
    source = smi("echo 'No devices were found'; exit 6")
    with monkeypatch.context() as patched:
        patched.setenv("PATH", path.format(folder=tmp_path, before=before))
        assert source.read(wait=60) == []
    smi(f"echo '{H200}'; exec sleep 1000")
    assert source.read(wait=60) == []
    source._again = 0.0
    until(source.read)
    assert (source.read()[0]["index"], source.fault) == (0, "")
    source.close()


def test_an_answer_becomes_old(smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    source = smi(f"echo '{H200}'; exec sleep 1000")
    assert source.read(wait=60)
    now = gpus.time.monotonic()
    monkeypatch.setattr(gpus.time, "monotonic", lambda: now + 60)
    assert source.read() is None
    assert "has not answered for" in source.fault
