"""The cluster's keys: one client key that the head holds, one host key for each node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kit.model.secret import Secret


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyPair:
    """`public` is `ssh-ed25519 AAAA… comment`. `private` is None when the host already holds it."""

    public: str
    private: Secret | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterKeys:
    client: KeyPair
    hosts: Mapping[str, KeyPair]
