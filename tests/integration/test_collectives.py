"""Which way Open MPI's all-reduce goes, by who sends to whom: counted below it, by Open MPI's own monitoring.

Open MPI 4.1 reports neither the rules that it reads nor that their file is missing: it then uses its own choice. But
what its ranks send is visible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from kit.plan.run.allreduce import OWN_CHOICE
from kit.plan.tune.candidates import CANDIDATES, RULES
from tests.integration.rig import VM, Cluster, everywhere

RING = dict(next(candidate.parameters for candidate in CANDIDATES if candidate.name == "ring"))
# Of eight ranks the rules send from 512 KiB on in a ring.
LARGE, SMALL = 1 << 20, 4096
TO_THE_NEXT = {rank: {(rank + 1) % 8} for rank in range(8)}
COUNTS = "/tmp/kit-itest-counts"
# In a rank's own environment: mpirun takes each parameter once, and kit's pml is on its command line. 3: into files.
WATCHED = {
    "pml": "ob1,monitoring",
    "pml_monitoring_enable": "1",
    "pml_monitoring_enable_output": "3",
    "pml_monitoring_filename": COUNTS,
}


def peers(cluster: Cluster, size: int, parameters: Mapping[str, str]) -> dict[int, set[int]]:
    """Rank → the ranks to which it sends what it sums, in all-reduces of `size` bytes with these parameters."""
    words = [f"OMPI_MCA_{name}={value}" for name, value in {**WATCHED, **parameters}.items()]
    perf = ("mpi_perf", "allreduce", "--sizes", str(size), "--repeats", "1", "--seconds", "0.01")

    def traffic(host: VM) -> str:
        done = cluster.inside(host, "sh", "-c", f"cat {COUNTS}.*.prof && rm {COUNTS}.*.prof")
        assert done.returncode == 0, done.stderr
        return done.stdout

    done = cluster.kit("run", "--", "env", *words, *perf)
    assert done.returncode == 0, done.stderr
    ranks_by_peer: defaultdict[int, set[int]] = defaultdict(set)
    for text in everywhere(cluster.hosts, traffic).values():
        for line in text.splitlines():
            # E rank peer, '7340032 bytes', and how many messages of which size; other lines are sums of these.
            kind, *numbers = line.split("\t")
            if kind == "E":
                rank, peer, sent = (int(number.partition(" ")[0]) for number in numbers[:3])
                # A ring sends the least at a time, an eighth. What ranks agree on beside it is some hundred bytes.
                if sent >= size // 8:
                    ranks_by_peer[rank].add(peer)
    return dict(ranks_by_peer)


def test_the_rules_send_large_messages_in_a_ring_and_small_ones_as_before(cluster: Cluster) -> None:
    assert RULES in RING.values()
    assert peers(cluster, LARGE, RING) == TO_THE_NEXT
    plain = peers(cluster, LARGE, {})
    assert all(len(others) > 1 for others in plain.values()), plain
    assert peers(cluster, SMALL, RING) == peers(cluster, SMALL, {})


def test_rules_that_are_not_there_are_passed_over_in_silence(cluster: Cluster) -> None:
    """Why the file's place in the image may not change: a kit.yaml that names it would do nothing, and not say so."""
    nowhere = {name: "/nowhere.conf" if value == RULES else value for name, value in RING.items()}
    without_rules = peers(cluster, LARGE, nowhere)
    assert all(len(others) > 1 for others in without_rules.values()), without_rules


def test_a_run_sends_its_largest_messages_in_a_ring(cluster: Cluster) -> None:
    """kit's default starts at 512 KiB a rank; the test above shows that 1 MiB on eight ranks has none."""
    largest = 4 << 20
    assert peers(cluster, largest, {}) == TO_THE_NEXT
    own_choice = peers(cluster, largest, dict(OWN_CHOICE))
    assert all(len(others) > 1 for others in own_choice.values()), own_choice
