"""A CA and a server's certificate for tests, valid for two days."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificates(folder: Path, ip: str, name: str) -> tuple[Path, Path, Path]:
    """Write a CA's certificate, and a server's certificate and key, and return the three files."""
    now = datetime.datetime.now(datetime.UTC)

    def sign(
        subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, by: ec.EllipticCurvePrivateKey, *, ca: bool
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if not ca:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(ip))])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(by, hashes.SHA256())

    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    paths = folder / "ca.crt", folder / "server.crt", folder / "server.key"
    root = sign("CA of tests", authority, "CA of tests", authority, ca=True)
    leaf = sign(name, server, "CA of tests", authority, ca=False)
    paths[0].write_bytes(root.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    paths[2].write_bytes(
        server.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    paths[2].chmod(0o600)
    return paths
