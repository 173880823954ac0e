"""The CPUs of a run on its node: those of its slots (`cpus: exclusive`), or as many as `kit run --cpus` says.

The slots of a node divide its CPUs as they divide its GPUs. Every rank of every run computes the same division, so two
runs that hold different slots never share a CPU, and a run that ends gives its CPUs back with its slots.
"""

import os
import re
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple

# `gpu1=0,1/4 gpu2=3/8`: the slots that the run holds on a node, of how many. A node that is missing is held whole.
# The words end with ` exclusive` if no CPU outside of these slots may be used.
SLOTS, COUNT, BIND = VARIABLES = ("KIT_CPU_SLOTS", "KIT_CPUS", "KIT_BIND_TO")
SYS = "/sys"
EXCLUSIVE = "exclusive"
# More than any machine has: the kernel keeps those that this container may use.
_MOST_CPUS = 8192
_NODE = re.compile(r"node(\d{1,5})$")
_WORD = re.compile(r"(\S+)=(\d{1,6}(?:,\d{1,6})*)/(\d{1,6})$")

Cpus = FrozenSet[int]


class TooFewError(Exception):
    """The node does not have the CPUs of this run. The text says why."""


class Wish(NamedTuple):
    """What the run holds on this node: `slots` of `total`, and the number of CPUs that it wants, or 0."""

    slots: Tuple[int, ...]
    total: int
    exclusive: bool
    number: int


def wish_of(slots: str, count: str, node: str) -> Optional[Wish]:
    """Return what the variables say about this node, or None if the run may use all of its CPUs."""
    words = slots.split()
    exclusive = words[-1:] == [EXCLUSIVE]
    number = int(count) if count.isdigit() else 0
    for word in words:
        match = _WORD.match(word)
        if match is not None and match.group(1) == node:
            total = int(match.group(3))
            held = tuple(slot for slot in map(int, match.group(2).split(",")) if slot < total)
            return Wish(held, total, exclusive, number) if held else None
    return Wish((0,), 1, exclusive, number) if number else None


def cpus_of(wish: Wish, cores: Sequence[Cpus], near: Sequence[Cpus]) -> Cpus:
    """Return the CPUs of the run. `cores` has the CPUs of each core, in the order of their NUMA nodes.

    `near` has the CPUs near the GPUs of each slot, or nothing for slots whose GPUs' place is not known.
    Raises TooFewError.
    """
    division = divided(cores, wish.total, near)
    mine = [cpu for part in (0, 1) for slot in wish.slots for cpu in division[slot][part]]
    others = [cpu for core in cores for cpu in sorted(core) if cpu not in mine]
    if wish.exclusive:
        if not mine:
            text = "the run holds %s of %d slots, and this node has %d CPUs: hold more slots, or lower slots="
            raise TooFewError(text % (_numbered("slot", wish.slots), wish.total, len(others)))
        if wish.number > len(mine):
            text = "--cpus %d is more than the %d CPUs of the run's %s: hold more slots, or use --cpus %d"
            raise TooFewError(text % (wish.number, len(mine), _numbered("slot", wish.slots), len(mine)))
        return frozenset(mine[: wish.number or None])
    everything = mine + others
    if wish.number > len(everything):
        raise TooFewError("--cpus %d is more than the %d CPUs of this node" % (wish.number, len(everything)))
    return frozenset(everything[: wish.number or None])


def divided(cores: Sequence[Cpus], total: int, near: Sequence[Cpus]) -> List[Tuple[List[int], List[int]]]:
    """Return the CPUs of each of `total` slots: those near its GPUs, and those that are not, both in order.

    Slots whose GPUs are near the same CPUs divide these among themselves. CPUs that are near no GPU go to all slots.
    Without NUMA information, or if sides overlap in part, each slot gets the next cores.
    """
    units = list(cores) if len(cores) >= total else [frozenset([cpu]) for core in cores for cpu in sorted(core)]
    sides = list(near) if len(near) == total and all(near) else []
    if any(one != other and one & other for one in sides for other in sides):
        sides = []
    parts: List[Tuple[List[int], List[int]]] = []
    for slot in range(total):
        if not sides:
            parts.append((_share(units, slot, total), []))
            continue
        alike = [other for other in range(total) if sides[other] == sides[slot]]
        here = [unit for unit in units if unit & sides[slot]]
        rest = [unit for unit in units if not any(unit & side for side in sides)]
        parts.append((_share(here, alike.index(slot), len(alike)), _share(rest, slot, total)))
    return parts


