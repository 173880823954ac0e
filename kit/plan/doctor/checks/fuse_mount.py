"""A mount by FUSE that is not kit's, such as that of sshfs or s3fs, and that has ended or does not answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kit.model.doctor import Check, Examined, Mounts, Sight
from kit.model.text import printable
from kit.plan.doctor.checks.store_mount import store_at

_FUSE = Mounts(kind="fuse.")
# root may not open the folders that programs of a desktop mount for their user.
_FAULTS = {
    "ENOTCONN": "the mount has ended: Transport endpoint is not connected",
    "ESTALE": "Stale file handle",
    "EIO": "Input/output error",
    "ETIMEDOUT": "Connection timed out",
    None: f"the mount does not answer within {_FUSE.timeout_s:g} s",
}


def judge(examined: Examined) -> Iterator[Sight]:
    sources = [volume.partition(":")[0].rstrip("/") for volume in examined.spec.volumes if volume.startswith("/")]
    for host in examined.hosts:
        for place, mount in (host.mounted(_FUSE.kind) or {}).items():
            if mount.fault in _FAULTS and not store_at(place, examined.spec.name):
                source = _source(place, sources)
                of = f", in volumes: as {source}" if source else ""
                yield Sight(
                    hosts=(host.name,),
                    seen=f"{printable(place)}{of}: {_FAULTS[mount.fault]}",
                    severity="breaks" if source else "watch",
                )


def _source(place: str, sources: Sequence[str]) -> str:
    """Return the volume whose files the mount has, wholly or in part, or ""."""
    return next((source for source in sources if _is_in(place, source) or _is_in(source, place)), "")


def _is_in(path: str, folder: str) -> bool:
    """Return whether a path is this folder, or is below it."""
    return f"{path}/".startswith(f"{folder}/")


CHECK = Check(
    id="fuse-mount",
    title="A FUSE mount has ended or does not answer",
    area="host",
    severity="breaks",
    judge=judge,
    reads=(_FUSE,),
    leads_to="Ranks that use files below it fail with `Transport endpoint is not connected`, or wait without an error. "
    "`kit pull` cannot bring checkpoints from there.",
    fix="Mount it again on the host; `dmesg` and the log of its program have the reason. A node keeps the mounts that "
    "its VM had when it started: then run `kit down` and `kit deploy`. If the source of a volume is a folder above the "
    "mount, with `:rslave`, nodes see the new mount at once.",
    lab="kit lab fault HOST fuse-mount",
)
