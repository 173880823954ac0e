"""The parts of gpu-check that compute on GPUs: all-reduces of NCCL, and steps of PyTorch on two ranks."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kit.model.answer import OddAnswer
from kit.model.nvidia.state import State, state
from scripts.gpucheck.anonymous import Names
from scripts.gpucheck.commands import Clock, Done, Running, run
from scripts.gpucheck.nccl import LOAD
from scripts.gpucheck.outcome import HERE, Failed, Skipped, cleaned, last_json, shown
from scripts.gpucheck.smi import Smi, ask

NCCL_S, TORCH_S, LOOK_S = 150.0, 180.0, 60.0
# When the clocks are read, unless the program says before that its GPUs are busy.
LOAD_S = 30.0


def all_reduces(
    root: Path, clock: Clock, smi: Smi, names: Names, captures: dict[str, str]
) -> tuple[str, Sequence[str]]:
    """Measure all-reduces: by Horovod where it is installed, else with NCCL alone. Read the clocks meanwhile."""
    horovod = _horovod(clock)
    if horovod and shutil.which("mpirun") and len(smi.gpus) > 1:
        perf = [sys.executable, str(root / "images/bin/_nccl_perf"), "allreduce", "--json", "--seconds", "1"]
        options = ["--allow-run-as-root", "--oversubscribe", "-np", str(len(smi.gpus))]
        argv, through = ["mpirun", *options, *perf, "--sizes", "8,64K,1M,16M,64M,256M"], "Horovod"
    else:
        argv, through = [sys.executable, str(HERE / "nccl.py")], "NCCL alone"
    env = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    process = Running(argv, env=env)
    began = time.monotonic()
    while process.runs() and time.monotonic() - began < clock.left(LOAD_S) and not process.wrote(LOAD):
        time.sleep(0.2)
    # The driver needs a moment to raise the clocks.
    time.sleep(1.0 if process.runs() else 0.0)
    load = ask(clock, "-q", "-x") if process.runs() else Done(1, "")
    done = process.wait(clock.left(NCCL_S))
    answer = last_json(done.text)
    if "is missing" in str(answer.get("error", "")):
        raise Skipped(str(answer["error"]))
    rows = answer.get("rows") or [row for test in answer.get("tests", ()) for row in test["rows"]]
    if done.code or not rows:
        raise Failed("%s: %s" % (through, answer.get("error") or done.last))
    number = int(answer.get("gpus") or answer.get("ranks") or 0)
    lines = [*_rates(rows, bus=number > 1), "", *_under_load(load, names, smi.programs, captures)]
    best = max(row["busbw"] for row in rows)
    if number < 2:
        return "%s on 1 GPU: it works; a rate needs two" % through, lines
    version = " %s" % answer["nccl"] if answer.get("nccl") else ""
    return "%s%s, all-reduce on %d GPUs: up to %.1f GB/s on the bus" % (through, version, number, best / 1e9), lines


def _rates(rows: Sequence[Mapping[str, Any]], *, bus: bool) -> list[str]:
    """Return the table of rates. One GPU alone has none on the bus."""
    lines = ["| bytes | time µs | algbw GB/s |", "|---:|---:|---:|"]
    lines += ["| %d | %.1f | %.2f |" % (row["bytes"], row["seconds"] * 1e6, row["algbw"] / 1e9) for row in rows]
    if bus:
        more = [" busbw GB/s |", "---:|", *(" %.2f |" % (row["busbw"] / 1e9) for row in rows)]
        lines = [line + cell for line, cell in zip(lines, more)]
    return lines


def _horovod(clock: Clock) -> bool:
    """Return whether Horovod is here with a framework that _nccl_perf uses."""
    program = (
        "import importlib.util as u, sys; "
        "sys.exit(not (u.find_spec('horovod') and (u.find_spec('tensorflow') or u.find_spec('mxnet'))))"
    )
    return run([sys.executable, "-c", program], clock.left(LOOK_S)).code == 0


def _under_load(load: Done, names: Names, programs: Sequence[str], captures: dict[str, str]) -> Iterable[str]:
    """Return lines about the clocks under load, and keep the answer that they come from."""
    try:
        busy = state(load.text) if load.text else State()
    except OddAnswer as odd:
        return ["The clocks under load could not be read: %s" % odd]
    if not busy.gpus:
        return ["The clocks under load were not read: NCCL ended before."]
    running = [process.program for gpu in busy.gpus for process in gpu.processes if process.program]
    captures["state-load.xml"] = cleaned(load.text, names, (*programs, *running))
    return [
        "| under load | SM clock | memory clock | power | PCIe generation | held down by |",
        "|---|---|---|---|---|---|",
        *(
            "| GPU %d | %s of %s MHz | %s MHz | %s W | %s of %s | %s |"
            % (
                gpu.index,
                shown(gpu.sm_mhz),
                shown(gpu.most_sm_mhz),
                shown(gpu.memory_mhz),
                shown(gpu.watts),
                shown(gpu.link_generation),
                shown(gpu.most_link_generation),
                ", ".join(gpu.reasons) or "nothing",
            )
            for gpu in busy.gpus
        ),
    ]


def torch_steps(clock: Clock) -> tuple[str, Sequence[str]]:
    """Train on two ranks: with NCCL if each has its own GPU, else with Gloo on one GPU or on the CPU."""
    program = (
        "import torch, json; here = {'version': torch.__version__, 'cuda': torch.version.cuda}; "
        "print(json.dumps({**here, 'gpus': torch.cuda.device_count()}))"
    )
    probe = run([sys.executable, "-c", program], clock.left(LOOK_S))
    here = last_json(probe.text)
    if not here:
        missing = "No module named 'torch'" in probe.errors
        raise Skipped("no torch") if missing else Failed("import torch: %s" % probe.last)
    gpus = int(here["gpus"])
    if here.get("cuda") and not gpus:
        raise Failed("torch %s, built for CUDA %s, sees no GPU" % (here["version"], here["cuda"]))
    backend, places = ("nccl", ("0", "1")) if gpus > 1 else ("gloo", ("0", "0") if gpus else ("cpu", "cpu"))
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    ranks = []
    for rank, place in enumerate(places):
        env = {
            **os.environ,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "NCCL_SOCKET_IFNAME": "lo",
        }
        ranks.append(Running([sys.executable, str(HERE / "torch_step.py"), backend, place], env=env))
    ends = [process.wait(clock.left(TORCH_S)) for process in ranks]
    answer = last_json(ends[0].text)
    if any(done.code for done in ends) or not answer:
        raise Failed("; ".join("rank %d: %s" % (rank, done.last) for rank, done in enumerate(ends) if done.code))
    lines = ["| | |", "|---|---|", *("| %s | %s |" % (name, value) for name, value in answer.items())]
    where = (
        "%d GPUs" % min(gpus, 2)
        if gpus > 1
        else "one GPU"
        if gpus
        else "the CPU, because this torch is built without CUDA"
    )
    step = 1000 * float(answer["step_s"])
    return "torch %s, two ranks by %s on %s: %.1f ms a step" % (here["version"], backend, where, step), lines
