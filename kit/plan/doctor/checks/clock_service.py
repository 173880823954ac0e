"""A clock that nothing sets."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Command, Examined, File, Sight

_CLOCK = Command(argv=("timedatectl", "show"))
# systemd writes the kind of container that it runs in. A container has its machine's clock.
_CONTAINER = File(path="/run/systemd/container")


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        ran = host.ran(*_CLOCK.argv)
        if ran is None or ran.code != 0 or host.file(_CONTAINER.path):
            continue
        rows = dict(line.split("=", 1) for line in ran.out[:8192].splitlines() if "=" in line)
        # The kernel's own state: it is right for any service, also one that systemd does not know.
        if rows.get("NTPSynchronized") == "no":
            off = "no service sets the clock" if rows.get("NTP") == "no" else "the clock is not synchronized"
            yield Sight(hosts=(host.name,), seen=off)


CHECK = Check(
    id="clock-service",
    title="The clock is not synchronized",
    area="host",
    severity="watch",
    judge=judge,
    reads=(_CLOCK, _CONTAINER),
    leads_to="The clock drifts by seconds in a day. Then certificates are not valid yet, and logs of hosts do not "
    "fit together.",
    fix="`sudo timedatectl set-ntp true`, or install a service: `sudo apt-get install chrony`. See why it does not "
    "reach a server: `chronyc sources`.",
    lab="kit lab fault HOST clock-service",
)
