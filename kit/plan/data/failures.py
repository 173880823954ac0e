"""Makes errors of what a stager reports as failed: the host, the first cause and what to type."""

from __future__ import annotations

from collections.abc import Mapping

from kit.errors import KitError, NotReadyError, StepError
from kit.model import names
from kit.model.staging import Failed

# What to do, by the kind of the failure. {data} and {host} are replaced.
_HINTS = {
    "source-missing": "check from: of {data} in kit.yaml",
    "source-empty": "check from: of {data} in kit.yaml, and whether its disk is mounted; if it is empty on purpose: "
    "kit data rm {data}",
    "source-refused": "check the keys or the login of the source: docs/data.md names where kit takes them from",
    "source-closed": "let the file and its folders be read where the source is: chmod",
    "source-lost": "what came is kept; when the source answers again: kit data stage {data}",
    "source-changed": "what came is kept; when nobody writes to the source any more: kit data stage {data}",
    "source-name": "rename or remove it in the source, then: kit data stage {data}",
    "room": "make room there, or set dir: of {data} to a larger disk in kit.yaml",
    "shm": "give /dev/shm more room: kit ssh {host} -- sudo mount -o remount,size=… /dev/shm; or write stage: disk",
    "memory": "raise size: of {data} in kit.yaml, or stage it on the disk: stage: disk",
    "disk": "look at the host's disk: kit ssh {host} -- df -h; what came is kept: kit data stage {data} goes on",
    "hosts-lost": "look at the hosts with kit ps; what came is kept: kit data stage {data} goes on",
    "busy": "watch it: kit data stage {data}",
    "verifying": "wait until kit data verify has ended, then run the same again",
    "stopped": "what came is kept; go on: kit data stage {data}",
    "not-staged": "stage it: kit data stage {data}",
    "internal": "what came is kept: kit data stage {data} goes on; if it fails again, report this text",
}
# The same for kit data mount.
_MOUNT_HINTS = {
    "source-missing": _HINTS["source-missing"],
    "source-refused": _HINTS["source-refused"],
    "source-closed": _HINTS["source-closed"],
    "source-lost": "when the source answers again: kit data mount {data}",
    "source-file": "name the folder that has it in from: of {data}, or write stage: disk",
    "mount": "look at the host: kit ssh {host} -- ls -l /dev/fuse",
    "mount-files": "move them to another place, then mount it again; see them: kit ssh {host} -- sudo find "
    f"{names.DATA_DISK} -path '*/{{data}}/mount/*'",
    "busy": "end that mount first: kit data rm {data}",
    "internal": "see what the mounter says: kit ssh {host} -- sudo docker ps; if it fails again, report this text",
}
_NOT_READY = ("busy", "verifying", "stopped", "not-staged")


def failure(failed: Failed, data: str, *, host: str, mounting: bool = False) -> KitError:
    """Return the error. `host` is the one that reports, in case the failure names none."""
    where = failed.host or host
    hints = _MOUNT_HINTS if mounting else _HINTS
    kind = "source-closed" if failed.kind == "source-refused" and "Permission denied" in failed.text else failed.kind
    hint = hints.get(kind, hints["internal"]).format(data=data, host=where)
    text = failed.text or f"the {'mount' if mounting else 'staging'} failed ({failed.kind})"
    # The cause is not on the host that happens to lead.
    of_source = failed.kind.startswith("source-") or failed.kind in ("stopped", "hosts-lost")
    error = NotReadyError if failed.kind in _NOT_READY else StepError
    return error(f"{data}: {text}", hint=hint, host=failed.host if of_source else where)


def lost(hosts: Mapping[str, str], data: str) -> list[KitError]:
    """Return the errors of hosts that a staging has lost."""
    hint = f"the other hosts are complete; when it is back: kit data stage {data}"
    return [StepError(f"{data}: {text or 'lost'}", hint=hint, host=host) for host, text in hosts.items()]
