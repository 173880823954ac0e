"""All-reduces of NCCL over all GPUs of this process, with ctypes alone: libnccl.so.2 and the driver's libcuda.so.1.

It needs no framework and no CUDA toolkit. gpu-check starts it where Horovod is missing. Prints JSON.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

# Started as a program, this folder is on the path instead of the repository.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from scripts.gpucheck.cuda import Cuda, CudaError

SIZES = (8, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20)
SECONDS = 1.5
# After the measurement, the GPUs stay busy this long, so that gpu-check can read their clocks under load.
LOAD, LOAD_S, LOAD_BYTES = "load", 8.0, 64 << 20
FLOAT32, SUM = 7, 0


class NcclError(Exception):
    """A call of NCCL failed, or it is missing."""


def library_paths() -> list[str]:
    """Return where libnccl.so.2 may be: as the loader finds it, then in the wheels that PyTorch and others bring."""
    folders = [path for path in sys.path if path.endswith("packages")]
    patterns = ("nvidia/nccl/lib/libnccl.so.2", "nvidia/*/lib/libnccl.so.2", "torch/lib/libnccl.so.2")
    wheels = [path for folder in folders for pattern in patterns for path in glob.glob(os.path.join(folder, pattern))]
    other = glob.glob("/usr/local/cuda*/lib64/libnccl.so.2") + glob.glob("/opt/conda/lib/libnccl.so.2")
    return ["libnccl.so.2", *wheels, *other]


def load(paths: Sequence[str]) -> Any:
    """Return NCCL. Raises NcclError if no path has it."""
    for path in paths:
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise NcclError("libnccl.so.2 is missing")


class Group:
    """All GPUs of this process with a buffer and a stream each, and one communicator of NCCL for each."""

    def __init__(self, cuda: Cuda, nccl: Any, most: int) -> None:
        self._cuda, self._nccl = cuda, nccl
        self.gpus = cuda.count()
        if not self.gpus:
            raise CudaError("CUDA shows this process no GPU")
        self._contexts: list[ctypes.c_void_p] = []
        self._streams: list[ctypes.c_void_p] = []
        self._send: list[ctypes.c_uint64] = []
        self._receive: list[ctypes.c_uint64] = []
        for index in range(self.gpus):
            context, stream = ctypes.c_void_p(), ctypes.c_void_p()
            # NCCL uses the same context: the primary one of each device.
            cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), cuda.device(index))
            cuda.call("cuCtxSetCurrent", context)
            cuda.call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(0))
            for buffers in (self._send, self._receive):
                buffer = ctypes.c_uint64()
                cuda.call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(most))
                buffers.append(buffer)
            self._contexts.append(context)
            self._streams.append(stream)
        self._ranks = (ctypes.c_void_p * self.gpus)()
        numbers = (ctypes.c_int * self.gpus)(*range(self.gpus))
        self._call("ncclCommInitAll", self._ranks, ctypes.c_int(self.gpus), numbers)

    def _call(self, name: str, *words: Any) -> None:
        code = getattr(self._nccl, name)(*words)
        if code:
            self._nccl.ncclGetErrorString.restype = ctypes.c_char_p
            text = self._nccl.ncclGetErrorString(ctypes.c_int(code))
            raise NcclError("%s: %s" % (name, text.decode() if isinstance(text, bytes) else "error %d" % code))

    def version(self) -> str:
        number = ctypes.c_int()
        self._call("ncclGetVersion", ctypes.byref(number))
        code = number.value
        # Until 2.8, the minor number had two digits.
        major = 1000 if code < 10000 else 10000
        return "%d.%d.%d" % (code // major, code % major // 100, code % 100)

    def fill(self, count: int) -> None:
        """Put 1.0 into the buffer of the first GPU, 2.0 into that of the second, and so on."""
        for index in range(self.gpus):
            self._cuda.call("cuCtxSetCurrent", self._contexts[index])
            values = (ctypes.c_float * count)(*([float(index + 1)] * min(count, 1024)))
            if count > 1024:
                step = ctypes.sizeof(ctypes.c_float) * 1024
                for at in range(step, 4 * count, step):
                    ctypes.memmove(ctypes.addressof(values) + at, values, min(step, 4 * count - at))
            self._cuda.call("cuMemcpyHtoD_v2", self._send[index], values, ctypes.c_size_t(4 * count))

    def reduce(self, count: int, times: int) -> float:
        """Sum all buffers `times` times. Return the seconds of all."""
        began = time.monotonic()
        for _ in range(times):
            self._call("ncclGroupStart")
            for index in range(self.gpus):
                self._call(
                    "ncclAllReduce",
                    ctypes.c_void_p(self._send[index].value),
                    ctypes.c_void_p(self._receive[index].value),
                    ctypes.c_size_t(count),
                    ctypes.c_int(FLOAT32),
                    ctypes.c_int(SUM),
                    ctypes.c_void_p(self._ranks[index]),
                    self._streams[index],
                )
            self._call("ncclGroupEnd")
        for index in range(self.gpus):
            self._cuda.call("cuCtxSetCurrent", self._contexts[index])
            self._cuda.call("cuStreamSynchronize", self._streams[index])
        return time.monotonic() - began

    def right(self, count: int) -> bool:
        """Return whether every GPU has the sum at the beginning, in the middle and at the end."""
        due = float(sum(range(1, self.gpus + 1)))
        part = min(count, 1024)
        for index in range(self.gpus):
            self._cuda.call("cuCtxSetCurrent", self._contexts[index])
            for at in (0, (count - part) // 2, count - part):
                values = (ctypes.c_float * part)()
                start = ctypes.c_uint64(self._receive[index].value + 4 * at)
                self._cuda.call("cuMemcpyDtoH_v2", values, start, ctypes.c_size_t(4 * part))
                if set(values) != {due}:
                    return False
        return True


def measure(group: Group, sizes: Sequence[int], seconds: float) -> list[dict[str, Any]]:
    """Return a row for each size: the median of several repeats, and the rates as mpi_perf computes them."""
    rows = []
    group.fill(max(1, max(sizes) // 4))
    for size in sizes:
        count = max(1, size // 4)
        group.reduce(count, 2)
        times = max(1, min(200, int(seconds / 8 / max(1e-6, group.reduce(count, 1)))))
        samples = sorted(group.reduce(count, times) / times for _ in range(5))
        middle = samples[2]
        factor = 2 * (group.gpus - 1) / group.gpus
        row = {"bytes": 4 * count, "seconds": middle, "min_s": samples[0], "max_s": samples[-1]}
        rows.append(
            {**row, "algbw": 4 * count / middle, "busbw": 4 * count / middle * factor, "right": group.right(count)}
        )
    return rows


def main() -> int:
    try:
        cuda, nccl = Cuda(), load(library_paths())
        group = Group(cuda, nccl, max(SIZES))
        rows = measure(group, SIZES, SECONDS)
        print(LOAD, flush=True)
        end = time.monotonic() + LOAD_S
        while time.monotonic() < end:
            group.reduce(LOAD_BYTES // 4, 10)
    except (CudaError, NcclError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    print(json.dumps({"gpus": group.gpus, "nccl": group.version(), "rows": rows}), flush=True)
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
