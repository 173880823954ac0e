"""The cluster's keys: one client key that the head holds, one host key for each node."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from kit.model.secret import Secret


class KeyPair(Struct, frozen=True, kw_only=True):
    """A pair of keys. `public` is `ssh-ed25519 AAAA… comment`. `private` is None if the host already has it."""

    public: str
    private: Secret | None = None


class ClusterKeys(Struct, frozen=True, kw_only=True):
    """The keys of a cluster: the head's client key, and the host keys by the names of the hosts."""

    client: KeyPair
    hosts: Mapping[str, KeyPair]
