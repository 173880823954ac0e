"""What is in the layers of an image: every file of every layer, and the keys and certificates among them."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from kit.remote.machine.trust import extra_certificates

_KEY_NAME = re.compile(r"(^|/)(ssh_host_.*|authorized_keys|id_(rsa|dsa|ecdsa|ed25519)|known_hosts)$")
_PRIVATE = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\r?\n[A-Za-z0-9+/=]{16}")


def layers(client: Any, tag: str, scratch: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Every entry of every layer of the image: its path and, for a file, its content."""
    saved = scratch / "image.tar"
    with saved.open("wb") as file:
        for chunk in client.api.get_image(tag):
            file.write(chunk)
    with tarfile.open(saved) as archive:
        manifest = json.load(archive.extractfile("manifest.json") or io.BytesIO())
        for name in manifest[0]["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                for entry in layer:
                    yield entry.name.removeprefix("./"), layer.extractfile(entry) if entry.isfile() else None
    saved.unlink()


def leaks(client: Any, tag: str, scratch: Path) -> tuple[int, list[str]]:
    """Return the number of entries, and the paths of keys, of certificates of this machine and of a build's files."""
    # One line from the middle of each certificate is enough to know it again.
    trusted = [
        block.split()[len(block.split()) // 2]
        for block in extra_certificates(os.environ).split(b"-----BEGIN CERTIFICATE-----")
        if block.strip()
    ]
    names, leaked = 0, []
    for path, content in layers(client, tag, scratch):
        names += 1
        if _KEY_NAME.search(path):
            leaked.append(path)
        if path.startswith(("kit/", "etc/kit/")):
            leaked.append(path)
        if content is not None:
            data = content.read()
            # Libraries of cryptography carry the key of their own self-test in their code.
            compiled = data.startswith(b"\x7fELF")
            if (_PRIVATE.search(data) and not compiled) or any(line in data for line in trusted):
                leaked.append(path)
    return names, leaked
