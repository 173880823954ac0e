"""The GPUs of a host, from one nvidia-smi that goes on printing: a start of it costs more than many readings.

nvidia-smi can wait for a broken GPU without an end, and no signal ends it then. So nothing here waits for it.
"""

import os
import re
import select
import signal
import subprocess
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

# A host without nvidia-smi has no GPUs that kit knows.
PROGRAM = "nvidia-smi"
FIELDS = (
    *("count", "index", "uuid", "name", "utilization.gpu", "memory.used", "memory.total", "temperature.gpu"),
    *("power.draw", "power.limit", "clocks.current.sm", "clocks.max.sm"),
)
# Newer drivers say event. Drivers from 535 on know both words, and the newest may know only theirs.
REASONS = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")
# NVML's bits.
_BITS = (
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)
_NUMBER = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,9})?$")
_INDEX = re.compile(r"[0-9]{1,4}$")
_MASK = re.compile(r"0x[0-9A-Fa-f]{1,16}$")
_MEBI = 1 << 20
_MOST = 1 << 20
_MOST_GPUS = 256
# An answer that is older than this many periods, and at least this many seconds, no longer describes the GPUs.
_STALE, _STALE_S = 3, 10.0
# A failing nvidia-smi is started again after this time, and on a host without GPUs one that may be there by then.
_AGAIN_S = 30.0
# What nvidia-smi prints on a host without GPUs; and on one whose only GPU is lost, after other words or later.
_NO_GPUS = "No devices"


def parse(line: str) -> Optional[Tuple[int, Dict[str, Any]]]:
    """Return how many GPUs there are, and a GPU, from a line of `FIELDS` and the reasons, as csv,noheader,nounits.

    Returns None for any other line. The number is 0 if nvidia-smi does not say it.

    A value that this GPU or driver does not have is None. `mem_used` and `mem_total` are bytes, `use` is a percentage,
    `temp` is in °C, `power` in W, clocks are in MHz. `throttle` has NVML's names of what holds the clocks down.
    """
    words = [word.strip() for word in line.split(",")]
    # A name could have a comma.
    extra = len(words) - len(FIELDS) - 1
    if extra < 0 or not _INDEX.match(words[1]) or not words[2].startswith("GPU-"):
        return None
    name = ", ".join(words[3 : 4 + extra])
    use, used, total, temp, power, limit, clock, most, mask = words[4 + extra :]
    gpu = {
        "index": int(words[1]),
        "uuid": words[2],
        "name": name,
        "use": value(use),
        "mem_used": _bytes(used),
        "mem_total": _bytes(total),
        "temp": value(temp),
        "power": value(power),
        "power_limit": value(limit),
        "sm_clock": value(clock),
        "sm_clock_max": value(most),
        "throttle": reasons(mask),
    }
    return int(words[0]) if _INDEX.match(words[0]) else 0, gpu


def value(word: str) -> Optional[float]:
    """Return the number, or None for [N/A], [Not Supported], [Unknown Error] and whatever else nvidia-smi prints."""
    return float(word) if _NUMBER.match(word) else None


def _bytes(word: str) -> Optional[int]:
    number = value(word)
    return None if number is None else int(number) * _MEBI


def reasons(mask: str) -> Optional[List[str]]:
    if not _MASK.match(mask):
        return None
    bits = int(mask, 16)
    return [name for bit, name in _BITS if bits & bit]


