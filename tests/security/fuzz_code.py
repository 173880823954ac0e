"""Code as it travels: manifests, and packs that a porter stores as root. `read` may raise only KitError.

The porter runs on VMs, so its own errors for a bad pack count as errors here, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from kit.errors import StepError
from kit.remote.ship.porter import code, manifest, names
from kit.remote.ship.porter.layers import Layers, Writer

CONTENT = b"print('hello')\n"
OBJECT = hashlib.sha256(CONTENT).hexdigest()
LINES = (
    manifest.file_line(0o644, OBJECT, len(CONTENT), b"lib/net.py"),
    manifest.link_line(b"link", b"lib/net.py"),
    manifest.file_line(0o755, OBJECT, len(CONTENT), b"train.py"),
)
MANIFEST = manifest.join(list(LINES))
DIGEST = manifest.digest(MANIFEST)
HEAD = {"kit-pack": 1, "digest": DIGEST, "base": None, "remove": 0, "add": len(LINES), "objects": 1}
PACK = b"\n".join([json.dumps(HEAD).encode(), *LINES, f"{OBJECT} {len(CONTENT)}".encode()]) + b"\n" + CONTENT

SAMPLES: tuple[bytes, ...] = (PACK, MANIFEST, manifest.EMPTY + b"d\t755\t-\t0\tempty\\nfolder\n")


def read(answer: bytes) -> None:
    """Read the answer as a manifest, and store it as a pack."""
    failure = ""
    try:
        for entry in manifest.parse(answer):
            if entry.path.startswith(b"/") or b".." in entry.path.split(b"/"):
                raise AssertionError(f"a path leaves the folder: {entry.path!r}")
    except manifest.BadManifest as error:
        failure = str(error)
    try:
        _store(answer)
    except (code.Refused, names.BadName) as error:
        failure = str(error)
    if failure:
        raise StepError(failure, host="bad")


def _store(pack: bytes) -> None:
    name = hashlib.sha256(pack).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "code"
        cargo = code.Cargo({"digest": DIGEST, "base": None, "store": str(store)}, [name])
        layers = Layers(cargo.folder)
        writer = Writer(layers, name, len(pack))
        writer.write(pack)
        writer.finish()
        try:
            cargo.load(layers)
        finally:
            for path in (path for path in Path(folder).rglob("*") if path.is_file()):
                whole = hashlib.sha256(path.read_bytes()).hexdigest()
                if path.name not in {whole, "object.part"} or os.path.commonpath([path, store]) != str(store):
                    raise AssertionError(f"it wrote {path}")
