"""A login whose files print something for a command, too."""

from __future__ import annotations

from collections.abc import Iterator

from kit.model.doctor import Check, Command, Examined, Sight
from kit.plan.doctor.kernel import shown

# As sshd starts a command: bash reads its files if these variables are set. SUDO_USER has the login, if it is not root.
_SHELL = Command(
    argv=(
        "sh",
        "-c",
        'user=${SUDO_USER:-root}; row=$(getent passwd "$user") || exit 0; shell=${row##*:}; row=${row%:*}; '
        'exec runuser -u "$user" -- env -u SHLVL "HOME=${row##*:}" "SSH_CLIENT=192.0.2.1 1 22" '
        '"SSH_CONNECTION=192.0.2.1 1 192.0.2.2 22" "$shell" -c :',
    )
)


def judge(examined: Examined) -> Iterator[Sight]:
    for host in examined.hosts:
        ran = host.ran(*_SHELL.argv)
        # What a login prints to standard error does no harm.
        printed = ran.out.strip() if ran and ran.code == 0 else ""
        if printed:
            first = shown(printed.split("\n", 1)[0])
            yield Sight(hosts=(host.name,), seen=f'each command by ssh prints "{first}" first')


CHECK = Check(
    id="ssh-prints",
    title="The login prints something for commands",
    area="host",
    severity="watch",
    judge=judge,
    reads=(_SHELL,),
    leads_to="rsync, scp and other programs over ssh fail: `protocol version mismatch -- is your shell clean?` kit "
    "itself ignores such lines.",
    fix="Print only for people: put `[[ $- == *i* ]] || return` at the top of `~/.bashrc`, and look in "
    "`/etc/bash.bashrc`.",
    lab="kit lab fault HOST ssh-prints",
)