class Gpus:
    """The newest answer of an nvidia-smi that prints every `every` seconds. `close` ends it."""

    def __init__(self, every: float = 1.0) -> None:
        self.every = max(1, round(every))
        self.fault = ""
        # The first line of this nvidia-smi that is no GPU. The first names the cause, and the others follow from it.
        self._complaint = ""
        # The newest such line that names a cause, until a GPU answers; and whether any GPU ever did.
        self._cause, self._had = "", False
        self._process: Any = None
        self._missing = False
        self._word = 0
        self._text = b""
        self._growing: List[Dict[str, Any]] = []
        self._newest: Optional[List[Dict[str, Any]]] = None
        self._heard = self._again = 0.0

    def read(self, wait: float = 0.0) -> Optional[List[Dict[str, Any]]]:
        """Return the GPUs, [] if the host has none, or None if nvidia-smi gives no answer: `fault` then says why.

        `wait` is the time for the very first answer, in seconds. Later calls never wait.
        """
        now = time.monotonic()
        if self._process is None and now >= self._again:
            self._start(now)
        end = now + (wait if self._newest is None and not self._missing else 0.0)
        while self._process is not None and self._drain(max(end - time.monotonic(), 0.0)):
            if self._newest is not None:
                end = 0.0
        if self._missing:
            return []
        if self._newest is not None and time.monotonic() - self._heard > max(_STALE * self.every, _STALE_S):
            self._newest = None
            self.fault = "%s has not answered for %d s" % (PROGRAM, time.monotonic() - self._heard)
        return self._newest

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            # One that waits for a broken GPU does not end. It is this program's child and ends with the GPU's wait.
            end = time.monotonic() + 1.0
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.01)
            process.stdout.close()

    def _start(self, now: float) -> None:
        query = "--query-gpu=" + ",".join((*FIELDS, REASONS[self._word]))
        argv = [PROGRAM, query, "--format=csv,noheader,nounits", "--loop=%d" % self.every]
        try:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment()
            )
        except OSError as error:
            self._missing = isinstance(error, FileNotFoundError) and not self._had
            self.fault = "" if self._missing else "%s does not start: %s" % (PROGRAM, error.strerror)
            self._again = now + _AGAIN_S
            return
        os.set_blocking(self._process.stdout.fileno(), False)
        self._text, self._growing, self._heard, self._complaint = b"", [], now, ""

    def _drain(self, wait: float) -> bool:
        """Take what nvidia-smi has printed. Return whether there was anything."""
        pipe = self._process.stdout.fileno()
        # Unlike select, poll knows descriptors over 1023: a supervisor has two for each node.
        poller = select.poll()
        poller.register(pipe, select.POLLIN)
        if not poller.poll(wait * 1000):
            return False
        try:
            data = os.read(pipe, 65536)
        except BlockingIOError:
            return False
        if not data or len(self._text) > _MOST:
            self._ended()
            return False
        *whole, self._text = (self._text + data).split(b"\n")
        for line in whole:
            self._hear(line.decode("utf-8", "replace").strip())
        return True

    def _hear(self, line: str) -> None:
        parsed = parse(line)
        if parsed is None:
            if line and not self._complaint:
                self._complaint = "".join(char for char in line[:200] if char.isprintable())
                if not self._complaint.startswith(_NO_GPUS):
                    self.fault = self._complaint
            return
        total, gpu = parsed
        if self._growing and gpu["index"] <= self._growing[-1]["index"]:
            # A container may see fewer GPUs than there are. The next answer ends this one.
            self._settle()
        self._growing = [*self._growing, gpu][:_MOST_GPUS]
        if len(self._growing) == total:
            self._settle()

    def _settle(self) -> None:
        if self._growing:
            self._newest, self._growing = self._growing, []
            self._heard, self.fault, self._complaint, self._cause = time.monotonic(), "", "", ""
            self._had, self._missing = True, False

    def _ended(self) -> None:
        if self._text:
            self._hear(self._text.decode("utf-8", "replace").strip())
        self._settle()
        process, self._process = self._process, None
        if process is not None:
            process.stdout.close()
            code = process.wait()
            now = time.monotonic()
            if "not a valid field" in self._complaint and self._word + 1 < len(REASONS):
                self._word += 1
                self._again = now
            else:
                self._newest = None
                self._again = now + _AGAIN_S
                self._judge("%s ended with exit code %d" % (PROGRAM, code))

    def _judge(self, ended: str) -> None:
        """Set why there is no answer of an nvidia-smi that ended: it says that there are no GPUs, or it failed."""
        if not self._complaint.startswith(_NO_GPUS):
            self._missing, self._cause, self.fault = False, self._complaint or self._cause, self._complaint or ended
        elif self._had or self._cause:
            # The GPU is lost. What was printed before says more.
            self.fault = self._cause or self._complaint
        else:
            self._missing, self.fault = True, ""


def _environment() -> Dict[str, str]:
    return dict(os.environ, LC_ALL="C")


def once(every: float = 1.0, wait: float = 10.0) -> Tuple[Optional[Sequence[Dict[str, Any]]], str]:
    """Return one answer of nvidia-smi, or None and why nvidia-smi failed."""
    gpus = Gpus(every)
    try:
        return gpus.read(wait), gpus.fault
    finally:
        gpus.close()
