"""Recognizes mpirun's banners: framed messages of up to 20 lines about an end that kit reports in one line."""

from __future__ import annotations

from collections.abc import Iterable

# mpirun prints this line above and below a message.
RULE_OFF = "-" * 20
# What a banner says about the end of a run. Other framed messages say what is wrong, and are kept. Open MPI 5 calls
# mpirun prterun, and ORTE PRTE.
_ENDINGS = (
    "Primary job terminated normally, but",
    "mpirun noticed that",
    "mpirun detected that",
    "prterun noticed that",
    "prterun detected that",
    "has lost communication with a remote daemon",
    "was unable to reliably start one or more daemons",
    "daemon has unexpectedly failed after launch",
)
# A longer text between two rules is not a banner.
_LONGEST = 40


class Banners:
    """Removes banners from lines that come one after the other. It holds back an open frame until that closes."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def feed(self, lines: Iterable[str]) -> list[str]:
        """Return the lines to show now."""
        shown: list[str] = []
        for line in lines:
            is_rule = line.startswith(RULE_OFF)
            if not self._held and not is_rule:
                shown.append(line)
                continue
            self._held.append(line)
            if len(self._held) > _LONGEST:
                shown += self.end()
            elif is_rule and len(self._held) > 1:
                held = self.end()
                shown += [] if _is_ending(held) else held
        return shown

    def end(self) -> list[str]:
        """Return the lines that are held back, because no more come."""
        held, self._held = self._held, []
        return held


def without(lines: Iterable[str]) -> list[str]:
    """Return the lines without mpirun's banners, rules and blank lines."""
    banners = Banners()
    kept = [*banners.feed(lines), *banners.end()]
    return [line for line in kept if line.strip() and not line.startswith(RULE_OFF)]


def _is_ending(frame: list[str]) -> bool:
    text = " ".join(" ".join(frame).split())
    return any(words in text for words in _ENDINGS)
