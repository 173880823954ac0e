"""The first cause in the log of apt that failed, and what to type."""

from __future__ import annotations

import re

from kit.model import names

_COMPONENT = (
    "enable the component that has it (universe or restricted on Ubuntu, main, contrib or non-free on Debian), "
    "then: kit setup"
)
# (what the log has, what it means, what to type). The first that fits is the cause.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"E: (kit waited [0-9]+ s for apt's lock.*)",
        "{0}",
        "wait until that process has ended, then: kit setup",
    ),
    (
        r"Could not get lock (?:\S+\. It is held by (process [0-9]+ \([^)]*\))|\S+)",
        "another program holds apt's lock: {0}",
        "wait until it has ended, then: kit setup",
    ),
    (
        r"(?:Could not resolve|Temporary failure resolving) '?([A-Za-z0-9.:-]+)",
        "the host cannot resolve the name {0}",
        "check its name servers (kit ssh {host} -- cat /etc/resolv.conf), or set apt's proxy: Acquire::http::Proxy",
    ),
    (
        # The word alone: a mirror may be called debian-proxy or proxy.example.
        r"(?:407 +Proxy Authentication Required|Invalid response from proxy|"
        r"Failed to fetch \S+ .*(?<![\w./-])[Pp]roxy(?![\w./-]))",
        "apt's proxy refuses the connection",
        "check apt's proxy: kit ssh {host} -- apt-config dump Acquire::http::Proxy",
    ),
    (
        r"(?:Could not connect to|Unable to connect to|Cannot initiate the connection to) ([A-Za-z0-9.:\[\]-]+)",
        "the host cannot connect to {0}",
        "check its route to that place, or set apt's proxy: Acquire::http::Proxy",
    ),
    (
        r"(?:Failed to fetch|Err:[0-9]+) (\S+).*\s404 ",
        "{0} does not exist (404)",
        "check the host's sources of packages: kit ssh {host} -- sudo apt-get update",
    ),
    (
        r"The repository '([^']+)' does not have a Release file",
        "the repository {0} does not exist",
        "check the host's sources of packages: kit ssh {host} -- sudo apt-get update",
    ),
    (
        r"E: (Conflicting values set for option .*)",
        "two files name the same repository with different options: {0}",
        "make them the same, or remove one: kit ssh {host} -- ls /etc/apt/sources.list.d",
    ),
    # Before the next ones: such a clock refuses signatures and certificates, too.
    (
        r"(?:Release file for \S+ is not valid yet|Not live until|uses not yet valid certificate)",
        "its clock is behind, so it refuses what a repository signed since",
        "see: kit ssh {host} -- date; set it: kit ssh {host} -- sudo timedatectl set-ntp true; then: kit setup",
    ),
    # The first ones are those of apt before version 3.
    (
        r"(?:GPG error|OpenPGP signature verification failed): (\S.*)",
        "a repository's signature cannot be checked: {0}",
        "correct or remove that repository: kit ssh {host} -- ls /etc/apt/sources.list.d",
    ),
    (
        r"(?:The following packages will be REMOVED|REMOVING):\s*((?:\n? +\S.*)+)[\s\S]*remove is disabled",
        "apt would remove packages of the host for that: {0}",
        "kit removes none: install what is missing from where these came, or remove them yourself; then: kit setup",
    ),
    (
        r"((?:NO_PUBKEY|EXPKEYSIG) \w+|The following signatures .*)",
        "a repository's signature cannot be checked: {0}",
        "check the host's sources of packages: kit ssh {host} -- sudo apt-get update",
    ),
    (
        r"(?:You don't have enough free space in (\S+)|No space left on device|not enough free disk space)",
        "its disk is full",
        "make room: kit ssh {host} -- df -h",
    ),
    (
        r"(?:Certificate verification failed|SSL connection failed|certificate verify failed)",
        "the host does not trust the certificate of a repository",
        "install your proxy's CA on the host: update-ca-certificates",
    ),
    (
        r"E: Unable to locate package (linux-modules-nvidia-[0-9]\S*)",
        "no repository of the host has {0}: repositories have only the newest kernels",
        "upgrade its kernel (kit ssh {host} -- sudo apt-get dist-upgrade), reboot it, then: kit setup",
    ),
    (
        r"E: Unable to locate package (\S+)",
        "no repository of the host has the package {0}",
        _COMPONENT,
    ),
    (
        r"E: Package '(\S+)' has no installation candidate",
        "no repository of the host has the package {0}",
        _COMPONENT,
    ),
    (
        r"Bad return status for module build on kernel: [\s\S]{0,300}?Consult (/[\w./+-]+) for more",
        "dkms cannot build a module for its kernel",
        "see why: kit ssh {host} -- sudo tail -n 30 {what}; then: kit setup",
    ),
    (
        r"(?:dpkg: error processing (?:package|archive) (\S+)|Errors were encountered while processing:\s*(\S+))",
        "dpkg cannot configure {0}",
        "see why: kit ssh {host} -- sudo dpkg --configure -a",
    ),
    (
        r"(?:held broken packages|unmet dependencies)",
        "packages of the host do not fit together",
        "see which: kit ssh {host} -- sudo apt-get check",
    ),
)  # fmt: skip


def first_cause(log: str, host: str) -> tuple[str, str]:
    """Return what went wrong and what to type, from the end of apt's log."""
    for pattern, meaning, hint in _CAUSES:
        match = re.search(pattern, log)
        if match:
            what = " ".join(next((group for group in match.groups() if group), match[0]).split())[:200]
            return meaning.format(what), hint.format(host=host, what=what)
    errors = [line for line in log.splitlines() if line.startswith(("E:", "dpkg:"))]
    last = errors or log.strip().splitlines()
    return (
        last[0][:300] if last else "it printed nothing"
    ), f"see the log: kit ssh {host} -- sudo tail {names.ROOT}/.setup/apt.log"
