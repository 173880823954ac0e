"""Reads the section `rdma` of observe.sh: a host's RDMA devices and ports."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from kit.model.observed import RdmaGid, RdmaPort

# More devices, ports or GIDs than a host has. Further ones are ignored.
_MOST = 4096
_PORT = re.compile(r"port ([\w.-]{1,64}) (\d{1,3}) \d{1,2}: ([A-Z_]{1,20})\|([A-Za-z]{1,20})", re.ASCII)
_GID = re.compile(r"gid ([\w.-]{1,64}) (\d{1,3}) (\d{1,4}) ([\w.-]{0,32})\|([\w /.]{1,32})\|([0-9a-f:]{39})", re.ASCII)
_DEVICE = re.compile(r"device ([\w.-]{1,64})", re.ASCII)


def devices_of(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the files in /dev/infiniband."""
    return tuple(match[1] for line in lines[:_MOST] if (match := _DEVICE.fullmatch(line)))


def ports_of(lines: Sequence[str]) -> tuple[RdmaPort, ...]:
    """Return the ports of all adapters with the GIDs of RoCE ports. Ignores lines that describe neither."""
    gids: dict[tuple[str, int], list[RdmaGid]] = {}
    for line in lines[:_MOST]:
        match = _GID.fullmatch(line)
        if match is not None:
            gid = RdmaGid(index=int(match[3]), kind=match[5], interface=match[4] or "", address=_ipv4(match[6]))
            gids.setdefault((match[1], int(match[2])), []).append(gid)
    return tuple(
        RdmaPort(
            adapter=match[1],
            number=int(match[2]),
            state=match[3],
            layer=match[4],
            gids=tuple(gids.get((match[1], int(match[2])), ())),
        )
        for line in lines[:_MOST]
        if (match := _PORT.fullmatch(line))
    )


def _ipv4(text: str) -> str:
    """Return the IPv4 address of a GID that is one; '' for others, such as the link's own."""
    try:
        mapped = ipaddress.IPv6Address(text).ipv4_mapped
    except ValueError:
        return ""
    return "" if mapped is None else str(mapped)
