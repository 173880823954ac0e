"""On what a session was measured, from the facts that it keeps to lines for a reader: name → text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kit.plan.bench.report.figures import number

# Facts of a host that do not affect its speed.
_OWN = ("name", "address")


def readable(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts as readable text. Equal hosts share a line; values that are not set are omitted."""
    given = dict(facts)
    hosts = given.pop("hosts", None)
    # The same hosts once more, as kit run places ranks on them.
    if hosts:
        given.pop("nodes", None)
    lines = flat(given)
    return {name: text for name, text in {**_hosts(hosts), **lines}.items() if text}


def flat(given: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """Return nested values as text by dotted name; lists use commas."""
    lines: dict[str, str] = {}
    for key, value in given.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            lines |= flat(value, f"{name}.")
        elif name.rpartition(".")[2] == "args" and isinstance(value, list | tuple):
            # Arguments of a command line, as you type them.
            lines[name] = " ".join(map(str, value))
        else:
            lines[name] = _text(value)
    return lines


def _hosts(hosts: object) -> dict[str, str]:
    if not isinstance(hosts, list | tuple) or not all(isinstance(host, Mapping) for host in hosts):
        return {"hosts": _text(hosts)}
    alike: dict[str, list[str]] = {}
    for host in hosts:
        alike.setdefault(_host(host), []).append(str(host.get("name", "?")))
    return {f"hosts {_names(names)}" if len(names) > 1 else f"host {names[0]}": text for text, names in alike.items()}


def _host(host: Mapping[str, Any]) -> str:
    parts = []
    for name, value in host.items():
        if name in _OWN:
            continue
        if name == "memory_mib" and (memory := number(value)) is not None:
            parts.append(f"{memory / 1024:.1f} GiB of memory")
        elif name == "gpus":
            parts.append(_gpus(value))
        elif name == "engine" and value:
            parts.append(f"engine {value}")
        elif isinstance(value, int) and name in ("cores", "slots"):
            parts.append(f"{value} {name if value != 1 else name[:-1]}")
        else:
            parts.append(_text(value))
    return ", ".join(part for part in parts if part)


def _gpus(value: object) -> str:
    if not isinstance(value, list | tuple):
        return _text(value)
    counts: dict[str, int] = {}
    for gpu in value:
        counts[str(gpu)] = counts.get(str(gpu), 0) + 1
    return ", ".join(f"{count} × {name}" for name, count in counts.items()) or "no GPU"


def _names(names: Sequence[str]) -> str:
    """All of a few, the first and the last of many."""
    return ", ".join(names) if len(names) <= 6 else f"{names[0]} … {names[-1]} ({len(names)})"


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text}" for name, text in flat(value).items() if text)
    if isinstance(value, list | tuple):
        return ", ".join(_text(part) for part in value)
    return str(value)
