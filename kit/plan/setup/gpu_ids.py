"""What the device IDs of a host's GPUs say about the driver that they need."""

from __future__ import annotations

from kit.model.setup.facts import SetupFacts

# Device IDs from which on NVIDIA's closed modules drive no GPU, and those of GH200: they need the open ones.
_BLACKWELL, _GRACE_HOPPER = 0x2900, range(0x2340, 0x2350)


# The oldest branch of the driver that knows the GPUs of these device IDs: of Hopper, Ada, and Blackwell or newer.
_BRANCHES = ((range(0x2300, 0x2400), 525), (range(0x2600, _BLACKWELL), 525), (range(_BLACKWELL, 0x10000), 570))


def least_branch(facts: SetupFacts) -> int:
    """Return the oldest branch of the driver that knows all GPUs of a host, or 0 if any branch may do."""
    return max((branch for ids, branch in _BRANCHES for number in facts.gpu_ids if number in ids), default=0)


def needs_open(facts: SetupFacts) -> bool:
    """Return whether a GPU needs NVIDIA's open modules."""
    return any(number >= _BLACKWELL or number in _GRACE_HOPPER for number in facts.gpu_ids)
