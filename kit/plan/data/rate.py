"""How fast bytes come to a host, and how long the rest takes: the text of a bar."""

from __future__ import annotations

from collections import deque

from kit.model.staging import StagingPlan, StagingProgress

# The rate is that of the last seconds.
WINDOW_S = 10.0
_GIGA, _MEGA = 1e9, 1e6
# Less than this is shown without a rate: it is there before a person has read it.
_SMALL = 10_000_000


class Rate:
    """What came to one host, at times that the caller gives, in seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, at: int) -> None:
        # A staging that begins again, for a watcher or after a lost host, may count fewer bytes.
        if self._samples and at < self._samples[-1][1]:
            self._samples.clear()
        self._samples.append((now, at))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()

    @property
    def bytes_per_s(self) -> float | None:
        """The rate of the last seconds, or None if it is not known yet."""
        if len(self._samples) < 2:
            return None
        (first, before), (last, after) = self._samples[0], self._samples[-1]
        return (after - before) / (last - first) if last > first else None


def bar_text(at: int, need: int, rate: float | None) -> str:
    """Return `1.20 of 60.00 GB, 112.0 MB/s, 0:08:45 left`. The units stay the same, so that bars do not jump."""
    if need < _SMALL:
        return "data"
    text = f"{at / _GIGA:.2f} of {need / _GIGA:.2f} GB"
    if rate is None:
        return text
    text += f", {rate / _MEGA:.1f} MB/s"
    return f"{text}, {clock((need - at) / rate)} left" if rate > 0 else text


def clock(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds: 1:02:45."""
    whole = max(0, min(round(seconds), 999 * 3600))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def fraction_of(plan: StagingPlan, progress: StagingProgress) -> float:
    """Return how far all hosts are together, as 0..1."""
    need = sum(one.need for one in plan.hosts.values())
    at = sum(min(progress.at.get(host, 0), one.need) for host, one in plan.hosts.items())
    return at / need if need else 0.0
