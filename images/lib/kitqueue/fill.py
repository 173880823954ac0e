"""Makes the start of a waiting run whole: what follows from the hosts and slots that it gets. Pure.

kit plans a run when it joins the line, as if all hosts were free. The head then chooses other hosts, but keeps the
shape, so only the parts here differ. kit.plan.run.mpi and kit.plan.run.cores define them; a test compares both.
"""

from typing import Any, Dict, List, Mapping, Sequence, Set, Tuple

from kitqueue.words import arrival

HELD, CPUS, EXCLUSIVE = "KIT_HELD_SLOTS", "KIT_CPU_SLOTS", "exclusive"
# Each rank has GPUs for itself.
SHARE = "KIT_GPUS_PER_RANK"
# What a deploy says of a host in its record.
DEPLOYED = ("address", "slots", "cores", "gpus", "mig")
# Open MPI's parameters for the networks of the data and of its daemons.
DATA, DAEMONS = "btl_tcp_if_include", "oob_tcp_if_include"
NO_NETWORKS: Mapping[str, str] = {}

# Host -> its slots, in the order of ranks (kitqueue.order).
Chosen = Sequence[Tuple[str, Sequence[int]]]
Nodes = Mapping[str, Mapping[str, Any]]


def nodes_now(entry: Mapping[str, Any], deployed: Nodes, since: float, known: Nodes) -> Dict[str, Dict[str, Any]]:
    """Return the hosts that the run may get, without `known` ones, as a deploy at the time `since` left them.

    kit plans with slots= of a hosts file also without a deploy. So a run that joined later brings its own number.
    """
    nodes = {}
    for name, node in entry["nodes"].items():
        if name not in known:
            record = deployed.get(name) or {}
            nodes[name] = dict(node, **{field: record[field] for field in DEPLOYED if field in record})
            nodes[name]["slots"] = int(node["slots"] if arrival(entry) >= since else nodes[name]["slots"])
    return nodes


def shares_gpus(entry: Mapping[str, Any]) -> bool:
    """Return whether each rank has GPUs for itself. Then the run needs hosts with a slot for each GPU."""
    return SHARE in entry["request"]["env"]


def networks_now(entry: Mapping[str, Any], record: Mapping[str, Any], since: float) -> Dict[str, str]:
    """Return Open MPI's networks, by parameter, after a deploy at the time `since`. Empty if the run joined later."""
    network = record.get("network")
    if not network or arrival(entry) >= since:
        return {}
    return {DATA: ",".join(record.get("data_networks") or ()) or str(network), DAEMONS: str(network)}


def filled(entry: Mapping[str, Any], chosen: Chosen, networks: Mapping[str, str] = NO_NETWORKS) -> Dict[str, Any]:
    """Return the request that starts the run on these slots (kitrun.front). `networks` replace those of the plan."""
    request = dict(entry["request"])
    nodes = entry["nodes"]
    places = places_of(chosen, nodes, int(entry.get("share") or 1))
    env = {name: value for name, value in request["env"].items() if name not in (HELD, CPUS)}
    ours = dict(_held(places, nodes), **_cpus(places, nodes, entry))
    env.update(ours)
    request["places"] = places
    request["hostfile"] = "".join("%s slots=%d\n" % (place["address"], place["ranks"]) for place in places)
    request["env"] = env
    request["argv"] = _with_variables(_with_networks(request["argv"], networks), sorted(ours))
    return request


def places_of(chosen: Chosen, nodes: Nodes, share: int) -> List[Dict[str, Any]]:
    """Return the places of a run's record. `share` is how many slots each rank has."""
    return [
        {
            "node": host,
            "address": nodes[host]["address"],
            "ranks": len(slots) // share,
            "slots": list(slots),
            "of": nodes[host]["slots"],
        }
        for host, slots in chosen
    ]


def _held(places: Sequence[Mapping[str, Any]], nodes: Nodes) -> Dict[str, str]:
    """Return the GPUs that the run holds, or its slots, on the nodes of which it does not hold all."""
    words = []
    for place in places:
        node = nodes[place["node"]]
        numbers = gpus_of(node, place["slots"]) if node["gpus"] else list(place["slots"])
        whole = 0 if node.get("mig") else node["gpus"] or node["slots"]
        if len(numbers) < whole or not whole:
            words.append("%s=%s" % (place["node"], ",".join(map(str, numbers))))
    return {HELD: " ".join(words)} if words else {}


def gpus_of(node: Mapping[str, Any], slots: Sequence[int]) -> List[int]:
    """Return the GPUs that these slots of a node mean (kit.plan.run.gpus)."""
    gpus, count = node["gpus"], node["slots"]
    numbers: Set[int] = set()
    for slot in slots:
        first = slot * gpus // count
        numbers.update(range(first, max(first + 1, (slot + 1) * gpus // count)) if slot < count else ())
    return sorted(numbers)


def _cpus(places: Sequence[Mapping[str, Any]], nodes: Nodes, entry: Mapping[str, Any]) -> Dict[str, str]:
    """Return the slots with which CPUs go, on the nodes of which the run does not hold all."""
    if not entry.get("exclusive") and entry.get("cpus") is None:
        return {}
    words = [
        "%s=%s/%d" % (place["node"], ",".join(map(str, place["slots"])), nodes[place["node"]]["slots"])
        for place in places
        if len(place["slots"]) < nodes[place["node"]]["slots"]
    ]
    if words and entry.get("exclusive"):
        words.append(EXCLUSIVE)
    return {CPUS: " ".join(words)} if words else {}


def _with_networks(argv: Sequence[str], networks: Mapping[str, str]) -> List[str]:
    """Return mpirun's words with these networks in place of the plan's.

    The plan's parameters come before the first variable. What mpi.args says comes after them, and stays.
    """
    words = list(argv)
    for at in range(2, words.index("-x") if "-x" in words else 0):
        if words[at - 2] == "--mca":
            words[at] = networks.get(words[at - 1], words[at])
    return words


def _with_variables(argv: Sequence[str], names: Sequence[str]) -> List[str]:
    """Return mpirun's words, which pass on these variables of ours, and none that the plan had for other hosts."""
    kept, at = list(argv[:1]), 1
    for name in names:
        kept += ["-x", name]
    while at < len(argv):
        if argv[at] == "-x" and argv[at + 1 : at + 2] in ([HELD], [CPUS]):
            at += 2
            continue
        # What follows the relay is the user's command.
        if argv[at] == "python3":
            break
        kept.append(argv[at])
        at += 1
    return kept + list(argv[at:])
