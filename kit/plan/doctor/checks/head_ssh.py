"""The cluster's own ssh, from the head's node to the others."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight


def judge(examined: Examined) -> Iterator[Sight]:
    for pair in examined.pairs:
        if pair.ssh:
            yield Sight(hosts=(pair.source, pair.target), seen=f"the head's ssh fails: {pair.ssh}")


CHECK = Check(
    id="head-ssh",
    title="The head's node cannot log in to a node",
    area="pair",
    severity="breaks",
    judge=judge,
    measures=True,
    leads_to="A launch fails: mpirun starts its daemons over this ssh.",
    fix="Run `kit deploy`, which repairs keys and nodes. If it names the port, open `ssh_port` between the hosts.",
    lab="kit lab fault HOST head-ssh",
)
