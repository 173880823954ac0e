"""A file server that a host has mounted, and that does not answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kit.model.doctor import Check, Command, Examined, File, Seen, Sight

_MOUNTS = File(path="/proc/mounts")
# df asks each server how full it is. One that is gone keeps it waiting.
_DF = Command(argv=("df", "-P", "-t", "nfs", "-t", "nfs4", "-t", "lustre"), timeout_s=8.0)
_LINE = re.compile(r"^([!-~]{1,300}) ([!-~]{1,300}) (?:nfs4?|lustre) ([!-~]{1,1000}) 0 0$", re.MULTILINE)
_ADDRESS = re.compile(r"(?:^|,)addr=([0-9A-Za-z.:-]{1,64})(?:,|$)")
_STALE = re.compile(
    r"^df: '?([!-~]{1,300}?)'?: (Stale file handle|Input/output error|Permission denied)$", re.MULTILINE
)
_MOST = 3


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        mounts = _mounts(host)
        ran = host.ran(*_DF.argv)
        if not mounts or ran is None:
            continue
        if ran.code is None:
            shown = ", ".join(f"{source} at {place}" for place, source in list(mounts.items())[:_MOST])
            more = f" and {len(mounts) - _MOST} more" if len(mounts) > _MOST else ""
            yield Sight(hosts=(host.name,), seen=f"no answer within {_DF.timeout_s:g} s of {shown}{more}")
        for place, why in _STALE.findall(ran.err[:65536]):
            if place in mounts:
                yield Sight(hosts=(host.name,), seen=f"{mounts[place]} at {place}: {why}")


def _mounts(host: Seen) -> dict[str, str]:
    """Return what is mounted from file servers: the server and its folder, by the place."""
    mounts = {}
    for source, place, options in _LINE.findall(host.file(_MOUNTS.path) or ""):
        # The engine names the server among the options alone.
        address = _ADDRESS.search(options) if source.startswith(":") else None
        mounts[place] = f"{address[1]}{source}" if address else source
    return mounts


CHECK = Check(
    id="data-mount",
    title="A file server does not answer",
    area="host",
    severity="breaks",
    judge=judge,
    reads=(_MOUNTS, _DF),
    leads_to="Ranks that read from it wait without an error, and the job does not go on. With a stale handle, they "
    "fail with `Stale file handle`.",
    fix="See whether the server runs and its port is open from this host: 2049 for NFS, 988 for Lustre. After a change "
    "of `from:` in kit.yaml, run `kit deploy`.",
    untested="A lab has no kernel client of NFS or Lustre: unit tests have it.",
)
