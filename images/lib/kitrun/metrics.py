"""What a run uses of its hosts: one reading of each host every 10 s, kept beside the run's log, and the sum of it.

A guard reads its node (`Probe`). The supervisor asks for readings, writes them to metrics.jsonl, and puts a summary
into the run's ending (`Recorder`). Short runs have no guards, and so no readings.
"""

import contextlib
import json
import os
import time
from typing import Any, Callable, Container, Dict, List, Mapping, Optional, Sequence, Set

from kitrun import idle, procs

Point = Dict[str, Any]

EVERY_S = 10.0
# Lines and bytes of metrics.jsonl. When there are more, every second line goes, and kit writes half as often.
MOST = 2000
MOST_BYTES = 32 << 20
# With fewer lines, none goes, whatever their size.
LEAST = 100
# Hosts in the summary: the ending has reserved space on the disk.
MOST_HOSTS = 64
_MOST_GPUS = 64
# More than any host has: procs.memory_of then adds up what is quick to read.
_ENOUGH = 1 << 62
_COUNTERS = ("received", "sent", "read", "written")
_WHOLE = ("memory", "cores", "host_memory", "host_memory_size", *_COUNTERS)


class Probe:
    """Reads this node for one run. It needs no more than what the node's container sees.

    `look` is who looks at the GPUs here, and who ends that.
    """

    def __init__(self, run_id: str, look: idle.Look) -> None:
        self.run_id, self._look = run_id, look
        self._gauges: Any = None
        self._cpu: Dict[int, float] = {}
        self._at = 0.0

    def read(self) -> Point:
        """Return a point, or {} if this node cannot be read. `point_of` has its fields; `cpu` is None the first time.

        Nothing that it meets may end the process that guards a run.
        """
        try:
            if self._gauges is None:
                # Imported only here: short runs never get here.
                from kitwatch import gauges

                self._gauges = gauges.Gauges(EVERY_S, gpu=self._look.gpus())
            reading = self._gauges.read()
            pids = list(procs.ranks(self.run_id))
            return point_of(reading, memory=procs.memory_of(self.run_id, _ENOUGH), cpu=self._used(pids))
        except Exception:
            return {}

    def _used(self, pids: Sequence[int]) -> Optional[float]:
        """Return the cores that these processes used on average since the last call."""
        from kitwatch import ranks

        now = time.monotonic()
        stats = {pid: ranks.stat(pid) for pid in pids}
        cpu = {pid: stat.cpu for pid, stat in stats.items() if stat is not None}
        passed, known = now - self._at, self._at > 0
        used = sum(max(seconds - self._cpu.get(pid, 0.0), 0.0) for pid, seconds in cpu.items())
        self._cpu, self._at = cpu, now
        return round(used / passed, 3) if known and passed > 0 else None


def point_of(reading: Mapping[str, Any], *, memory: int, cpu: Optional[float]) -> Point:
    """Return what is kept of a reading (kitwatch.gauges).

    `memory` is that of the run's ranks here in bytes, and `cpu` the cores that they use. The rest is of the whole host:
    `cores`, `host_memory` and `host_memory_size`; bytes since the boot that its devices received, sent, read and wrote,
    where those of the network count each byte once; and the GPUs with `use` (percent), `memory` and `size`.
    """
    # Imported only here: short runs never get here.
    from kitwatch import devices

    nics = [reading["nics"][name] for name in devices.lowest(reading["nics"])]
    disks = reading["disks"].values()
    return {
        "memory": memory,
        "cpu": cpu,
        "cores": reading["cores"],
        "host_memory": reading["mem"]["used"],
        "host_memory_size": reading["mem"]["total"],
        "received": sum(int(nic["rx_bytes"]) for nic in nics),
        "sent": sum(int(nic["tx_bytes"]) for nic in nics),
        "read": sum(int(disk["read_bytes"]) for disk in disks),
        "written": sum(int(disk["written_bytes"]) for disk in disks),
        "gpus": [
            {"index": gpu["index"], "use": gpu["use"], "memory": gpu["mem_used"], "size": gpu["mem_total"]}
            for gpu in (reading.get("gpus") or [])[:_MOST_GPUS]
        ],
    }


def checked(point: Mapping[str, Any]) -> Point:
    """Return the fields of a point as numbers. Raises ValueError or TypeError for anything else.

    A node could be a stranger's, and what it says goes into the run's ending.
    """
    return dict(
        {name: _number(point[name]) for name in _WHOLE},
        cpu=None if point["cpu"] is None else float(_number(point["cpu"] * 1000)) / 1000,
        gpus=[
            {name: None if gpu[name] is None else _number(gpu[name]) for name in ("index", "use", "memory", "size")}
            for gpu in point["gpus"][:_MOST_GPUS]
        ],
    )


def _number(value: Any) -> int:
    number = int(value)
    if not 0 <= number <= _ENOUGH:
        raise ValueError("no amount: %d" % number)
    return number


