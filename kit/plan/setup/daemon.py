"""daemon.json, the engine's settings: what kit adds to it. Every key that is there stays."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kit.errors import StepError
from kit.model.plan import Step
from kit.model.secret import Secret
from kit.model.setup.facts import SetupFacts
from kit.model.setup.paths import DAEMON_JSON
from kit.model.setup.steps import ConfigureEngine

# The runtime that NVIDIA's toolkit installs. Its own `nvidia-ctk runtime configure` writes the same.
NVIDIA_RUNTIME: Mapping[str, Any] = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
_LOGIN = re.compile(rb"://[^/\s\"]+@")
_INDENT = re.compile(rb"\n([ \t]+)\"")


def settings_of(facts: SetupFacts) -> dict[str, Any]:
    """Return the settings in the host's file, {} without one. Raises StepError if kit cannot read it."""
    file = facts.files.get(DAEMON_JSON)
    if file is None:
        return {}
    if file.content is None:
        raise _unreadable(
            facts, "is a link, or no regular file", f"look at it: kit ssh {facts.host.name} -- ls -l {DAEMON_JSON}"
        )
    if not file.content.strip():
        return {}
    try:
        value = json.loads(file.content)
    except ValueError as error:
        where = (
            f"line {error.lineno}, column {error.colno}: {error.msg}"
            if isinstance(error, json.JSONDecodeError)
            else "it is not UTF-8"
        )
        raise _unreadable(facts, f"is not JSON: {where}", "correct it; dockerd cannot read it, either") from error
    except RecursionError as error:
        raise _unreadable(facts, "is nested too deeply", "correct it") from error
    if not isinstance(value, dict):
        raise _unreadable(facts, "has no { } around its settings", "correct it")
    return value


def _unreadable(facts: SetupFacts, what: str, hint: str) -> StepError:
    return StepError(f"{DAEMON_JSON} {what}", hint=hint, host=facts.host.name)


def unfinished(facts: SetupFacts, area: str) -> list[Step]:
    """Return the step that finishes a change which a killed kit began; [] without one."""
    file = facts.files.get(DAEMON_JSON)
    if not facts.pending or file is None or file.content is None:
        return []
    # The area that finishes it adds no setting, so an undo must not ask for it.
    area = next((saved.areas[0] for saved in facts.saved_files if saved.path == DAEMON_JSON and saved.areas), area)
    why = "kit was killed before the engine answered with it"
    content = text_of(facts, settings_of(facts))
    return [
        ConfigureEngine(area=area, content=content, keys=("all settings",), restart=True, why=why, seen=seen(facts))
    ]


def seen(facts: SetupFacts, written: bytes | Secret | None = None) -> Secret:
    """Return the SHA-256 of `written`, else of the host's file, "" without one."""
    file = facts.files.get(DAEMON_JSON)
    there = file.content if file is not None else None
    content = there if written is None else written
    if content is None:
        return Secret(b"")
    return Secret((content if isinstance(content, Secret) else Secret(content)).digest().encode())


def missing(settings: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the settings of `wanted` that are missing or differ, such as runtimes.nvidia."""
    keys = []
    for key, value in wanted.items():
        there = settings.get(key)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            keys += [f"{key}.{inner}" for inner in value if there.get(inner) != value[inner]]
        elif there != value:
            keys.append(key)
    return tuple(keys)


def merged(settings: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with those of `wanted`. Keys keep their order, and new ones come last."""
    result = dict(settings)
    for key, value in wanted.items():
        there = result.get(key)
        result[key] = {**there, **value} if isinstance(value, Mapping) and isinstance(there, Mapping) else value
    return result


def text_of(facts: SetupFacts, settings: Mapping[str, Any]) -> bytes | Secret:
    """Return the file with these settings, indented as it was. A Secret if it has a login in an address."""
    file = facts.files.get(DAEMON_JSON)
    match = _INDENT.search(file.content) if file is not None and file.content else None
    text = json.dumps(settings, indent=match[1].decode() if match else 2, ensure_ascii=False) + "\n"
    content = text.encode()
    return Secret(content) if _LOGIN.search(content) else content
