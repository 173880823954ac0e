"""Folders with the cluster's name on a host that are not the cluster's: hand-made ones, and those of other clusters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence

from kit.errors import KitError, StepError
from kit.model import names
from kit.model.launch import ClusterRecord, Node
from kit.model.observed import HostFacts
from kit.plan.cluster import ssh

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
        address_of = {node.name: node.address for node in nodes}
        problems += [
            _of_others(facts, cluster, head.client_key, heads)
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


def _of_others(facts: HostFacts, cluster: str, client_key: str, heads: Collection[str]) -> StepError | None:
    """Return a problem if the host has files of a cluster whose head has another key. `heads` are addresses.

    kit down and a head that moves make new keys. A host that missed that, because it was down, also has other keys.
    """
    ours = {hashlib.sha256(ssh.authorized_keys(client_key, address)).hexdigest() for address in heads}
    login = facts.files.get(names.AUTHORIZED_KEYS)
    other_head = facts.client_key is not None and facts.client_key != client_key
    if not other_head and (login is None or login in ours):
        return None
    return StepError(
        f"{names.folder(cluster)} has other keys: it belongs to another cluster called {cluster}, or is left from an "
        "earlier deploy of this one",
        hint="if nobody needs the cluster there, write the host's line alone into a file, and remove it: "
        "kit --hosts FILE down; what runs made there stays; otherwise, set another name: in kit.yaml",
        host=facts.host.name,
    )
