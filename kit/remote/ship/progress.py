"""What a person sees of a ship while it runs: how far each host is."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kit.events import HostStep, Reporter
from kit.remote.ship.faults import IMAGE, Words
from kit.remote.ship.lanes import Lane

MEGA = 10_000_000
# A ship of code that is smaller and shorter than this shows no progress: it is over before a person has read it.
SMALL, SHORT_S = 1_000_000, 1.0


class Progress:
    """Reports steps of hosts. A short ship of little code shows none."""

    def __init__(self, reporter: Reporter, words: Words) -> None:
        self._reporter, self._words = reporter, words
        self._sizes: Sequence[int] = ()
        self._begun = 0.0
        # The latest step of hosts that is not shown yet.
        self._unsaid: dict[Lane, HostStep] = {}

    def begin(self, sizes: Sequence[int]) -> None:
        """Start, or correct the sizes. `sizes` are the bytes of each layer, the last layer's first."""
        self._sizes, self._begun = sizes, self._begun or time.monotonic()

    def say(self, lane: Lane, text: str, fraction: float | None = None) -> None:
        step = HostStep(host=lane.host, text=text, fraction=fraction)
        if self._is_quiet():
            self._unsaid[lane] = step
        else:
            self._reporter.report(step)

    def arrived(self, lane: Lane, at: int) -> None:
        """Say that `at` bytes have arrived at a host."""
        wanted = sum(self._sizes[: len(lane.need or ())])
        if not lane.received and wanted:
            cargo = self._words.cargo
            # The engine reports the size of a layer's files, without the tar around them, so `at` may exceed it.
            shown = min(at, wanted)
            text = f"{cargo} {shown / 1e9:.2f} of {wanted / 1e9:.2f} GB" if wanted > MEGA else cargo
            self.say(lane, text if at else f"waiting for the {cargo}", shown / wanted)

    def catch_up(self) -> None:
        """Show what was held back, if the ship is not short any more."""
        if self._unsaid and not self._is_quiet():
            for step in self._unsaid.values():
                self._reporter.report(step)
            self._unsaid.clear()

    def _is_quiet(self) -> bool:
        is_small = self._words is not IMAGE and sum(self._sizes) < SMALL
        return is_small and time.monotonic() - self._begun < SHORT_S
