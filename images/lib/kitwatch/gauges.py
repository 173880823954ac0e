"""One reading of a host after the other: `Gauges().read()`."""

import time
from typing import Any, Callable, Dict, Optional, Sequence, Union

from kitwatch import devices, gpus, ranks, system

# The file systems that fill up: the root's, the engine's, and the one of runs and data, on a VM and in a node.
PATHS = ("/", "/var/lib/docker", "/opt/kit", "/var/lib/kit")


class Gauges:
    """Reads a host. The second reading and later ones have rates; in the first, they are None.

    `every` is the planned time between readings in seconds, `paths` are the file systems to look at. `processes` is
    what looks at ranks, or None for a caller that knows them. `gpu` says whether nvidia-smi is asked; a caller that
    asks it, too, gives its own gpus.Gpus, and ends it.
    """

    def __init__(
        self,
        every: float = 1.0,
        paths: Sequence[str] = PATHS,
        processes: Optional[ranks.Ranks] = None,
        gpu: Union[bool, gpus.Gpus] = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths, self._processes, self._clock = paths, processes, clock
        self._mine = gpus.Gpus(every) if gpu is True else None
        self._gpus = gpu if isinstance(gpu, gpus.Gpus) else self._mine
        self._at: Optional[float] = None
        self._counters: Optional[system.Counters] = None
        self._seconds: Dict[str, float] = {}
        self._disks: Optional[Dict[str, Dict[str, float]]] = None
        self._nics: Optional[Dict[str, Dict[str, float]]] = None

    def read(self, *, threads: bool = False, wait: float = 0.0) -> Dict[str, Any]:
        """Return a reading. `threads` is that of Ranks.look. `wait` is how long the first one waits for nvidia-smi.

        `at` is the time of day in seconds, and `seconds` the time since the reading before, or None.
        """
        now = self._clock()
        seconds = 0.0 if self._at is None else now - self._at
        counters, disks, nics = system.counters(), devices.disks(), devices.nics()
        reading: Dict[str, Any] = {"at": round(time.time(), 3), "seconds": round(seconds, 3) if seconds else None}
        reading.update(system.cores(counters, self._counters))
        reading["cpu_s"] = self._seconds = system.rising(reading["cpu_s"], self._seconds)
        reading["mem"] = system.memory()
        reading["psi"] = system.pressure()
        reading["disk"] = system.space(self._paths)
        reading["disks"] = devices.disk_rates(disks, self._disks, seconds)
        reading["nics"] = devices.nic_rates(nics, self._nics, seconds)
        self._at, self._counters, self._disks, self._nics = now, counters, disks, nics
        if self._gpus is not None:
            reading["gpus"] = self._gpus.read(wait)
            reading["gpu_fault"] = self._gpus.fault
        if self._processes is not None:
            reading.update(self._processes.look(threads=threads))
        return reading

    def close(self) -> None:
        """End the nvidia-smi that this started."""
        if self._mine is not None:
            self._mine.close()
