"""Which engine docker uses on this machine: that of DOCKER_HOST, that of its current context, or the local socket.

kit reads the files of contexts itself. Before 7.2, the Docker SDK ignores them. Later versions use the local socket if
the context is missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from kit.errors import UnreachableError
from kit.remote.machine.home import expanded
from kit.remote.machine.regular import read_regular

HOST, CONTEXT, CONFIG = "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"
CERTIFICATES, VERIFY = "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"


class Choice(Struct, frozen=True, kw_only=True):
    """What chooses another engine than the local socket's (`by`), the same with its address, and how to undo it."""

    by: str
    where: str
    undo: str


def choice(environ: Mapping[str, str]) -> Choice | None:
    """Return what chooses the engine, or None for the local socket."""
    if address := environ.get(HOST):
        return Choice(by=HOST, where=f"{HOST}={address}", undo=f"unset {HOST}")
    name = _name(environ)
    if not name:
        return None
    by = f"docker's context {name}"
    try:
        address = variables(environ).get(HOST, "")
    except UnreachableError:
        address = ""
    undo = f"unset {CONTEXT}" if environ.get(CONTEXT) else "use another one: docker context use default"
    return Choice(by=by, where=f"{by} ({address})" if address else by, undo=undo)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name the engine to the SDK, and to docker as another user. None name the local socket.

    Raises UnreachableError if the current context does not exist or cannot be read.
    """
    if environ.get(HOST):
        return {name: environ[name] for name in (HOST, CERTIFICATES, VERIFY) if environ.get(name)}
    name = _name(environ)
    if not name:
        return {}
    contexts, entry = _folder(environ) / "contexts", hashlib.sha256(name.encode()).hexdigest()
    file = contexts / "meta" / entry / "meta.json"
    other = f"correct or unset {CONTEXT}" if environ.get(CONTEXT) else "choose one: docker context use NAME"
    hint = f"list the contexts: docker context ls; {other}"
    try:
        endpoint = _part(_part(_object(file), "Endpoints"), "docker")
        address = endpoint.get("Host")
        if not isinstance(address, str) or not address:
            raise ValueError("it names no engine")
    except FileNotFoundError as error:
        raise UnreachableError(f"docker's context {name} does not exist", hint=hint) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UnreachableError(f"docker's context {name} cannot be read: {file}: {error}", hint=hint) from error
    chosen = {HOST: address}
    certificates = contexts / "tls" / entry / "docker"
    if certificates.is_dir():
        chosen[CERTIFICATES] = str(certificates)
        if endpoint.get("SkipTLSVerify") is not True:
            chosen[VERIFY] = "1"
    return chosen


def _folder(environ: Mapping[str, str]) -> Path:
    return expanded(environ.get(CONFIG) or "~/.docker").absolute()


def _name(environ: Mapping[str, str]) -> str:
    """Return the current context's name, "" for the default one. As docker does, ignore a file that is not valid."""
    if environ.get(HOST):
        return ""
    name: object = environ.get(CONTEXT)
    if not name:
        try:
            name = _object(_folder(environ) / "config.json").get("currentContext")
        except (OSError, ValueError, RecursionError):
            return ""
    return name if isinstance(name, str) and name != "default" else ""


def _object(file: Path) -> Mapping[str, object]:
    """Return the object in a file of JSON. Raises OSError and ValueError."""
    value = json.loads(read_regular(file))
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def _part(value: Mapping[str, object], key: str) -> Mapping[str, object]:
    part = value.get(key)
    return part if isinstance(part, dict) else {}
