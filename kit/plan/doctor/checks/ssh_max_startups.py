"""An sshd that accepts few connections at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kit.model.doctor import Check, Command, Examined, Sight

_SSHD = Command(argv=("sshd", "-T"))
# OpenSSH's defaults are 10:30:100 and 10. kit logs in once and starts its commands over that connection, several at
# once.
_LEAST_STARTUPS, _LEAST_SESSIONS = 10, 6


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        ran = host.ran(*_SSHD.argv)
        text = ran.out[:65536] if ran and ran.code == 0 else ""
        startups = re.search(r"^maxstartups ([0-9]{1,6})(?::[0-9]{1,6}){0,2}$", text, re.MULTILINE | re.IGNORECASE)
        sessions = re.search(r"^maxsessions ([0-9]{1,6})$", text, re.MULTILINE | re.IGNORECASE)
        if startups and int(startups[1]) < _LEAST_STARTUPS:
            yield Sight(hosts=(host.name,), seen=f"MaxStartups {startups[1]}")
        if sessions and int(sessions[1]) < _LEAST_SESSIONS:
            yield Sight(hosts=(host.name,), seen=f"MaxSessions {sessions[1]}")


CHECK = Check(
    id="ssh-max-startups",
    title="The SSH server accepts few connections at a time",
    area="host",
    severity="slows",
    judge=judge,
    reads=(_SSHD,),
    leads_to="sshd closes some of several connections that begin together. kit tries again, which takes time, and "
    "programs of other people fail.",
    fix="Set `MaxStartups 100:30:200` and `MaxSessions 100` in `/etc/ssh/sshd_config`, then `sudo systemctl reload "
    "ssh || sudo systemctl reload sshd`.",
    lab="kit lab fault HOST ssh-max-startups",
)