class Total:
    """What one host's points say together."""

    def __init__(self) -> None:
        self._last: Point = {}
        self._peaks: Dict[str, int] = {}
        self._sums: Dict[str, float] = {}
        self._counts: Dict[str, int] = {}
        self._bytes = dict.fromkeys(_COUNTERS, 0)
        # The GPUs whose use is known, by number.
        self._used: Set[int] = set()

    def add(self, point: Point, gpus: Optional[Sequence[int]]) -> None:
        """Add a point. `gpus` are the numbers of the run's GPUs, or None for all.

        If the host has none of them, all of its own count.
        """
        mine = [gpu for gpu in point["gpus"] if gpus is None or gpu["index"] in gpus] or point["gpus"]
        self._peak("memory", point["memory"])
        self._peak("host_memory", point["host_memory"])
        self._mean("cpu", point["cpu"])
        for gpu in mine:
            self._peak("gpu_memory", gpu["memory"])
            self._peak("gpu_memory_size", gpu["size"])
            self._mean("gpu", gpu["use"])
            if gpu["use"] is not None:
                self._used.add(gpu["index"])
        for name in _COUNTERS:
            # A counter that is lower than before began again: the host rebooted, or a device came back.
            self._bytes[name] += max(point[name] - self._last.get(name, point[name]), 0)
        self._last = point

    def pause(self) -> None:
        """Leave out what the host moves until its next point."""
        self._last = {name: value for name, value in self._last.items() if name not in _COUNTERS}

    def _peak(self, name: str, value: Optional[int]) -> None:
        if value is not None:
            self._peaks[name] = max(self._peaks.get(name, 0), int(value))

    def _mean(self, name: str, value: Optional[float]) -> None:
        if value is not None:
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def _average(self, name: str) -> Optional[float]:
        count = self._counts.get(name, 0)
        return round(self._sums[name] / count, 3) if count else None

    def summary(self) -> Dict[str, Any]:
        return dict(
            self._bytes,
            memory_peak=self._peaks.get("memory", 0),
            host_memory_peak=self._peaks.get("host_memory", 0),
            host_memory_size=self._last.get("host_memory_size", 0),
            cpu_mean=self._average("cpu"),
            cores=self._last.get("cores", 0),
            gpu_mean=self._average("gpu"),
            gpus=len(self._used),
            gpu_memory_peak=self._peaks.get("gpu_memory"),
            gpu_memory_size=self._peaks.get("gpu_memory_size"),
        )


class Recorder:
    """Asks the nodes of a run for points, and keeps them. `held` is KIT_HELD_SLOTS: the GPUs that it holds there."""

    def __init__(self, path: str, held: str, now: Callable[[], float] = time.time) -> None:
        self._path, self._now = path, now
        self._held = held
        self._gpus: Dict[str, Optional[List[int]]] = {}
        self._totals: Dict[str, Total] = {}
        self._row: Dict[str, Point] = {}
        self._due = 0.0
        # Write each `step`-th row.
        self._rows = self._seen = 0
        self._step = 1
        self.readings = 0

    def hold(self, held: str) -> None:
        """Take KIT_HELD_SLOTS of the present nodes: some came, or came back with other GPUs."""
        if held != self._held:
            self._held, self._gpus = held, {}

    def _gpus_of(self, name: str) -> Optional[List[int]]:
        """Return the numbers of the run's GPUs on a node, or None for all."""
        if name not in self._gpus:
            # Imported only here: short runs never get here.
            from kitrun import devices

            self._gpus[name] = devices.held_numbers(self._held, name)
        return self._gpus[name]

    def tick(self, clock: float, nodes: Sequence[Any], dropped: Container[str] = ()) -> None:
        """Take the points that came. Every 10 s, write them, and ask for others. `clock` is time.monotonic().

        `dropped` nodes give none: what they do is no longer of this run.
        """
        for node in nodes:
            point, node.reading = node.reading, None
            if node.name in dropped:
                if node.name in self._totals:
                    self._totals[node.name].pause()
            elif point:
                self.add(node.name, point)
        if clock >= self._due:
            self._due = clock + EVERY_S
            self.write()
            for node in nodes:
                if node.name not in dropped:
                    node.send("reading")

    def add(self, name: str, point: Mapping[str, Any]) -> None:
        """Add a node's point. One that does not have the form of a point is left out."""
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            known = checked(point)
            self._totals.setdefault(name, Total()).add(known, self._gpus_of(name))
            self._row[name] = known
            self.readings += 1

    def write(self) -> None:
        """Append the points that came since the last call. A full disk loses them, and only them."""
        row, self._row = self._row, {}
        if not row:
            return
        number, self._seen = self._seen, self._seen + 1
        if number % self._step:
            return
        line = json.dumps({"at": round(self._now(), 1), "hosts": row}, separators=(",", ":")).encode() + b"\n"
        with contextlib.suppress(OSError):
            # With an even number of lines, the distance between all that stay is the same.
            if self._rows % 2 == 0 and self._rows >= min(MOST, max(LEAST, MOST_BYTES // len(line))):
                self._thin()
            _write(self._path, [line], os.O_APPEND)
            self._rows += 1

    def _thin(self) -> None:
        """Remove every second line. Later rows are written half as often."""
        with open(self._path, "rb") as file:
            kept = file.readlines()[::2]
        _write(self._path + ".new", kept, os.O_TRUNC)
        os.rename(self._path + ".new", self._path)
        self._rows, self._step = len(kept), self._step * 2

    def summary(self) -> Optional[Dict[str, Any]]:
        """Return what the run's ending says of its use, or None without a reading. The first hosts stand for all."""
        self.write()
        if not self._totals:
            return None
        hosts = {name: total.summary() for name, total in sorted(self._totals.items())[:MOST_HOSTS]}
        return {"every": EVERY_S, "readings": self.readings, "hosts": hosts, "left_out": len(self._totals) - len(hosts)}


def _write(path: str, lines: List[bytes], how: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | how, 0o600)
    with open(descriptor, "wb") as file:
        file.writelines(lines)