def _share(units: Sequence[Cpus], index: int, parts: int) -> List[int]:
    chosen = units[index * len(units) // parts : (index + 1) * len(units) // parts]
    return [cpu for unit in chosen for cpu in sorted(unit)]


def own(cpus: Cpus, how: str, cores: Sequence[Cpus], domains: Sequence[Cpus], seat: Tuple[int, int]) -> Cpus:
    """Return the CPUs of one rank of the run, as mpirun --bind-to `how` would choose them among these CPUs.

    `domains` are the CPUs of the NUMA nodes, or of the sockets. `seat` is the rank's place among the ranks of the run
    on this node, and their number.
    """
    local, size = seat
    mine = [core & cpus for core in cores if core & cpus]
    if how == "hwthread":
        threads = [cpu for core in mine for cpu in sorted(core)]
        return frozenset([threads[local % len(threads)]])
    if how == "core":
        return mine[local % len(mine)]
    if how in ("numa", "socket"):
        first = min(mine[min(local * len(mine) // size, len(mine) - 1)])
        return next((domain & cpus for domain in domains if first in domain), cpus)
    return cpus


# What the node has


def take(variables: Sequence[str], node: str, *, seat: Tuple[int, int], near: Callable[[int], Sequence[Cpus]]) -> str:
    """Bind this process to the CPUs that the run's variables give it, and return why, in words; '' if they give none.

    `near` returns the CPUs near the GPUs of each slot, for the number of slots. Raises TooFewError.
    """
    slots, count, how = variables
    wish = wish_of(slots, count, node)
    if wish is None and not how:
        return ""
    allowed = whole()
    cores = cores_of(allowed)
    chosen = allowed
    if wish is not None:
        chosen = cpus_of(wish, cores, near(wish.total) if wish.total > 1 else ())
    domains = sockets(allowed) if how == "socket" else numa_nodes(allowed)
    os.sched_setaffinity(0, own(chosen, how, cores, domains, seat))
    return "of %d for the run here" % len(chosen)


def whole() -> Cpus:
    """Return the CPUs that this container may use. mpirun may have bound this process to some of them."""
    os.sched_setaffinity(0, range(_MOST_CPUS))
    return frozenset(os.sched_getaffinity(0))


def cores_of(allowed: Cpus) -> List[Cpus]:
    """Return the CPUs of each core, in the order of their NUMA nodes and numbers."""
    nodes = numa_nodes(allowed)
    place = {cpu: number for number, cpus in enumerate(nodes) for cpu in cpus}
    cores = {min(core): core for core in (siblings(cpu) & allowed or frozenset([cpu]) for cpu in allowed)}
    return [core for _, core in sorted(cores.items(), key=lambda item: (place.get(item[0], len(nodes)), item[0]))]


def siblings(cpu: int) -> Cpus:
    """Return the CPUs of the same core: hyper-threads."""
    return cpu_list(read("%s/devices/system/cpu/cpu%d/topology/thread_siblings_list" % (SYS, cpu))) or frozenset([cpu])


def numa_nodes(allowed: Cpus) -> List[Cpus]:
    """Return the CPUs of each NUMA node, in the order of their numbers; all in one if the kernel does not say."""
    folder = "%s/devices/system/node" % SYS
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    numbers = sorted(int(match.group(1)) for match in map(_NODE.match, names) if match)
    nodes = [cpu_list(read("%s/node%d/cpulist" % (folder, number))) & allowed for number in numbers]
    return [cpus for cpus in nodes if cpus] or [allowed]


def sockets(allowed: Cpus) -> List[Cpus]:
    """Return the CPUs of each socket, in the order of their numbers."""
    packages: Dict[str, Set[int]] = {}
    for cpu in sorted(allowed):
        name = read("%s/devices/system/cpu/cpu%d/topology/physical_package_id" % (SYS, cpu)).strip()
        packages.setdefault(name, set()).add(cpu)
    return [frozenset(cpus) for _, cpus in sorted(packages.items())]


def cpu_list(text: str) -> Cpus:
    """Return the CPUs of `0-3,8`. Text that is no such list means none."""
    cpus: Set[int] = set()
    for word in text.strip().split(","):
        match = re.match(r"(\d{1,5})(?:-(\d{1,5}))?$", word.strip())
        if match is None:
            return frozenset()
        cpus.update(range(int(match.group(1)), int(match.group(2) or match.group(1)) + 1))
    return frozenset(cpus)


def read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _numbered(noun: str, numbers: Sequence[Any]) -> str:
    return "%s%s %s" % (noun, "" if len(numbers) == 1 else "s", ",".join(map(str, numbers)))
