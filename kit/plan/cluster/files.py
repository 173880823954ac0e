"""Files in the cluster's folder: which ones the head launches with, and the steps from what a host has to them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kit.model import names
from kit.model.keys import ClusterKeys
from kit.model.launch import ClusterRecord
from kit.model.observed import HostFacts
from kit.model.plan import DeleteFile, Step, WriteFile
from kit.model.secret import Secret
from kit.model.spec import ClusterSpec
from kit.plan.cluster import ssh
from kit.plan.cluster.foreign import made_by_kit

PRIVATE, PUBLIC = "600", "644"


class File(NamedTuple):
    """A file as the host should have it. `purpose` says in a few words what it is for."""

    path: str
    content: bytes | Secret
    mode: str
    purpose: str


def login_file(known: ClusterRecord, keys: ClusterKeys) -> File:
    """Return the file that lets the head log in to a node, and nobody else."""
    allowed = ssh.authorized_keys(keys.client.public, known.nodes[0].address)
    return File(names.AUTHORIZED_KEYS, allowed, PRIVATE, "only the head may log in")


def record_file(text: str) -> File:
    """Return the file in which later verbs find the cluster's record. Only root can read its digests."""
    return File(names.RECORD, text.encode(), PRIVATE, "the record of the cluster")


def launch_files(spec: ClusterSpec, known: ClusterRecord, keys: ClusterKeys, *, client_key: str) -> Iterable[File]:
    """Yield the files that the head launches with. `client_key` is the path of its private key in the container."""
    publics = {name: key.public for name, key in keys.hosts.items()}
    pinned = ssh.known_hosts(known.nodes, publics, spec.ssh_port)
    yield File(names.KNOWN_HOSTS, pinned, PUBLIC, "the pinned host key of every node")
    config = ssh.client_config(known.nodes, spec.ssh_port, key=client_key)
    yield File(names.SSH_CONFIG, config, PUBLIC, "how the head reaches nodes")
    ranked = known.nodes if spec.head_runs_ranks else known.nodes[1:]
    hostfile = "".join(f"{n.address} slots={n.slots}\n" for n in ranked)
    yield File(names.HOSTFILE, hostfile.encode(), PUBLIC, "the hostfile for launches by hand")
    # A file and not a variable: a host that joins may widen the network, which must not recreate other containers.
    yield File(names.NETWORK, f"{known.network}\n".encode(), PUBLIC, "the network for launches by hand")


def is_current(file: File, facts: HostFacts) -> bool:
    """Return whether the host has the file with this content and mode."""
    if facts.files.get(file.path) is None or facts.modes.get(file.path) != file.mode:
        return False
    content = file.content
    digest = content.digest() if isinstance(content, Secret) else hashlib.sha256(content).hexdigest()
    return facts.files[file.path] == digest


def file_steps(files: Sequence[File], facts: HostFacts) -> Iterable[Step]:
    """Yield a step for each file that the host lacks or has with another content or mode."""
    for file in files:
        if not is_current(file, facts):
            why = f"it {'changed' if file.path in facts.files else 'is missing'} ({file.purpose})"
            if file.path == names.RECORD and names.VERIFIED in facts.files:
                # If this deploy fails, nobody must believe that the check passed for the new record.
                yield DeleteFile(path=names.VERIFIED, why="the check runs again")
            yield WriteFile(path=file.path, content=file.content, mode=file.mode, why=why)


def made_steps(facts: HostFacts) -> Iterable[Step]:
    """Yield a step for the file that the node writes, if the host lacks it. It must exist before it is mounted."""
    if names.NODE_NAMES not in facts.files:
        why = "it is missing (the names that a node knows)"
        # An image of an earlier kit does not write it.
        yield WriteFile(path=names.NODE_NAMES, content=b"127.0.0.1\tlocalhost\n", mode=PUBLIC, why=why)


def stale_steps(files: Sequence[File], facts: HostFacts, *, head: bool) -> Iterable[Step]:
    """Yield a step for each file on the host that kit made and that is not among `files`. Files of users stay."""
    if not facts.files:
        return
    # A private key that is already right is not among `files`, but its .pub is.
    wanted = {file.path for file in files} | {f.path.removesuffix(".pub") for f in files if f.path.endswith(".pub")}
    wanted.add(names.NODE_NAMES)
    if head:
        wanted.add(names.VERIFIED)
    for path in filter(made_by_kit, sorted(set(facts.files) - wanted)):
        yield DeleteFile(path=path, why="the cluster no longer uses it")
