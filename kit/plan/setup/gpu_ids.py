"""What the device IDs of a host's GPUs say about the driver that they need."""

from __future__ import annotations

from kit.model.setup.facts import SetupFacts

# Device IDs from which on NVIDIA's closed modules drive no GPU, and those of GH200: they need the open ones.
_BLACKWELL, _GRACE_HOPPER = 0x2900, range(0x2340, 0x2350)


def is_blackwell(facts: SetupFacts) -> bool:
    """Return whether a GPU is of Blackwell or newer, which no driver before branch 570 knows."""
    return any(number >= _BLACKWELL for number in facts.gpu_ids)


def needs_open(facts: SetupFacts) -> bool:
    """Return whether a GPU needs NVIDIA's open modules."""
    return is_blackwell(facts) or any(number in _GRACE_HOPPER for number in facts.gpu_ids)
