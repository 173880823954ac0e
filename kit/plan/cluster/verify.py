"""The end of every deploy: the head must reach each node. A file on the head records that this check passed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from kit.model import names
from kit.model.keys import ClusterKeys
from kit.model.launch import Node
from kit.model.plan import VERIFY, DeleteFile, HostPlan, Round, Step, VerifyPeers, WaitSshd, WriteFile
from kit.model.spec import ClusterSpec
from kit.plan.cluster.files import PRIVATE, File

SSHD_TIMEOUT_S = 60.0


def wait_sshd(spec: ClusterSpec, node: Node, service: str) -> WaitSshd:
    """Return the step that waits for the sshd of a node."""
    return WaitSshd(
        container=names.container(spec.name, service),
        address=node.address,
        port=spec.ssh_port,
        timeout_s=SSHD_TIMEOUT_S,
        why="ranks are started through it",
    )


def passed_file(record: str, keys: ClusterKeys, digests: Iterable[str]) -> File:
    """Return the file that a passed check leaves on the head, from the record's text and the services' digests.

    Its content differs between any two clusters in which the head's logins could go differently. Only root can read it:
    it follows from the variables of env:, too, and all else in it is known, so that a short secret could be guessed.
    """
    publics = sorted(f"{name} {pair.public}" for name, pair in keys.hosts.items())
    text = "\n".join([record, keys.client.public, *publics, *digests])
    content = f"{hashlib.sha256(text.encode()).hexdigest()}\n".encode()
    return File(names.VERIFIED, content, PRIVATE, "the check passed")


def verify_round(cluster: str, nodes: Sequence[Node], passed: File, *, checked: bool) -> Round:
    """Return the round that checks the head's logins to all nodes, and then writes `passed`.

    `checked`: by then, the head still has the file of an earlier check.

    A check that fails or never runs leaves no such file, so the next deploy runs it again.
    """
    # An earlier check's file goes first: it must not remain if this check fails.
    steps: list[Step] = [DeleteFile(path=names.VERIFIED, why="the check runs again")] if checked else []
    steps += [
        VerifyPeers(
            container=names.container(cluster, names.HEAD),
            peers=tuple((node.name, node.address) for node in nodes),
            why="the head must reach every node without a prompt",
        ),
        WriteFile(path=passed.path, content=passed.content, mode=passed.mode, why=passed.purpose),
    ]
    return Round(name=VERIFY, hosts=(HostPlan(host=nodes[0].name, steps=tuple(steps)),))
