"""A private registry for tests: Debian's docker-registry as a plain process, TLS by a CA made here, one login."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import random
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.integration.rig import until

USER = "ann"


@dataclass(frozen=True, kw_only=True)
class Registry:
    """One that runs at `address`. `ca` is the file that an engine must have to trust it."""

    address: str
    ca: Path
    password: str

    @property
    def login(self) -> dict[str, str]:
        return {"KIT_REGISTRY_USER": USER, "KIT_REGISTRY_PASSWORD": self.password}


def binary(folder: Path) -> str | None:
    """docker-registry: installed, or unpacked from Debian's package. None where neither can be had."""
    program = shutil.which("docker-registry")
    if program or shutil.which("apt-get") is None:
        return program
    for update in (False, True):
        if update and (os.geteuid() != 0 or subprocess.run(["apt-get", "update", "-qq"], check=False).returncode):
            return None
        got = subprocess.run(["apt-get", "download", "-qq", "docker-registry"], cwd=folder, check=False)
        if got.returncode == 0:
            break
    packages = list(folder.glob("docker-registry_*.deb"))
    if not packages:
        return None
    subprocess.run(["dpkg-deb", "-x", str(packages[0]), str(folder / "unpacked")], check=True)
    return str(folder / "unpacked/usr/bin/docker-registry")


@contextlib.contextmanager
def running(program: str, folder: Path, ip: str, password: str) -> Iterator[Registry]:
    """A registry at a free port of `ip`, until the end of the block."""
    ca, certificate, key = _certificates(folder, ip)
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=4)).decode()
    (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
    address = f"{ip}:{_free_port(ip)}"
    settings = {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {"addr": address, "tls": {"certificate": str(certificate), "key": str(key)}},
        "auth": {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}},
    }
    (folder / "config.yml").write_text(yaml.safe_dump(settings))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(folder / "config.yml")], stdout=log, stderr=log)
    try:
        until("the registry answers", lambda: process.poll() is not None or _answers(address, ca))
        assert process.poll() is None, (folder / "log").read_text()
        yield Registry(address=address, ca=ca, password=password)
    finally:
        process.kill()
        process.wait()


def _free_port(ip: str) -> int:
    """Return a free port below those that the kernel gives to connections: it could give one away before its use."""
    limit = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(5000, max(limit, 6000)), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((ip, port))
            return port
    raise AssertionError(f"no port of {ip} is free")


def _answers(address: str, ca: Path) -> bool:
    try:
        urllib.request.urlopen(f"https://{address}/v2/", context=ssl.create_default_context(cafile=str(ca)), timeout=5)
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False
    return False


def _certificates(folder: Path, ip: str) -> tuple[Path, Path, Path]:
    """The CA's certificate, and the server's certificate and key, as files."""
    now = datetime.datetime.now(datetime.UTC)

    def sign(
        name: str, key: ec.EllipticCurvePrivateKey, issuer: str, by: ec.EllipticCurvePrivateKey, *, ca: bool
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
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
    leaf = sign("registry of tests", server, "CA of tests", authority, ca=False)
    paths[0].write_bytes(root.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    paths[2].write_bytes(
        server.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    paths[2].chmod(0o600)
    return paths
