"""Makes ed25519 keys in memory. They go to their host over ssh and are never on this machine's disk."""

from __future__ import annotations

from kit.model.keys import KeyPair
from kit.model.secret import Secret


def make_key(comment: str) -> KeyPair:
    """Return a new key pair: the public half as a line of OpenSSH, the private half as OpenSSH's file."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return KeyPair(public=f"{public} {comment}", private=Secret(private))
