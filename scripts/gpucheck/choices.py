"""The part of gpu-check that starts ranks under kit-rank, and compares the GPUs that CUDA shows them."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.gpucheck.commands import Clock, run
from scripts.gpucheck.outcome import HERE, Failed, Skipped
from scripts.gpucheck.smi import Smi

# The name of this machine for kit-rank, which knows its GPUs by it.
NODE = "gpu-check"
RANK_S = 40.0
CONTROL = Path("/dev/nvidiactl")
_RECORD = re.compile(rb"\x1ekit-line \S+ (\w) [.+] ([0-9]{1,7})\n")


def choices(root: Path, clock: Clock, smi: Smi) -> tuple[str, Sequence[str]]:
    """Let kit-rank show one GPU after the other to a rank, as a run with leases does, and compare CUDA's UUID."""
    if not CONTROL.exists():
        raise Skipped("no /dev/nvidiactl, so kit-rank sees no GPU")
    lines = ["| held slots | CUDA_VISIBLE_DEVICES | CUDA shows |", "|---|---|---|"]
    wrong = []
    if any(gpu.mig for gpu in smi.gpus):
        raise Skipped("MIG is on: this part compares whole GPUs")
    for gpu in smi.gpus:
        seen, error = _as_rank(root, clock, {"KIT_HELD_SLOTS": "%s=%d" % (NODE, gpu.index)})
        if str(seen.get("error", "")).startswith("libcuda.so.1 is missing"):
            raise Skipped(seen["error"])
        devices = seen.get("devices", [])
        uuids = ["GPU-%s" % device["uuid"] for device in devices]
        words = error or seen.get("error") or ", ".join(uuids) or "nothing"
        lines.append("| %d | %s | %s |" % (gpu.index, seen.get("visible"), words))
        if uuids != [gpu.uuid]:
            wrong.append("GPU %d: %s" % (gpu.index, words))
    shares = []
    for local in range(len(smi.gpus)):
        more = {
            "KIT_GPUS_PER_RANK": "1",
            "KIT_BIND_NEAR": "1",
            "KIT_REPORT_BINDINGS": "1",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(len(smi.gpus)),
        }
        seen, error = _as_rank(root, clock, more)
        uuids = ["GPU-%s" % device["uuid"] for device in seen.get("devices", [])]
        shares += uuids
        words = error or "; ".join(filter(None, (", ".join(uuids), seen.get("bindings"))))
        lines.append("| one GPU per rank, local rank %d | %s | %s |" % (local, seen.get("visible"), words))
    if sorted(shares) != sorted(gpu.uuid for gpu in smi.gpus):
        wrong.append("with one GPU per rank, the ranks see %s" % shares)
    if wrong:
        raise Failed("; ".join(wrong), lines)
    return "each rank sees the GPU that kit-rank chose, by nvidia-smi's numbers", lines


def _as_rank(root: Path, clock: Clock, more: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Start cuda.py as a rank of a run. Return what it printed, or an error."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "KIT_", "OMPI_"))}
    env = {
        **own,
        "KIT_RUN": NODE,
        "KIT_NODE": NODE,
        "OMPI_COMM_WORLD_RANK": more.get("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
        "OMPI_COMM_WORLD_SIZE": more.get("OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
        **more,
    }
    # kit-rank sends records only through a pipe.
    words = " ".join(
        map(_quoted, [sys.executable, str(root / "images/bin/kit-rank"), sys.executable, str(HERE / "cuda.py")])
    )
    done = run(["sh", "-c", "%s 2>&1 | cat" % words], clock.left(RANK_S), env=env)
    records = done.text.encode()
    complaints = printed(records, b"e").strip()
    for line in (printed(records, b"o") or done.text).splitlines():
        if line.startswith('{"visible"'):
            seen: dict[str, Any] = json.loads(line)
            return {**seen, "bindings": complaints.partition("\n")[0]}, ""
    return {}, complaints.rpartition("\n")[2] or done.last


def printed(records: bytes, kind: bytes) -> str:
    """Return what the rank wrote to its standard output (o) or error (e), in kit-rank's records."""
    text, at = b"", 0
    while match := _RECORD.search(records, at):
        end = match.end() + int(match[2])
        if match[1] == kind:
            text += records[match.end() : end]
        at = end
    return text.decode("utf-8", "replace")


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
