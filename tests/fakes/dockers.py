"""docker's own files on this machine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def write_context(folder: Path, name: str, address: str, **more: object) -> Path:
    """Write a context as `docker context create` does. Return the folder for the certificates of its TLS."""
    entry = hashlib.sha256(name.encode()).hexdigest()
    meta = folder / "contexts" / "meta" / entry
    meta.mkdir(parents=True)
    endpoint = {"Host": address, "SkipTLSVerify": False, **more}
    (meta / "meta.json").write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": {"docker": endpoint}}))
    return folder / "contexts" / "tls" / entry / "docker"
