"""A private registry for tests: Debian's docker-registry as a plain process, TLS by a CA made here, one login."""

from __future__ import annotations

import contextlib
import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import yaml

from tests.certificates import certificates
from tests.integration.rig import until
from tests.sockets import free_port

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
    ca, certificate, key = certificates(folder, ip, "registry of tests")
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=4)).decode()
    (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
    address = f"{ip}:{free_port(ip)}"
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


def _answers(address: str, ca: Path) -> bool:
    try:
        urllib.request.urlopen(f"https://{address}/v2/", context=ssl.create_default_context(cafile=str(ca)), timeout=5)
    except urllib.error.HTTPError as error:
        return error.code == 401
    except OSError:
        return False
    return False
