"""A host that kit cannot reach, log in to, or read."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Examined, Sight


def judge(examined: Examined) -> Iterator[Sight]:
    for lost in examined.lost:
        yield Sight(hosts=(lost.host,), seen=lost.message, fix=lost.hint)


CHECK = Check(
    id="unreachable",
    title="kit cannot examine the host",
    area="host",
    severity="breaks",
    judge=judge,
    leads_to="No verb of kit works on this host, and no other check of the doctor has looked at it.",
    fix="`kit ssh HOST` shows what ssh prints. The user needs sudo without a password.",
    lab="kit doctor --ssh-user nobody",
)
