"""The driver's own library, by ctypes: the devices that CUDA shows this process. Prints them as JSON if it is started.

scripts/gpu-check starts it under kit-rank, to see what a rank would see.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

ATTRIBUTE_MAJOR, ATTRIBUTE_MINOR = 75, 76


class CudaError(Exception):
    """A call failed, or the library is missing."""


class Cuda:
    """libcuda.so.1, which comes with the driver. `library` stands for it in tests."""

    def __init__(self, library: Any = None) -> None:
        try:
            self._library: Any = library or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError("libcuda.so.1 is missing: %s" % error) from None
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name: str, *words: Any) -> None:
        """Call a function of the library. Raises CudaError with CUDA's word for what happened."""
        code = getattr(self._library, name)(*words)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
            raise CudaError("%s: %s" % (name, text.value.decode() if text.value else "error %d" % code))

    def count(self) -> int:
        number = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(number))
        return number.value

    def device(self, index: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
        return device

    def describe(self, index: int) -> dict[str, str]:
        """Return the name, the UUID (GPU-…, or of a MIG device MIG-…) and the compute capability of a device."""
        device = self.device(index)
        name, uuid = ctypes.create_string_buffer(200), (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetName", name, ctypes.c_int(200), device)
        # Only the second version knows the UUIDs of MIG devices. Drivers before 11.4 have the first one.
        second = hasattr(self._library, "cuDeviceGetUuid_v2")
        self.call("cuDeviceGetUuid_v2" if second else "cuDeviceGetUuid", uuid, device)
        digits = bytes(uuid).hex()
        parts = [digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]
        capability = []
        for attribute in (ATTRIBUTE_MAJOR, ATTRIBUTE_MINOR):
            value = ctypes.c_int()
            self.call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), device)
            capability.append(str(value.value))
        return {"name": name.value.decode(), "uuid": "-".join(parts), "capability": ".".join(capability)}


def main() -> int:
    seen: dict[str, Any] = {"visible": os.environ.get("CUDA_VISIBLE_DEVICES")}
    try:
        cuda = Cuda()
        seen["devices"] = [cuda.describe(index) for index in range(cuda.count())]
    except CudaError as error:
        seen["error"] = str(error)
    print(json.dumps(seen), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
