"""Compares the settings that a deploy wrote with those that the next one would write. Only these need a deploy.

The record on the head (cluster.json) has the settings. Of variables it has only digests, because a value may be a token
and kit ps shows what differs. A short secret can be guessed from its digest, so only root can read the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kit.errors import NotReadyError
from kit.model import names
from kit.model.lock import AuditEntry
from kit.model.spec import ClusterSpec
from kit.model.values import asdict
from kit.plan.cluster import data, versions

# How a value is shown: a list of packages may be long.
_LONGEST = 60
# Shown beside the first ones.
_MOST = 6
ABSENT = "unset"


def deployed_settings(spec: ClusterSpec, *, requirements: str | None = None) -> dict[str, Any]:
    """Return the settings that take effect with a deploy, by their path in kit.yaml, as JSON keeps them.

    `requirements` is the digest of the file that `requirements:` names, or None without such a file.
    """
    return {
        "orchestrator": spec.orchestrator,
        # The folder with wheels is one of this machine. What it contains is part of the image's tag.
        **{f"image.{name}": _plain(value) for name, value in asdict(spec.image).items() if name != "wheels"},
        "requirements": requirements,
        "ssh_port": spec.ssh_port,
        "network": spec.network,
        "interfaces": list(spec.interfaces),
        "slots": spec.slots,
        "volumes": list(spec.volumes),
        **data.settings(spec),
        **{f"env.{name}": {"sha256": _digest(spec.name, name, value)} for name, value in sorted(spec.env.items())},
        "shm_size": spec.shm_size,
        "cpus": spec.cpus,
        "memory": spec.memory,
        "rdma": spec.rdma,
        "devices": list(spec.devices),
        "hugepages": spec.hugepages,
        **{f"ulimits.{name}": value for name, value in asdict(spec.ulimits).items()},
        "user": spec.user,
        **{f"security.{name}": value for name, value in asdict(spec.security).items()},
        # The order of capabilities does not matter. `pids` is another way to write security.pids.
        "security.capabilities": sorted({*spec.security.capabilities}),
        "security.pids": spec.processes,
        "nccl.plugin": spec.nccl.plugin,
    }


def differences(deployed: Mapping[str, Any], spec: ClusterSpec, *, requirements: str | None = None) -> tuple[str, ...]:
    """Return `shm_size: 1gb → 2gb` for each setting that differs. See `deployed_settings` for `requirements`.

    Returns nothing if an older kit deployed without a record.
    """
    return tuple(_differences(deployed, deployed_settings(spec, requirements=requirements))) if deployed else ()


def refusal(differing: tuple[str, ...], version: str) -> NotReadyError:
    """Return the error of a run whose settings are not those that a kit of this version deployed."""
    words = shown(differing) + versions.other_defaults(version)
    return NotReadyError(
        f"kit.yaml differs from what is deployed (deployed → now): {words}",
        hint="run: kit deploy; or use the cluster as it was deployed: add --as-deployed to your kit run",
    )


def shown(differing: tuple[str, ...]) -> str:
    """Return the first differences in words."""
    return "; ".join(differing[:_MOST]) + (f"; and {len(differing) - _MOST} more" if len(differing) > _MOST else "")


def replaced(differing: tuple[str, ...], last: AuditEntry | None, version: str) -> str:
    """Return what a deploy says before it replaces settings that a kit of this version deployed.

    `last` is the deploy that wrote them, if it is known.
    """
    whose = f", by {last.who} at {last.time}" if last else ""
    words = shown(differing) + versions.other_defaults(version)
    return f"kit.yaml differs from the last deploy{whose} (deployed → now): {words}"


def last_deploy(entries: Sequence[AuditEntry]) -> AuditEntry | None:
    """Return the last deploy in an audit (the oldest entry first), or None if nobody knows whose settings are there.

    A deploy that failed may have recorded its settings or not. So one person must have made all since the last success.
    """
    deploys: list[AuditEntry] = []
    for entry in reversed(entries):
        if entry.verb == "deploy":
            deploys.append(entry)
            if entry.outcome == "done":
                break
    return deploys[0] if len({deploy.who for deploy in deploys}) == 1 else None


def _differences(deployed: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    # A setting that the record does not have is newer than the deploy. Only variables and data sets come and go.
    for path in dict.fromkeys([*wanted, *deployed]):
        # Earlier versions accepted these in env:. Runs have their own values, so removing them needs no deploy.
        if path.removeprefix("env.") in names.OWN_VARIABLES:
            continue
        comes_and_goes, is_secret = path.startswith(("env.", "data.")), path.startswith("env.")
        before, after = deployed.get(path), wanted.get(path)
        if before == after or not (comes_and_goes or (path in deployed and path in wanted)):
            continue
        if path in deployed and path in wanted:
            yield f"{path}: changed" if is_secret else f"{path}: {_shown(before)} → {_shown(after)}"
        else:
            yield f"{path}: {'added' if path in wanted else 'removed'}"


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _digest(cluster: str, name: str, value: str) -> str:
    """Return a digest that is long enough to notice a change. It does not protect a short value from guesses."""
    return hashlib.sha256(f"{cluster}\0{name}\0{value}".encode()).hexdigest()[:8]


def _shown(value: object) -> str:
    if value is None:
        return ABSENT
    text = f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
