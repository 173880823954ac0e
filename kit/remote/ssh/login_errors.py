"""A VM that refused the login, or logged kit in without a shell: kit's errors with their next steps."""

from __future__ import annotations

import shlex

from kit.errors import LoginRefusedError
from kit.model.host import Login
from kit.remote.ssh.locked import LockedKey
from kit.remote.ssh.openssh import by_hand, where

# Of what ssh or the VM wrote.
MOST_SHOWN = 500


def login_refused_error(login: Login, text: str, *, locked: LockedKey | None = None) -> LoginRefusedError:
    """Return the error for a login that the VM refused. `locked` is a key that may be the right one."""
    if locked is not None:
        return LoginRefusedError(
            f"{where(login)} refused the login: {text.rstrip('.')}. The key {locked.path} has a passphrase, "
            f"and {_why_locked(locked)}, so ssh cannot log in with it",
            hint=f"if the VM knows this key, {_unlock(locked)}; otherwise add its public half to "
            f"~/.ssh/authorized_keys there, or set user= and key= in the hosts file. Then try: {by_hand(login)}",
            host=login.host,
        )
    return LoginRefusedError(
        f"{where(login)} refused the login: {text}",
        hint="set user= and key= in the hosts file (or ssh: in kit.yaml), or load the key: ssh-add. "
        f"Then try: {by_hand(login)}",
        host=login.host,
    )


def _why_locked(key: LockedKey) -> str:
    if key.without:
        return f"ssh uses no agent for this host (IdentityAgent {key.without})"
    if key.unlisted:
        return f"without {key.path}.pub ssh takes it from no agent"
    return f"the agent {key.agent} does not hold it" if key.agent else "no agent holds it"


def _unlock(key: LockedKey) -> str:
    """Return what to do so that ssh can use a key: one or more steps."""
    file = shlex.quote(key.path)
    steps = []
    if key.without == "none":
        steps.append("remove IdentityAgent none for this host from your ssh_config")
    elif key.without:
        steps.append(f"set {key.without[1:]} to the socket of your agent")
    if key.unlisted:
        steps.append(f"write its public half: ssh-keygen -y -f {file} > {shlex.quote(key.path + '.pub')}")
    if key.agent:
        steps.append(f"load it: SSH_AUTH_SOCK={shlex.quote(key.agent)} ssh-add {file}")
    else:
        steps.append(f"load it: ssh-add {file} (if no agent runs, first: eval $(ssh-agent))")
    return ", and ".join(steps)


def unused_key_error(login: Login, key: str, why: str) -> LoginRefusedError:
    """Return the error for a login that the VM refused because this machine's ssh could not read or use a key."""
    file = shlex.quote(key)
    if key.endswith(".pub"):
        hint = f"name the private key: {shlex.quote(key.removesuffix('.pub'))}"
    elif why == "bad permissions":
        hint = f"others can read this key, so ssh ignores it: chmod 600 {file}"
    elif why == "Permission denied":
        hint = f"you cannot read this file: ls -l {file}"
    else:
        hint = f"is it a private key, and was it copied as a whole? This reads it: ssh-keygen -y -f {file}"
    return LoginRefusedError(
        f"{where(login)} refused the login, and ssh cannot use the key {key}: {why}", hint=hint, host=login.host
    )


def unsigned_error(login: Login, text: str) -> LoginRefusedError:
    """Return the error for a login with a key of the agent that the agent did not use. `text` is ssh's line."""
    return LoginRefusedError(
        f"{where(login)} refused the login: {text[:MOST_SHOWN]}",
        hint="your agent must sign with this key. It may be locked, or wait until you confirm it or touch a token. "
        f"Then try: {by_hand(login)}",
        host=login.host,
    )


def no_shell_error(login: Login, text: str, code: int) -> LoginRefusedError:
    """Return the error for a login that ended without running kit's command. `text` is what the VM printed, if any.

    A cloud's image may let root log in only to name another user, and an account may have no shell.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = (lines[-1] if lines else f"exit {code}")[:MOST_SHOWN]
    return LoginRefusedError(
        f"{where(login)} logged in, but no shell answered: {last}",
        hint="set user= in the hosts file (or ssh: user: in kit.yaml) to a user with a shell. "
        f"Then try: {by_hand(login)}",
        host=login.host,
    )


def csh_error(login: Login) -> LoginRefusedError:
    return LoginRefusedError(
        f"the login shell of {where(login)} is csh or tcsh, which reads kit's commands differently",
        hint="change it there: chsh -s /bin/bash. Or set user= in the hosts file to a user with another shell",
        host=login.host,
    )
