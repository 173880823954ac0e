"""What an attempt is started with, and what the next attempt leaves out. Pure."""

from typing import Any, List, Mapping, NamedTuple, Sequence, Tuple

from kitrun import roles


class Launch(NamedTuple):
    """What mpirun is started with. `helpers` are the servers and the scheduler of a parameter server.

    `code` is the digest of the snapshot that seeds the working folders, or ''.
    """

    argv: Tuple[str, ...]
    env: Mapping[str, str]
    hostfile: str
    places: Tuple[Mapping[str, Any], ...]
    helpers: Tuple[Mapping[str, Any], ...]
    head: str
    code: str = ""
    # Whether rank 0 gets the standard input of `kit run`.
    stdin: bool = False
    # mpirun starts one torchrun on each host, and torchrun starts the ranks.
    torchrun: bool = False
    # For kit-elastic, which is in mpirun's place (kitrun.elastic), or empty.
    elastic: Mapping[str, Any] = {}

    @property
    def np(self) -> int:
        """The ranks of the command, without helpers."""
        return sum(place["ranks"] for place in self.places)

    @property
    def ranks(self) -> int:
        return self.np + len(self.helpers)

    def host_of(self, rank: int) -> str:
        """Return the node of a rank, by the order in which mpirun fills nodes, or torchrun numbers them."""
        if rank >= self.np:
            return self.helpers[rank - self.np]["node"] if rank - self.np < len(self.helpers) else ""
        # torchrun numbers hosts in the order of their addresses, as text.
        for place in sorted(self.places, key=lambda one: str(one["address"])) if self.torchrun else self.places:
            if rank < place["ranks"]:
                return str(place["node"])
            rank -= place["ranks"]
        return ""

    def role_of(self, rank: int) -> str:
        return roles.name(rank, self.np, self.helpers)


def without(launch: Launch, lost: Sequence[str], policy: Mapping[str, Any]) -> Tuple[List[str], Launch]:
    """Return the hosts that the next attempt leaves out, and that attempt's launch.

    Hosts are left out only if at least `min_np` ranks stay. The head always stays: mpirun runs there.
    """
    names = [name for name in lost if name != launch.head]
    kept = tuple(place for place in launch.places if place["node"] not in names)
    np = sum(place["ranks"] for place in kept)
    least = policy.get("min_np")
    if not names or not least or np < int(least):
        return [], launch
    addresses = {place["address"] for place in launch.places if place["node"] in names}
    lines = [line for line in launch.hostfile.splitlines() if line.split()[0] not in addresses]
    argv = list(launch.argv)
    at = argv.index("-np")
    argv[at + 1] = str(len(kept) if launch.torchrun else np)
    if argv[at + 2 : at + 3] == ["--stdin"]:
        # torchrun numbers hosts in the order of their addresses, as text, and rank 0 gets the standard input.
        argv[at + 3] = str(min(range(len(kept)), key=lambda number: str(kept[number]["address"])))
    hostfile = "".join(line + "\n" for line in lines)
    return names, launch._replace(argv=tuple(argv), hostfile=hostfile, places=kept)
