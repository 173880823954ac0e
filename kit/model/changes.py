"""What a new hosts file changes for a cluster that is deployed, host by host."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class HostChange(Struct, frozen=True, kw_only=True):
    """A change of one host since the last deploy. `before` and `after` are its name or address, as `kind` says.

    head: another host is the head now. renamed: the same address has another name. address: the same host has another
    address. replaced: another machine, or an empty disk, has the host's name. `text` says what follows, and `hint` what
    to type; it is None if there is nothing to do.
    """

    kind: Literal["head", "renamed", "address", "replaced"]
    host: str
    before: str
    after: str
    text: str
    hint: str | None = None
