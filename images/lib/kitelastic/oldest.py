"""Which ranks have the training's state, and whether a run goes on after ranks failed on every host."""

from typing import Collection, List, Mapping, Optional, Sequence, Set, Tuple

Key = Tuple[str, int]

# A world that lived this long shows that the last failures everywhere are over.
STEADY_S = 60.0
# A script that always fails at the same step must not go on forever.
MOST_SPARES = 3


def lead(hosts: Sequence[str], worlds: Mapping[Key, int]) -> Optional[Key]:
    """Return the rank that gets number 0, or None if no living rank has been in a world.

    `worlds` says for each living rank, as (host, local rank), in how many worlds it was. The one that was in most has
    the training's state. Of several, it is the first one in the order of `hosts`, as without failures.
    """
    known = [key for key in worlds if worlds[key] and key[0] in hosts]
    return min(known, key=lambda key: (-worlds[key], list(hosts).index(key[0]), key[1]), default=None)


def first(hosts: Sequence[str], host: str) -> List[str]:
    """Return the hosts, with this one before all others."""
    return [host, *(other for other in hosts if other != host)]


def spared(failed: Collection[Key], ready: Collection[Key]) -> Set[str]:
    """Return the hosts that stay although a rank failed there, because ranks failed on every host.

    They have ranks that are `ready` for the next world, so they have the training's state. Where a host without a
    failure is left, no host needs to stay.
    """
    hurt = {host for host, _ in failed}
    living = {host for host, _ in ready}
    return living if living <= hurt else set()


class Spares:
    """Counts how often in a row the run went on like this."""

    def __init__(self) -> None:
        self._count = 0

    def another(self, lived: float) -> bool:
        """Return whether it may go on once more. `lived`: seconds from the world's begin to its first failure."""
        if lived >= STEADY_S:
            self._count = 0
        self._count += 1
        return self._count <= MOST_SPARES

    def why(self) -> str:
        """Return why the run ends when it may not."""
        if self._count <= MOST_SPARES:
            return "ranks failed on every host"
        text = "ranks failed on every host, %d times in a row, each within %.0f s of the start or the last reset"
        return text % (self._count, STEADY_S)
