"""What has the cluster's name on a host and is not the cluster's: hand-made folders, and nodes of other clusters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence

from kit.errors import KitError, StepError
from kit.model import names
from kit.model.host import Host
from kit.model.launch import ClusterRecord, Node
from kit.model.observed import HostFacts
from kit.model.text import fold
from kit.plan.cluster import ssh
from kit.plan.cluster.record import record_of

# Nobody else gives a file such a name.
_MARKS = frozenset(
    {names.RECORD, names.VERIFIED, names.NODE_NAMES, names.AUTHORIZED_KEYS, names.HOST_KEY, names.CLIENT_KEY}
)
_OURS = _MARKS | {
    names.COMPOSE_FILE,
    names.STACK_FILE,
    names.NODE_ENV,
    names.HOSTFILE,
    names.NETWORK,
    names.KNOWN_HOSTS,
    names.SSH_CONFIG,
    f"{names.HOST_KEY}.pub",
    f"{names.CLIENT_KEY}.pub",
}
# What a broken connection can leave of a file that kit was writing (write_file.sh). mktemp hardly ever chooses six
# small letters, and a person does: compose.yaml.backup.
_UNFINISHED = re.compile(r"\.(?![a-z]{6}$)[A-Za-z0-9]{6}$")


def made_by_kit(path: str) -> bool:
    """Return whether kit makes a file of this name, below the cluster's folder, or left it unfinished."""
    return path in _OURS or _UNFINISHED.sub("", path) in _OURS


def foreign_problems(
    observed: Sequence[HostFacts], nodes: Sequence[Node], cluster: str, before: ClusterRecord | None
) -> list[KitError]:
    """Return a problem for each host whose folder of this name belongs to somebody else.

    `before` is the record that the head has, or None. Without it, kit cannot tell another cluster's keys from those of
    a head that was lost.
    """
    problems = [_hand_made(facts, cluster) for facts in observed]
    head = observed[0]
    if before is not None and head.client_key is not None:
        known = {word for node in before.nodes for word in (node.name, node.address)}
        heads = {node.address for node in (*before.nodes, *nodes)}
        logins = {hashlib.sha256(ssh.authorized_keys(head.client_key, address)).hexdigest() for address in heads}
        address_of = {node.name: node.address for node in nodes}
        problems += [
            _of_others(facts, cluster, head.client_key, logins)
            for facts in observed[1:]
            if not known & {facts.host.name, address_of.get(facts.host.name)}
        ]
    return [problem for problem in problems if problem is not None]


def _hand_made(facts: HostFacts, cluster: str) -> StepError | None:
    """Return a problem if the folder has files, and none that only kit makes: kit would overwrite and mix them."""
    strangers = sorted(path for path in facts.files if not made_by_kit(path))
    marked = any(_UNFINISHED.sub("", path) in _MARKS for path in facts.files)
    if not strangers or marked or any(one.cluster == cluster for one in facts.containers):
        return None
    some = ", ".join(strangers[:3]) + (f" and {len(strangers) - 3} more files" if len(strangers) > 3 else "")
    return StepError(
        f"{names.folder(cluster)} is not kit's: it has {some}, and nothing that kit makes",
        hint="move that folder away, or set another name: in kit.yaml",
        host=facts.host.name,
    )


def _of_others(facts: HostFacts, cluster: str, client_key: str, logins: Collection[str]) -> StepError | None:
    """Return a problem if the host has files of a cluster whose head has another key.

    `logins` are the SHA-256 digests of the file with which a host of this cluster lets a head in, for each address.

    kit down and a head that moves make new keys. A host that missed that, because it was down, also has other keys.
    """
    login = facts.files.get(names.AUTHORIZED_KEYS)
    other_head = facts.client_key is not None and facts.client_key != client_key
    if not other_head and (login is None or login in logins):
        return None
    return StepError(
        f"{names.folder(cluster)} has other keys: it belongs to another cluster called {cluster}, or is left from an "
        "earlier deploy of this one",
        hint="if nobody needs the cluster there, write the host's line alone into a file, and remove it: "
        "kit --hosts FILE down; what runs made there stays; otherwise, set another name: in kit.yaml",
        host=facts.host.name,
    )


def nodes_without_head(observed: Sequence[HostFacts], nodes: Sequence[Node], cluster: str) -> list[Host]:
    """Return the hosts that run a node of a cluster of this name, and that no head among `observed` has recorded.

    Such a node belongs to another cluster, or its head is lost. If a head has recorded it, that head knows its runs.
    """
    records = [record for facts in observed if (record := record_of(facts)) is not None]
    known = {word for record in records for node in record.nodes for word in (node.name, node.address)}
    address_of = {node.name: node.address for node in nodes}
    return [
        facts.host
        for facts in observed
        if facts.record is None
        and not known & {facts.host.name, address_of.get(facts.host.name)}
        and any(one.running and (one.cluster, one.service) == (cluster, names.NODE) for one in facts.containers)
    ]


def not_recorded(hosts: Sequence[Host], record: ClusterRecord | None) -> list[Host]:
    """Return the hosts that the head's record does not have: all of them if there is no record."""
    known = {word for node in record.nodes for word in (node.name, node.address)} if record is not None else set()
    return [host for host in hosts if not known & {host.name, host.address, host.internal}]


def ranks_of_others(
    runs: Mapping[str, Collection[str]], living: Collection[str], *, cluster: str, source: str
) -> str | None:
    """Return a text that names the hosts with ranks of runs that no head in the hosts file has, or None without one.

    `runs` has the runs whose ranks are on a host, `living` the active runs of the heads, and `source` names the hosts
    file.
    """
    hosts = [host for host, there in runs.items() if not set(there) <= set(living)]
    if not hosts:
        return None
    verb = "runs" if len(hosts) == 1 else "run"
    return f"{fold(hosts)} {verb} ranks of a cluster called {cluster} whose head is not in {source}"
