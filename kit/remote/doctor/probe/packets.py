"""Finds the largest packet that reaches each peer."""

import os
from typing import List, Optional, Sequence

from .door import Door
from .wire import HEADERS, LARGEST, QUESTION, Address

# Every path carries the smallest packet.
SMALLEST = 576
# How long an answer to a packet may take, how often each is sent, and how many sizes are tried at once.
PACKET_S, TRIES, SIZES = 0.3, 2, 8


class Path:
    """The search for the largest packet that reaches one peer."""

    def __init__(self, target: Address, most: int) -> None:
        self.target = target
        # The largest size that arrived, and the smallest that did not.
        self.arrived, self.lost = 0, most + 1
        self.sizes = [SMALLEST, most] if most > SMALLEST else [most]

    def learn(self, arrived: Sequence[int]) -> None:
        self.arrived = max(arrived, default=self.arrived)
        self.lost = min([self.lost] + [size for size in self.sizes if size > self.arrived])
        gap = self.lost - self.arrived
        if not self.arrived or gap <= 1:
            self.sizes = []
        else:
            step = max(gap / (SIZES + 1), 1)
            self.sizes = sorted({self.arrived + int(step * n) for n in range(1, SIZES + 1) if int(step * n) < gap})


def largest_packets(door: Door, targets: Sequence[Address], most: int) -> List[Optional[int]]:
    """Return the largest packet that arrives at each target with the don't-fragment bit. None if not even a small one.

    All targets at once. Each round sends several sizes, and a lost one twice.
    """
    most = min(most, LARGEST)
    paths = [Path(target, most) for target in targets]
    while any(path.sizes for path in paths):
        salt = os.urandom(4)
        missing = {(number, salt, size) for number, path in enumerate(paths) for size in path.sizes}
        for _ in range(TRIES):
            for number, _, size in sorted(missing - door.acknowledged):
                question = door.packet(QUESTION, number, salt, size)
                try:
                    door.packets.sendto(question + bytes(size - HEADERS - len(question)), paths[number].target)
                except OSError:
                    # It does not even leave this host.
                    continue
            with door.arrived:
                door.arrived.wait_for(lambda: missing <= door.acknowledged, PACKET_S)  # noqa: B023
        for number, path in enumerate(paths):
            path.learn([size for size in path.sizes if (number, salt, size) in door.acknowledged])
    return [path.arrived or None for path in paths]
