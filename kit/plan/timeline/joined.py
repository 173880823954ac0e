"""Ranks of an elastic run in a timeline: hosts may leave and join while it is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ENDED = "ended before the timeline was whole"
RESET = "hosts left or joined the run meanwhile, which ended the recording of its ranks"


def missed(why: Mapping[int, str], late: Mapping[str, Sequence[int]]) -> Mapping[int, str]:
    """Return by rank of an elastic run why it is missing or shorter.

    `late` has the ranks of hosts that joined after the recording had begun. A rank's number may have been that of
    another one before.
    """
    result = {rank: RESET if text == ENDED else text for rank, text in why.items()}
    for host, ranks in late.items():
        for rank in ranks:
            text = f"its host {host} joined the run after the recording had begun"
            result[rank] = f"{result[rank]}; now {text}" if rank in result else text
    return result
